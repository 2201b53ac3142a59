"""The split of one client's rows into rows to train on and held-out rows to evaluate on.

The split depends only on the client's own rows and not on a seed. A node that sees only its own rows and a process that
holds all rows therefore compute the same split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedstein.data.dataset import fixed_split

TAG = 811  # identifies this split; test rows and tuning use other tags


class Share(NamedTuple):
    """One client's training rows and held-out rows.

    There are no held-out rows if the server evaluates, or if the client has only one row.
    """

    x: np.ndarray
    y: np.ndarray
    held_x: np.ndarray
    held_y: np.ndarray


def split_client(x: np.ndarray, y: np.ndarray, fraction: float | None) -> Share:
    """Split one client's rows.

    Args:
        x: The client's inputs.
        y: The client's targets.
        fraction: ``evaluate.fraction``, or None if no rows are held out.

    Returns:
        The rows of both parts.
    """
    kept, held = split_of(y, fraction)
    return Share(x[kept], y[kept], x[held], y[held])


def split_of(y: np.ndarray, fraction: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Compute the row numbers of both parts. Every label contributes its share.

    Args:
        y: The client's targets.
        fraction: ``evaluate.fraction``, or None if no rows are held out.

    Returns:
        The numbers of the training rows and of the held-out rows, each sorted. Each part has at least one row; a single
        row is a training row.
    """
    rows = len(y)
    if fraction is None or rows < 2:
        return np.arange(rows), np.arange(0)
    strata = y if np.issubdtype(y.dtype, np.integer) else np.zeros(rows, int)
    held = min(max(1, round(fraction * rows)), rows - 1)
    return fixed_split(strata, held / rows, TAG)
