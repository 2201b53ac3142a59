"""The same SVGD step in plain PyTorch, written with care: one wide product for all particles."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from jax import Array

from fedstein.studies.bench.timing import Case

Leaves = dict[str, Any]


def torch_blr(label: str, particles: dict[str, Array], x: Array, y: Array, scale: float, rate: float) -> list[Case]:
    """Return the case of the Bayesian logistic regression, or nothing if PyTorch is not installed."""
    if not find_spec("torch"):
        return []
    import torch

    rows, signs = torch.tensor(np.asarray(x)), torch.tensor(2 * np.asarray(y, np.float32) - 1)

    def log_density(leaves: Leaves) -> Any:
        w, log_xi = leaves["w"], leaves["log_xi"]
        likelihood = scale * torch.nn.functional.logsigmoid(signs[:, None] * (rows @ w.T)).sum()
        prior = 0.5 * w.shape[1] * log_xi - 0.5 * log_xi.exp() * (w * w).sum(1) + log_xi - rate * log_xi.exp()
        return likelihood + prior.sum()

    return [Case(f"torch, {label}", stepper(particles, log_density, 0.05, 1e-9))]


def torch_bnn(
    label: str, particles: dict[str, Array], x: Array, y: Array, scale: float, precision: float
) -> list[Case]:
    """Return the case of the network with one hidden layer, or nothing if PyTorch is not installed."""
    if not find_spec("torch"):
        return []
    import torch

    rows, labels = torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y, np.int64))
    # Stored as particle x hidden x inputs, so that the first layer of all particles is one matrix without a copy.
    stored = {**particles, "w1": np.ascontiguousarray(np.swapaxes(np.asarray(particles["w1"]), 1, 2))}

    def log_density(leaves: Leaves) -> Any:
        n, hidden, inputs = leaves["w1"].shape
        signals = (rows @ leaves["w1"].reshape(n * hidden, inputs).T).reshape(len(rows), n, hidden).permute(1, 0, 2)
        out = torch.relu(signals + leaves["b1"][:, None, :]) @ leaves["w2"] + leaves["b2"][:, None, :]
        chosen = torch.log_softmax(out, dim=-1).gather(2, labels[None, :, None].expand(n, -1, 1)).sum()
        return scale * chosen - 0.5 * precision * sum((leaf**2).sum() for leaf in leaves.values())

    return [Case(f"torch, {label}", stepper(stored, log_density, 1e-3, 1e-6))]


def stepper(
    particles: dict[str, Any], log_density: Callable[[Leaves], Any], step_size: float, epsilon: float
) -> Callable[[], None]:
    """Make a function that takes one SVGD step. Between steps the particles are one flat array."""
    import torch

    shapes = {name: np.asarray(leaf).shape for name, leaf in particles.items()}
    n = next(iter(shapes.values()))[0]
    widths = [int(np.prod(shape[1:])) for shape in shapes.values()]
    theta = torch.cat([torch.tensor(np.array(leaf).reshape(n, -1)) for leaf in particles.values()], dim=1)
    history = torch.zeros_like(theta)
    apart = ~torch.eye(n, dtype=torch.bool)

    def step() -> None:
        nonlocal theta
        at = theta.detach().requires_grad_()
        pieces = torch.split(at, widths, dim=1)
        leaves = {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        (score,) = torch.autograd.grad(log_density(leaves), at)
        with torch.no_grad():
            squared = torch.cdist(theta, theta) ** 2
            h = squared[apart].median() / float(np.log(n))
            kernel = torch.exp(-squared / h)
            phi = (kernel @ score + (2 / h) * (torch.diag(kernel.sum(1)) - kernel) @ theta) / n
            history.mul_(0.9).addcmul_(phi, phi, value=0.1)
            theta = theta + step_size * phi / (epsilon + history.sqrt())

    return step
