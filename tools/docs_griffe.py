"""Griffe extension for the API reference: fields of NamedTuples, and angle brackets in docstrings.

A NamedTuple describes its fields in comments behind them. Here they become an ``Attributes`` section, unless the
docstring has one. Inner products such as <phi, phi'> would be taken for HTML; here their brackets are escaped.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

CODE = re.compile(r"(``.*?``|`[^`]*`)", re.DOTALL)


def escaped(text: str) -> str:
    """The docstring with angle brackets escaped outside code; indented formulas are code."""
    lines = []
    for line in text.splitlines():
        parts = CODE.split(line)
        is_code = line.startswith("    ") and not re.match(r"\s+\w+( \([^)]*\))?: ", line)
        lines.append(line if is_code else "".join(p if CODE.fullmatch(p) else p.replace("<", "&lt;") for p in parts))
    return "\n".join(lines)


def comment_of(field: Any) -> str:
    """The comment behind a field, or in the lines right before it."""
    source = field.filepath.read_text().splitlines()
    _, found, comment = source[field.endlineno - 1].partition("  # ")
    if found:
        return comment.strip()
    before, line = [], field.lineno - 2
    while line >= 0 and source[line].strip().startswith("# "):
        before.insert(0, source[line].strip()[2:])
        line -= 1
    return " ".join(before)


def with_attributes(cls: Any) -> str:
    """The docstring of a NamedTuple with its fields in an ``Attributes`` section."""
    text = cls.docstring.value if cls.docstring else ""
    fields = [member for member in cls.attributes.values() if not member.is_alias and member.annotation is not None]
    if "Attributes:" in text or not fields:
        return text
    lines = [f"    {field.name}: {comment_of(field) or '–'}" for field in fields]
    return "\n".join([text, "", "Attributes:", *lines])


class Extension(griffe.Extension):
    """Applied to every object of the package when it is loaded."""

    def on_class(self, *, cls: Any, **kwargs: Any) -> None:
        if any(str(base) == "NamedTuple" for base in cls.bases):
            cls.docstring = griffe.Docstring(with_attributes(cls), parent=cls, parser="google")

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = escaped(obj.docstring.value)
