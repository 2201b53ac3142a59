"""Write ``tests/slow_tests.txt``, the tests that ``check.py --fast`` leaves out, from a measured run.

python3 check.py -- --junitxml run.xml        measure, on a machine that does nothing else
python tools/make_slow_tests.py run.xml       write the list of the tests that took more than 1.3 seconds

The times are those of the whole test with its fixtures. A fixture that several tests share counts for the first of
them only. ``--cpu`` takes the processor seconds that ``tests/conftest.py`` notes beside each test, which a busy machine
changes little, but which leave out waiting. ``--add`` keeps the tests that are listed already, for runs of a part of
the tests. Tests that are marked slow in their own file are not listed.
"""

from __future__ import annotations

import argparse
import ast
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "slow_tests.txt"
LIMIT = 1.3  # seconds, with a warm compilation cache


class Measured(NamedTuple):
    """A test by the name that pytest gives it, and how long it took."""

    name: str
    seconds: float
    cpu: float  # of the test's process and of those that it started and waited for


def read(report: Path, root: Path = ROOT) -> Iterator[Measured]:
    """The tests of a JUnit report.

    Args:
        report: The file that ``pytest --junitxml`` wrote.
        root: The folder in which pytest ran.

    Yields:
        Every test that ran, whether it passed or not.
    """
    for case in ElementTree.parse(report).iter("testcase"):
        path = Path(*case.get("classname", "").split(".")).with_suffix(".py")
        if case.find("skipped") is not None or not (root / path).exists():
            continue
        noted = {each.get("name"): each.get("value") for each in case.iter("property")}
        yield Measured(
            f"{path.as_posix()}::{case.get('name')}", float(case.get("time", 0)), float(noted.get("cpu_seconds") or 0)
        )


@cache
def marked(path: Path) -> frozenset[str]:
    """The functions that a test file marks slow itself; ``"*"`` stands for all of them."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node) == "pytestmark = pytest.mark.slow":
            found.add("*")
        if isinstance(node, ast.FunctionDef) and "pytest.mark.slow" in map(ast.unparse, node.decorator_list):
            found.add(node.name)
    return frozenset(found)


def slow(tests: list[Measured], limit: float, *, cpu: bool = False, root: Path = ROOT) -> list[str]:
    """The names of the tests to list.

    Args:
        tests: What was measured.
        limit: Seconds; a test that took longer is slow.
        cpu: Whether processor seconds count, and not the time that went by.
        root: The folder in which pytest ran.

    Returns:
        The names in order, without those that their files mark.
    """
    names = set()
    for test in tests:
        path, _, function = test.name.partition("::")
        if (test.cpu if cpu else test.seconds) > limit:
            own = marked(root / path)
            if "*" not in own and function.partition("[")[0] not in own:
                names.add(test.name)
    return sorted(names)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("reports", nargs="+", type=Path, help="JUnit reports of pytest")
    reader.add_argument("--seconds", type=float, default=LIMIT, help=f"what counts as slow; default {LIMIT}")
    reader.add_argument("--cpu", action="store_true", help="count processor seconds")
    reader.add_argument("--add", action="store_true", help="keep what is listed already")
    chosen = reader.parse_args()
    tests = [test for report in chosen.reports for test in read(report)]
    if not tests:
        sys.exit("no test of this repository is in these reports; were they made by pytest --junitxml in its folder?")
    listed = set(slow(tests, chosen.seconds, cpu=chosen.cpu))
    if chosen.add:
        listed |= set(LIST.read_text("utf-8").splitlines())
    LIST.write_text("".join(f"{name}\n" for name in sorted(listed)), "utf-8")
    unlisted = [test for test in tests if test.name not in listed and test.name in set(slow(tests, 0.0))]
    everyday = sum(test.cpu if chosen.cpu else test.seconds for test in unlisted)
    print(f"{len(tests)} tests measured, {len(listed)} listed as slow; the others took {everyday:.0f} s one by one")


if __name__ == "__main__":
    main()
