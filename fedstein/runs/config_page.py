"""``docs/config.md``, written from the settings classes and the table of rules."""

from __future__ import annotations

from fedstein.runs.config_docs import KeyText, key_text, top_text
from fedstein.runs.defaults import RULES
from fedstein.runs.schema import TOP
from fedstein.runs.sections import FAMILIES, SECTIONS, all_keys, loaded_kinds

OPENING = """# Every key

<!-- Written by `fedstein config --markdown`: edit the settings classes and `fedstein/runs/defaults.py` instead. -->

`fedstein run FILE.toml` and `--set section.key=value` take these keys; `fedstein config FILE.toml` shows those of the
kinds that a config chooses, with the defaults that they have there. Where a key is left out, its default is the one of
the table, unless it depends on other parts: the list under the table then says what it is and why, and the first line
that applies counts. The `config.toml` of a run folder spells every key out.

A key with kinds in front of its meaning belongs to these kinds. It is refused with another kind, and so is a value
that no kind accepts. Where a later layer (the command line over a file, a file over a preset) chooses another kind,
keys that the earlier layer left over are dropped with a note.

`kind`, `algorithm.kernel`, `channel.codec` and `evaluate.metrics` also take the name of an installed plug-in, or the
import path of a part of your own, such as `"my_package.my_module:my_scheme"`.
"""


SEE = {
    "data": "Files of your own are in [own-data.md](own-data.md), rows that stay on nodes in [deploy.md](deploy.md).",
    "sites": "[sites.md](sites.md) says what sites are and when reports renew them.",
    "selection": "[method.md](method.md#drawing-rules) has the drawing rules.",
    "engine": "[deploy.md](deploy.md) is about nodes, [speed.md](speed.md) about threads and devices.",
    "evaluate": "[guide.md](guide.md#evaluation-by-the-clients) is about evaluation by the clients.",
}


def config_page() -> str:
    """The page as Markdown."""
    parts = [OPENING, "## Outside sections", *_section([top_text(key) for key in TOP])]
    for section in SECTIONS:
        parts += [f"## [{section}]", *_about(section), *_section([key_text(section, key) for key in all_keys(section)])]
    return "\n".join(parts).rstrip("\n") + "\n"


def _about(section: str) -> list[str]:
    lines = ["", SEE[section]] if section in SEE else []
    if section in FAMILIES:
        about = {name: part.about for name, part in loaded_kinds(section).items()}
        lines += ["", *(f"- `{name}`: {text}" for name, text in about.items())]
    return lines


def _section(texts: list[KeyText]) -> list[str]:
    lines = ["", "| key | default | type | meaning |", "|---|---|---|---|"]
    lines += [_row(text) for text in texts]
    depending = [(text, reason) for text in texts for reason in text.reasons]
    if depending:
        lines += ["", "Defaults that depend on other parts:", ""]
        lines += [f"- `{text.key}{f' = {value}' if value else ''}`: {reason}" for text, (value, reason) in depending]
    return [*lines, ""]


def _row(text: KeyText) -> str:
    default = f"`{text.default}`" if text.default and "; " not in text.default else text.default
    if any(rule.key == text.key for rule in RULES):
        default = f"{default}; depends" if default else "depends"
    cells = (f"`{text.key}`", default or "none", text.type, text.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
