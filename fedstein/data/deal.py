"""Dealing classes to clients: which classes each one holds, as a boolean table clients x classes."""

from __future__ import annotations

import numpy as np


def balanced_deal(clients: int, each: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Every class has the same number of holders up to one; no client holds a class twice."""
    base, more = divmod(clients * each, classes)
    quota = np.full(classes, base)
    quota[rng.permutation(classes)[:more]] += 1
    held = np.zeros((clients, classes), bool)
    for client in range(clients):  # taking the largest quotas first never gets stuck
        mine = np.lexsort((rng.random(classes), -quota))[:each]
        held[client, mine] = True
        quota[mine] -= 1
    return _mixed(held, rng)


def random_deal(clients: int, each: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Each client draws its classes on its own."""
    held = np.zeros((clients, classes), bool)
    for client in range(clients):
        held[client, rng.choice(classes, each, replace=False)] = True
    return held


def _mixed(held: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random swaps of one class between two clients: row and column sums stay, the dealer's pattern goes."""
    clients = len(held)
    for a, b in rng.integers(clients, size=(10 * int(held.sum()), 2)):
        only_a, only_b = np.flatnonzero(held[a] & ~held[b]), np.flatnonzero(held[b] & ~held[a])
        if len(only_a):
            swap = [rng.choice(only_a), rng.choice(only_b)]
            held[np.ix_([a, b], swap)] ^= True
    return held
