"""For Flower users with their own ServerApp: ``FedStein`` is a ``Strategy``, and its clients run ``client_app``.

This needs the extra: ``pip install 'fedstein[flower]'``. ``examples/flower`` is a complete example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedstein.errors import InputError

if TYPE_CHECKING:
    from fedstein.flower.node.client_app import answer
    from fedstein.flower.node.client_app import app as client_app
    from fedstein.flower.server.strategy import FedStein

__all__ = ["FedStein", "answer", "client_app"]


def __getattr__(name: str) -> Any:
    """Import on first use: Flower is an extra, and a client must set its threads before it imports JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "FedStein":
            from fedstein.flower.server.strategy import FedStein

            return FedStein
        from fedstein.flower.node import client_app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise InputError("fedstein.flower needs Flower; install it with: pip install 'fedstein[flower]'") from None
    return client_app.answer if name == "answer" else client_app.app
