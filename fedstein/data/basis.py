"""A shared orthogonal basis of the inputs, in which a diagonal approximation of the curvature is more accurate.

The basis Q holds the eigenvectors of sum_k X_k' X_k, the sum of the clients' second moments. Only the sum is used, so a
secure sum can replace it. Every orthogonal basis gives a correct result; this one gives a better approximation. A
client that joins later rotates its inputs with the same basis. A layer that multiplies the inputs by W is replaced by
W Q on the rotated inputs x Q. An isotropic prior and an isotropic start are invariant under the rotation, and particles
are returned to the user in the original coordinates.

With at most ``DENSE`` inputs, Q holds all eigenvectors. With more inputs, subspace iteration on sums of X' (X probe)
finds the leading eigenvectors, and Q is a product of as many Householder reflections, stored as I - V T V'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

DENSE = 2048  # with at most this many inputs, all eigenvectors are used
RANK = 256  # the default number of leading eigenvectors with more inputs
SPARE = 10  # additional directions of the subspace iteration, for accuracy
PASSES = 3  # the number of passes of the subspace iteration

Rotation = Mapping[str, np.ndarray]  # {"u"}: Q itself; {"v", "t"}: Q = I - V T V'
Total = Callable[[np.ndarray | None], np.ndarray]  # probe -> the sum of ``moments`` over clients


def moments(x: np.ndarray, probe: np.ndarray | None) -> np.ndarray:
    """Compute one client's summand.

    Args:
        x: The client's rows, n x inputs.
        probe: Directions, inputs x m, or None.

    Returns:
        X'X, or X'(X probe) if there is a probe, in float64.
    """
    wide = x.astype(np.float64)
    return wide.T @ wide if probe is None else wide.T @ (wide @ probe)


def find_basis(total: Total, inputs: int, rank: int, seed: int) -> Rotation:
    """Find the basis from sums over clients.

    Args:
        total: Returns the sum of ``moments`` over the clients for a probe (or None).
        inputs: The number of inputs.
        rank: The number of leading eigenvectors; 0 selects it from the number of inputs.
        seed: The seed of the random probe of the subspace iteration.

    Returns:
        The basis Q, either dense or as reflections.
    """
    if not rank and inputs <= DENSE:
        _, vectors = np.linalg.eigh(total(None))
        return {"u": fix_signs(vectors[:, ::-1])}
    rank = min(rank or RANK, inputs)
    probe = np.random.default_rng(seed).normal(size=(inputs, min(rank + SPARE, inputs)))
    for _ in range(PASSES):
        probe, _ = np.linalg.qr(total(probe))
    small = probe.T @ total(probe)
    _, vectors = np.linalg.eigh(0.5 * (small + small.T))
    leading = fix_signs(probe @ vectors[:, ::-1][:, :rank])
    return reflections(leading)


def fix_signs(vectors: np.ndarray) -> np.ndarray:
    """Fix the sign of each eigenvector, which is arbitrary, so that its largest entry is positive."""
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    return np.ascontiguousarray(vectors * np.where(largest < 0, -1.0, 1.0))


def reflections(leading: np.ndarray) -> Rotation:
    """Complete orthonormal columns to an orthogonal matrix I - V T V' (the compact form of LAPACK's QR).

    Args:
        leading: inputs x rank, with orthonormal columns.

    Returns:
        V and T. The first columns of I - V T V' span ``leading``.
    """
    raw, tau = np.linalg.qr(leading, mode="raw")
    v = np.tril(raw.T, -1)
    np.fill_diagonal(v, 1.0)
    t = np.zeros((len(tau), len(tau)))
    for j, scale in enumerate(tau):
        t[:j, j] = -scale * t[:j, :j] @ (v[:, :j].T @ v[:, j])
        t[j, j] = scale
    return {"v": v, "t": t}


def inputs_of(rotation: Rotation) -> int:
    """Return the number of inputs that a basis is made for."""
    return (rotation["u"] if "u" in rotation else rotation["v"]).shape[0]


def rotate(rotation: Rotation, x: np.ndarray) -> np.ndarray:
    """Express rows in the basis: x Q.

    Args:
        rotation: The basis Q.
        x: Rows x inputs.

    Returns:
        The rotated rows, in the precision of ``x``.
    """
    if "u" in rotation:
        return x @ rotation["u"].astype(x.dtype)
    wide = x.astype(np.float64)
    return (wide - (wide @ rotation["v"]) @ rotation["t"] @ rotation["v"].T).astype(x.dtype)


def restore(rotation: Rotation, rows: np.ndarray) -> np.ndarray:
    """Invert ``rotate``: rows Q'.

    Args:
        rotation: The basis Q.
        rows: Rows in the basis.

    Returns:
        The rows in the original coordinates, in their own precision.
    """
    wide = rows.astype(np.float64)
    if "u" in rotation:
        return (wide @ rotation["u"].T).astype(rows.dtype)
    return (wide - (wide @ rotation["v"]) @ rotation["t"].T @ rotation["v"].T).astype(rows.dtype)


def restore_particles(rotation: Rotation, particles: Any, widths: tuple[int, ...], block: int) -> np.ndarray:
    """Express particles in the original coordinates of the inputs.

    Args:
        rotation: The basis Q.
        particles: N x d particles of a model on rotated inputs.
        widths: The widths of the model's blocks.
        block: The index of the block that multiplies the inputs.

    Returns:
        N x d particles of the same model on the original inputs.
    """
    particles = np.array(particles)
    start, inputs = sum(widths[:block]), inputs_of(rotation)
    part = particles[:, start : start + widths[block]]
    rows = restore(rotation, part.reshape(-1, inputs))
    particles[:, start : start + widths[block]] = rows.reshape(part.shape)
    return particles
