"""The node config, and the node's rows: they are parsed once and then kept in the state folder."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein import data
from fedstein.data.holdout import Share, split_client
from fedstein.data.node_rows import Expectation
from fedstein.errors import InputError
from fedstein.files import pack, unpack, write_bytes
from fedstein.flower.messages import digest
from fedstein.flower.node.client_ids import name_of, parse_client_ids
from fedstein.flower.node.policy import ANY, Policy, of_columns, read_policy, refuse_small
from fedstein.inference.sites.base import Arrays
from fedstein.runs.config import Config, whole_config
from fedstein.runs.federate import expects_counts, load_dataset, split_rows, with_label_noise

KEPT = "rows.safetensors"
BUILT_IN = ("embedded", "scikit-learn", "fetched")  # origins of datasets that a node in a trial may load


class Node(NamedTuple):
    """The node config: the node's name, the place of its rows, its state folder, and what its operator allows."""

    name: str
    state_dir: Path
    partition: int | None = None  # in a trial, the client of the config's partition that the node plays
    data: str = ""  # the node's own file
    partitions: int | None = None  # how many clients the operator expects the trial to have
    plugins: tuple[str, ...] = ()  # import paths or modules of plug-ins that this node may import
    target: str = ""  # the only column of its file that may be the target
    features: tuple[str, ...] = ()  # the columns of its file that may be features
    policy_file: str = ""  # the policy file, in place of plugins, target and features
    policy: Policy | None = None  # the policy once it is read; None allows everything
    plays: tuple[int, ...] = ()  # the clients that it plays, if it plays several in a trial
    budget: tuple[float, float] | None = None  # epsilon and delta of everything that this node ever releases

    def as_client(self, client: int) -> Node:
        """Return this node as a node that plays only the client of a request.

        Raises:
            InputError: The node plays several clients, but not this one.
        """
        if not self.plays:
            return self
        if client not in self.plays:
            raise InputError(f"this node plays {len(self.plays)} clients, and client {client} is not one of them")
        folder = self.state_dir / name_of(client)
        return self._replace(name=name_of(client), state_dir=folder, partition=client, plays=())


class Rows(NamedTuple):
    """A node's rows, those to train on and those held out, and the facts about them that the model needs."""

    share: Share
    checksum: str  # the checksum of all rows, as they are on the node
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
    """Read the ``--node-config`` of a SuperNode.

    Args:
        settings: Its keys and values.

    Returns:
        The node.

    Raises:
        InputError: A key is unknown, missing or wrong.
    """
    known = {"name", "state-dir", "partition-id", "partition-ids", "num-partitions", "data", "plugins"}
    known |= {"target", "features", "policy", "epsilon", "delta"}
    if unknown := sorted(set(settings) - known):
        raise InputError(f"--node-config has {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")
    partition, several, path = (
        settings.get("partition-id"),
        settings.get("partition-ids"),
        str(settings.get("data", "")),
    )
    if (partition is not None) + (several is not None) + bool(path) != 1:
        raise InputError(
            '--node-config needs either data="FILE" (this node\'s own rows) or partition-id=K or partition-ids="0-249" '
            f"(a trial), got {dict(settings)}"
        )
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int) or partition < 0):
        raise InputError(f"--node-config: expected partition-id as a number from 0, got {partition!r}")
    if not settings.get("state-dir"):
        raise InputError('--node-config needs state-dir="FOLDER": where this node keeps its site between requests')
    plays = parse_client_ids(several) if several is not None else ()
    partition = plays[0] if plays else partition
    own = f"clients-{several}" if plays else name_of(partition) if partition is not None else Path(path).stem
    name = str(settings.get("name", "")) or own
    plugins, features = (_listed(settings, key) for key in ("plugins", "features"))
    target, policy = str(settings.get("target", "")), str(settings.get("policy", ""))
    if policy and (twice := [key for key in ("plugins", "target", "features") if settings.get(key)]):
        raise InputError(f"--node-config has a policy and {twice[0]}; write {twice[0]} into the policy file")
    if partition is not None and (target or features):
        raise InputError("--node-config: target and features belong to data; a node in a trial has no file of its own")
    if path and not policy and not (target and features):
        raise InputError(
            "--node-config needs the columns of data that a server may use: "
            f'target="COLUMN" and features="COLUMN,COLUMN" ("{ANY}" for all of them), or policy="FILE", which fedstein '
            f"node policy writes; got target={target!r} and features={','.join(features)!r}"
        )
    folder = Path(str(settings["state-dir"])).expanduser()
    expected = settings.get("num-partitions")
    return Node(
        name,
        folder,
        partition,
        path,
        expected,
        plugins,
        target,
        features,
        policy,
        plays=plays,
        budget=read_budget(settings),
    )


def _listed(settings: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(settings.get(key, "")).split(",") if part.strip())


def policy_of(node: Node) -> Policy | None:
    """Return the policy of the node. A policy file is read for every request, so that a change takes effect at once.

    Args:
        node: The node config.

    Returns:
        The policy; None for a trial node without a policy, which has only built-in datasets.

    Raises:
        InputError: The policy file cannot be read, or is not a policy.
    """
    if node.policy_file:
        return read_policy(Path(node.policy_file))
    if node.partition is not None:
        return None
    return of_columns(node.target, node.features, node.plugins)


