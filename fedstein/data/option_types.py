"""The types of the keys of ``[data]`` that are passed in Python. A config file is checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from fedstein.errors import InputError

LISTS = {"features": "names of columns, as text", "drop": "names of columns, as text", "labels": "labels"}


def check_option_types(options: Mapping[str, Any]) -> None:
    """Refuse a value that no key of ``[data]`` can have, such as one name in place of a list of names.

    Args:
        options: Keys of ``[data]`` with their values; None counts as not given.

    Raises:
        InputError: A value does not have the type of its key.
    """
    for key, value in options.items():
        if value is not None and (expected := _expected(key, value)):
            raise InputError(f"data.{key}: expected {expected}, got {value!r}")


def _expected(key: str, value: Any) -> str:
    """Return what a key expects, if the value is something else; otherwise an empty text."""
    is_list = isinstance(value, (list, tuple))
    kinds = (str, int) if key == "labels" else str
    if key in LISTS and not (is_list and all(isinstance(each, kinds) for each in value)):
        return f"a list of {LISTS[key]}"
    if key == "categories" and not (is_list or isinstance(value, Mapping)):
        return "a list of columns, or a dict from columns to their categories"
    if key == "test_fraction" and not isinstance(value, Real):
        return "a number between 0 and 1"
    if key == "test_path" and not isinstance(value, (str, Path)):
        return "the path of a file"
    if key == "standardize" and not isinstance(value, bool):
        return "True or False"
    return ""
