"""Assigning classes to clients, as a boolean table of clients x classes."""

from __future__ import annotations

import numpy as np


def balanced_classes(clients: int, each: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Assign classes so that every class has the same number of clients, up to one.

    Args:
        clients: The number of clients.
        each: The number of different classes that every client holds.
        classes: The number of classes.
        rng: The source of randomness.

    Returns:
        A boolean table, clients x classes.
    """
    base, more = divmod(clients * each, classes)
    quota = np.full(classes, base)
    quota[rng.permutation(classes)[:more]] += 1
    held = np.zeros((clients, classes), bool)
    for client in range(clients):  # taking the largest quotas first always leaves enough classes
        mine = np.lexsort((rng.random(classes), -quota))[:each]
        held[client, mine] = True
        quota[mine] -= 1
    return _mixed(held, rng)


def random_classes(clients: int, each: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the classes of each client independently and uniformly.

    Args:
        clients: The number of clients.
        each: The number of different classes that every client holds.
        classes: The number of classes.
        rng: The source of randomness.

    Returns:
        A boolean table, clients x classes.
    """
    held = np.zeros((clients, classes), bool)
    for client in range(clients):
        held[client, rng.choice(classes, each, replace=False)] = True
    return held


def _mixed(held: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Swap one class at a time between two random clients. The sums of rows and columns stay the same."""
    clients = len(held)
    for a, b in rng.integers(clients, size=(10 * int(held.sum()), 2)):
        only_a, only_b = np.flatnonzero(held[a] & ~held[b]), np.flatnonzero(held[b] & ~held[a])
        if len(only_a):
            swap = [rng.choice(only_a), rng.choice(only_b)]
            held[np.ix_([a, b], swap)] ^= True
    return held
