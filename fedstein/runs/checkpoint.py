"""Checkpoints: only the client states that changed are written, then a manifest is swapped in.

If messages are encoded in few bits, a client's file holds the messages that its state was decoded from (``wire_form``).

Until the manifest is replaced, the old manifest and the files that it names stay complete. Files that no manifest names
are left over from a crash, and the next swap removes them. The manifest has the SHA-256 of every file, which is checked
when the file is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import tomli_w

from fedstein.errors import InputError
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import Engine
from fedstein.federation.round_context import RunState
from fedstein.federation.site_table import SiteTable
from fedstein.federation.wire_form import compact, expand
from fedstein.files import disk_errors, pack, read_json, unpack, write_bytes, write_json
from fedstein.runs.config import Config, computing
from fedstein.runs.config_sources import read_toml

FORMAT = 2
OLD_FORMATS = {1: "fedstein 0.1"}  # format -> the version that reads it


def fingerprint(config: Config) -> str:
    """A digest of the settings that results depend on. Timeouts, for example, are not among them."""
    return hashlib.sha256(tomli_w.dumps(bare_config(config)).encode()).hexdigest()


def bare_config(config: Config) -> dict[str, Any]:
    """The part of a config that results depend on."""
    bare = config.to_dict()
    bare["engine"] = computing(config.engine).model_dump(exclude={"budget"})
    return bare


def refuse_other_run(folder: Path, manifest: Mapping[str, Any], config: Config) -> None:
    """Check that a checkpoint was made with the config of its run folder.

    If the run's ``config.toml`` lacks a key, the key was added to Fedstein after the run began. The checkpoint may then
    have the digest of the config without such keys, which have their defaults.

    Args:
        folder: The checkpoint folder.
        manifest: The content of its ``manifest.json``.
        config: The config of the run.

    Raises:
        InputError: The checkpoint was made with another config.
    """
    accepted = {manifest["config_sha256"], *manifest.get("accepted_sha256", ())}
    if fingerprint(config) in accepted:
        return
    file = folder.parent / "config.toml"
    written = read_toml(file) if file.is_file() else {}
    older: dict[str, Any] = {}
    for name, value in bare_config(config).items():
        if isinstance(value, dict):
            value = {key: inner for key, inner in value.items() if key in written.get(name, {})}
        if name in written:
            older[name] = value
    if hashlib.sha256(tomli_w.dumps(older).encode()).hexdigest() not in accepted:
        raise InputError(
            f"{folder / 'manifest.json'} belongs to another run: it was made with a different config.toml; restore the "
            "folder's own config.toml and checkpoint, or start anew in another folder"
        )


def save(folder: Path, config: Config, state: RunState, engine: Engine, saved: SiteTable | None) -> None:
    """Write the states that have changed since the last checkpoint, then swap the manifest.

    Args:
        folder: The checkpoint folder.
        config: The config of the run.
        state: The state to save.
        engine: The engine, whose state a resumed run needs.
        saved: The site table of the last checkpoint in this folder; None if there is none.
    """
    path = folder / "manifest.json"
    known: dict[str, Any] = read_json(path, "a checkpoint")["clients"] if path.exists() else {}
    with disk_errors(folder.parent):
        server = write_arrays(folder, f"server-{state.round:06d}.safetensors", state.server)
        wire, fresh = engine.program.wire, {}
        for client in state.sites.changed_since(saved):
            whole = state.sites[client]
            arrays = compact(wire, state.sites.origins.get(client), whole, state.sites.shared)
            fresh[str(client)] = write_arrays(folder, f"client-{client}-{state.round:06d}.safetensors", arrays)
            if arrays.keys() != whole.keys():
                fresh[str(client)]["names"] = sorted(whole)
        manifest = {
            "format": FORMAT,
            "round": state.round,
            "config_sha256": fingerprint(config),
            "server": server,
            "clients": {**known, **fresh},
            "memory": state.memory,
            "engine": engine.memory(),
        }
        write_json(path, manifest)
    remove_unlisted_files(folder, manifest)


def write_arrays(folder: Path, name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    content = pack(arrays)
    write_bytes(folder / name, content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def remove_unlisted_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Remove files that the manifest does not name."""
    named = {"manifest.json", manifest["server"]["file"], *(entry["file"] for entry in manifest["clients"].values())}
    for path in folder.iterdir():
        if path.name not in named:
            with suppress(OSError):
                path.unlink()


def load(folder: Path, config: Config, engine: Engine, sites: SiteTable) -> RunState:
    """Load the state of the last checkpoint, and restore the state of the engine.

    Args:
        folder: The checkpoint folder.
        config: The config of the run.
        engine: The engine of the run.
        sites: An empty table that keeps states within the run's budget of memory.

    Returns:
        The state from which the run continues.

    Raises:
        InputError: The checkpoint is damaged, belongs to another run or has another format.
    """
    state = read(folder, config, engine.program, len(engine.clients), sites, engine.state_template)
    engine.recall(dict(read_json(folder / "manifest.json", "a checkpoint").get("engine") or {}))
    return state


def read(
    folder: Path, config: Config, program: ClientProgram, clients: int, sites: SiteTable, template: Mapping[str, Any]
) -> RunState:
    """Read the state of the last checkpoint. ``clients`` is the number of clients; ``sites`` is an empty table."""
    path = folder / "manifest.json"
    manifest = read_json(path, "a checkpoint")
    keys = {"format", "round", "config_sha256", "server", "clients", "memory"}
    if not isinstance(manifest, dict) or not keys <= set(manifest):
        raise InputError(f"{path} is damaged: expected the keys {', '.join(sorted(keys))}")
    if manifest["format"] != FORMAT:
        reader = OLD_FORMATS.get(manifest["format"], "another version of fedstein")
        raise InputError(
            f"{path} has format {manifest['format']}, this version of fedstein reads format {FORMAT}; it can be "
            f"continued with {reader}"
        )
    refuse_other_run(folder, manifest, config)
    try:
        done, memory = int(manifest["round"]), dict(manifest["memory"])
        server = read_arrays(folder, manifest["server"])
        entries = {int(client): dict(entry) for client, entry in manifest["clients"].items()}
        for client, entry in entries.items():  # one after another, because they may not all fit into memory
            if not 0 <= client < clients:
                raise InputError(f"{path} names client {client}, but there are {clients} clients")
            arrays, origin = expand(program.wire, client, read_arrays(folder, entry))
            check_shapes(path, arrays, template)
            origins = {} if origin is None else {client: origin}
            sites = sites.replace({client: {name: jnp.asarray(array) for name, array in arrays.items()}}, origins)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error!r}") from None
    like = program.first_server
    check_shapes(path, server, like)
    # Sums stay NumPy arrays: JAX would cast float64 down in a float32 run, and its products have other bits in any run.
    back = {name: a if isinstance(like[name], np.ndarray) else jnp.asarray(a) for name, a in server.items()}
    return RunState(done, back, sites, memory)


def read_arrays(folder: Path, entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    path = folder / Path(entry["file"]).name
    try:
        content = path.read_bytes()
    except OSError:
        raise InputError(f"the checkpoint names {path}, which is not there; restore it or start anew") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise InputError(f"{path} is damaged: its checksum is not the one in the manifest; restore it or start anew")
    return unpack(content, path)


def check_shapes(path: Path, arrays: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    got, expected = ({k: (a.shape, str(a.dtype)) for k, a in group.items()} for group in (arrays, like))
    if got != expected:
        raise InputError(f"{path} does not fit this run: expected arrays {expected}, got {got}")
