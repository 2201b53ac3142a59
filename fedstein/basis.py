"""An orthogonal change of the inputs in which diagonal curvature is faithful: the eigenvectors of sum_k X_k' X_k.

The clients' second moments are only ever used as a sum, so a secure sum can stand in for it. Any orthogonal basis is
correct, a good one is merely better: a client that arrives later rotates its inputs like everybody else. A layer that
multiplies the inputs by W becomes W Q on the rotated inputs x Q; an isotropic prior and start do not notice, and
particles are handed out in the original coordinates.

Up to ``DENSE`` inputs, Q is all eigenvectors. Beyond that the leading ones are found by subspace iteration on sums of
X' (X probe), and Q is a product of as many Householder reflections, kept as I - V T V': low rank plus the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

DENSE = 2048  # inputs up to which all eigenvectors are taken
RANK = 256  # leading eigenvectors beyond that, unless the user says otherwise
SPARE = 10  # further directions that make the leading ones accurate
PASSES = 3

Rotation = Mapping[str, np.ndarray]  # {"u"}: Q itself; {"v", "t"}: Q = I - V T V'
Total = Callable[[np.ndarray | None], np.ndarray]  # probe -> the sum of ``moments`` over clients


def moments(x: np.ndarray, probe: np.ndarray | None) -> np.ndarray:
    """A client's summand: X'X, or X'(X probe), in float64."""
    wide = x.astype(np.float64)
    return wide.T @ wide if probe is None else wide.T @ (wide @ probe)


def find_basis(total: Total, inputs: int, rank: int, seed: int) -> Rotation:
    """``rank`` 0 lets the number of inputs decide."""
    if not rank and inputs <= DENSE:
        _, vectors = np.linalg.eigh(total(None))
        return {"u": settle_signs(vectors[:, ::-1])}
    rank = min(rank or RANK, inputs)
    probe = np.random.default_rng(seed).normal(size=(inputs, min(rank + SPARE, inputs)))
    for _ in range(PASSES):
        probe, _ = np.linalg.qr(total(probe))
    small = probe.T @ total(probe)
    _, vectors = np.linalg.eigh(0.5 * (small + small.T))
    leading = settle_signs(probe @ vectors[:, ::-1][:, :rank])
    return reflections(leading)


def settle_signs(vectors: np.ndarray) -> np.ndarray:
    """Eigenvectors with their largest entry positive: they are unique only up to a sign."""
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    return np.ascontiguousarray(vectors * np.where(largest < 0, -1.0, 1.0))


def reflections(leading: np.ndarray) -> Rotation:
    """I - V T V' with orthogonal columns, the first ones spanning ``leading`` (LAPACK's compact form of QR)."""
    raw, tau = np.linalg.qr(leading, mode="raw")
    v = np.tril(raw.T, -1)
    np.fill_diagonal(v, 1.0)
    t = np.zeros((len(tau), len(tau)))
    for j, scale in enumerate(tau):
        t[:j, j] = -scale * t[:j, :j] @ (v[:, :j].T @ v[:, j])
        t[j, j] = scale
    return {"v": v, "t": t}


def inputs_of(rotation: Rotation) -> int:
    """How many inputs a basis is for."""
    return (rotation["u"] if "u" in rotation else rotation["v"]).shape[0]


def rotate(rotation: Rotation, x: np.ndarray) -> np.ndarray:
    """Rows x inputs -> the same rows in the basis, x Q."""
    if "u" in rotation:
        return x @ rotation["u"].astype(x.dtype)
    wide = x.astype(np.float64)
    return (wide - (wide @ rotation["v"]) @ rotation["t"] @ rotation["v"].T).astype(x.dtype)


def restore(rotation: Rotation, rows: np.ndarray) -> np.ndarray:
    """The inverse of ``rotate``: rows Q'."""
    wide = rows.astype(np.float64)
    if "u" in rotation:
        return (wide @ rotation["u"].T).astype(rows.dtype)
    return (wide - (wide @ rotation["v"]) @ rotation["t"].T @ rotation["v"].T).astype(rows.dtype)


def restore_particles(rotation: Rotation, particles: Any, widths: tuple[int, ...], block: int) -> np.ndarray:
    """Particles N x d with the block that multiplies the inputs back in the inputs' own coordinates."""
    particles = np.array(particles)
    start, inputs = sum(widths[:block]), inputs_of(rotation)
    part = particles[:, start : start + widths[block]]
    rows = restore(rotation, part.reshape(-1, inputs))
    particles[:, start : start + widths[block]] = rows.reshape(part.shape)
    return particles
