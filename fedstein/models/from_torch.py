"""Networks of PyTorch, translated to JAX layer by layer.

``torch.fx`` traces the module to a graph of calls. Each call to a known layer or function becomes a JAX function with
the weights of the module as parameters. The translation is then compared with the module itself at a few rows, so that
a difference is found here and not in the results. PyTorch is needed for this function only, not for training.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Model
from fedstein.models.from_pytree import from_pytree

LINKS = {"categorical": "softmax", "bernoulli": "sigmoid", "poisson": "exp"}  # what likelihoods do to the outputs
TOLERANCE = 1e-4  # the largest difference of outputs, relative to the largest output
INSTEAD = (
    "write the network in Flax or Equinox (models.from_flax, models.from_equinox) or in plain JAX (models.from_pytree)"
)
Layer = Callable[[Any, dict[str, Array], Array], Array]  # module, its parameters, input -> output


def from_torch(
    module: Any, *, likelihood: str, input_shape: int | Sequence[int], prior_scale: Any = 1.0, **others: Any
) -> Model:
    """A Bayesian network from a PyTorch module and a likelihood of its outputs.

    Supported: ``Linear``, ``Conv1d``, ``Conv2d``, ``MaxPool2d``, ``AvgPool2d``, ``LayerNorm``, ``Embedding``,
    ``Flatten``, ``Dropout`` (switched off), ``Identity``, the usual activations, and in ``forward`` arithmetic,
    ``flatten``, ``view``, ``reshape``, ``mean``, ``cat``, parameters and buffers of the module, and the functions of
    ``torch.nn.functional`` for linear maps, pooling, dropout and activations. Anything else is refused.

    Args:
        module: An instance of ``torch.nn.Module``. It takes rows of shape (rows, \\*input_shape), channels first, and
            returns rows x outputs.
        likelihood: ``"categorical"``, ``"bernoulli"``, ``"gaussian"`` or ``"poisson"``, as for ``from_pytree``.
        input_shape: The shape of one row.
        prior_scale: The standard deviation of the Gaussian prior of every parameter, as for ``from_pytree``. In a dict,
            parameters have the names of ``module.named_parameters()``.
        **others: ``init``, ``noise_sd``, ``input_dtype`` and ``name``, as for ``from_pytree``.

    Returns:
        The model. Initial particles have the scale of the module's parameters.

    Raises:
        InputError: PyTorch is not installed, the module cannot be traced or uses something that is not supported, or
            the translation does not give the module's outputs.
    """
    try:
        import torch
        from torch import fx
    except ImportError:
        raise InputError("models.from_torch needs PyTorch; install the extra: pip install 'fedstein[torch]'") from None
    name = others.setdefault("name", type(module).__name__)
    where = f"model {name!r}"
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"models.from_torch expects an instance of torch.nn.Module, got {type(module).__name__}")
    training = module.training
    module.eval()
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception as error:
        raise InputError(f"{where}: torch.fx cannot trace forward ({_first_line(error)}); {INSTEAD}") from None
    finally:
        module.train(training)
    names = _names_of_tensors(module)
    constants = {key: jnp.asarray(value.detach().cpu().numpy()) for key, value in module.named_buffers()}
    submodules = dict(module.named_modules())
    steps = [_step(where, node, submodules, names, constants) for node in graph.nodes]
    inputs = sum(node.op == "placeholder" for node in graph.nodes)
    if inputs != 1:
        raise InputError(f"{where}: forward must take one argument, the rows, got {inputs}; {INSTEAD}")
    last = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    kind = type(submodules[last.target]) if getattr(last, "op", "") == "call_module" else getattr(last, "target", "")
    ends_with = getattr(kind, "__name__", str(kind)).lower()
    if ends_with == LINKS.get(likelihood):
        raise InputError(
            f"{where}: forward ends with {ends_with}, but likelihood {likelihood!r} applies it itself; leave it out"
        )
    rows, expected = _outputs(where, module, input_shape, others.get("input_dtype"))
    params = {key: jnp.asarray(value.detach().cpu().numpy()) for key, value in module.named_parameters()}

    def apply(params: dict[str, Array], x: Array) -> Array:
        known: dict[str, Any] = {}
        for node, step in zip(graph.nodes, steps, strict=True):
            if node.op == "output":
                return fx.map_arg(node.args[0], lambda n: known[n.name])
            if node.op == "placeholder":
                known[node.name] = x
                continue
            args = fx.map_arg(node.args, lambda n: known[n.name])
            options = fx.map_arg(node.kwargs, lambda n: known[n.name])
            known[node.name] = step(params, *args, **options)
        raise AssertionError("a graph ends with its output")

    model = from_pytree(
        apply, params, likelihood=likelihood, input_shape=input_shape, prior_scale=prior_scale, **others
    )
    got = np.asarray(jax.jit(apply)(params, jnp.asarray(rows)))
    worst = float(np.max(np.abs(got - expected))) if got.shape == expected.shape else math.inf
    if not worst <= TOLERANCE * (1 + float(np.max(np.abs(expected)))):
        raise InputError(
            f"{where}: the translation to JAX and the module give different outputs (they differ by {worst:.3g}); "
            f"{INSTEAD}"
        )
    return model


def _names_of_tensors(module: Any) -> dict[str, str]:
    """For each name of a parameter the name under which ``named_parameters`` lists it; shared ones have several."""
    listed = {id(value): key for key, value in module.named_parameters()}
    return {key: listed[id(value)] for key, value in module.named_parameters(remove_duplicate=False)}


def _step(
    where: str, node: Any, submodules: dict[str, Any], names: dict[str, str], constants: dict[str, Array]
) -> Callable[..., Any]:
    """One call of the graph as a function of (params, *arguments)."""
    if node.op in ("placeholder", "output"):
        return lambda params: None
    if node.op == "get_attr":
        if node.target in constants:
            return lambda params: constants[node.target]
        if node.target not in names:
            raise InputError(
                f"{where}: forward uses the tensor {node.target!r}, which is neither a parameter nor a buffer of the "
                "module; register it with register_buffer"
            )
        return lambda params: params[names[node.target]]
    if node.op == "call_module":
        layer, kind = submodules[node.target], type(submodules[node.target]).__name__
        if kind not in LAYERS or getattr(layer, "padding_mode", "zeros") != "zeros":
            raise InputError(f"{where}: the layer {node.target!r} ({kind}) is not supported; {INSTEAD}")
        own = {key: names[f"{node.target}.{key}"] for key, _ in layer.named_parameters()}

        def call(params: dict[str, Array], x: Array) -> Array:
            return LAYERS[kind](layer, {key: params[name] for key, name in own.items()}, x)

        return call
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    if name not in FUNCTIONS:
        raise InputError(f"{where}: forward calls {name!r}, which is not supported; {INSTEAD}")
    function = FUNCTIONS[name]
    return lambda params, *args, **options: function(*args, **options)


def _outputs(where: str, module: Any, input_shape: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """A few rows, and the outputs of the module for them."""
    import torch

    shape = (input_shape,) if isinstance(input_shape, int) else tuple(input_shape)
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise InputError(f"{where}: expected input_shape as positive whole numbers, got {input_shape!r}")
    draw = np.random.default_rng(0)
    rows = draw.integers(0, 2, (3, *shape)) if dtype is not None else draw.normal(size=(3, *shape)).astype(np.float32)
    training, kinds = module.training, {value.dtype for value in module.parameters()}
    module.eval()
    try:
        with torch.no_grad():
            x = torch.as_tensor(rows)
            found = module(x.to(kinds.pop()) if dtype is None and len(kinds) == 1 else x)
            values = None if not isinstance(found, torch.Tensor) else found.float().cpu().numpy()
    except Exception as error:
        integers = "; rows of integers need input_dtype='int32'" if dtype is None and "Embedding" in str(module) else ""
        raise InputError(
            f"{where}: forward(x) failed for x of shape {rows.shape} (rows, *input_shape): {_first_line(error)}"
            f"{integers}"
        ) from None
    finally:
        module.train(training)
    if values is None:
        raise InputError(
            f"{where}: forward must return one tensor, rows x outputs, got {type(found).__name__}; return the outputs "
            "alone"
        )
    return rows, values


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _pair(value: Any, count: int) -> tuple[int, ...]:
    return (int(value),) * count if isinstance(value, int) else tuple(int(v) for v in value)


def _linear(layer: Any, params: dict[str, Array], x: Array) -> Array:
    out = x @ params["weight"].T
    return out + params["bias"] if "bias" in params else out


def _convolution(layer: Any, params: dict[str, Array], x: Array) -> Array:
    count = params["weight"].ndim - 2
    padding = layer.padding.upper() if isinstance(layer.padding, str) else [(p, p) for p in _pair(layer.padding, count)]
    out = jax.lax.conv_general_dilated(
        x,
        params["weight"],
        _pair(layer.stride, count),
        padding,
        rhs_dilation=_pair(layer.dilation, count),
        feature_group_count=layer.groups,
    )
    return out + params["bias"].reshape(-1, *(1,) * count) if "bias" in params else out


class _Pooling(NamedTuple):
    """The settings of a pooling layer, under the names of ``torch.nn.functional.max_pool2d`` and ``avg_pool2d``."""

    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    ceil_mode: bool = False
    return_indices: bool = False
    count_include_pad: bool = True
    divisor_override: Any = None


def _pool(layer: Any, x: Array, start: float, join: Any) -> Array:
    if layer.ceil_mode or getattr(layer, "return_indices", False) or _pair(getattr(layer, "dilation", 1), 2) != (1, 1):
        raise InputError(f"pooling with ceil_mode, return_indices or dilation is not supported; {INSTEAD}")
    window, padding = _pair(layer.kernel_size, 2), _pair(layer.padding, 2)
    strides = _pair(layer.stride if layer.stride else layer.kernel_size, 2)
    pads = ((0, 0), (0, 0), *((p, p) for p in padding))
    return jax.lax.reduce_window(x, start, join, (1, 1, *window), (1, 1, *strides), pads)


def _average_pool(layer: Any, params: dict[str, Array], x: Array) -> Array:
    if layer.divisor_override is not None or (not layer.count_include_pad and any(_pair(layer.padding, 2))):
        raise InputError(f"average pooling with another divisor is not supported; {INSTEAD}")
    return _pool(layer, x, 0.0, jax.lax.add) / math.prod(_pair(layer.kernel_size, 2))


def _layer_norm(layer: Any, params: dict[str, Array], x: Array) -> Array:
    axes = tuple(range(-len(layer.normalized_shape), 0))
    centred = x - x.mean(axes, keepdims=True)
    out = centred / jnp.sqrt((centred**2).mean(axes, keepdims=True) + layer.eps)
    return out * params.get("weight", 1.0) + params.get("bias", 0.0)


def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """``torch.flatten``."""
    end = end_dim % x.ndim + 1
    return x.reshape(*x.shape[:start_dim], -1, *x.shape[end:])


def _mean(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    return x.mean(tuple(dim) if isinstance(dim, list | tuple) else dim, keepdims=keepdim)


def _reshape(x: Array, *shape: Any) -> Array:
    return x.reshape(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


def _gelu(x: Array, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _max_pool2d(x: Array, *sizes: Any, **options: Any) -> Array:
    return _pool(_Pooling(*sizes, **options), x, -math.inf, jax.lax.max)


def _avg_pool2d(
    x: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Array:
    layer = _Pooling(kernel_size, stride, padding, 1, ceil_mode, False, count_include_pad, divisor_override)
    return _average_pool(layer, {}, x)


def _linear_map(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return x @ weight.T if bias is None else x @ weight.T + bias


LAYERS: dict[str, Layer] = {
    "Linear": _linear,
    "Conv1d": _convolution,
    "Conv2d": _convolution,
    "MaxPool2d": lambda layer, params, x: _pool(layer, x, -math.inf, jax.lax.max),
    "AvgPool2d": _average_pool,
    "LayerNorm": _layer_norm,
    "Embedding": lambda layer, params, x: params["weight"][x],
    "Flatten": lambda layer, params, x: flatten(x, layer.start_dim, layer.end_dim),
    "ReLU": lambda layer, params, x: jax.nn.relu(x),
    "LeakyReLU": lambda layer, params, x: jax.nn.leaky_relu(x, layer.negative_slope),
    "ELU": lambda layer, params, x: jax.nn.elu(x, layer.alpha),
    "GELU": lambda layer, params, x: _gelu(x, layer.approximate),
    "SiLU": lambda layer, params, x: jax.nn.silu(x),
    "Softplus": lambda layer, params, x: jax.nn.softplus(layer.beta * x) / layer.beta,
    "Tanh": lambda layer, params, x: jnp.tanh(x),
    "Sigmoid": lambda layer, params, x: jax.nn.sigmoid(x),
    "Softmax": lambda layer, params, x: jax.nn.softmax(x, layer.dim),
    "LogSoftmax": lambda layer, params, x: jax.nn.log_softmax(x, layer.dim),
    **{kind: lambda layer, params, x: x for kind in ("Identity", "Dropout", "Dropout1d", "Dropout2d")},
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x, inplace=False: jax.nn.relu(x),
    "gelu": _gelu,
    "silu": lambda x, inplace=False: jax.nn.silu(x),
    "leaky_relu": lambda x, negative_slope=0.01, inplace=False: jax.nn.leaky_relu(x, negative_slope),
    "elu": lambda x, alpha=1.0, inplace=False: jax.nn.elu(x, alpha),
    "softplus": lambda x, beta=1.0, threshold=20.0: jax.nn.softplus(beta * x) / beta,
    "softmax": lambda x, dim=-1, **unused: jax.nn.softmax(x, dim),
    "log_softmax": lambda x, dim=-1, **unused: jax.nn.log_softmax(x, dim),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    **{name: getattr(jnp, name) for name in ("exp", "log", "sqrt", "sin", "cos", "abs", "square")},
    "linear": _linear_map,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "dropout": lambda x, p=0.5, training=True, inplace=False: x,
    "cat": lambda parts, dim=0: jnp.concatenate(parts, dim),
    "flatten": flatten,
    "view": _reshape,
    "reshape": _reshape,
    "mean": _mean,
    "squeeze": lambda x, dim=None: jnp.squeeze(x, dim),
    "unsqueeze": lambda x, dim: jnp.expand_dims(x, dim),
    "size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
    "getattr": getattr,
    "getitem": operator.getitem,
    "neg": operator.neg,
    "pow": operator.pow,
    "transpose": jnp.swapaxes,
    "permute": lambda x, *dims: jnp.transpose(x, dims[0] if len(dims) == 1 else dims),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "matmul": operator.matmul,
}
