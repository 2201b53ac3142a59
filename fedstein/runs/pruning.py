"""Pruning: a finished run keeps what resuming, forgetting and predicting need, and drops what can be recomputed.

Sites that add up are an expansion of a client's likelihood at the particles. In a run in process the rows are
available, so the sites of a finished run can be expanded again at its last particles. They are most of a large
checkpoint: 343 of 369 MB for 27 clients with a network of 79,510 parameters and 20 particles. The checkpoint keeps the
server's state without the sums of the sites, the list of clients that had a site, and the memory of the scheme.

If a pruned run continues, all its sites are expanded at its last particles. Before pruning, each site was as old as its
client's last training. The state is therefore different, and the further rounds have other bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from fedstein.errors import InputError
from fedstein.federation.local import LocalEngine
from fedstein.federation.round_context import RunState
from fedstein.files import disk_errors, read_json, write_json
from fedstein.inference.sites import SITES
from fedstein.runs import checkpoint
from fedstein.runs.config import Config
from fedstein.runs.federate import PreparedRun
from fedstein.runs.folder import RunFolder
from fedstein.seeds import TRAIN, stream

LIMIT = 32_000_000  # bytes of clients' states that a finished run keeps


def prunable(config: Config) -> bool:
    """Whether the sites of a run can be computed again from its rows."""
    return config.engine.kind == "local" and SITES.find(config.sites.kind).adds_up


def is_pruned(folder: Path) -> bool:
    """Whether the checkpoint of a run folder was pruned."""
    path = folder / "checkpoint" / "manifest.json"
    manifest = read_json(path, "a checkpoint") if path.is_file() else None
    return isinstance(manifest, dict) and "pruned" in manifest


def prune(folder: RunFolder, config: Config, limit: int = LIMIT) -> int:
    """Prune the checkpoint of a finished run, if its clients' states take more than ``limit`` bytes.

    First the server's file and the manifest without the clients are written, then the files that no manifest names are
    removed. A crash in between leaves files that the next call removes.

    Args:
        folder: The run folder. The caller holds its lock.
        config: Its config.
        limit: Bytes of clients' states up to which nothing is pruned.

    Returns:
        The bytes that were freed.
    """
    path = folder.checkpoint / "manifest.json"
    if not prunable(config) or config.privacy.on or not folder.summary_file.is_file() or not path.is_file():
        return 0
    before = size_of(folder.checkpoint)
    manifest: dict[str, Any] = read_json(path, "a checkpoint")
    with disk_errors(folder.path):
        if "pruned" not in manifest:
            files = [folder.checkpoint / entry["file"] for entry in manifest["clients"].values()]
            if not files or sum(file.stat().st_size for file in files) <= limit:
                return 0
            one = next(iter(manifest["clients"].values()))
            first = set(one.get("names") or checkpoint.read_arrays(folder.checkpoint, one))
            server = checkpoint.read_arrays(folder.checkpoint, manifest["server"])
            if not first <= server.keys():  # other parts of a state cannot be computed again
                return 0
            kept = {name: array for name, array in server.items() if name not in first}
            name = f"pruned-{manifest['round']:06d}.safetensors"
            entry = checkpoint.write_arrays(folder.checkpoint, name, kept)
            clients = sorted(int(client) for client in manifest["clients"])
            manifest = {**manifest, "server": entry, "clients": {}, "pruned": clients}
            write_json(path, manifest)
        checkpoint.remove_unlisted_files(folder.checkpoint, manifest)
    return before - size_of(folder.checkpoint)


def prune_run(path: Path, limit: int = LIMIT) -> int:
    """Prune a run folder, if it is that of a finished run.

    Args:
        path: The run folder.
        limit: Bytes of clients' states up to which nothing is pruned.

    Returns:
        The bytes that were freed.

    Raises:
        InputError: The folder is in use, or damaged.
    """
    folder, config = RunFolder.open(path)
    with folder.locked():
        return prune(folder, config, limit)


def pruned_clients(folder: RunFolder) -> list[int]:
    """The clients whose sites were pruned; none if the run was not pruned."""
    path = folder.checkpoint / "manifest.json"
    return list(read_json(path, "a checkpoint").get("pruned", ())) if path.is_file() else []


def restore(folder: RunFolder, run: PreparedRun, without: int | None = None) -> RunState:
    """Restore the state of a pruned run, with every site expanded again at the last particles.

    Args:
        folder: The run folder.
        run: The run, ready to start.
        without: A client whose site is left out, and whose rows are not used.

    Returns:
        The state from which the run continues.

    Raises:
        InputError: The checkpoint is damaged or belongs to another run.
    """
    manifest = read_json(folder.checkpoint / "manifest.json", "a checkpoint")
    checkpoint.refuse_other_run(folder.checkpoint, manifest, run.config)
    program, engine = run.federation.program, run.engine
    assert isinstance(engine, LocalEngine), "only local runs are pruned"
    kept = checkpoint.read_arrays(folder.checkpoint, manifest["server"])
    site, model = program.method.spec.site, program.model
    missing = program.first_server.keys() - kept.keys() - set(site.shared)
    if missing or "particles" not in kept:
        raise InputError(f"{folder.checkpoint} is damaged: expected {', '.join(sorted(missing)) or 'particles'}")
    particles = jnp.asarray(kept["particles"])

    @jax.jit
    def expand(key: Any, where: Any, state: Any, shard: Any) -> Any:
        blocks = model.split(where)
        return site.refit(key, blocks, blocks, state, shard)

    sites = run.context.empty_sites()
    for client in manifest["pruned"]:
        if client == without:
            continue
        key = stream(program.seed, TRAIN, manifest["round"], client)
        sites = sites.replace({client: expand(key, particles, program.first_state, engine.shards[client])})
    server = {**{name: jnp.asarray(array) for name, array in kept.items()}, **site.sums.total(sites.accepted)}
    return RunState(int(manifest["round"]), server, sites, dict(manifest["memory"]))


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
