"""Four bits for each parameter of each particle: an eighth of the bytes of float32."""

from __future__ import annotations

from functools import partial

from fedstein.federation.codecs.base import Codec
from fedstein.federation.codecs.quantise import Bits, decode_quantised, encode_quantised

BITS = Bits(4, 4, 4)
INT4 = Codec(
    "int4",
    "4 bits with dither; particles as differences, sites as scores and square roots",
    partial(encode_quantised, BITS),
    partial(decode_quantised, BITS),
)
