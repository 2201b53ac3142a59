"""The command ``fedstein config``: it prints the meaning of every key and its default under the given settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedstein.data import DATASETS
from fedstein.runs.config import Layer, check_names, check_section, read_layers, resolve
from fedstein.runs.config_docs import KeyText, chosen_texts, value_text
from fedstein.runs.config_page import config_page
from fedstein.runs.config_sources import as_layers, combine, layer_of
from fedstein.runs.defaults import Facts, drafted


def show_config(config_file: Path | None, settings: list[str], preset: str | None, markdown: bool) -> None:
    """Print every key of the chosen kinds, or the page of all kinds.

    Args:
        config_file: A TOML file; None for none.
        settings: The values of ``--set``.
        preset: The value of ``--preset``.
        markdown: Whether to print ``docs/config.md`` instead.

    Raises:
        InputError: The settings are wrong.
    """
    if markdown:
        print(config_page(), end="")
        return
    layers = as_layers(read_layers(config_file, settings, None, preset))
    raw = combine(layers)
    check_names(raw)
    check_section("data", raw.get("data", {}))
    facts = known_facts(raw)
    _, notes = resolve(layers, facts)
    console = Console(markup=False, highlight=False)
    console.print(config_table(layers, facts))
    for note in notes:
        console.print(f"note: {note}")


def known_facts(raw: Mapping[str, Any]) -> Facts:
    """Return the facts about the data that defaults depend on. Rows are loaded only if the catalogue lacks a fact."""
    info = DATASETS.get(raw.get("data", {}).get("name", "covertype"))
    if info is not None and info.task:
        given = info.clients if info.partition == "given" else 0
        return Facts(info.task, info.classes, given, features=info.features)
    from fedstein.runs.federate import facts_of, load_dataset  # imported here, because these load JAX and the rows

    return facts_of(load_dataset(raw))


def config_table(layers: Sequence[Layer], facts: Facts) -> Table:
    """The keys of the chosen kinds as a table that fits 80 columns.

    Args:
        layers: The layers of the settings, which ``resolve`` accepts.
        facts: What is known of the data.

    Returns:
        The table: key, type and bounds, default, meaning; one block for each section.
    """
    draft = drafted(combine(layers), facts)
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for column, width in (("key", 15), ("type", 14), ("default", 18), ("meaning", None)):
        grid.add_column(column, max_width=width, overflow="fold")
    before = ""
    for text in chosen_texts(draft):
        section, _, name = text.key.rpartition(".")
        if section != before:
            grid.add_row(f"[{section}]", style="bold")
            before = section
        default = text.default.strip('"') or "none"
        grid.add_row(name, text.type.replace('"', ""), default, meaning(text, layers, draft.written))
    return grid


def meaning(text: KeyText, layers: Sequence[Layer], written: Mapping[str, Any]) -> str:
    """Return the meaning of a key, the reason for its default, and the layer of settings that has set it, if any."""
    parts = [text.meaning, *(f"The default: {reason}" for _, reason in text.reasons)]
    number = layer_of(layers, text.key)
    if number is not None:
        parts.append(f"Set to {value_text(written[text.key])} by {layers[number][0]}.")
    return " ".join(part for part in parts if part)
