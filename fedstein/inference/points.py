"""Messages with points of theta, to which a client answers with its log-likelihood at each point.

If the prior is Gaussian given a few parameters h, a point is h and standard normal numbers: w = mu(h) + s R(h) z. The
message has the cells of a grid that h is in (``cells``), the sites that mu and R follow from, and a seed; server and
clients make z and the place in the cell from it, by the raw stream of NumPy's Philox generator, which does not change
between versions, and by the inverse of the normal distribution function. Any other model gets its points as they are,
in half precision.

An answer has the log-likelihoods as differences from their median, in half precision, and the median. A difference of
ten nats is then right to .004, which is nothing to a weight. It also has two sums over the points that a client has
made, so that points which differ are found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedstein.inference import cells
from fedstein.inference.cells import Cells
from fedstein.inference.collapse import parts_of
from fedstein.inference.natural import WIRE, packed, unpacked
from fedstein.inference.scale_sites import ScaleSites, drawn_with_log_dets
from fedstein.models.base import Model

SAME = 1e-6  # sums that differ by less, relative to their size, are of the same points
LARGEST = 65_535  # points that a client computes at
FURTHEST = 65_000.0  # nats above the median that half precision can hold

HALF = np.float16
NORMAL, CELLS, PLACES, PURPOSES = 0, 1, 2, 3  # what the uniform numbers of a batch are for

Request = Mapping[str, Any]


def uniforms(seed: int, purpose: int, rows: int, columns: int) -> np.ndarray:
    """rows x columns uniform numbers in (0, 1), the same wherever they are made."""
    raw = np.random.Philox(key=[seed & (2**63 - 1), purpose]).random_raw(rows * columns)
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5).reshape(rows, columns) / 2.0**53


def purpose(of: int, batch: int) -> int:
    """The number of a stream of uniform numbers, which no other purpose and batch has."""
    return PURPOSES * batch + of


def given_request(
    sites: ScaleSites, grid: Cells, chosen: np.ndarray, seed: int, batch: int, widening: float
) -> dict[str, np.ndarray]:
    """Points whose w is drawn given h.

    Args:
        sites: The sites, at one value of h or at several.
        grid: The cells that h is in.
        chosen: The numbers of the cells of n points, in increasing order.
        seed: Fixes z and the places in the cells.
        batch: Points with other numbers of a batch are independent.
        widening: s, by which the sds of w given h are larger.

    Returns:
        The message; ``points_of`` gives the points that are meant, and ``sites_of`` the sites in its precision.
    """
    found, counts = np.unique(chosen, return_counts=True)
    return {
        "origin": np.asarray(grid.origin, np.float64),
        "spans": np.asarray(grid.spans, np.float64),
        "sides": np.asarray(grid.sides, np.int64),
        "cells": found.astype(np.uint16),
        "counts": counts.astype(np.uint16),
        "nodes": np.asarray(sites.nodes, np.float64),
        "eta": np.asarray(sites.eta, WIRE),
        "precision": np.stack([packed(matrix) for matrix in sites.precision]).astype(WIRE),
        "seed": np.array([seed, batch], np.int64),
        "widening": np.array([widening]),
    }


def sites_of(request: Request) -> ScaleSites:
    """The sites of ``given_request``, without what the density of h follows from."""
    eta = np.asarray(request["eta"], np.float64)
    precision = np.stack([unpacked(np.asarray(row, np.float64), eta.shape[1]) for row in request["precision"]])
    nodes = np.asarray(request["nodes"], np.float64)
    return ScaleSites(nodes, eta, precision, np.zeros_like(nodes), np.zeros_like(nodes))


def plain_request(theta: np.ndarray, mean: np.ndarray, root: np.ndarray) -> dict[str, np.ndarray]:
    """Points theta = mean + root z with z in half precision, which is .001 posterior sds.

    Args:
        theta: n x d points.
        mean: About their mean, d.
        root: A lower triangular root of about their covariance, d x d.

    Returns:
        The mean, the root's triangle in float64, and z in float16. ``points_of`` gives the points that are meant.
    """
    standard = np.linalg.solve(root, (theta - mean).T).T
    return {"mean": mean, "root": packed(root), "standard": standard.astype(np.float16)}


def points_of(model: Model, request: Request) -> np.ndarray:
    """The points of a request.

    Args:
        model: The model.
        request: What ``given_request`` or ``plain_request`` returned.

    Returns:
        n x d, in float64.
    """
    if "standard" in request:
        mean = np.asarray(request["mean"], np.float64)
        root = np.tril(unpacked(np.asarray(request["root"], np.float64), len(mean)))
        return mean + np.asarray(request["standard"], np.float64) @ root.T
    return _points_and_densities(model, request)[0]


def sums_for(model: Model, request: Request) -> np.ndarray:
    """Two numbers that tell other points from those of a request."""
    return _points_and_densities(model, request)[2] if "standard" not in request else sums_of(points_of(model, request))


def log_density_of(model: Model, request: Request) -> np.ndarray:
    """The log-density of w given h of the points of ``given_request``, n numbers up to a constant."""
    return _points_and_densities(model, request)[1]


def _points_and_densities(model: Model, request: Request) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    frozen = tuple((name, np.asarray(request[name]).tobytes(), np.shape(request[name])) for name in sorted(request))
    kinds = tuple(np.asarray(request[name]).dtype.str for name in sorted(request))
    return _made(model, frozen, kinds)


@lru_cache(maxsize=1)  # many clients of one process are asked for the same points
def _made(
    model: Model, frozen: tuple[tuple[str, bytes, tuple[int, ...]], ...], kinds: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = zip(frozen, kinds, strict=True)
    request = {name: np.frombuffer(content, kind).reshape(shape) for (name, content, shape), kind in parts}
    from scipy.special import ndtri  # imported here: it would take a third of the time of importing Fedstein

    moved = moved_of(request)
    seed, batch = (int(number) for number in request["seed"])
    normal = ndtri(uniforms(seed, purpose(NORMAL, batch), len(moved), len(parts_of(model).given)))
    wide = float(request["widening"][0]) * normal
    points, log_dets = drawn_with_log_dets(model, sites_of(request), moved, wide)
    points.flags.writeable = False
    return points, log_dets - 0.5 * np.sum(normal**2, axis=1), sums_of(points)


def moved_of(request: Request) -> np.ndarray:
    """The values of h of ``given_request``, n x dim(h)."""
    chosen = np.repeat(np.asarray(request["cells"], np.int64), np.asarray(request["counts"], np.int64))
    seed, batch = (int(number) for number in request["seed"])
    places = uniforms(seed, purpose(PLACES, batch), len(chosen), len(request["sides"]))
    return cells.values(request["origin"], request["spans"], request["sides"], chosen, places)


def shapes_of(model: Model, request: Request) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and types that the arrays of a request must have, for the number of points and nodes that it names.

    Args:
        model: The model.
        request: The arrays as they came.

    Returns:
        A shape and a type for each array. A request with more points than ``LARGEST``, or with cells outside the grid,
        has none of the right shape.
    """
    dim, triangle = model.dim, model.dim * (model.dim + 1) // 2
    given = parts_of(model).given
    if not len(given) or "standard" in request:
        count = min(len(np.atleast_1d(request.get("standard", 0))), LARGEST)
        return {
            "mean": ((dim,), "float64"),
            "root": ((triangle,), "float64"),
            "standard": ((count, dim), "float16"),
        }
    moved, nodes = dim - len(given), len(np.atleast_1d(request.get("nodes", 0)))
    chosen = np.shape(request.get("cells", ()))[:1] if _cells_are_sound(request) else (-1, -1)
    return {
        "origin": ((moved,), "float64"),
        "spans": ((moved, moved), "float64"),
        "sides": ((moved,), "int64"),
        "cells": (chosen, "uint16"),
        "counts": (chosen, "uint16"),
        "nodes": ((nodes,), "float64"),
        "eta": ((nodes, dim), "float32"),
        "precision": ((nodes, triangle), "float32"),
        "seed": ((2,), "int64"),
        "widening": ((1,), "float64"),
    }


