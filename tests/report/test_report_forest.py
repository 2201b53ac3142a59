"""The forest plot of two posteriors: every parameter has a line, and scales are in a panel of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedstein.report.forest_figure import draw_forest


@pytest.mark.parametrize(("names", "panels"), [(("a", "b", "log xi"), 2), (("a", "b", "c"), 1)])
def test_logarithms_of_scales_do_not_share_the_axis_of_weights(
    names: tuple[str, ...], panels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: drawn.append(self))
    found = np.array([[-0.2, 0.0, 0.1], [0.1, 0.2, 0.3], [4.0, 5.0, 6.0]])
    draw_forest(names, {"federated": found, "pooled": found}, "title", tmp_path / "forest.png")
    axes = drawn[0].axes
    assert [label.get_text() for panel in axes for label in panel.get_yticklabels()] == list(names)
    assert len(axes) == panels
    assert (axes[0].get_xlim()[1] < 1) == (panels == 2)
