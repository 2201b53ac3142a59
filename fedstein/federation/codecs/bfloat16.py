"""Floating point numbers rounded to bfloat16: half the bytes of float32, the same range, three digits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fedstein.federation.codecs.base import Codec, MessageInfo
from fedstein.inference.sites.base import Arrays


def encode(arrays: Arrays, info: MessageInfo) -> Arrays:
    """Round floating point arrays to bfloat16, stored as 16-bit integers, which can be sent over Flower."""
    floating = {name: jnp.issubdtype(array.dtype, jnp.floating) for name, array in arrays.items()}
    return {
        name: np.asarray(jnp.asarray(array).astype(jnp.bfloat16)).view(np.uint16) if floating[name] else array
        for name, array in arrays.items()
    }


def decode(arrays: Arrays, info: MessageInfo) -> Arrays:
    """Read what ``encode`` wrote, in the precision of the run."""
    return {
        name: jnp.asarray(np.asarray(array).view(jnp.bfloat16)).astype(info.precision)
        if array.dtype == np.uint16
        else array
        for name, array in arrays.items()
    }


BFLOAT16 = Codec("bfloat16", "floating point numbers rounded to bfloat16", encode, decode)
