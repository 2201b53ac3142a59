"""Messages with points of theta, to which a client answers with its log-likelihood at each point.

If the prior is Gaussian given a few parameters h, a point is h and standard normal numbers: w = mu(h) + s R(h) z. The
message has the values of h, the sites that mu and R follow from, and a seed; server and clients make z from it, by the
raw stream of NumPy's Philox generator, which does not change between versions, and by the inverse of the normal
distribution function. Any other model gets its points as they are, in half precision. An answer has two sums over the
points that a client has made, so that points which differ are found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedstein.inference.collapse import parts_of
from fedstein.inference.natural import WIRE, packed, unpacked
from fedstein.inference.scale_sites import ScaleSites, draw_given
from fedstein.models.base import Model

SAME = 1e-6  # sums that differ by less, relative to their size, are of the same points
LARGEST = 100_000  # points that a client computes at

Request = Mapping[str, Any]


def uniforms(seed: int, purpose: int, rows: int, columns: int) -> np.ndarray:
    """rows x columns uniform numbers in (0, 1), the same wherever they are made."""
    raw = np.random.Philox(key=[seed & (2**63 - 1), purpose]).random_raw(rows * columns)
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5).reshape(rows, columns) / 2.0**53


def given_request(sites: ScaleSites, moved: np.ndarray, seed: int, widening: float) -> dict[str, np.ndarray]:
    """Points whose w is drawn given h.

    Args:
        sites: The sites, at one value of h or at several.
        moved: n x dim(h).
        seed: Fixes z.
        widening: s, by which the sds of w given h are larger.

    Returns:
        The message; ``points_of`` gives the points that are meant, and ``sites_of`` the sites in its precision.
    """
    return {
        "moved": np.asarray(moved, WIRE),
        "nodes": np.asarray(sites.nodes, np.float64),
        "eta": np.asarray(sites.eta, WIRE),
        "precision": np.stack([packed(matrix) for matrix in sites.precision]).astype(WIRE),
        "seed": np.array([seed], np.int64),
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
    frozen = tuple((name, np.asarray(request[name]).tobytes(), np.shape(request[name])) for name in sorted(request))
    kinds = tuple(np.asarray(request[name]).dtype.str for name in sorted(request))
    return _made(model, frozen, kinds)


@lru_cache(maxsize=1)  # many clients of one process are asked for the same points
def _made(model: Model, frozen: tuple[tuple[str, bytes, tuple[int, ...]], ...], kinds: tuple[str, ...]) -> np.ndarray:
    parts = zip(frozen, kinds, strict=True)
    request = {name: np.frombuffer(content, kind).reshape(shape) for (name, content, shape), kind in parts}
    from scipy.special import ndtri  # imported here: it would take a third of the time of importing Fedstein

    moved = np.asarray(request["moved"], np.float64)
    normal = ndtri(uniforms(int(request["seed"][0]), 0, len(moved), len(parts_of(model).given)))
    points = draw_given(model, sites_of(request), moved, float(request["widening"][0]) * normal)
    points.flags.writeable = False
    return points


def shapes_of(model: Model, request: Request) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and types that the arrays of a request must have, for the number of points and nodes that it names.

    Args:
        model: The model.
        request: The arrays as they came.

    Returns:
        A shape and a type for each array. A request with more points than ``LARGEST`` has none of the right shape.
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
    count = min(len(np.atleast_1d(request.get("moved", 0))), LARGEST)
    nodes = len(np.atleast_1d(request.get("nodes", 0)))
    return {
        "moved": ((count, dim - len(given)), "float32"),
        "nodes": ((nodes,), "float64"),
        "eta": ((nodes, dim), "float32"),
        "precision": ((nodes, triangle), "float32"),
        "seed": ((1,), "int64"),
        "widening": ((1,), "float64"),
    }


def count_of(request: Request) -> int:
    """The number of points of a request."""
    return len(request["standard"] if "standard" in request else request["moved"])


def likelihoods_message(points: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """A client's answer: log-likelihoods less the largest of them, in float32, and two sums over the points.

    Args:
        points: n x d.
        values: n log-likelihoods; what is not finite counts as minus infinity.
    """
    values = np.where(np.isfinite(values), values, -np.inf)
    top = values.max() if np.isfinite(values).any() else 0.0
    return {"log_likelihood": (values - top).astype(WIRE), "sums": sums_of(points)}


def sums_of(points: np.ndarray) -> np.ndarray:
    """Two numbers that tell other points from these."""
    return np.array([np.abs(points).sum(), points @ np.arange(1.0, points.shape[1] + 1) @ np.arange(len(points))])


def implausible_likelihoods(answer: Mapping[str, Any], points: np.ndarray) -> str:
    """Describe what is wrong with an answer of the right shapes; minus infinity is allowed, as a likelihood of zero."""
    values, expected = answer["log_likelihood"], sums_of(points)
    if np.isnan(values).any() or np.isposinf(values).any():
        return "a log-likelihood is NaN or plus infinity"
    scale = np.array([1.0, len(points) * points.shape[1]]) * max(float(expected[0]), 1e-300)
    if not (np.abs(np.asarray(answer["sums"]) - expected) <= SAME * scale).all():
        return "the log-likelihoods are for other points than those that were asked for; use the server's versions"
    return ""
