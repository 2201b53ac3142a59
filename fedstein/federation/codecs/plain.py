"""Arrays are sent unchanged, in the precision of the run."""

from __future__ import annotations

from fedstein.federation.codecs.base import Codec, MessageInfo
from fedstein.inference.sites.base import Arrays


def unchanged(arrays: Arrays, info: MessageInfo) -> Arrays:
    """Return the same arrays."""
    return arrays


PLAIN = Codec("plain", "arrays as they are, in the precision of the run", unchanged, unchanged)
