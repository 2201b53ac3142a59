"""Pickling of models: a built-in model is stored as its settings and built again; a custom model is pickled itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.errors import InputError
from fedstein.models.base import Model


class BuiltIn(NamedTuple):
    """The facts that are needed, beside the settings, to build a model again."""

    features: int
    classes: int
    task: str


def packed_model(model: Model, own: bool) -> BuiltIn | Model:
    """Return the object that a pickle holds in place of a model.

    Args:
        model: The model.
        own: Whether it is one of the user's own.

    Returns:
        How to build it, or the model itself.

    Raises:
        InputError: The functions of the user's model cannot be pickled.
    """
    if not own:
        return BuiltIn(model.features, model.classes, model.task)
    try:
        pickle.dumps(model)
    except Exception as error:
        raise InputError(
            f"model {model.name!r} cannot be pickled ({' '.join(str(error).split())[:160]}): pickle needs functions "
            "that can be imported; define them at the top of a module, not as lambdas or inside a function, or use "
            "posterior.save(DIR) and fedstein.load(DIR, model=...)"
        ) from None
    return model


def unpacked_model(packed: BuiltIn | Model, build: Callable[..., Any]) -> Model:
    """The model from what ``packed_model`` returned.

    Args:
        packed: Its result.
        build: Features, classes and task -> the built-in model.
    """
    return packed if isinstance(packed, Model) else build(*packed)
