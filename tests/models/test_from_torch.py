"""PyTorch modules, translated: the same outputs and gradients as PyTorch gives, or a refusal."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein import models
from fedstein.errors import InputError

X = np.random.default_rng(0).normal(size=(6, 1, 8, 8)).astype(np.float32)
Y = np.arange(6) % 3


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"fedstein\[torch\]"):
        models.from_torch(object(), likelihood="categorical", input_shape=3)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def convolutional(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(0)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding="same"), nn.Tanh()
            )
            self.pool, self.norm = nn.AvgPool2d(2), nn.LayerNorm(24)
            self.head = nn.Linear(24, 3)

        def forward(self, x: Any) -> Any:
            x = torch.flatten(self.pool(self.body(x)), 1)
            return self.head(torch.nn.functional.gelu(self.norm(x)) + 0.1 * x.view(x.size(0), -1))

    return Network()


def test_a_module_gives_pytorchs_log_likelihood_and_gradient(torch: Any) -> None:
    module = convolutional(torch)
    model = models.from_torch(module, likelihood="categorical", input_shape=(1, 8, 8))
    values = dict(module.named_parameters())
    blocks = tuple(jnp.asarray(values[name].detach().numpy()).reshape(1, -1) for name in sorted(values))
    loss = -torch.nn.functional.cross_entropy(module(torch.as_tensor(X)), torch.as_tensor(Y), reduction="sum")
    loss.backward()
    flat, ones = jnp.asarray(X.reshape(6, -1)), jnp.ones(6)
    np.testing.assert_allclose(model.log_likelihood(blocks, flat, Y, ones)[0], loss.item(), rtol=1e-5)
    scores = model.likelihood_score(blocks, flat, Y, ones)
    for name, got in zip(sorted(values), scores, strict=True):
        np.testing.assert_allclose(got[0], values[name].grad.numpy().ravel(), rtol=1e-3, atol=1e-4)
    assert module.training
    assert np.isfinite(model.init(jax.random.key(0), 2)).all()


def test_what_is_not_supported_is_refused(torch: Any) -> None:
    nn = torch.nn

    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    class Rare(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.erfinv(x)

    class Pair(nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x

    for module, sentence in (
        (Pair(), "forward must return one tensor, rows x outputs, got tuple"),
        (nn.Linear(3, 1), r"forward.x. failed for x of shape .3, 5. .rows, .input_shape.: mat1 and mat2 shapes"),
        (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1)), "BatchNorm1d. is not supported; write the network in Flax"),
        (Branching(), "torch.fx cannot trace forward"),
        (Rare(), "forward calls 'erfinv'"),
        ("module", "expects an instance of torch.nn.Module, got str"),
    ):
        with pytest.raises(InputError, match=sentence):
            models.from_torch(module, likelihood="gaussian", input_shape=5)
    for link, likelihood in ((nn.Sigmoid(), "bernoulli"), (nn.Softmax(dim=1), "categorical")):
        with pytest.raises(InputError, match=f"forward ends with .*, but likelihood '{likelihood}' applies it itself"):
            models.from_torch(nn.Sequential(nn.Linear(5, 2), link), likelihood=likelihood, input_shape=5)


def test_functions_buffers_and_shared_weights_are_translated(torch: Any) -> None:
    """The translation is compared with the module when it is made, so a model that is returned is right."""
    nn, functional = torch.nn, torch.nn.functional

    class Usual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("middle", torch.full((8, 8), 0.3))
            self.first, self.second, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 4), nn.Linear(4, 3)
            self.again = nn.Linear(4, 4)
            self.again.weight = self.second.weight

        def forward(self, x: Any) -> Any:
            x = functional.max_pool2d(functional.relu(self.first(x - self.middle)), 2)
            x = functional.avg_pool2d(x, 3, padding=1, stride=3).flatten(1)
            x = functional.dropout(torch.cat([x[:, :2], x[:, 2:]], dim=1), training=self.training)
            return functional.log_softmax(self.head(self.again(torch.exp(-self.second(x)))), dim=1)

    model = models.from_torch(Usual(), likelihood="categorical", input_shape=(1, 8, 8))
    assert model.dim == (9 + 1) * 4 + 16 + 4 + 4 + 15
    assert models.from_torch(nn.Linear(3, 2), likelihood="categorical", input_shape=3).dim == 8
