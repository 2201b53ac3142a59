"""Conversion of rows that are images or sequences: users may pass them in the network's input shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.models.base import Model


def flat_rows(model: Model, x: Any, where: str) -> Any:
    """Flatten rows that have the model's input shape.

    Args:
        model: The model.
        x: Rows. Whatever has at most two dimensions is returned as it is.
        where: What messages call them.

    Returns:
        Rows x features.

    Raises:
        InputError: The rows have more dimensions than two and another shape than the model takes; channels first
            instead of last, for instance.
    """
    shape: tuple[int, ...] = tuple(getattr(x, "shape", ()))
    if len(shape) <= 2:
        return x
    if shape[1:] != model.input_shape:
        wanted = f" or rows of shape {model.input_shape}" if model.input_shape else ""
        raise InputError(
            f"{where}: model {model.name!r} expects rows x {model.features or 'features'}{wanted}, got shape {shape}"
        )
    return np.asanyarray(x).reshape(shape[0], -1)  # a mask stays and is refused later


def flat_clients(model: Model, clients: Any) -> Any:
    """Flatten the rows of all clients, given as a mapping or sequence of pairs (x, y); anything else stays as it is."""

    def flat(pair: Any, where: str) -> Any:
        if isinstance(pair, tuple | list) and len(pair) == 2:
            return flat_rows(model, pair[0], f"{where}: x"), pair[1]
        return pair

    if isinstance(clients, Mapping):
        return {name: flat(pair, f"client {name!r}") for name, pair in clients.items()}
    if isinstance(clients, Sequence) and not isinstance(clients, str):
        return [flat(pair, f"client {k}") for k, pair in enumerate(clients)]
    return clients
