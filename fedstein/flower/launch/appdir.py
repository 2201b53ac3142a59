"""The Flower app folder: a pyproject.toml that names Fedstein's ServerApp and ClientApp, and holds the settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedstein.errors import InputError
from fedstein.files import disk_errors, write_bytes
from fedstein.flower.launch.command import Value

NAME = "fedstein-app"
SCALARS = (str, bool, int, float)
COMPONENTS = {
    "serverapp": "fedstein.flower.server.server_app:app",
    "clientapp": "fedstein.flower.node.client_app:app",
}


def flatten(config: Mapping[str, Any]) -> dict[str, Value]:
    """Convert nested settings to Flower's form: dotted keys and scalars. A list becomes TOML text.

    Args:
        config: The nested settings.

    Returns:
        The flat settings. ``unflatten`` is the inverse.

    Raises:
        InputError: A name contains a dot, or TOML cannot represent a value.
    """
    flat: dict[str, Value] = {}
    for key, value in config.items():
        if not key or "." in key:
            raise InputError(f"expected setting names without a dot, got {key!r}")
        if isinstance(value, Mapping) and value:
            flat |= {f"{key}.{rest}": inner for rest, inner in flatten(value).items()}
        elif isinstance(value, SCALARS) and not (isinstance(value, str) and value[:1] in ("[", "{", '"')):
            flat[key] = value
        elif isinstance(value, (str, list, tuple, Mapping)):  # strings that could also be read as TOML
            flat[key] = _text(key, value)
        else:
            raise InputError(f"expected {key} to be text, a number, true or false or a list of those, got {value!r}")
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Make flat settings nested again.

    Args:
        flat: Settings with dotted keys.

    Returns:
        The nested settings.

    Raises:
        InputError: A text that should be TOML is not, or a name is both a setting and a section.
    """
    decoded = {key: _value(key, value) for key, value in flat.items()}
    return _nest(decoded)


def _text(key: str, value: Any) -> str:
    """A value as TOML on one line. For lists and strings that is the same as JSON, except for one character."""
    if isinstance(value, Mapping):
        return "{}"
    flat = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(each, SCALARS) for each in flat):
        raise InputError(f"expected {key} to be a list of text, numbers, true or false, got {value!r}")
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def _value(key: str, value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in ("[", "{", '"'):
        return value
    try:
        return tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"expected {key} to hold TOML, got {value!r} ({error})") from None


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, last = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError(f"expected {section} to be a section or a setting, got both ({key})")
        if last in place:
            raise InputError(f"expected {key} once, got it twice or as a section too")
        place[last] = value
    return nested


def write_app(folder: Path, settings: Mapping[str, Value]) -> Path:
    """Write an app folder.

    Args:
        folder: The folder: a new one, an empty one, or one with an app that Fedstein wrote.
        settings: The flat settings that are the app's defaults.

    Returns:
        The path of its pyproject.toml.

    Raises:
        InputError: The folder holds something else, or Flower cannot send a setting.
    """
    from fedstein import __version__

    for key, value in settings.items():
        if not isinstance(value, SCALARS):
            raise InputError(f"expected {key} to be text, a number, true or false, got {value!r}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"expected {key} to fit into 64 bits, as Flower sends it; got {value}")
    folder = folder.resolve()
    path = folder / "pyproject.toml"
    _check_folder(folder, path)
    app = {"publisher": "fedstein", "components": COMPONENTS, "config": _nest(settings)}
    project = {
        "name": NAME,
        "version": __version__,
        "description": "Fedstein's server and client for Flower; every key below can be changed with flwr run -c.",
        "license": "Apache-2.0",
        "dependencies": [],  # fedstein[flower] is already installed on the machines of the link and of the nodes
    }
    build = {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        content = {"build-system": build, "project": project, "tool": {"flwr": {"app": app}}}
        write_bytes(path, tomli_w.dumps(content).encode())
    return path


def read_app(folder: Path) -> dict[str, Any]:
    """Read the settings of an app folder that ``write_app`` wrote.

    Args:
        folder: The folder.

    Returns:
        The nested settings, with ``out``.

    Raises:
        InputError: The folder has no such app.
    """
    path = folder / "pyproject.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        if found["project"]["name"] != NAME:
            raise KeyError(NAME)
        nested = found["tool"]["flwr"]["app"]["config"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"expected an app that fedstein deploy app wrote in {folder}, found none") from None
    return unflatten(_dotted(nested))


def _dotted(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Convert nested settings to dotted keys, with unchanged values."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = _dotted(value) if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}.{rest}".rstrip("."): each for rest, each in inner.items()}
    return flat


def _check_folder(folder: Path, path: Path) -> None:
    """Refuse a folder unless it is new, empty, or holds nothing but an app that Fedstein wrote.

    Raises:
        InputError: The folder holds something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"expected a folder for the app at {folder}, found a file; choose another place")
    other = sorted(one.name for one in folder.iterdir() if one != path)
    if other:
        raise InputError(f"expected {folder} to be new or empty, found {other[0]} in it; choose another folder")
    if path.exists():
        try:
            own = tomllib.loads(path.read_text())["project"]["name"] == NAME
        except (OSError, ValueError, KeyError, TypeError):
            own = False
        if not own:
            raise InputError(f"{path} is not an app that Fedstein wrote; choose another folder")
