"""The examples: notebooks are made of their scripts, and every cell runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "tools" / "make_notebooks.py")
assert spec is not None
assert spec.loader is not None
tool: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

# What the outputs must say: (example, pattern, least value, greatest value)
EXPECTED = {
    "conv_net": (r"round 25: accuracy ([\d.]+)", 0.88, 1.0),
    "heart_disease": (r"accuracy ([\d.]+)", 0.55, 1.0),
    "schools": (r"slope +([\d.]+), 90%", 0.45, 0.65),
}


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_every_example_has_a_notebook() -> None:
    assert {path.parent.name for path in (ROOT / "examples").glob("*/*.ipynb")} == set(tool.EXAMPLES)


@pytest.mark.parametrize("name", tool.EXAMPLES)
def test_notebooks_are_those_of_the_scripts(name: str) -> None:
    """Cells as in the script, with outputs, and nothing of the machine that made them."""
    text = tool.script_of(name).with_suffix(".ipynb").read_text("utf-8")
    notebook = json.loads(text)
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == tool.cells_of(tool.script_of(name).read_text("utf-8")), f"python tools/make_notebooks.py {name}"
    assert all(cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert not re.search(r"/home/|/work/|/tmp/|/root/|site-packages", text)
    assert any(
        "image/png" in output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", ())
    )
    check(name, notebook)


@pytest.mark.slow
@pytest.mark.parametrize("name", tool.EXAMPLES)
def test_notebooks_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On made-up patients, since a folder of real ones is the user's own."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.delenv("HEART_FOLDER", raising=False)
    check(name, json.loads(json.dumps(tool.run(name))))


def check(name: str, notebook: Any) -> None:
    pattern, low, high = EXPECTED[name]
    values = [float(value) for value in re.findall(pattern, printed(notebook))]
    assert values, f"no output of {name} has {pattern}"
    assert all(low <= value <= high for value in values), values