def count_of(request: Request) -> int:
    """The number of points of a request."""
    return len(request["standard"]) if "standard" in request else int(np.sum(request["counts"], dtype=np.int64))


def likelihoods_message(sums: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """A client's answer: log-likelihoods less their median in half precision, the median, and two sums over the points.

    Args:
        sums: What ``sums_for`` returned.
        values: n log-likelihoods; what is not finite counts as minus infinity.
    """
    finite = values[np.isfinite(values)]
    median = float(np.median(finite)) if len(finite) else 0.0
    away = np.where(np.isfinite(values), np.minimum(values - median, FURTHEST), -np.inf)
    with np.errstate(over="ignore"):  # what is far below the median is minus infinity
        half = away.astype(HALF)
    return {"log_likelihood": half, "median": np.array([median]), "sums": sums}


def read_likelihoods(answer: Mapping[str, Any]) -> np.ndarray:
    """The log-likelihoods of ``likelihoods_message``, in float64."""
    found: np.ndarray = np.asarray(answer["log_likelihood"], np.float64) + float(answer["median"][0])
    return found


def sums_of(points: np.ndarray) -> np.ndarray:
    """Two numbers that tell other points from these."""
    return np.array([np.abs(points).sum(), points @ np.arange(1.0, points.shape[1] + 1) @ np.arange(len(points))])


def implausible_likelihoods(answer: Mapping[str, Any], points: np.ndarray) -> str:
    """Describe what is wrong with an answer of the right shapes; minus infinity is allowed, as a likelihood of zero."""
    values, expected = answer["log_likelihood"], sums_of(points)
    if np.isnan(values).any() or np.isposinf(values).any() or not np.isfinite(answer["median"]).all():
        return "a log-likelihood is NaN or plus infinity"
    scale = np.array([1.0, len(points) * points.shape[1]]) * max(float(expected[0]), 1e-300)
    if not (np.abs(np.asarray(answer["sums"]) - expected) <= SAME * scale).all():
        return "the log-likelihoods are for other points than those that were asked for; use the server's versions"
    return ""


def _cells_are_sound(request: Request) -> bool:
    """Whether cells that have arrived are cells of a grid, and few enough."""
    try:
        chosen, counts, sides = (np.asarray(request[name]) for name in ("cells", "counts", "sides"))
        sound = all(part.ndim == 1 and part.dtype.kind in "iu" for part in (chosen, counts, sides))
        if not sound or len(chosen) != len(counts) or (sides < 1).any() or (sides > cells.MOST).any():
            return False
        total, size = int(counts.sum(dtype=np.int64)), float(np.prod(sides.astype(np.float64)))
        return 0 < total <= LARGEST and size <= cells.MOST and int(chosen.max()) < size
    except KeyError:
        return False
