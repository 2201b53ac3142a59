"""Compare the digests of the table with those that are written down, and write them down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import CASES

DIGESTS = Path(__file__).resolve().parent / "digests.json"
RELATIVE, ABSOLUTE = 2e-2, 5e-3  # how far apart the rounded numbers may be on another machine

Document = dict[str, Any]


def close(found: Any, expected: Any) -> bool:
    """Whether rounded numbers agree as well as they must on another machine."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if expected is None or found is None:
        return found is expected
    return abs(found - expected) <= ABSOLUTE + RELATIVE * abs(expected)


def difference(found: dict[str, Any], expected: dict[str, Any], same_machine: bool) -> str:
    """What differs between two computations of one case, in words; empty where nothing does."""
    if "failed" in found:
        return found["failed"]
    if not same_machine:
        if len(found["rounds"]) != len(expected["rounds"]):
            return f"{len(found['rounds'])} rounds, not {len(expected['rounds'])}"
        return "" if close(found["near"], expected["near"]) else f"{found['near']} is not near {expected['near']}"
    parts = []
    for part in sorted((found.keys() | expected.keys()) - {"near", "seconds"}):
        if found.get(part) != expected.get(part):
            pairs = zip(found.get(part) or (), expected.get(part) or (), strict=False)
            first = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), None)
            parts.append(f"rounds from the {first}. on" if part == "rounds" and first else part)
    if not parts:
        return ""
    return f"{', '.join(parts)} ({'near' if close(found['near'], expected['near']) else 'FAR from'} what it was)"


def judge(found: Document, expected: Document) -> list[str]:
    """One sentence for each case that differs; on another machine bits may differ and numbers must be near."""
    same = found["fingerprint"] == expected["fingerprint"]
    said = []
    for name, entry in found["cases"].items():
        if name not in expected["cases"]:
            said.append(f"{name}: not in {DIGESTS.name}")
        elif words := difference(entry, expected["cases"][name], same):
            said.append(f"{name}: {words}")
    return said


def read() -> Document:
    """What is written down."""
    return json.loads(DIGESTS.read_text())


def merged(found: Document, expected: Document) -> Document:
    """What was found over what is written down, if that is of the same machine; what failed is not among it."""
    kept = expected["cases"] if found["fingerprint"] == expected["fingerprint"] else {}
    new = {name: entry for name, entry in found["cases"].items() if "failed" not in entry}
    whole = kept | new
    return {"fingerprint": found["fingerprint"], "cases": {name: whole[name] for name in CASES if name in whole}}


def write(found: Document) -> None:
    """One line a case, so that a change shows which."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps({k: v for k, v in entry.items() if k != 'seconds'}, separators=(',', ':'))}"
        for name, entry in found["cases"].items()
    ]
    head = json.dumps(found["fingerprint"], indent=1)
    DIGESTS.write_text(f'{{"fingerprint": {head},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n")
