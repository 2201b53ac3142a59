"""Write the notebooks of ``examples/`` from its scripts, and run them.

python tools/make_notebooks.py            write and run all of them; the outputs are saved
python tools/make_notebooks.py schools    one of them

A script is the only source of an example. ``# %%`` begins a cell of code, ``# %% [markdown]`` a cell of text.
tests/test_examples.py fails if a notebook has other cells than its script.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("conv_net", "heart_disease", "schools")
SECONDS = 900  # for one cell


def script_of(name: str) -> Path:
    """The script of an example."""
    return ROOT / "examples" / name / f"{name}.py"


def cells_of(text: str) -> list[tuple[str, str]]:
    """The cells of a script, as pairs (kind, source)."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        body = body.strip("\n")
        if "[markdown]" in head:
            found.append(
                ("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines()))
            )
        else:
            found.append(("code", body))
    return found


def notebook_of(name: str) -> Any:
    """A notebook without outputs."""
    import nbformat

    made = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [
        made[kind](source, id=f"{name.replace('_', '-')}-{number}")
        for number, (kind, source) in enumerate(cells_of(script_of(name).read_text("utf-8")))
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def run(name: str) -> Any:
    """A notebook with the outputs of all its cells.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
    """
    from nbclient import NotebookClient

    notebook = notebook_of(name)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of the day
    notebook.metadata.pop("language_info", None)
    return notebook


def write(name: str) -> Path:
    """Run a notebook and save it beside its script."""
    path = script_of(name).with_suffix(".ipynb")
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(run(name), indent=1, ensure_ascii=False) + "\n", "utf-8")
    partial.replace(path)
    return path


if __name__ == "__main__":
    for chosen in sys.argv[1:] or EXAMPLES:
        print(write(chosen).relative_to(ROOT))
