"""Draws of a few parameters h from a density that is constant in the cells of a grid.

A draw is a cell and a place in it. The cells are chosen at evenly spread places of the distribution function, which
leaves less to chance than independent draws, and the places are uniform. A message of draws needs the cells that were
chosen and how often, which are far fewer numbers than the values of h; both sides make the places from a seed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MOST = 65_536  # cells of a grid, so that a message can number them by 16 bits


class Cells(NamedTuple):
    """A regular grid of m-dimensional cells with a log-density for each.

    Attributes:
        origin: The centre of the first cell, m.
        spans: m x m; cell (i, j, ...) is the origin plus ((i, j, ...) + u) @ spans with u uniform in (-1/2, 1/2)^m.
        sides: The number of cells along each axis, m.
        log_density: One for each cell, the last axis running fastest; up to a constant.
    """

    origin: np.ndarray
    spans: np.ndarray
    sides: np.ndarray
    log_density: np.ndarray

    def tempered(self, temperature: float) -> Cells:
        """The density to the power 1 / temperature."""
        return self._replace(log_density=self.log_density / temperature)

    def chosen(self, uniform: np.ndarray) -> np.ndarray:
        """The numbers of the cells at n increasing places in (0, 1) of the distribution function."""
        edges = np.cumsum(np.exp(self.log_density - self.log_density.max()))
        found: np.ndarray = np.minimum(np.searchsorted(edges / edges[-1], uniform), len(edges) - 1)
        return found


def values(
    origin: np.ndarray, spans: np.ndarray, sides: np.ndarray, chosen: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """h in chosen cells.

    Args:
        origin: As in ``Cells``.
        spans: As in ``Cells``.
        sides: As in ``Cells``.
        chosen: The numbers of n cells.
        places: n x m numbers in (0, 1), the places in them.

    Returns:
        n x m.
    """
    index = np.stack(np.unravel_index(chosen, tuple(int(side) for side in sides)), axis=1)
    found: np.ndarray = origin + (index + places - 0.5) @ spans
    return found
