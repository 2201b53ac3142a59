"""Reading run folders in tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``rounds.jsonl`` without ``seconds``, which no two runs share."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
