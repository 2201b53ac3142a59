"""What a node's operator says of it, and the rows that this names: parsed once, then kept beside the node's state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein import data
from fedstein.engines.flower.letters import digest
from fedstein.errors import InputError
from fedstein.holdout import Share, share_out
from fedstein.runs.config import Config
from fedstein.runs.files import pack, unpack, write_bytes
from fedstein.runs.wiring import load_dataset, split_rows
from fedstein.sites.base import Arrays

KEPT = "rows.safetensors"


class Node(NamedTuple):
    """What a node's operator says: who it is, where its rows are, where it may write."""

    name: str
    state_dir: Path
    partition: int | None = None  # which client of the config's partition it plays, in a trial
    data: str = ""  # its own file
    partitions: int | None = None  # how many clients it takes the trial to have


class Rows(NamedTuple):
    """A node's rows, those to train on and those held out, and what the model must know of them."""

    share: Share
    checksum: str  # of all of them, as they are on the node
    classes: int
    task: str

    @property
    def inputs(self) -> int:
        return self.share.x.shape[1]


class Raw(NamedTuple):
    """Rows before they are split and scaled."""

    x: np.ndarray
    y: np.ndarray
    classes: int
    task: str


def read_node(settings: Mapping[str, Any]) -> Node:
    """The ``--node-config`` of a SuperNode."""
    known = {"name", "state-dir", "partition-id", "num-partitions", "data"}
    if unknown := sorted(set(settings) - known):
        raise InputError(f"--node-config has {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")
    partition, path = settings.get("partition-id"), str(settings.get("data", ""))
    if (partition is None) == (not path):
        raise InputError(
            '--node-config needs either data="FILE" (this node\'s own rows) or partition-id=K (a trial), '
            f"got {dict(settings)}"
        )
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int) or partition < 0):
        raise InputError(f"--node-config: expected partition-id as a number from 0, got {partition!r}")
    if not settings.get("state-dir"):
        raise InputError('--node-config needs state-dir="FOLDER": where this node keeps its site between requests')
    name = str(settings.get("name", "")) or (f"client-{partition}" if partition is not None else Path(path).stem)
    return Node(name, Path(str(settings["state-dir"])).expanduser(), partition, path, settings.get("num-partitions"))


def load_rows(config: Config, node: Node, setup: Arrays, *, anew: bool = False) -> Rows:
    """The rows of this node, in the order that every engine has them in, scaled as the run was set up.

    Every request is a new process, so what was parsed is kept in the state folder; ``anew`` reads the source itself.
    """
    refuse_other_kind(config, node)
    kept, key = node.state_dir / KEPT, source_key(config, node)
    raw = None if anew else read_kept(kept, key)
    if raw is None:
        raw = read_trial(config, node.partition) if node.partition is not None else read_own(config, node.data)
        node.state_dir.mkdir(parents=True, exist_ok=True)
        about = {"key": np.frombuffer(key.encode(), np.uint8), "classes": np.array([raw.classes], np.int32)}
        write_bytes(kept, pack({"x": raw.x, "y": raw.y, **about}))
    share = share_out(raw.x, raw.y, config.evaluate.fraction)
    if "mean" in setup:
        share = scaled(share, setup, node)
    return Rows(share, digest({"x": raw.x, "y": raw.y}), raw.classes, raw.task)


def refuse_other_kind(config: Config, node: Node) -> None:
    """Nodes that play a client of a known dataset, and nodes with files of their own, are for different runs."""
    if node.partition is None:
        if config.data.name != "nodes":
            raise InputError(
                f"this node has a file of its own, and the run is a trial on data.name = {config.data.name!r}; start "
                'the run with data.name = "nodes", or the node with partition-id'
            )
        return
    if config.data.name == "nodes":
        raise InputError(
            f"this node plays client {node.partition} of a trial, and the run takes nodes with their own files; start "
            'it with data="FILE" instead of partition-id'
        )
    if node.partition >= config.partition.clients:
        raise InputError(
            f"this node plays client {node.partition}, the run has clients 0 to {config.partition.clients - 1}"
        )
    if node.partitions not in (None, config.partition.clients):
        raise InputError(
            f"this node was told of num-partitions={node.partitions}, the run has partition.clients = "
            f"{config.partition.clients}; make them equal, or leave num-partitions out"
        )


def source_key(config: Config, node: Node) -> str:
    """What rows depend on: of a file its time and size too, so that another one is read again."""
    settings: dict[str, Any] = {"data": config.data.model_dump(mode="json"), "partition": node.partition}
    if node.partition is not None:
        settings |= {"split": config.partition.model_dump(mode="json"), "seed": config.seed}
    else:
        try:
            found = Path(node.data).expanduser().stat()
            settings |= {"path": node.data, "size": found.st_size, "time": found.st_mtime_ns}
        except OSError:  # reading it says what is wrong
            settings |= {"path": node.data}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def read_kept(path: Path, key: str) -> Raw | None:
    """What was parsed before, if it is of the same source and whole."""
    try:
        arrays = unpack(path.read_bytes(), path)
        if arrays["key"].tobytes().decode() != key:
            return None
        task = "classification" if arrays["y"].dtype.kind == "i" else "regression"
        return Raw(arrays["x"], arrays["y"], int(arrays["classes"][0]), task)
    except (OSError, InputError, KeyError, ValueError, IndexError):
        return None


def read_trial(config: Config, client: int) -> Raw:
    """A client's part of a dataset that everybody has."""
    dataset = load_dataset(config.to_dict())
    index = split_rows(config, dataset)[client]
    return Raw(dataset.train_x[index], dataset.train_y[index], dataset.classes, dataset.task)


def read_own(config: Config, path: str) -> Raw:
    """The node's own file, which must have what the run expects."""
    settings = config.data
    expected = data.expectation(settings.features, settings.target, settings.task, settings.labels)
    found = data.load_rows(path, expected)
    return Raw(found.x, found.y, len(expected.labels), expected.task)


def scaled(share: Share, setup: Arrays, node: Node) -> Share:
    """Raw rows on the scale that the run was set up with."""
    scaling = data.Scaling(setup["mean"], setup["scale"], *setup["target"].tolist())
    with np.errstate(over="ignore"):
        x, y = data.scale_rows(share.x, share.y, scaling)
        held_x, held_y = data.scale_rows(share.held_x, share.held_y, scaling)
    found = Share(x, y, held_x, held_y)
    if not all(np.isfinite(array).all() for array in found):
        raise InputError(
            f"{Path(node.data).name}: expected values on the scale of the other nodes' rows, got some that are too "
            "far from it for 32 bits; check the units of the columns"
        )
    return found
