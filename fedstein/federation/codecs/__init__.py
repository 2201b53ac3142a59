"""Codecs: one file each."""

from fedstein.federation.codecs.base import Codec, MessageInfo
from fedstein.federation.codecs.plain import PLAIN
from fedstein.registry import Registry

CODECS: Registry[Codec] = Registry("channel.codec", "fedstein.codecs", Codec)
CODECS.register(PLAIN)

__all__ = ["CODECS", "Codec", "MessageInfo"]
