"""Networks of Flax, both APIs: ``flax.nnx`` and ``flax.linen``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Model
from fedstein.models.from_pytree import from_pytree


def from_flax(
    module: Any,
    *,
    likelihood: str,
    input_shape: int | Sequence[int],
    prior_scale: Any = 1.0,
    init: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Model:
    """A Bayesian network from a Flax module and a likelihood of its outputs.

    Args:
        module: A ``flax.linen.Module``, or an instance of a ``flax.nnx.Module``. It takes rows of shape (rows,
            \\*input_shape) and returns rows x outputs.
        likelihood: ``"categorical"``, ``"bernoulli"``, ``"gaussian"`` or ``"poisson"``, as for ``from_pytree``.
        input_shape: The shape of one row.
        prior_scale: The standard deviation of the Gaussian prior of every parameter, as for ``from_pytree``.
        init: For ``nnx``: ``init(rngs)`` builds the module of one initial particle, ``lambda rngs: Net(rngs=rngs)``.
            Without it, particles are drawn with the scale of the parameters of ``module``. Linen modules draw their
            own.
        options: Keyword arguments for the module's call, ``{"train": False}``.
        **others: ``noise_sd``, ``input_dtype`` and ``name``, as for ``from_pytree``.

    Returns:
        The model.

    Raises:
        InputError: Flax is not installed, the module is not one of Flax, it has state besides its parameters (batch
            statistics), it fails, or its outputs do not go with the likelihood.
    """
    try:
        from flax import linen, nnx
    except ImportError:
        raise InputError("models.from_flax needs Flax; install the extra: pip install 'fedstein[flax]'") from None
    given = {"likelihood": likelihood, "input_shape": input_shape, "prior_scale": prior_scale, **others}
    call = dict(options or {})
    name = given.setdefault("name", type(module).__name__)
    if isinstance(module, linen.Module):
        if init is not None:
            raise InputError(f"model {name!r}: a Linen module draws its own initial values; leave init out")
        return _from_linen(module, call, given)
    if isinstance(module, nnx.Module):
        return _from_nnx(module, init, call, given)
    raise InputError(
        f"models.from_flax expects an instance of flax.nnx.Module or flax.linen.Module, got {_described(module)}"
    )


def _from_linen(module: Any, call: dict[str, Any], given: dict[str, Any]) -> Model:
    shape, dtype = given["input_shape"], given.get("input_dtype") or jnp.result_type(float)
    row = jnp.zeros((1, *((shape,) if isinstance(shape, int) else tuple(shape))), dtype)

    def initial(key: Array) -> Any:
        return module.init(key, row, **call)

    variables = _called(given["name"], "init(key, x)", row.shape, lambda: jax.jit(initial)(jax.random.key(0)))
    _refuse_state(given["name"], [kind for kind in variables if kind != "params"])
    if "params" not in variables:
        raise InputError(f"model {given['name']!r}: the module has no parameters")
    return from_pytree(
        lambda params, x: module.apply({"params": params}, x, **call),
        variables["params"],
        init=lambda key: initial(key)["params"],
        **given,
    )


def _from_nnx(module: Any, init: Callable[[Any], Any] | None, call: dict[str, Any], given: dict[str, Any]) -> Model:
    from flax import nnx

    def divided(module: Any) -> tuple[Any, Any, Any]:
        """Graph, parameters as a nested dict, and the rest."""
        module.eval()  # dropout off
        parts: Any = nnx.split(module, nnx.Param, ...)
        graph, parameters, rest = parts
        return graph, nnx.to_pure_dict(parameters), rest

    module = nnx.clone(module)  # the user's own stays as it is
    graph, params, rest = divided(module)
    kinds = {type(variable).__name__ for _, variable in nnx.to_flat_state(rest)}
    _refuse_state(given["name"], sorted(kinds - {"RngKey", "RngCount"}))
    skeleton = nnx.split(module, nnx.Param, ...)[1]

    def apply(params: Any, x: Array) -> Array:
        state = jax.tree.map(lambda leaf: leaf, skeleton)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state, rest)(x, **call)

    def initial(key: Array) -> Any:
        assert init is not None
        return divided(init(nnx.Rngs(key)))[1]

    return from_pytree(apply, params, init=None if init is None else initial, **given)


def _refuse_state(name: str, kinds: Sequence[str]) -> None:
    if kinds:
        raise InputError(
            f"model {name!r}: the module has state besides its parameters ({', '.join(kinds)}), which has no "
            "posterior; replace batch normalisation by layer or group normalisation"
        )


def _called(name: str, what: str, shape: tuple[int, ...], function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise InputError(
            f"model {name!r}: {what} failed for x of shape {shape}: {type(error).__name__}: {lines[0] if lines else ''}"
        ) from None


def _described(module: Any) -> str:
    return f"the class {module.__name__}; pass an instance" if isinstance(module, type) else type(module).__name__
