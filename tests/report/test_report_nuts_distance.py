"""The distance from NUTS in a report: there with reference.json, not there without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedstein.errors import InputError
from fedstein.report import distance_table, figures, load_run, style, summarise, write_report
from fedstein.report.nuts_distance import distance_columns, short


def reference(offset: float, ratio: float, count: int = 20, trusted: bool = True) -> dict[str, Any]:
    """Made up: every weight has the same offset and ratio, log xi twice that."""
    each = [offset] * 55 + [2 * offset]
    spread = [ratio] * 55 + [2 * ratio]
    return {
        "trusted": trusted,
        "particles": {
            "count": count,
            "mean_offset": {"median": abs(offset), "max": abs(offset), "log_xi": abs(2 * offset), "each": each},
            "sd_ratio": {"min": ratio, "median": ratio, "max": ratio, "log_xi": 2 * ratio, "each": spread},
            "ksd": 1000 * ratio,
        },
        "draws": {
            "count": count,
            "sets": 10,
            "mean_offset": {"median": 0.15, "max": 0.5, "log_xi": 0.2},
            "sd_ratio": {"min": 0.7, "median": 0.99, "max": 1.3, "log_xi": 1.0},
            "ksd": 1568.0,
        },
        "nuts": {"divergences": 0, "max_rhat": 1.002, "min_ess": 1500.0},
        "posterior_sha256": "0",
    }


@pytest.fixture
def folders(make_run) -> list[Path]:
    made = []
    for kind, offset, ratio in (("hip", 0.2, 0.4), ("random", -20.0, 1e-5)):
        for seed in range(2):
            folder = make_run(f"{kind}{seed}", {"selection.kind": kind, "seed": seed})
            (folder / "reference.json").write_text(json.dumps(reference(offset * (1 + seed), ratio)))
            made.append(folder)
    return made


def test_the_section_is_there_with_references_and_not_without(folders, make_run, tmp_path) -> None:
    result = write_report(folders, tmp_path / "with")
    page = result.html.read_text("utf-8")
    assert "<h2>Distance from NUTS</h2>" in page
    assert "N = 20, d = 56" in page
    assert "no divergences, split R-hat up to 1.002, effective sample size at least 1500" in page
    assert "fedstein reference hip0 hip1 random0 random1" in page
    assert page.count('role="img"') == 5
    assert (tmp_path / "with" / "figures" / "distances.svg").is_file()
    plain = write_report([make_run("plain")], tmp_path / "with")
    assert "NUTS" not in plain.html.read_text("utf-8")
    assert distance_table(plain.rows) is None
    assert distance_columns(plain.rows) == []
    assert not (tmp_path / "with" / "figures" / "distances.svg").exists()


def test_the_table_has_means_over_seeds_and_the_scale(folders, tmp_path) -> None:
    rows = write_report(folders, tmp_path / "out").rows
    cells = list(zip(*(column.cells for column in distance_columns(rows)), strict=True))
    assert [line[:2] for line in cells] == [("hip", "20"), ("random", "20"), ("20 NUTS draws", "20")]
    assert cells[0][2] == "0.300 ± 0.141"
    assert cells[0][6] == "0.400 ± 0.000"
    assert cells[1][5] == "1.0e−5 ± 0.0e−5"
    assert cells[2][2:] == ("0.150", "0.500", "0.200", "0.700", "0.990", "1.30", "1.00", "1568")
    assert rows[0]["nuts_offset_median"] == pytest.approx(0.3)
    assert rows[1]["nuts_offset_log_xi"] == pytest.approx(0.4)
    console = Console(width=80)
    with console.capture() as text:
        console.print(distance_table(rows))
    assert max(map(len, text.get().splitlines())) <= 80
    assert "20 NUTS draws" in text.get()


def test_the_picture_has_a_dot_for_each_weight_and_seed(folders) -> None:
    summary = summarise([load_run(folder) for folder in folders])
    with style.style():
        ratio, offset = figures.distances(summary).axes
    assert (ratio.get_xscale(), offset.get_xscale()) == ("log", "symlog")
    assert [label.get_text() for label in ratio.get_yticklabels()] == ["hip", "random"]
    dots, diamonds = offset.lines[:2]
    np.testing.assert_allclose(dots.get_xdata(), [0.2] * 55 + [0.4] * 55)
    np.testing.assert_allclose(diamonds.get_xdata(), [0.4, 0.8])
    assert [line.get_xdata()[0] for line in ratio.lines if line.get_marker() == "|"] == pytest.approx([0.4, 1e-5])
    assert np.all(np.abs(np.asarray(dots.get_ydata())) < 0.5)
    near = summarise([load_run(folder) for folder in folders[:2]])
    assert figures.distances(near).axes[1].get_xscale() == "linear"


def test_what_is_missing_or_doubtful_is_said(folders, make_run) -> None:
    (folders[0] / "reference.json").unlink()
    (folders[3] / "reference.json").write_text(json.dumps(reference(0.1, 1.0, trusted=False)))
    summary = summarise([load_run(folder) for folder in folders])
    assert any("Without a NUTS reference" in note and "hip0" in note for note in summary.notes)
    assert any("random1 is not to be trusted" in note for note in summary.notes)
    assert summary.groups[0].distance["ksd"].mean is None  # one seed alone would flatter or slander the group
    assert summary.groups[1].distance["ksd"].mean is not None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"particles": {"ksd": "x"}}'])
def test_a_damaged_reference_is_refused(folders, text) -> None:
    (folders[0] / "reference.json").write_text(text)
    with pytest.raises(InputError, match="fedstein reference"):
        load_run(folders[0])


def test_a_reference_for_other_particles_is_refused(folders) -> None:
    (folders[0] / "posterior.safetensors").write_bytes(b"others")
    with pytest.raises(InputError, match="those of other particles"):
        load_run(folders[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.1234, "0.123"),
        (12.34, "12.3"),
        (1568.4, "1568"),
        (9.5e-6, "9.5e−6"),
        (8.4e5, "8.4e5"),
    ],
)
def test_short_numbers(value, text) -> None:
    assert short(value) == text
