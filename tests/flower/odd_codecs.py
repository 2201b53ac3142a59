"""Codecs whose wire arrays can be malformed in many ways: one with scales, and one with 64 bits in a float32 run."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.federation.codecs import Codec, MessageInfo

SCALE = "/scale"


def quantise(arrays: dict[str, Any], info: MessageInfo) -> dict[str, Any]:
    """Every array as 16-bit integers and one scale."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        plain = np.asarray(array, np.float32)
        scale = max(float(np.max(np.abs(plain), initial=0.0)) / 32767, 1e-30)
        found[name] = np.round(plain / np.float32(scale)).astype(np.int16)
        found[name + SCALE] = np.array(scale, np.float32)
    return found


def restore(arrays: dict[str, Any], info: MessageInfo) -> dict[str, Any]:
    found = {}
    for name, array in arrays.items():
        if not name.endswith(SCALE):
            scale = np.asarray(arrays[name + SCALE])
            if not scale > 0:
                raise ZeroDivisionError(f"a scale of {scale}")
            found[name] = jnp.asarray(np.asarray(array, info.precision) * scale)
    return found


def to_fixed(arrays: dict[str, Any], info: MessageInfo) -> dict[str, Any]:
    return {name: np.round(np.asarray(array, np.float64) * 2.0**40).astype(np.int64) for name, array in arrays.items()}


def from_fixed(arrays: dict[str, Any], info: MessageInfo) -> dict[str, Any]:
    return {name: jnp.asarray((np.asarray(array) * 2.0**-40).astype(info.precision)) for name, array in arrays.items()}


def as_bits(arrays: dict[str, Any], info: MessageInfo) -> dict[str, Any]:
    return {name: np.asarray(array) > 0 for name, array in arrays.items()}


SCALED = Codec("scaled", "16-bit integers and a scale", quantise, restore)
FIXED = Codec("fixed", "64-bit fixed point numbers", to_fixed, from_fixed)
SIGNS = Codec("signs", "the signs alone, as booleans", as_bits, lambda arrays, info: arrays)
