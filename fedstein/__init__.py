"""Fedstein: one Bayesian model over data that never leaves its owners.

``fedstein.fit`` trains a posterior over a list of client datasets; ``fedstein.stein`` holds the mathematics;
``fedstein.models`` the models. Nothing here touches JAX's x64 flag.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedstein.api import fit, resume
    from fedstein.errors import FedsteinError, InputError
    from fedstein.posterior import Posterior, load
    from fedstein.runs.callbacks import Callback

__version__ = "0.2.0"
__all__ = ["Callback", "FedsteinError", "InputError", "Posterior", "__version__", "fit", "load", "resume"]

_LAZY = {
    "fit": "fedstein.api",
    "resume": "fedstein.api",
    "Posterior": "fedstein.posterior",
    "load": "fedstein.posterior",
    "Callback": "fedstein.runs.callbacks",
    "FedsteinError": "fedstein.errors",
    "InputError": "fedstein.errors",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import fedstein`` costs nothing."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "metrics":
        return import_module("fedstein.evaluation.metrics")
    if name in ("stein", "models", "data", "sklearn"):
        return import_module(f"fedstein.{name}")
    raise AttributeError(f"module 'fedstein' has no attribute {name!r}")
