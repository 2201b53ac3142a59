"""Mistakes in the code of a plug-in: one line that says which plug-in, where, what was raised, and what to do."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from forked import fedstein
from small_run import SMALL_RUN

from fedstein.cli.listing import registries
from fedstein.errors import InputError
from fedstein.plugin_errors import PluginError, checked_build
from fedstein.registry import Registry
from fedstein.runs.sections import make_section
from fedstein.selection import SCHEMES, Scheme, SchemeKind, SelectionSettings

HEAD = """from pydantic import Field, field_validator
from fedstein.selection import Scheme, SchemeKind, SelectionSettings

class Own(SelectionSettings):
    kind: str = "own"

def build(settings, kernel):
    return Scheme("own", lambda *arguments: 1 / 0)

"""
# A mistake -> the module that makes it, and what the line has to say.
WRONG = {
    "import": ("limit = {}['limit']", ["module 'MODULE' cannot be imported", "KeyError: 'limit' (MODULE.py, line 10)"]),
    "syntax": ("def broken(:", ["cannot be imported: SyntaxError", "(MODULE.py, line 10)"]),
    "exit": ("import sys\nsys.exit('no licence')", ["SystemExit: no licence (MODULE.py, line 11)"]),
    "settings": ("own = SchemeKind('own', 'own', None, build)", ["subclass of SelectionSettings, got None"]),
    "other settings": (
        "from fedstein.settings import Settings\nown = SchemeKind('own', 'own', Settings, build)",
        ["subclass of SelectionSettings, got <class 'fedstein.settings.Settings'>"],
    ),
    "annotation": (
        "class Odd(Own):\n    share: 'Shares' = 1\nown = SchemeKind('own', 'own', Odd, build)",
        ["its settings class Odd failed", "Shares"],
    ),
    "validator": (
        "class Odd(Own):\n    @field_validator('kind')\n    def check(cls, kind):\n        return kind.name\n"
        "own = SchemeKind('own', 'own', Odd, build)",
        ["its settings class Odd failed: AttributeError: 'str' object has no attribute 'name' (MODULE.py, line 13)"],
    ),
    "no function": ("own = SchemeKind('own', 'own', Own, 3)", ["expected build of", "to be a function, got 3"]),
    "build": (
        "own = SchemeKind('own', 'own', Own, lambda settings, kernel: settings.sharpness)",
        ["its build function failed: AttributeError", "'sharpness' (MODULE.py, line 10)"],
    ),
    "returns": (
        "own = SchemeKind('own', 'own', Own, lambda settings, kernel: None)",
        ["expected its build function to return a Scheme, got NoneType", "docs/extending.md"],
    ),
    "run": (
        "own = SchemeKind('own', 'own', Own, build)",
        ["plug-in 'MODULE:own': its code failed: ZeroDivisionError: division by zero (MODULE.py, line 8)"],
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_the_command_line_says_it_in_one_line(mistake: str, tmp_path: Path) -> None:
    module = "own_" + mistake.replace(" ", "_")
    code, words = WRONG[mistake]
    (tmp_path / f"{module}.py").write_text(HEAD + code + "\n")
    settings = [*SMALL_RUN, "rounds=1", f"selection.kind={module}:own"]
    options = [part for setting in settings for part in ("--set", setting)]
    run = partial(fedstein, "run", *options, "--out", tmp_path / "run", PYTHONPATH=str(tmp_path))
    result = run()
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("fedstein: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert f"{module}:own" in result.stderr
    for word in words:
        assert word.replace("MODULE", module) in result.stderr
    if mistake in ("import", "build"):
        assert "FEDSTEIN_TRACEBACK=1 shows the whole traceback" in result.stderr
        shown = run(FEDSTEIN_TRACEBACK="1")
        assert shown.returncode == 2
        assert "Traceback (most recent call last)" in shown.stderr
        assert f'{module}.py", line 10' in shown.stderr
        assert shown.stderr.splitlines()[-1] == result.stderr.strip()


def test_in_python_the_exception_of_the_plug_in_is_the_cause() -> None:
    def build(settings, kernel):
        raise RuntimeError("not ready")

    with pytest.raises(PluginError, match=r"selection\.kind = 'mine': its build function failed: RuntimeError") as told:
        checked_build("selection.kind", "mine", build, Scheme, None, None)
    assert isinstance(told.value.__cause__, RuntimeError)
    assert Path(__file__).name in str(told.value)


def test_an_input_error_of_a_plug_in_stays_as_it_is() -> None:
    def build(settings, kernel):
        raise InputError("expected a sharpness below 9")

    with pytest.raises(InputError, match=r"^expected a sharpness below 9$"):
        checked_build("selection.kind", "mine", build, Scheme, None, None)


def test_a_defect_of_a_built_in_part_is_not_called_that_of_a_plug_in() -> None:
    with pytest.raises(AttributeError):
        checked_build("selection.kind", "ksd", SCHEMES["ksd"].build, Scheme, None, None)


def test_wrong_values_of_a_plug_ins_keys_are_the_users_and_not_the_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(SelectionSettings):
        kind: str = "own"

    registry: Registry[SchemeKind] = Registry("selection.kind", "fedstein.schemes", SchemeKind)
    registry.register(SchemeKind("own", "own", Own, lambda settings, kernel: None))
    monkeypatch.setitem(sys.modules["fedstein.runs.sections"].FAMILIES, "selection", registry)
    with pytest.raises(InputError, match=r"selection\.per_round: .*got 'many'") as told:
        make_section("selection", {"kind": "own", "per_round": "many"})
    assert not isinstance(told.value, PluginError)


def test_a_broken_plug_in_does_not_hide_the_others_from_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_listed.py").write_text("limit = {}['limit']\n")
    made = tmp_path / "own_listed-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: own_listed\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("[fedstein.schemes]\nlisted = own_listed:own\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {(section, name): about for section, name, about in registries()}
    assert found["selection", "listed"].startswith("cannot be used: selection.kind = 'listed': module 'own_listed'")
    assert found["selection", "ksd"] == SCHEMES["ksd"].about
    assert {("algorithm.kernel", "rbf"), ("channel.codec", "int4"), ("evaluate.metrics", "nll")} <= set(found)
