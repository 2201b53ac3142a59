"""Tests for the content of one cell of a file: no value, a number, a date, or text."""

from __future__ import annotations

import re

import numpy as np

LARGEST = 1e30  # larger numbers are rejected, because float32 arithmetic on them overflows
MISSING = frozenset(("", "na", "n/a", "nan", "<na>", "nat", "null", "?"))
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})"
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_NAMED = rf"(\d{{1,2}}\.?[ -]{_MONTH},?[ -]\d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
_TIME = r"\d{2}:[0-5]\d(:[0-5]\d.*)?"  # 1:10 is a ratio
_DATE = re.compile(rf"({_DAY}|{_NAMED})([T ]\d{{1,2}}:\d{{2}}.*)?|{_TIME}", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+,\d+")


def is_missing(value: str) -> bool:
    """Tell whether a cell has no value: it is empty, or says NA, NaN, null or ?. "None" counts as a name."""
    return value.strip().lower() in MISSING


def is_number(value: str) -> bool:
    """Tell whether a cell holds a finite number."""
    return bool(np.isfinite(as_number(value)))


def as_number(value: str) -> float:
    """Return the number in a cell; NaN if there is none. Python's notation 1_000 does not count as a number."""
    try:
        return float(value) if "_" not in value else float("nan")
    except ValueError:
        return float("nan")


def is_infinite(value: str) -> bool:
    """Tell whether a cell holds an infinite number."""
    return bool(np.isinf(as_number(value)))


def is_integer(value: str) -> bool:
    """Tell whether a cell holds an integer that float64 represents exactly."""
    return is_number(value) and float(value).is_integer() and abs(float(value)) < 2**53


def is_date(value: str) -> bool:
    """Tell whether a cell holds a date or a time: 2024-05-31, 31.5.2024, 31 May 2024, 2024/05/31 12:00, 12:30."""
    return _DATE.fullmatch(value.strip()) is not None


def are_integer_dates(values: np.ndarray) -> bool:
    """Tell whether all numbers are dates that are written as one integer: 20240131, from 1900 to 2100."""
    if not len(values) or not np.all((values >= 19000101) & (values <= 21001231) & (values == np.floor(values))):
        return False
    month, day = values // 100 % 100, values % 100
    return bool(np.all((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)))


def is_comma_number(value: str) -> bool:
    """Tell whether a cell holds a number with a decimal comma: 3,5."""
    return _COMMA.fullmatch(value.strip()) is not None


def normalised_label(value: str) -> str:
    """Normalise the spelling of a label or category: "1", "1.0" and " 1 " are the same one."""
    return str(int(float(value))) if is_integer(value) else value.strip()
