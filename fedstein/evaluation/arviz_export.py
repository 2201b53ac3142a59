"""Converting draws and predictions to ArviZ's types: InferenceData of ArviZ 0.x, or a DataTree of ArviZ 1."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.errors import InputError

Group = Mapping[str, np.ndarray]


def arviz_data(
    groups: Mapping[str, Group],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
) -> Any:
    """Build ArviZ' own type from arrays.

    Args:
        groups: Variables of each group (``posterior``, ``log_likelihood``, ...). Those of ``observed_data`` have no
            axes for chains and draws; all others start with them.
        coords: The coordinates of each named dimension.
        dims: The dimensions of each variable, after chains and draws.
        attrs: What the posterior group says about itself.

    Returns:
        ``arviz.InferenceData``, or ``xarray.DataTree`` with ArviZ 1.

    Raises:
        InputError: ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ 0.23 issues a warning about ArviZ 1 when it is imported
            import arviz
    except ImportError:
        raise InputError("to_arviz needs ArviZ, which is not installed: pip install arviz") from None
    named = {name: list(values) for name, values in coords.items()}
    axes = {name: list(each) for name, each in dims.items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        data = arviz.from_dict({name: dict(group) for name, group in groups.items()}, coords=named, dims=axes)
        data["posterior"].attrs.update(attrs)
        return data
    by_name: dict[str, Any] = {name: dict(group) for name, group in groups.items()}
    data = arviz.from_dict(**by_name, coords=named, dims=axes)
    data.posterior.attrs.update(attrs)
    return data
