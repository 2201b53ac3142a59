"""Validation of single keys, with one sentence for a wrong value."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedstein.settings import Settings


def literal_choices(annotation: Any) -> list[str]:
    """The strings that a field allows; empty if it allows any."""
    arguments = get_args(annotation)
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return list(arguments)
    for inner in arguments:
        if choices := literal_choices(inner):
            return choices
    return []


@lru_cache(maxsize=512)
def adapter_of(settings: type[Settings], key: str) -> TypeAdapter[Any]:
    """Return the validator of one key of a settings class."""
    field = settings.model_fields[key]
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def complaint(settings: type[Settings], section: str, key: str, value: Any) -> str | None:
    """Describe what is wrong with a value.

    Args:
        settings: A settings class that has the key.
        section: The section of the class, for the sentence.
        key: The key.
        value: The value.

    Returns:
        One sentence, or None if the value is fine.
    """
    try:
        adapter_of(settings, key).validate_python(value)
    except ValidationError as error:
        return sentence(error, f"{section}.{key}")
    return None


def sentence(error: ValidationError, section: str = "") -> str:
    """Describe the first of pydantic's errors in one line.

    Args:
        error: The error that pydantic raised.
        section: The section that was validated.

    Returns:
        One line with the key, the expected value and the given value.
    """
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"] if "[" not in str(part)]  # without members of a union
    where = ".".join([*([section] if section else []), *parts])
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"{where} is missing"  # for a missing key, pydantic's input is the whole section
    expected = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "list_type" and where and isinstance(first.get("input"), str):
        return f'{where}: {expected}, got {first["input"]!r}; write {where}=["{first["input"]}"]'
    return f"{where}: {expected}, got {first.get('input')!r}" if where else expected
