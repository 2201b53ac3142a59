"""Gaussian noise from a secret: SHAKE-256 of the secret and a label gives uniform bits, which become normal numbers.

The same secret and label give the same noise, so that a repeated request gets the same release. Somebody who does not
know the secret cannot predict it. Sums and noise are rounded to one grid of a power of two far below the noise (2^-20
of its standard deviation or finer) before they are added as integers. Neighbouring datasets can therefore give the same
outputs: the low bits of floating point sums reveal nothing (Mironov 2012).
"""

from __future__ import annotations

import hashlib
import math
import secrets
from pathlib import Path

import numpy as np

from fedstein.errors import InputError
from fedstein.files import write_bytes

GRID = 2.0**-20  # the grid's step is at most this share of the noise's standard deviation
BYTES = 32


def normal(secret: bytes, label: str, count: int) -> np.ndarray:
    """Generate the standard normal numbers that the secret and the label determine.

    Args:
        secret: At least 32 bytes.
        label: What the noise is for; every release has a label of its own.
        count: How many numbers.

    Returns:
        float64 numbers.
    """
    from scipy.special import ndtri  # imported here: it would take a third of the time of importing Fedstein

    if len(secret) < BYTES:
        raise ValueError(f"expected a secret of at least {BYTES} bytes, got {len(secret)}")
    stream = hashlib.shake_256(len(secret).to_bytes(4, "big") + secret + label.encode()).digest(8 * count)
    words = np.frombuffer(stream, np.dtype("<u8")).astype(np.uint64)
    return ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def add_noise(values: np.ndarray, sd: np.ndarray | float, secret: bytes, label: str) -> np.ndarray:
    """Add Gaussian noise to values, both rounded to one grid.

    Args:
        values: float64 numbers.
        sd: The standard deviation of the noise, one number or one for each value; above zero.
        secret: The secret.
        label: What the noise is for.

    Returns:
        The noisy values.
    """
    spread = np.broadcast_to(np.asarray(sd, np.float64), values.shape)
    noise = normal(secret, label, values.size).reshape(values.shape) * spread
    step = 2.0 ** math.floor(math.log2(float(spread.min()) * GRID))
    return (np.rint(values / step) + np.rint(noise / step)) * step


def seed_secret(seed: int) -> bytes:
    """The secret of runs in process, which anybody who knows the seed can compute: such runs only simulate privacy."""
    return hashlib.sha256(f"fedstein, in process, seed {seed}".encode()).digest()


def node_secret(folder: Path) -> bytes:
    """The secret of a node, drawn once by ``secrets`` and kept in its state folder, readable by its owner alone.

    Args:
        folder: The node's privacy folder.

    Returns:
        32 bytes.

    Raises:
        InputError: The file is damaged.
    """
    path = folder / "secret"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        write_bytes(path, secrets.token_bytes(BYTES))
        path.chmod(0o600)
    found = path.read_bytes()
    if len(found) != BYTES:
        raise InputError(f"{path} is damaged: expected {BYTES} bytes, got {len(found)}; restore it from a copy")
    return found
