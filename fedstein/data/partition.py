"""Sharing the training rows out over clients: named, seeded, disjoint. Test rows are never touched."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedstein.data.dataset import Dataset
from fedstein.data.deal import balanced_deal, random_deal
from fedstein.errors import InputError

TRIES = 1000  # of a Dirichlet split that leaves no client empty
REMEDY = "take fewer partition.clients, fewer partition.rows_per_client, or 0 to share everything out"


@dataclass(frozen=True)
class Wish:
    """What a partition was asked for; each kind reads the fields it needs."""

    clients: int
    rows: int  # per client; 0: share everything out
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
    """Row numbers into the training rows, one array for each client; the same seed gives the same shards."""
    if kind not in PARTITIONS:
        raise InputError(
            f"expected partition.kind to be one of {', '.join(PARTITIONS)}, got {kind!r}; correct the name"
        )
    if seed < 0:
        raise InputError(f"expected a seed of 0 or more, got {seed}; choose another")
    wish = Wish(clients or 0, rows_per_client, ratio, classes, concentration, deal)
    _check(dataset, kind, wish)
    rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(f"fedstein.partition.{kind}".encode())]))
    shards = [rng.permutation(shard).astype(np.int64) for shard in PARTITIONS[kind](dataset, wish, rng)]
    for client, shard in enumerate(shards):
        if len(shard) == 0:
            name = f" ({dataset.client_names[client]})" if kind == "given" else ""
            raise InputError(
                f"expected rows for every client, got none for client {client}{name} with partition {kind!r}; "
                "take fewer partition.clients or another partition.kind"
            )
    return shards


def iid(dataset: Dataset, wish: Wish, rng: np.random.Generator) -> Shards:
    """Rows drawn at random, whatever their label."""
    order = rng.permutation(len(dataset.train_y))
    return np.array_split(order[: wish.clients * wish.rows] if wish.rows else order, wish.clients)


def label_ratio(dataset: Dataset, wish: Wish, rng: np.random.Generator) -> Shards:
    """Even clients hold `ratio` of label 0, odd ones `ratio` of label 1.

    Sharing everything out, the two kinds of client may differ in size; if no sizes use up all rows at that ratio,
    clients get the largest equal size and rows of the commoner label are left over.
    """
    if dataset.classes != 2:
        raise InputError(
            f"expected two labels for partition 'label_ratio', got {dataset.classes} in {dataset.name}; "
            "take 'classes_per_client' or 'dirichlet'"
        )
    available = _class_counts(dataset)
    major = np.arange(wish.clients) % 2
    if wish.rows:
        favoured = round(wish.ratio * wish.rows)
        counts = np.empty((wish.clients, 2), np.int64)
        counts[np.arange(wish.clients), major] = favoured
        counts[np.arange(wish.clients), 1 - major] = wish.rows - favoured
        _check_enough(dataset, counts.sum(axis=0))
    else:
        counts = _shared_out_by_ratio(available, major, wish.ratio)
    return _draw(dataset, counts, rng)


def classes_per_client(dataset: Dataset, wish: Wish, rng: np.random.Generator) -> Shards:
    """Each client holds exactly `classes` classes, in equal parts."""
    available = _class_counts(dataset)
    usable = np.flatnonzero(available)
    if wish.rows and wish.rows < wish.classes:
        raise InputError(
            f"expected partition.rows_per_client of at least partition.classes = {wish.classes}, got {wish.rows}; "
            "raise it, or 0 to share everything out"
        )
    if wish.classes > len(usable):
        raise InputError(
            f"expected partition.classes from 1 to {len(usable)}, as {dataset.name} has, got {wish.classes}; lower it"
        )
    dealers = {"balanced": balanced_deal, "random": random_deal}
    held = np.zeros((wish.clients, dataset.classes), bool)
    held[:, usable] = dealers[wish.deal](wish.clients, wish.classes, len(usable), rng)
    holders = held.sum(axis=0)
    if wish.rows == 0:
        _check_enough(dataset, holders)
        return _draw(dataset, np.stack([_even(n, held[:, c]) for c, n in enumerate(available)], axis=1), rng)
    each, extra = divmod(wish.rows, wish.classes)
    counts = held * each
    spare = available - holders * each
    for client in range(wish.clients):  # what does not divide goes to the classes with most rows to spare
        mine = np.flatnonzero(held[client])
        richest = mine[np.argsort(-spare[mine], kind="stable")[:extra]]
        counts[client, richest] += 1
        spare[richest] -= 1
    _check_enough(dataset, counts.sum(axis=0))
    return _draw(dataset, counts, rng)


def dirichlet(dataset: Dataset, wish: Wish, rng: np.random.Generator) -> Shards:
    """Class proportions from a symmetric Dirichlet distribution: the smaller the concentration, the more one-sided."""
    available = _class_counts(dataset)
    if wish.rows:
        return _draw(dataset, _fixed_size_dirichlet(available, wish, rng), rng)
    for attempt in rng.spawn(TRIES):
        shares = attempt.dirichlet(np.full(wish.clients, wish.concentration), size=len(available))
        if not np.isfinite(shares).all():
            continue
        cuts = np.rint(np.cumsum(shares, axis=1) * available[:, None]).astype(np.int64)
        cuts[:, -1] = available
        counts = np.diff(cuts, axis=1, prepend=0).T
        if (counts.sum(axis=1) > 0).all():
            return _draw(dataset, counts, rng)
    raise InputError(
        f"expected rows for each of {wish.clients} clients, got an empty one in {TRIES} draws with "
        f"partition.concentration = {wish.concentration}; raise it, take fewer partition.clients, "
        "or set partition.rows_per_client"
    )


def given(dataset: Dataset, wish: Wish, rng: np.random.Generator) -> Shards:
    """The clients that the data names itself."""
    owners, names = dataset.client_of_row, dataset.client_names
    if owners is None:
        raise InputError(f"expected a client column for partition 'given', got none in {dataset.name}; set data.client")
    if wish.clients not in (0, len(names)):
        raise InputError(
            f"expected partition.clients = 0 or {len(names)}, as {dataset.name} names {len(names)} clients, "
            f"got {wish.clients}; leave it out"
        )
    shards = [rng.permutation(np.flatnonzero(owners == client)) for client in range(len(names))]
    for name, shard in zip(names, shards, strict=True):
        if len(shard) < wish.rows:
            raise InputError(
                f"expected {wish.rows} rows for each client, got {len(shard)} for {name!r}; "
                "lower partition.rows_per_client, or 0 for all rows"
            )
    return [shard[: wish.rows or None] for shard in shards]


PARTITIONS: dict[str, Callable[[Dataset, Wish, np.random.Generator], Shards]] = {
    "iid": iid,
    "label_ratio": label_ratio,
    "classes_per_client": classes_per_client,
    "dirichlet": dirichlet,
    "given": given,
}


def _check(dataset: Dataset, kind: str, wish: Wish) -> None:
    rows = len(dataset.train_y)
    if dataset.task == "regression" and kind not in ("iid", "given"):
        raise InputError(
            f"expected partition.kind 'iid' or 'given' for the regression set {dataset.name}, got {kind!r}; "
            "the others need labels"
        )
    if wish.rows < 0:
        raise InputError(f"expected partition.rows_per_client of 0 or more, got {wish.rows}; 0 shares everything out")
    if kind != "given":
        if wish.clients < 1:
            raise InputError(f"expected partition.clients of at least 1, got {wish.clients}; set it")
        if wish.clients > rows:
            raise InputError(
                f"expected at most {rows} clients, one for each training row of {dataset.name}, got {wish.clients}; "
                "take fewer partition.clients"
            )
        if wish.clients * wish.rows > rows:
            raise InputError(
                f"expected {wish.clients} clients x {wish.rows} rows = {wish.clients * wish.rows} training rows, "
                f"got {rows} in {dataset.name}; {REMEDY}"
            )
    if not 0 <= wish.ratio <= 1:
        raise InputError(f"expected partition.ratio from 0 to 1, got {wish.ratio}; 0.9 is usual")
    if wish.classes < 1:
        raise InputError(f"expected partition.classes of at least 1, got {wish.classes}; 3 is usual")
    if not (wish.concentration > 0 and math.isfinite(wish.concentration)):
        raise InputError(f"expected partition.concentration above 0, got {wish.concentration}; 0.1 is usual")
    if wish.deal not in ("balanced", "random"):
        raise InputError(f"expected partition.deal to be 'balanced' or 'random', got {wish.deal!r}; correct it")


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
    """Deal out rows of each class in random order; `counts` is clients x classes."""
    parts: list[list[np.ndarray]] = [[] for _ in counts]
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(dataset.train_y == label))
        ends = np.cumsum(counts[:, label])
        for client, end in enumerate(ends):
            parts[client].append(rows[end - counts[client, label] : end])
    return [np.concatenate(part) for part in parts]


def _even(total: int, held: np.ndarray) -> np.ndarray:
    """`total` rows over the holders, equal up to one."""
    out = np.zeros(len(held), np.int64)
    holders = np.flatnonzero(held)
    if len(holders):
        out[holders] = total // len(holders)
        out[holders[: total % len(holders)]] += 1
    return out


def _shared_out_by_ratio(available: np.ndarray, major: np.ndarray, ratio: float) -> np.ndarray:
    """Counts (clients x 2) that use up all rows at that ratio, or else the largest equal clients at that ratio."""
    kinds = np.array([np.sum(major == 0), np.sum(major == 1)])
    mix = np.array([[ratio, 1 - ratio], [1 - ratio, ratio]]) * kinds  # rows of each label for sizes of 1
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


def _fixed_size_dirichlet(available: np.ndarray, wish: Wish, rng: np.random.Generator) -> np.ndarray:
    """Each client's own proportions; where a class has run out, the rest follows the proportions of the others."""
    left = available.copy()
    counts = np.zeros((wish.clients, len(available)), np.int64)
    for client in rng.permutation(wish.clients):
        shares = rng.dirichlet(np.full(len(available), wish.concentration))
        while (missing := wish.rows - counts[client].sum()) > 0:
            weights = np.where(left > 0, np.nan_to_num(shares), 0.0)
            weights = weights if weights.sum() > 0 else left.astype(np.float64)
            took = np.minimum(rng.multinomial(missing, weights / weights.sum()), left)
            counts[client] += took
            left -= took
    return counts
