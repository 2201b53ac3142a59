"""The partition of the training rows over clients: by name, seeded, without overlap. Test rows are never used."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedstein.data.class_assignment import balanced_classes, random_classes
from fedstein.data.dataset import Dataset
from fedstein.errors import InputError

TRIES = 1000  # draws of a Dirichlet split until no client is empty
REMEDY = "take fewer partition.clients or fewer partition.rows_per_client, or set the latter to 0 for all rows"


@dataclass(frozen=True)
class PartitionRequest:
    """The settings of a partition. Each kind of partition reads the fields that it needs."""

    clients: int
    rows: int  # per client; 0: distribute all rows
    ratio: float
    classes: int
    concentration: float
    deal: str


Shards = list[np.ndarray]


def partition(
    dataset: Dataset,
    kind: str,
    *,
    clients: int | None,
    rows_per_client: int = 0,
    seed: int,
    ratio: float = 0.9,
    classes: int = 3,
    concentration: float = 0.1,
    deal: str = "balanced",
) -> Shards:
    """Distribute the training rows over clients. Equal seeds give equal shards.

    Args:
        dataset: The dataset.
        kind: A key of ``PARTITIONS``.
        clients: The number of clients; None or 0 for the clients that the data names.
        rows_per_client: The number of rows of each client; 0 distributes all rows.
        seed: The seed of the partition, 0 or more.
        ratio: For ``label_ratio``: the share of the favoured label of a client.
        classes: For ``classes_per_client``: the number of classes of each client.
        concentration: For ``dirichlet``: the parameter of the Dirichlet distribution.
        deal: For ``classes_per_client``: "balanced" or "random", how classes are assigned to clients.

    Returns:
        For each client an array of row numbers into the training rows.

    Raises:
        InputError: If a setting is invalid or there are too few rows for it.
    """
    if kind not in PARTITIONS:
        raise InputError(
            f"expected partition.kind to be one of {', '.join(PARTITIONS)}, got {kind!r}; correct the name"
        )
    if seed < 0:
        raise InputError(f"expected a seed of 0 or more, got {seed}; choose another")
    request = PartitionRequest(clients or 0, rows_per_client, ratio, classes, concentration, deal)
    _check(dataset, kind, request)
    rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(f"fedstein.partition.{kind}".encode())]))
    shards = [rng.permutation(shard).astype(np.int64) for shard in PARTITIONS[kind](dataset, request, rng)]
    for client, shard in enumerate(shards):
        if len(shard) == 0:
            name = f" ({dataset.client_names[client]})" if kind == "given" else ""
            raise InputError(
                f"expected rows for every client, got none for client {client}{name} with partition {kind!r}; "
                "take fewer partition.clients or another partition.kind"
            )
    return shards


def iid(dataset: Dataset, request: PartitionRequest, rng: np.random.Generator) -> Shards:
    """Rows drawn uniformly at random, regardless of their label."""
    order = rng.permutation(len(dataset.train_y))
    return np.array_split(order[: request.clients * request.rows] if request.rows else order, request.clients)


def label_ratio(dataset: Dataset, request: PartitionRequest, rng: np.random.Generator) -> Shards:
    """Clients with an even id hold `ratio` of label 0, clients with an odd id hold `ratio` of label 1.

    If all rows are to be distributed, the two kinds of clients may differ in size. If no two sizes use all rows at that
    ratio, every client gets the largest possible equal size, and rows of the more frequent label remain unused.

    Raises:
        InputError: If the dataset does not have two labels, or has too few rows of a label.
    """
    if dataset.classes != 2:
        raise InputError(
            f"expected two labels for partition 'label_ratio', got {dataset.classes} in {dataset.name}; "
            "take 'classes_per_client' or 'dirichlet'"
        )
    available = _class_counts(dataset)
    major = np.arange(request.clients) % 2
    if request.rows:
        favoured = round(request.ratio * request.rows)
        counts = np.empty((request.clients, 2), np.int64)
        counts[np.arange(request.clients), major] = favoured
        counts[np.arange(request.clients), 1 - major] = request.rows - favoured
        _check_enough(dataset, counts.sum(axis=0))
    else:
        counts = _shared_out_by_ratio(available, major, request.ratio)
    return _draw(dataset, counts, rng)


def classes_per_client(dataset: Dataset, request: PartitionRequest, rng: np.random.Generator) -> Shards:
    """Every client holds exactly `classes` classes, in equal parts.

    Raises:
        InputError: If there are too few classes, or too few rows of a class.
    """
    available = _class_counts(dataset)
    usable = np.flatnonzero(available)
    if request.rows and request.rows < request.classes:
        raise InputError(
            f"expected partition.rows_per_client of at least partition.classes = {request.classes}, "
            f"got {request.rows}; raise it, or set it to 0 to share everything out"
        )
    if request.classes > len(usable):
        raise InputError(
            f"expected partition.classes from 1 to {len(usable)}, the number of classes in {dataset.name}, "
            f"got {request.classes}; lower it"
        )
    rules = {"balanced": balanced_classes, "random": random_classes}
    held = np.zeros((request.clients, dataset.classes), bool)
    held[:, usable] = rules[request.deal](request.clients, request.classes, len(usable), rng)
    holders = held.sum(axis=0)
    if request.rows == 0:
        _check_enough(dataset, holders)
        return _draw(dataset, np.stack([_even(n, held[:, c]) for c, n in enumerate(available)], axis=1), rng)
    each, extra = divmod(request.rows, request.classes)
    counts = held * each
    spare = available - holders * each
    for client in range(request.clients):  # the remainder goes to the classes with the most unused rows
        mine = np.flatnonzero(held[client])
        richest = mine[np.argsort(-spare[mine], kind="stable")[:extra]]
        counts[client, richest] += 1
        spare[richest] -= 1
    _check_enough(dataset, counts.sum(axis=0))
    return _draw(dataset, counts, rng)


def dirichlet(dataset: Dataset, request: PartitionRequest, rng: np.random.Generator) -> Shards:
    """Class proportions from a symmetric Dirichlet distribution; a smaller concentration gives more uneven clients.

    Raises:
        InputError: If no draw leaves every client with a row.
    """
    available = _class_counts(dataset)
    if request.rows:
        return _draw(dataset, _fixed_size_dirichlet(available, request, rng), rng)
    for attempt in rng.spawn(TRIES):
        shares = attempt.dirichlet(np.full(request.clients, request.concentration), size=len(available))
        if not np.isfinite(shares).all():
            continue
        cuts = np.rint(np.cumsum(shares, axis=1) * available[:, None]).astype(np.int64)
        cuts[:, -1] = available
        counts = np.diff(cuts, axis=1, prepend=0).T
        if (counts.sum(axis=1) > 0).all():
            return _draw(dataset, counts, rng)
    raise InputError(
        f"expected rows for each of {request.clients} clients, got an empty one in {TRIES} draws with "
        f"partition.concentration = {request.concentration}; raise it, take fewer partition.clients, "
        "or set partition.rows_per_client"
    )


def given(dataset: Dataset, request: PartitionRequest, rng: np.random.Generator) -> Shards:
    """The clients that the data itself names.

    Raises:
        InputError: If the data names no clients, or a client has too few rows.
    """
    owners, names = dataset.client_of_row, dataset.client_names
    if owners is None:
        raise InputError(f"expected a client column for partition 'given', got none in {dataset.name}; set data.client")
    if request.clients not in (0, len(names)):
        raise InputError(
            f"expected partition.clients = 0 or {len(names)}, as {dataset.name} names {len(names)} clients, "
            f"got {request.clients}; leave it out"
        )
    shards = [rng.permutation(np.flatnonzero(owners == client)) for client in range(len(names))]
    for name, shard in zip(names, shards, strict=True):
        if len(shard) < request.rows:
            raise InputError(
                f"expected {request.rows} rows for each client, got {len(shard)} for {name!r}; "
                "lower partition.rows_per_client, or 0 for all rows"
            )
    return [shard[: request.rows or None] for shard in shards]


# A rule takes the dataset, the settings and the source of randomness, and returns the row numbers of each client.
# ``fedstein list`` shows the first line of its docstring.
PartitionRule = Callable[[Dataset, PartitionRequest, np.random.Generator], Shards]
PARTITIONS: dict[str, PartitionRule] = {
    "iid": iid,
    "label_ratio": label_ratio,
    "classes_per_client": classes_per_client,
    "dirichlet": dirichlet,
    "given": given,
}


def _check(dataset: Dataset, kind: str, request: PartitionRequest) -> None:
    rows = len(dataset.train_y)
    if dataset.task == "regression" and kind not in ("iid", "given"):
        raise InputError(
            f"expected partition.kind 'iid' or 'given' for the regression set {dataset.name}, got {kind!r}; "
            "the others need labels"
        )
    if request.rows < 0:
        raise InputError(
            f"expected partition.rows_per_client of 0 or more, got {request.rows}; 0 shares everything out"
        )
    if kind != "given":
        if request.clients < 1:
            raise InputError(f"expected partition.clients of at least 1, got {request.clients}; set it")
        if request.clients > rows:
            raise InputError(
                f"expected at most {rows} clients, one for each training row of {dataset.name}, got {request.clients}; "
                "take fewer partition.clients"
            )
        if request.clients * request.rows > rows:
            raise InputError(
                f"expected {request.clients} clients x {request.rows} rows = {request.clients * request.rows} "
                f"training rows, got {rows} in {dataset.name}; {REMEDY}"
            )
    if not 0 <= request.ratio <= 1:
        raise InputError(f"expected partition.ratio from 0 to 1, got {request.ratio}; 0.9 is usual")
    if request.classes < 1:
        raise InputError(f"expected partition.classes of at least 1, got {request.classes}; 3 is usual")
    if not (request.concentration > 0 and math.isfinite(request.concentration)):
        raise InputError(f"expected partition.concentration above 0, got {request.concentration}; 0.1 is usual")
    if request.deal not in ("balanced", "random"):
        raise InputError(f"expected partition.deal to be 'balanced' or 'random', got {request.deal!r}; correct it")


def _class_counts(dataset: Dataset) -> np.ndarray:
    return np.bincount(dataset.train_y, minlength=dataset.classes)


def _check_enough(dataset: Dataset, needed: np.ndarray) -> None:
    available = _class_counts(dataset)
    short = np.flatnonzero(needed > available)
    if len(short):
        label = int(short[0])
        raise InputError(
            f"expected {needed[label]} training rows of class {label} ({dataset.label_names[label]}), "
            f"got {available[label]} in {dataset.name}: it runs out; {REMEDY}"
        )


def _draw(dataset: Dataset, counts: np.ndarray, rng: np.random.Generator) -> Shards:
    """Distribute the rows of each class in random order. `counts` is clients x classes."""
    parts: list[list[np.ndarray]] = [[] for _ in counts]
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(dataset.train_y == label))
        ends = np.cumsum(counts[:, label])
        for client, end in enumerate(ends):
            parts[client].append(rows[end - counts[client, label] : end])
    return [np.concatenate(part) for part in parts]


def _even(total: int, held: np.ndarray) -> np.ndarray:
    """Distribute `total` rows over the clients that hold the class, equally up to one row."""
    out = np.zeros(len(held), np.int64)
    holders = np.flatnonzero(held)
    if len(holders):
        out[holders] = total // len(holders)
        out[holders[: total % len(holders)]] += 1
    return out


def _shared_out_by_ratio(available: np.ndarray, major: np.ndarray, ratio: float) -> np.ndarray:
    """Compute counts (clients x 2) that use all rows at the ratio, or else the largest equal clients at the ratio."""
    kinds = np.array([np.sum(major == 0), np.sum(major == 1)])
    mix = (
        np.array([[ratio, 1 - ratio], [1 - ratio, ratio]]) * kinds
    )  # the rows of each label that clients of size 1 need
    if abs(np.linalg.det(mix)) > 1e-9:
        sizes = np.linalg.solve(mix, available)
        if (sizes >= 1).all():
            shares = np.where(major == 0, ratio, 1 - ratio) * sizes[major]
            cuts = np.rint(np.cumsum(np.stack([shares, sizes[major] - shares], axis=1), axis=0)).astype(np.int64)
            cuts[-1] = available
            return np.diff(cuts, axis=0, prepend=0)
    needed = mix.sum(axis=1)
    size = int(np.min(available[needed > 0] / needed[needed > 0]))
    while True:
        favoured = round(ratio * size)
        zeros = np.where(major == 0, favoured, size - favoured)
        counts = np.stack([zeros, size - zeros], axis=1)
        if (counts.sum(axis=0) <= available).all():
            return counts
        size -= 1


def _fixed_size_dirichlet(available: np.ndarray, request: PartitionRequest, rng: np.random.Generator) -> np.ndarray:
    """Draw proportions for each client.

    If a class has no rows left, the other classes fill the gap in their proportions.
    """
    left = available.copy()
    counts = np.zeros((request.clients, len(available)), np.int64)
    for client in rng.permutation(request.clients):
        shares = rng.dirichlet(np.full(len(available), request.concentration))
        while (missing := request.rows - counts[client].sum()) > 0:
            weights = np.where(left > 0, np.nan_to_num(shares), 0.0)
            weights = weights if weights.sum() > 0 else left.astype(np.float64)
            took = np.minimum(rng.multinomial(missing, weights / weights.sum()), left)
            counts[client] += took
            left -= took
    return counts
