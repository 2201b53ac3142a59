"""Descriptions of every key, made from the settings classes and the table of rules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fedstein.data import DATASETS
from fedstein.runs.defaults import RULES
from fedstein.runs.draft import Draft
from fedstein.runs.schema import TOP, Sections
from fedstein.runs.sections import FAMILIES, PLAIN, SECTIONS, all_keys, find_kind, kinds, loaded_kinds, takers

WORDS = {int: "integer", float: "number", str: "text", bool: "true or false"}
SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
NOUNS = {"sites": "sites", "selection": "selection scheme", "algorithm": "method"}
HUGE = 10**9  # a bound this large only excludes nonsense, so it is not described


class KeyText(NamedTuple):
    """The description of a key.

    Attributes:
        key: ``section.key``.
        type: The type and the bounds.
        default: The default of the class; empty if it has none.
        meaning: What the key means.
        reasons: Values and reasons of a default that depends on other parts; a value is empty if it is computed.
    """

    key: str
    type: str
    default: str
    meaning: str
    reasons: tuple[tuple[str, str], ...] = ()


def type_text(field: FieldInfo) -> str:
    """The type of a field with its bounds, for example ``number > 0, <= 1``."""
    return with_bounds(annotation_text(field.annotation), field.metadata)


def annotation_text(annotation: Any) -> str:
    """Describe a type annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = arguments[1]
        return with_bounds(annotation_text(arguments[0]), inner.metadata if isinstance(inner, FieldInfo) else [inner])
    if origin in (Union, UnionType):
        return " or ".join(annotation_text(inner) for inner in arguments if inner is not NoneType)
    if origin is list:
        return f"list of {annotation_text(arguments[0])}"
    if origin is dict:
        return "lists by column" if get_origin(arguments[1]) is list else "values by column"
    if origin is Literal:
        return ", ".join(value_text(choice) for choice in arguments)
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def with_bounds(text: str, metadata: list[Any]) -> str:
    """Describe a type, with the bounds of its metadata."""
    bounds = [
        f"{sign} {getattr(item, name)}"
        for item in metadata
        for name, sign in SIGNS.items()
        if getattr(item, name, None) is not None and abs(getattr(item, name)) < HUGE
    ]
    return f"{text} {', '.join(bounds)}" if bounds else text


def value_text(value: Any) -> str:
    """A value in the form of a TOML file; empty for None."""
    if value is None:
        return ""
    if value == math.e:
        return "e"
    return json.dumps(value)


def fields_of(section: str, key: str) -> dict[str, FieldInfo]:
    """The field behind a key, for every kind that has it; sections without kinds have one field under their name."""
    if section in PLAIN:
        return {section: PLAIN[section].model_fields[key]}
    parts = loaded_kinds(section)
    return {name: part.settings.model_fields[key] for name, part in parts.items() if key in part.settings.model_fields}


def by_kind(texts: dict[str, str], between: str = "; ") -> str:
    """Return one text if all kinds agree; otherwise each text with its kinds, the most frequent one first."""
    values = list(texts.values())
    distinct = sorted(dict.fromkeys(values), key=values.count, reverse=True)
    if len(distinct) == 1:
        return distinct[0]
    kinds_of = {text: ", ".join(kind for kind in texts if texts[kind] == text) for text in distinct}
    return between.join(f"{names}: {text}" for text, names in kinds_of.items())


def reasons_of(key: str) -> tuple[tuple[str, str], ...]:
    """Return the values and reasons of the rules for a key; a value is empty if it is computed."""
    rules = [rule for rule in RULES if rule.key == key]
    return tuple(("" if callable(rule.value) else value_text(rule.value), rule.reason) for rule in rules)


def kind_text(section: str) -> KeyText:
    """The ``kind`` of a section."""
    meaning = f"Which {NOUNS.get(section, section)} the run has, or the import path of one of your own."
    if section == "engine":
        meaning = "How the server reaches its clients."
    return KeyText(f"{section}.kind", ", ".join(kinds(section)), "", meaning, reasons_of(f"{section}.kind"))


def key_text(section: str, key: str) -> KeyText:
    """Describe a key of a section, for all kinds that have it."""
    if key == "kind" and section in FAMILIES:
        return kind_text(section)
    fields = fields_of(section, key)
    default = by_kind(
        {kind: value_text(field.get_default(call_default_factory=True)) for kind, field in fields.items()}
    )
    meaning = by_kind({kind: field.description or "" for kind, field in fields.items()}, " ")
    some = takers(section, key) if section not in PLAIN or section == "data" else []
    everywhere = len(some) == len(DATASETS if section == "data" else loaded_kinds(section)) if some else True
    if not everywhere:
        meaning = f"({', '.join(some)}) {meaning}"
    types = by_kind({kind: type_text(field) for kind, field in fields.items()})
    return KeyText(f"{section}.{key}", types, default, meaning, reasons_of(f"{section}.{key}"))


def top_text(key: str) -> KeyText:
    """Describe a key outside any section."""
    field = Sections.model_fields[key]
    return KeyText(key, type_text(field), value_text(field.default), field.description or "", reasons_of(key))


def all_texts() -> Iterator[KeyText]:
    """Describe every key of every kind, in the order of a config."""
    yield from (top_text(key) for key in TOP)
    for section in SECTIONS:
        yield from (key_text(section, key) for key in all_keys(section))


def chosen_texts(draft: Draft) -> Iterator[KeyText]:
    """Describe the keys of the chosen kinds, with the defaults that they have in this config.

    Args:
        draft: A draft to which the rules have been applied.

    Yields:
        One description for each key. Its default is the one that applies with the other settings, and its reasons are
        the rule that gave this default.
    """
    for key in TOP:
        yield _chosen(draft, key, Sections.model_fields[key])
    for section in SECTIONS:
        for name, field in draft.settings(section).model_fields.items():
            if section != "data" or name in ("name", *draft.dataset.keys):
                yield _chosen(draft, f"{section}.{name}", field)


def _chosen(draft: Draft, key: str, field: FieldInfo) -> KeyText:
    section, _, name = key.rpartition(".")
    default = None if name == "kind" and section in FAMILIES else field.get_default(call_default_factory=True)
    reasons: tuple[tuple[str, str], ...] = ()
    if key in draft.by_rule:
        rule, default = draft.by_rule[key]
        reasons = ((value_text(default), rule.reason),)
    if name == "kind" and section in FAMILIES:
        about = f"{find_kind(section, draft[key]).about}. One of: {', '.join(kinds(section))}."
        return KeyText(key, "name", value_text(default), about[0].upper() + about[1:], reasons)
    return KeyText(key, type_text(field), value_text(default), field.description or "", reasons)
