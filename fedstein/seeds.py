"""Random keys: every draw of a run has a key made from the seed, the purpose of the draw, the round and the client."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

START, TRAIN, REPORT, CHOOSE, POOL, ORDER, GAUSSIAN, DRAWS = range(8)


def stream(seed: int | Array, purpose: int, *ids: int | Array) -> Array:
    """The key of one draw."""
    key = jax.random.fold_in(jax.random.key(seed), purpose)
    for number in ids:
        key = jax.random.fold_in(key, number)
    return key


def uniforms(seed: int, purpose: int, *ids: int, count: int) -> np.ndarray:
    """``count`` uniform numbers in (0, 1) for draws that happen on the host."""
    return np.asarray(jax.random.uniform(stream(seed, purpose, *ids), (count,), np.float32, minval=1e-7), np.float64)
