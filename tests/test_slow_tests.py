"""The list of slow tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_every_slow_test_exists() -> None:
    listed = (HERE / "slow_tests.txt").read_text().splitlines()
    assert listed == sorted(set(listed))
    for name in listed:
        path, _, function = name.partition("::")
        text = (HERE.parent / path).read_text()
        assert re.search(rf"^def {re.escape(function.partition('[')[0])}\(", text, re.MULTILINE), name
