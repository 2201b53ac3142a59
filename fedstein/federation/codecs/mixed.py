"""Eight bits for scores, and four for particles and precisions. Sites are most sensitive to errors in scores.

The particles follow the score of the sites, so an error in the score moves them. A precision only says how the score
changes with the distance from the point where the site was expanded. Errors in the moves of particles average out over
the next trainings.
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
