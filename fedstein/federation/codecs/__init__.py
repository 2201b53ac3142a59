"""Codecs: one file each."""

from fedstein.federation.codecs.base import Codec, Layout, MessageInfo
from fedstein.federation.codecs.bfloat16 import BFLOAT16
from fedstein.federation.codecs.int4 import INT4
from fedstein.federation.codecs.int8 import INT8
from fedstein.federation.codecs.mixed import MIXED
from fedstein.federation.codecs.plain import PLAIN
from fedstein.registry import Registry

CODECS: Registry[Codec] = Registry("channel.codec", "fedstein.codecs", Codec)
for codec in (PLAIN, BFLOAT16, INT8, MIXED, INT4):
    CODECS.register(codec)

__all__ = ["CODECS", "Codec", "Layout", "MessageInfo"]