def read_budget(settings: Mapping[str, Any]) -> tuple[float, float] | None:
    """epsilon and delta of the node config; None if the operator has set neither.

    Raises:
        InputError: Only one of them is set, or their values are invalid.
    """
    if "epsilon" not in settings and "delta" not in settings:
        return None
    epsilon, delta = settings.get("epsilon"), settings.get("delta")
    numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (epsilon, delta))
    if not numbers or not 0 < float(epsilon or 0) <= 100 or not 0 < float(delta or 0) < 0.1:
        raise InputError(
            "--node-config: expected epsilon from 0 to 100 and delta from 0 to 0.1 together, got "
            f"epsilon={epsilon!r} delta={delta!r}"
        )
    return float(epsilon or 0), float(delta or 0)


def load_rows(config: Config, node: Node, setup: Arrays, *, anew: bool = False) -> Rows:
    """Load the node's rows, in the same order as in process.

    Every request may be handled by a new process, so parsed rows are kept in the state folder.

    Args:
        config: The config of the run.
        node: The node.
        setup: The set-up arrays of the run; rows are scaled if means and scales are among them.
        anew: Whether to read the source even if the state folder has parsed rows.

    Returns:
        The rows.

    Raises:
        InputError: The node does not fit the run, or its file cannot be used.
    """
    refuse_other_kind(config, node)
    kept, key = node.state_dir / KEPT, source_key(config, node)
    raw = None if anew else read_kept(kept, key)
    if raw is None:
        raw = read_trial(config, node.partition) if node.partition is not None else read_own(config, node.data)
        node.state_dir.mkdir(parents=True, exist_ok=True)
        about = {"key": np.frombuffer(key.encode(), np.uint8), "classes": np.array([raw.classes], np.int32)}
        write_bytes(kept, pack({"x": raw.x, "y": raw.y, **about}))
    if expects_counts(config.to_dict()):
        data.refuse_no_counts(raw.y, Path(node.data).name or node.name)
    share = split_client(raw.x, raw.y, config.evaluate.fraction)
    refuse_small(node.policy, len(share.x), "rows to train on")
    if "mean" in setup:
        share = scaled(share, setup, node)
    return Rows(share, digest({"x": raw.x, "y": raw.y}), raw.classes, raw.task)


def refuse_other_kind(config: Config, node: Node) -> None:
    """Refuse a run that the node is not for: trials need nodes that play a client, other runs need nodes with files.

    Raises:
        InputError: The node is not for this run.
    """
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
    """A digest of everything that the rows depend on. It includes a file's time and size, so a changed file is read."""
    settings: dict[str, Any] = {"data": config.data.model_dump(mode="json"), "partition": node.partition}
    if expects_counts(config.to_dict()):
        settings["target"] = "count"
    if node.partition is not None:
        settings |= {"split": config.partition.model_dump(mode="json"), "seed": config.seed}
    else:
        try:
            found = Path(node.data).expanduser().stat()
            settings |= {"path": node.data, "size": found.st_size, "time": found.st_mtime_ns}
        except OSError:  # reading the file will report what is wrong
            settings |= {"path": node.data}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def read_kept(path: Path, key: str) -> Raw | None:
    """The rows that were parsed before; None if they are missing, damaged or from another source."""
    try:
        arrays = unpack(path.read_bytes(), path)
        if arrays["key"].tobytes().decode() != key:
            return None
        task = "classification" if arrays["y"].dtype.kind == "i" else "regression"
        return Raw(arrays["x"], arrays["y"], int(arrays["classes"][0]), task)
    except (OSError, InputError, KeyError, ValueError, IndexError):
        return None


def read_trial(config: Config, client: int) -> Raw:
    """A client's part of a dataset that everybody has.

    Raises:
        InputError: The server names a file. Which files a node opens is its operator's choice.
    """
    found = data.DATASETS.get(config.data.name)
    if found is None or found.origin not in BUILT_IN or "path" in found.keys:
        raise InputError(
            f"data.name = {config.data.name!r}: a node in a trial uses built-in datasets and opens no path that a "
            'server names; start the node with data="FILE" and the run with data.name = "nodes"'
        )
    dataset, indices = _shared_out(config.to_toml())
    index = indices[client]
    return Raw(dataset.train_x[index], dataset.train_y[index], dataset.classes, dataset.task)


@lru_cache(maxsize=1)
def _shared_out(config: str) -> tuple[data.Dataset, list[np.ndarray]]:
    """The dataset of a trial and every client's rows. A node that plays many clients reads the dataset once."""
    found = whole_config(tomllib.loads(config), "what the server sent")
    dataset = load_dataset(found.to_dict())
    return with_label_noise(found, dataset), split_rows(found, dataset)


def read_own(config: Config, path: str) -> Raw:
    """The rows of the node's own file.

    Raises:
        InputError: The file does not have the columns or labels that the run expects.
    """
    expected = expected_rows(config)
    found = data.load_rows(path, expected)
    return Raw(found.x, found.y, len(expected.labels), expected.task)


def expected_rows(config: Config) -> Expectation:
    """Return the columns that the file of every node must have.

    Raises:
        InputError: The config contradicts itself.
    """
    given = config.data
    return data.expectation(
        given.features,
        given.target,
        given.task,
        given.labels,
        given.categories,
        given.coding,
        given.missing,
        given.fill,
    )


def needs_column_counts(config: Config) -> bool:
    """Whether nodes must first count their columns, because categories or fills are not known yet."""
    given = config.data
    return given.name == "nodes" and data.is_open(given.categories, given.missing, given.fill)


def scaled(share: Share, setup: Arrays, node: Node) -> Share:
    """Scale raw rows by the scaling of the run.

    Raises:
        InputError: Values are so far from the scale that they do not fit into 32 bits.
    """
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
