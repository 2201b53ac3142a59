"""The sources of settings (a preset, a TOML file, ``--set``), and merging these layers into one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.registry import unknown_name

Layer = tuple[str, Mapping[str, Any]]  # the source of the settings, for messages, and the settings

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"sites": {"kind": "particles"}},  # the paper's steps, start and density then follow as defaults
}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a config file.

    Args:
        path: A TOML file.

    Returns:
        Its contents as plain data.

    Raises:
        InputError: The file does not exist, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        wanted = "a config file" if path.suffix else "a config file, or a folder with data files,"
        raise InputError(f"expected {wanted} at {path}, found none; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; expected a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def parse_setting(text: str) -> tuple[list[str], Any]:
    """Read one ``--set``.

    Args:
        text: ``section.key=value``. The value is read as TOML, and as a string if it is not TOML.

    Returns:
        The parts of the name, and the value.

    Raises:
        InputError: The text has another form.
    """
    name, equals, value = text.partition("=")
    keys = [part.strip() for part in name.split(".")]
    if not equals or not all(keys):
        raise InputError(f"--set expects section.key=value, got {text!r}; for example --set selection.kind=hip")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")
        return keys, parsed["value"] if list(parsed) == ["value"] else value.strip()
    except tomllib.TOMLDecodeError:
        return keys, value.strip()


def merge(base: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply every ``--set`` to a copy of a config.

    Args:
        base: The config, which is not changed.
        settings: Texts of the form ``section.key=value``.

    Returns:
        The config with these settings.

    Raises:
        InputError: A text has another form.
    """
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for text in settings:
        keys, value = parse_setting(text)
        if len(keys) == 1:
            merged[keys[0]] = value
        elif len(keys) == 2:
            section = merged.setdefault(keys[0], {})
            if not isinstance(section, dict):
                raise InputError(f"--set {text}: {keys[0]} is a value, not a section; write --set {keys[0]}=VALUE")
            section[keys[1]] = value
        else:
            raise InputError(f"--set {text}: expected key=value or section.key=value, got {len(keys)} levels")
    return merged


def preset_layer(name: str) -> Layer:
    """The settings of a preset.

    Raises:
        InputError: There is no such preset.
    """
    if name not in PRESETS:
        raise InputError(unknown_name("preset", name, list(PRESETS)))
    return f"preset {name}", PRESETS[name]


def with_preset(name: str | None, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Put settings over those of a preset. Explicit settings take precedence.

    Args:
        name: The preset; None for none.
        raw: The user's settings.

    Returns:
        The merged settings.

    Raises:
        InputError: There is no such preset.
    """
    return combine([*([preset_layer(name)] if name is not None else []), ("settings", raw)])


def read_layers(
    config_file: Path | None, settings: Sequence[str], seed: int | None = None, preset: str | None = None
) -> list[Layer]:
    """The layers of a command: its preset, its config file and its flags, if there are any.

    Args:
        config_file: A TOML file.
        settings: The values of ``--set``.
        seed: The value of ``--seed``.
        preset: The value of ``--preset``.

    Returns:
        The layers. Later layers take precedence.

    Raises:
        InputError: One of them cannot be read.
    """
    layers = [preset_layer(preset)] if preset is not None else []
    if config_file is not None:
        layers.append((str(config_file), read_toml(config_file)))
    flags = merge({}, settings)
    if seed is not None:
        flags["seed"] = seed
    return [*layers, ("the command line", flags)] if flags else layers


def with_file_name(raw: Mapping[str, Any], below: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    """Set ``data.name = "file"`` in settings that have ``data.path`` and no ``data.name``.

    Args:
        raw: A nested config, or one layer of it.
        below: The other layers, any of which may name the data.

    Returns:
        The settings, with ``data.name = "file"`` if they have a path and nothing names the data.
    """
    data = raw.get("data")
    if not isinstance(data, Mapping) or not data.get("path"):
        return raw
    sections = [each.get("data") for each in (raw, *below)]
    if any(isinstance(section, Mapping) and "name" in section for section in sections):
        return raw
    return {**raw, "data": {"name": "file", **data}}


def as_layers(raw: Mapping[str, Any] | Sequence[Layer]) -> list[Layer]:
    """Return a plain config as the only layer, and layers unchanged. A path without a name means a file."""
    layers: list[Layer] = [("the settings", raw)] if isinstance(raw, Mapping) else list(raw)
    every = [layer for _, layer in layers]
    return [(name, with_file_name(layer, every)) for name, layer in layers]


def combine(layers: Sequence[Layer]) -> dict[str, Any]:
    """Merge layers key by key. Later layers take precedence.

    Args:
        layers: Names and settings.

    Returns:
        One nested dict. A value where a section is expected is kept, so that it can be refused later.
    """
    combined: dict[str, Any] = {}
    for _, settings in layers:
        for name, value in settings.items():
            if isinstance(value, Mapping):
                below = combined.get(name)
                combined[name] = {**(below if isinstance(below, Mapping) else {}), **value}
            else:
                combined[name] = value
    return combined


def layer_of(layers: Sequence[Layer], key: str) -> int | None:
    """The index of the layer whose value of ``section.key`` is used; None if no layer has the key."""
    section, _, name = key.rpartition(".")
    for number in reversed(range(len(layers))):
        values = layers[number][1] if not section else layers[number][1].get(section, {})
        if isinstance(values, Mapping) and name in values:
            return number
    return None


def overridden_presets(layers: Sequence[Layer]) -> list[str]:
    """Notes on presets whose settings all have other values in later layers, so that the preset changes nothing.

    Args:
        layers: The layers. Later layers take precedence.

    Returns:
        One sentence for each such preset.
    """
    notes = []
    names = {f"preset {name}": name for name in PRESETS}
    for number, (source, settings) in enumerate(layers):
        if source not in names:
            continue
        later = [
            (layers[last][0], f"{section}.{key}", layers[last][1][section][key])
            for section, values in settings.items()
            for key, value in values.items()
            if (last := layer_of(layers, f"{section}.{key}")) is not None
            and last > number
            and layers[last][1][section][key] != value
        ]
        if len(later) == sum(map(len, settings.values())):
            told = ", ".join(f"{where} sets {key} = {value!r}" for where, key, value in later)
            notes.append(f"the preset {names[source]!r} changes nothing: {told}")
    return notes
