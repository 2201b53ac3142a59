"""Clients by name: converts a name, or an id as a number or as text, to the client's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.files import read_json
from fedstein.runs.config_sources import Layer, combine

SHOWN = 12  # names that a message lists


def client_id(wanted: str | int, names: Mapping[int, str], where: str) -> int:
    """Find a client by its name, or by its id.

    Args:
        wanted: A name, or an id as a number or as text. A name that looks like a number is found as a name first.
        names: The clients' names by id.
        where: What the clients belong to, for the message.

    Returns:
        The id.

    Raises:
        InputError: There is no such client, or several have the name.
    """
    found = [client for client, name in names.items() if name == wanted]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise InputError(f"{where} has {len(found)} clients called {wanted!r} (ids {found}); give the id")
    text = str(wanted)
    if text.isdecimal() and int(text) in names:
        return int(text)
    listed = ", ".join(f"{name} ({client})" for client, name in list(names.items())[:SHOWN])
    more = f", ... ({len(names)} in all)" if len(names) > SHOWN else ""
    raise InputError(f"{where} has no client {wanted}: expected a name or an id of {listed}{more}")


def names_of_run(folder: Path) -> dict[int, str]:
    """The names of a run's clients by id, from ``clients.json``.

    Raises:
        InputError: The file is missing or damaged.
    """
    entries = read_json(folder / "clients.json", "the clients")
    try:
        return {int(entry["id"]): str(entry["name"]) for entry in entries}
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{folder / 'clients.json'} is damaged: expected the id and the name of each client") from None


def barred_names(layers: Sequence[Layer]) -> list[str]:
    """The entries of ``selection.barred`` that are names and not ids."""
    selection = combine(layers).get("selection")
    barred = selection.get("barred") if isinstance(selection, Mapping) else None
    return [entry for entry in barred if isinstance(entry, str)] if isinstance(barred, list) else []


def with_barred(layers: Sequence[Layer], names: Sequence[str] | None) -> list[Layer]:
    """Replace names by ids in ``selection.barred``.

    Args:
        layers: The layers. The last one that has the key takes precedence.
        names: The clients' names in the order of their ids; None leaves the key out instead.

    Returns:
        The layers.

    Raises:
        InputError: There is no client of this name.
    """
    known = dict(enumerate(names or ()))
    changed: list[Layer] = []
    for name, settings in layers:
        selection = settings.get("selection")
        if isinstance(selection, Mapping) and isinstance(selection.get("barred"), list):
            kept: dict[str, Any] = {key: value for key, value in selection.items() if key != "barred"}
            if names is not None:
                kept["barred"] = sorted(
                    client_id(entry, known, "selection.barred: the data") if isinstance(entry, str) else entry
                    for entry in selection["barred"]
                )
            settings = {**settings, "selection": kept}
        changed.append((name, settings))
    return changed
