"""``progress=True`` in a notebook: one output below the cell that is changed round by round."""

from __future__ import annotations

import pytest

CELL = """
import numpy as np
import fedstein

draw = np.random.default_rng(0)
clients = {}
for name in ("north", "south"):
    x = draw.normal(size=(30, 2)).astype("float32")
    clients[name] = (x, (x[:, 0] > 0).astype(int))
posterior = fedstein.fit("blr", clients, test=clients["north"], rounds=3, algorithm__particles=4, progress=True)
"""


@pytest.mark.slow
def test_a_notebook_shows_one_bar() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("posterior")]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbclient.NotebookClient(notebook, timeout=300).execute()
    bar = notebook.cells[0].outputs
    assert [each["output_type"] for each in bar] == ["display_data"], "one output, not a line for each round"
    plain, html = bar[0]["data"]["text/plain"], bar[0]["data"]["text/html"]
    assert plain.startswith("round 3/3  accuracy "), "the last round, and not the first"
    assert '<progress value="3" max="3"' in html
    assert "s left" not in plain
    assert "<table" in notebook.cells[1].outputs[0]["data"]["text/html"], "the posterior shows a table of itself"


def test_a_process_without_a_kernel_is_no_notebook() -> None:
    from fedstein.progress import in_notebook

    pytest.importorskip("IPython")
    assert not in_notebook()
