"""A check for models of other libraries that are passed to ``fit`` directly; the message names the adapter to use."""

from __future__ import annotations

from typing import Any

from fedstein.errors import InputError
from fedstein.models.base import Model

ADAPTERS = {
    "equinox": "from_equinox(network, likelihood=..., input_shape=...)",
    "flax": "from_flax(network, likelihood=..., input_shape=...)",
    "torch": "from_torch(module, likelihood=..., input_shape=...)",
}  # by the package of a base class
FUNCTION = "from_numpyro(function, x, y) for a NumPyro function, or custom(...) for a log-prior and a log-likelihood"


def check_kind_of_model(model: Any) -> None:
    """Raise unless the object is the name of a model or a model.

    Args:
        model: What was passed to ``fit``.

    Raises:
        InputError: It is something else. The message says which function makes a model of it.
    """
    if isinstance(model, (str, Model)):
        return
    packages = {parent.__module__.partition(".")[0] for parent in type(model).__mro__}
    found = [call for package, call in ADAPTERS.items() if package in packages]
    if isinstance(model, type):
        advice = "an object, not a class; create the object first"
    elif found:
        advice = f"fedstein.models.{found[0]}"
    elif callable(model):
        advice = f"fedstein.models.{FUNCTION}"
    else:
        advice = "one of fedstein.models.custom, from_numpyro, from_flax, from_equinox, from_torch or from_pytree"
    name = getattr(model, "__name__", None) or type(model).__name__
    raise InputError(f"model: expected the name of a model or a fedstein model, got {name}; pass {advice}")
