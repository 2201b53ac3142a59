"""The kernels by name: the built-in RBF kernel, and what plug-ins add."""

from __future__ import annotations

from fedstein.registry import Registry
from fedstein.stein.kernel import Kernel
from fedstein.stein.rbf import RBF

KERNELS: Registry[Kernel] = Registry("algorithm.kernel", "fedstein.kernels", Kernel)
KERNELS.register(RBF)
