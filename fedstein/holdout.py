"""One client's rows as those it trains on and those it keeps back to evaluate on.

The split depends on the client's own rows and on nothing else, no seed included: a node that sees only its own rows
and a process that holds everybody's come to the same one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedstein.data.dataset import fixed_split

TAG = 811  # of the split: another one than those of test rows and of tuning


class Share(NamedTuple):
    """Rows to train on, and held-out rows: none where the server evaluates, or where there is but one row."""

    x: np.ndarray
    y: np.ndarray
    held_x: np.ndarray
    held_y: np.ndarray


def share_out(x: np.ndarray, y: np.ndarray, fraction: float | None) -> Share:
    """Split one client's rows; ``fraction`` is ``evaluate.fraction``, None where no rows are held out."""
    kept, held = split_of(y, fraction)
    return Share(x[kept], y[kept], x[held], y[held])


def split_of(y: np.ndarray, fraction: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the rows to train on and of those held out, each sorted.

    Every label gives its share. Each part has at least one row; a single row stays for training.
    """
    rows = len(y)
    if fraction is None or rows < 2:
        return np.arange(rows), np.arange(0)
    strata = y if np.issubdtype(y.dtype, np.integer) else np.zeros(rows, int)
    held = min(max(1, round(fraction * rows)), rows - 1)
    return fixed_split(strata, held / rows, TAG)
