"""Eight bits for each parameter of each particle: a quarter of the bytes of float32."""

from __future__ import annotations

from functools import partial

from fedstein.federation.codecs.base import Codec
from fedstein.federation.codecs.quantise import decode_quantised, encode_quantised

INT8 = Codec(
    "int8",
    "8 bits with stochastic rounding; particles as differences, sites as scores and square roots",
    partial(encode_quantised, 8),
    partial(decode_quantised, 8),
)
