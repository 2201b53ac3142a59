"""Eight bits for scores, and four for particles and precisions. Sites are most sensitive to errors in scores.

The particles follow the score of the sites, so an error in it moves them. A precision says how the score changes on the
way from the point where the site was expanded, and the error in a move is averaged away by the next trainings.
"""

from __future__ import annotations

from functools import partial

from fedstein.federation.codecs.base import Codec
from fedstein.federation.codecs.quantise import Bits, decode_quantised, encode_quantised

BITS = Bits(points=4, roots=4, others=8)
MIXED = Codec(
    "mixed",
    "8 bits for scores, 4 for particles and square roots of precisions; otherwise as int8",
    partial(encode_quantised, BITS),
    partial(decode_quantised, BITS),
)
