"""A codec: floating point numbers are rounded to bfloat16, half the bytes of float32."""

import jax.numpy as jnp
import numpy as np

from fedstein.federation.codecs import Codec, MessageInfo


def encode(arrays: dict, info: MessageInfo) -> dict:
    def rounded(array: np.ndarray) -> np.ndarray:
        if not np.issubdtype(array.dtype, np.floating):
            return array
        return np.asarray(jnp.asarray(array, jnp.bfloat16)).view(np.uint16)

    return {name: rounded(np.asarray(array)) for name, array in arrays.items()}


def decode(arrays: dict, info: MessageInfo) -> dict:
    def restored(array: np.ndarray) -> np.ndarray:
        return np.asarray(array).view(jnp.bfloat16).astype(info.precision) if array.dtype == np.uint16 else array

    return {name: jnp.asarray(restored(array)) for name, array in arrays.items()}


BFLOAT16 = Codec("bf16", "floating point numbers rounded to bfloat16", encode, decode)
