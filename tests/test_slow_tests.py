"""The list of slow tests names tests that exist, and the tool that makes it reads pytest's reports."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def test_every_slow_test_exists() -> None:
    listed = (HERE / "slow_tests.txt").read_text().splitlines()
    assert listed == sorted(set(listed))
    for name in listed:
        path, _, function = name.partition("::")
        text = (HERE.parent / path).read_text()
        assert re.search(rf"^def {re.escape(function.partition('[')[0])}\(", text, re.MULTILINE), name


FILE = """
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_numbers(n): pass
@pytest.mark.slow
def test_marked(): pass
"""
REPORT = """<testsuites><testsuite>
<testcase classname="tests.inner.test_a" name="test_numbers[1]" time="1.5"><properties>
<property name="cpu_seconds" value="0.2" /></properties></testcase>
<testcase classname="tests.inner.test_a" name="test_numbers[2]" time="0.4"><properties>
<property name="cpu_seconds" value="3.0" /></properties><failure message="it did" /></testcase>
<testcase classname="tests.inner.test_a" name="test_marked" time="9.0" />
<testcase classname="tests.inner.test_a" name="test_skipped" time="9.0"><skipped /></testcase>
<testcase classname="elsewhere.test_b" name="test_of_another_folder" time="9.0" />
</testsuite></testsuites>"""


def test_the_list_is_made_from_a_report(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_slow_tests", HERE.parent / "tools" / "make_slow_tests.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (tmp_path / "tests" / "inner").mkdir(parents=True)
    (tmp_path / "tests" / "inner" / "test_a.py").write_text(FILE)
    (tmp_path / "run.xml").write_text(REPORT)
    tests = list(tool.read(tmp_path / "run.xml", tmp_path))
    assert [test.name.partition("::")[2] for test in tests] == ["test_numbers[1]", "test_numbers[2]", "test_marked"]
    assert tool.slow(tests, 1.3, root=tmp_path) == ["tests/inner/test_a.py::test_numbers[1]"]
    assert tool.slow(tests, 1.3, cpu=True, root=tmp_path) == ["tests/inner/test_a.py::test_numbers[2]"]


def test_reports_hold_processor_seconds(request: pytest.FixtureRequest) -> None:
    """What ``conftest.py`` notes is there for every test, under the name that the tool reads."""
    conftest = request.config.pluginmanager.get_plugin(str(HERE / "conftest.py"))
    assert request.node.stash[conftest.BEFORE] <= conftest.processor_seconds()
