"""Networks of Equinox, whose modules are pytrees and take one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Model
from fedstein.models.from_pytree import from_pytree


def from_equinox(
    module: Any,
    *,
    likelihood: str,
    input_shape: int | Sequence[int],
    prior_scale: Any = 1.0,
    init: Callable[[Array], Any] | None = None,
    **others: Any,
) -> Model:
    """A Bayesian network from an Equinox module and a likelihood of its outputs.

    Args:
        module: An ``equinox.Module``. As usual in Equinox it takes one row, of shape ``input_shape`` (channels first
            for its convolutions), and returns the outputs.
        likelihood: ``"categorical"``, ``"bernoulli"``, ``"gaussian"`` or ``"poisson"``, as for ``from_pytree``.
        input_shape: The shape of one row.
        prior_scale: The standard deviation of the Gaussian prior of every parameter, as for ``from_pytree``.
        init: ``init(key)`` builds the module of one initial particle. Without it, particles are drawn with the scale of
            the parameters of ``module``.
        **others: ``noise_sd``, ``input_dtype`` and ``name``, as for ``from_pytree``.

    Returns:
        The model. Floating-point arrays of the module are its parameters; everything else stays as it is.

    Raises:
        InputError: Equinox is not installed, the module is none of Equinox, it has state (batch statistics), it fails,
            or its outputs do not go with the likelihood.
    """
    try:
        import equinox
    except ImportError:
        raise InputError(
            "models.from_equinox needs Equinox; install the extra: pip install 'fedstein[equinox]'"
        ) from None
    name = others.setdefault("name", type(module).__name__)
    if not isinstance(module, equinox.Module):
        got = f"the class {module.__name__}; pass an instance" if isinstance(module, type) else type(module).__name__
        raise InputError(f"models.from_equinox expects an instance of equinox.Module, got {got}")
    stateful = [
        type(leaf).__name__
        for leaf in jax.tree.leaves(module, is_leaf=lambda leaf: isinstance(leaf, equinox.nn.StateIndex))
        if isinstance(leaf, equinox.nn.StateIndex)
    ]
    if stateful:
        raise InputError(
            f"model {name!r}: the module has state besides its parameters, which has no posterior; replace batch "
            "normalisation by layer or group normalisation"
        )
    module = equinox.nn.inference_mode(module)  # dropout off
    params, rest = equinox.partition(module, equinox.is_inexact_array)

    def apply(params: Any, x: Array) -> Array:
        whole = equinox.combine(params, rest)
        return jax.vmap(lambda row: whole(row))(x)

    def initial(key: Array) -> Any:
        assert init is not None
        return equinox.filter(init(key), equinox.is_inexact_array)

    return from_pytree(
        apply,
        params,
        likelihood=likelihood,
        input_shape=input_shape,
        prior_scale=prior_scale,
        init=None if init is None else initial,
        **others,
    )
