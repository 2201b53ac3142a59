"""Four bits for each parameter of each particle: an eighth of the bytes of float32."""

from __future__ import annotations

from functools import partial

from fedstein.federation.codecs.base import Codec
from fedstein.federation.codecs.quantise import decode_quantised, encode_quantised

INT4 = Codec(
    "int4",
    "4 bits with stochastic rounding; particles as differences, sites as scores and square roots",
    partial(encode_quantised, 4),
    partial(decode_quantised, 4),
)
