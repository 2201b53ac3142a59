"""Kernels as parts: RBF and a plug-in against autodiff of their definitions, and the RBF bits as they always were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array

from fedstein import stein
from fedstein.errors import InputError
from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.discrepancy import kernel_of
from fedstein.stein.kde import pull
from fedstein.stein.kernel import Kernel, radial_kernel
from fedstein.stein.kernels import centred, combine, dimension, gram_distances, own_distances
from fedstein.stein.rbf import RBF
from fedstein.stein.svgd import tilted_direction

H = 1.7
IMQ = radial_kernel("imq", "inverse multiquadric", lambda r: (1 + r) ** -0.5)
EXP = radial_kernel("exp", "RBF by autodiff", lambda r: jnp.exp(-r))
DEFINITIONS: dict[str, tuple[Kernel, Callable[[Array, Array], Array]]] = {  # k(x, y): all that the references know
    "rbf": (RBF, lambda x, y: jnp.exp(-jnp.sum((x - y) ** 2) / H)),
    "imq": (IMQ, lambda x, y: 1 / jnp.sqrt(1 + jnp.sum((x - y) ** 2) / H)),
}


@pytest.fixture(params=list(DEFINITIONS))
def pair(request: pytest.FixtureRequest) -> tuple[Kernel, Callable[[Array, Array], Array]]:
    return DEFINITIONS[request.param]


def sample(n: int, d: int, seed: int = 0, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.normal(size=(n, d)).astype(dtype) for _ in range(4))


def by_definition(
    k: Callable[[Array, Array], Array], x: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The SVGD direction for the scores a, and the four terms of the HIP of a and b: loops over all pairs."""
    value, by_first, by_second = jax.jit(k), jax.jit(jax.grad(k, 0)), jax.jit(jax.grad(k, 1))
    mixed = jax.jit(jax.jacfwd(jax.grad(k, 0), 1))
    n = len(x)
    phi, terms = np.zeros_like(x), np.zeros(4)
    for i in range(n):
        for j in range(n):
            phi[i] += (value(x[j], x[i]) * a[j] + by_first(x[j], x[i])) / n
            terms[0] += value(x[i], x[j]) * (a[i] @ b[j])
            terms[1] += a[i] @ np.asarray(by_second(x[i], x[j]))
            terms[2] += b[j] @ np.asarray(by_first(x[i], x[j]))
            terms[3] += np.trace(mixed(x[i], x[j]))
    return phi, terms / n**2


@pytest.mark.parametrize(("n", "d"), [(2, 1), (6, 3)])
def test_direction_ksd_and_hip_are_autodiff_of_the_kernel(n: int, d: int, pair: Any, double: Any) -> None:
    kernel, k = pair
    x, a, b, _ = sample(n, d, n)
    phi, terms = by_definition(k, x, a, b)
    double.close(stein.svgd_direction(x, a, H, kernel=kernel), phi)
    double.close(stein.hip_terms(x, a, b, H, kernel=kernel), terms)
    double.close(stein.hip(x, a, b, H, kernel=kernel), terms.sum())
    double.close(stein.ksd(x, a, H, kernel=kernel), by_definition(k, x, a, a)[1].sum())


def test_the_three_functions_of_a_kernel_are_autodiff_of_it(pair: Any, double: Any) -> None:
    kernel, k = pair
    x = jnp.asarray(sample(5, 3)[0])
    squared = stein.squared_distances(x)
    matrix = kernel.matrix(squared, H)
    each = jax.jit(jax.vmap(jax.vmap(k, (None, 0)), (0, None)))
    double.close(matrix, each(x, x))
    slopes = jax.jit(jax.vmap(jax.vmap(jax.grad(k, 1), (None, 0)), (0, None)))(x, x)
    double.close(kernel.laplacian(matrix, squared, H) @ x, jnp.sum(slopes, axis=1))
    mixed = jax.jit(jax.vmap(jax.vmap(jax.jacfwd(jax.grad(k, 0), 1), (None, 0)), (0, None)))(x, x)
    double.close(kernel.trace(matrix, squared, H, 3), jnp.sum(jnp.trace(mixed, axis1=2, axis2=3)))


@pytest.mark.parametrize("bandwidth", [None, H], ids=["median", "given"])
def test_rbf_by_autodiff_is_rbf_to_rounding(bandwidth: float | None, precision: Any) -> None:
    x, a, b, _ = sample(9, 4, 1, precision.dtype)
    precision.close(
        stein.svgd_direction(x, a, bandwidth, kernel=EXP), stein.svgd_direction(x, a, bandwidth, kernel=RBF)
    )
    precision.close(stein.hip_terms(x, a, b, bandwidth, kernel=EXP), stein.hip_terms(x, a, b, bandwidth, kernel=RBF))
    precision.close(kernel_of(x, kernel=EXP), kernel_of(x, kernel=RBF))
    precision.close(
        stein.mean_hips(x, [a, b], bandwidth, kernel=EXP), stein.mean_hips(x, [a, b], bandwidth, kernel=RBF)
    )


def test_mean_hips_with_a_plug_in_are_the_hips_against_the_mean(precision: Any) -> None:
    x, a, b, c = sample(9, 4, 2, precision.dtype)
    mean = np.mean([a, b, c], axis=0, dtype=precision.dtype)
    for bandwidth in (None, H):
        expected = [stein.hip(x, score, mean, bandwidth, kernel=IMQ) for score in (a, b, c)]
        precision.close(stein.mean_hips(x, [a, b, c], bandwidth, kernel=IMQ), expected, factor=2)
    assert abs(float(expected[0]) - float(stein.hip(x, a, mean, H))) > 1e-3  # the kernel does matter


@given(st.integers(0, 10_000), st.floats(0.05, 50), st.floats(0, 5))
def test_ksd_with_a_plug_in_is_never_negative(seed: int, bandwidth: float, size: float) -> None:
    with jax.enable_x64(True):
        x, s, *_ = sample(7, 3, seed)
        assert float(stein.ksd(x, size * s, bandwidth, kernel=IMQ)) >= -1e-12
        assert float(stein.ksd(x, size * s, kernel=IMQ)) >= -1e-12


def test_a_frame_with_a_plug_in_gives_the_same_ksd(precision: Any) -> None:
    x, a, *_ = sample(9, 4, 3, precision.dtype)
    frame = jax.jit(stein.frame_of, static_argnames="kernel")(centred(x)[0], kernel=IMQ)
    precision.close(jax.jit(stein.ksd_in)(frame, a), stein.ksd(x, a, kernel=IMQ), factor=3)
    precision.close(kernel_of(x, kernel=IMQ), frame.kernel)


def test_the_tilted_direction_takes_the_plug_in(precision: Any) -> None:
    x, s, y, _ = sample(9, 3, 4, precision.dtype)
    offset, origin = centred(jnp.asarray(x))
    factor = stein.Mixture(jnp.asarray(y), -1.0).relative_to(origin)
    got = tilted_direction(offset, s, (factor,), linear=(-2.0, origin), kernel=IMQ)
    explicit = np.asarray(s - stein.kde_score(x, y) - 2 * x)
    precision.close(got, stein.svgd_direction(x, explicit, kernel=IMQ), factor=5)


def test_blocks_with_a_plug_in_give_the_same_as_one_array(precision: Any) -> None:
    x, a, b, _ = sample(9, 4, 5, precision.dtype)
    cut = [{"w": t[:, :3], "b": t[:, 3:]} for t in (x, a, b)]
    precision.close(stein.hip_terms(*cut, kernel=IMQ), stein.hip_terms(x, a, b, kernel=IMQ))
    phi = stein.svgd_direction(*cut[:2], kernel=IMQ)
    precision.close(np.concatenate([phi["w"], phi["b"]], axis=1), stein.svgd_direction(x, a, kernel=IMQ), factor=3)


def test_particles_that_coincide_leave_a_plug_in_finite(precision: Any) -> None:
    x, scores = np.ones((9, 3), precision.dtype), np.ones((9, 3), precision.dtype)
    assert np.all(np.isfinite(stein.svgd_direction(x, scores, kernel=IMQ)))
    assert np.isfinite(stein.ksd(x, scores, kernel=IMQ))


# The formulas as they stood when RBF was the only kernel, written out: the results of earlier runs hang on their bits.


def former_direction(offset: Any, scores: Any, mixtures: Any, linear: Any, bandwidth: Any) -> Any:
    n = jax.tree.leaves(offset)[0].shape[0]
    squared, own_norms = own_distances(offset)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    kernel = jnp.exp(-squared / h)
    on_particles = (2 / h) * (jnp.diag(jnp.sum(kernel, axis=1)) - kernel)
    terms = [(kernel, scores)]
    for centres, sign, norms in mixtures:
        apart = gram_distances(offset, centres, norms, own_norms)
        weights = sign * pull(apart, 0.55, "log", dimension(offset))
        terms.append((kernel @ weights, centres))
        on_particles = on_particles - kernel * jnp.sum(weights, axis=1)[None, :]
    if linear is not None:
        on_particles = on_particles + linear[0] * kernel
    terms.append((on_particles, offset))
    phi = combine([(c / n, a) for c, a in terms])
    if linear is None:
        return phi
    shares = (linear[0] / n * jnp.sum(kernel, axis=1))[:, None]
    return jax.tree.map(lambda p, o: p + shares * o[None, :], phi, linear[1])


def former_frame(offset: Any, bandwidth: Any) -> stein.Frame:
    squared = gram_distances(offset)
    h = median_bandwidth(squared) if bandwidth is None else bandwidth
    kernel = jnp.exp(-squared / h)
    laplacian = (2 / h) * (jnp.diag(jnp.sum(kernel, axis=1)) - kernel)
    trace = jnp.sum(kernel * (2 * dimension(offset) - 4 * (squared / h))) / h
    return stein.Frame(kernel, combine([(laplacian, offset)]), trace)


def former_hip_terms(x: Any, a: Any, b: Any, bandwidth: Any) -> tuple[Array, ...]:
    frame, n2 = former_frame(centred(x)[0], bandwidth), x.shape[0] ** 2
    return (
        jnp.sum(a * combine([(frame.kernel, b)])) / n2,
        jnp.sum(a * frame.repulsion) / n2,
        jnp.sum(b * frame.repulsion) / n2,
        frame.trace / n2,
    )


def former_against_mean(x: Any, total: Any, weight: float, bandwidth: Any) -> tuple[Array, Array]:
    frame = former_frame(centred(x)[0], bandwidth)
    mean = total * weight
    return combine([(frame.kernel, mean)]) + frame.repulsion, jnp.sum(mean * frame.repulsion) + frame.trace


def same_bits(got: Any, expected: Any) -> None:
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    assert len(got) == len(expected) > 0
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("bandwidth", [None, H], ids=["median", "given"])
def test_the_rbf_bits_are_as_they_were(bandwidth: float | None, precision: Any) -> None:
    x, a, b, y = (jnp.asarray(t) for t in sample(20, 7, 6, precision.dtype))
    plain = jax.jit(lambda x, a, h: former_direction(centred(x)[0], a, (), None, h))
    same_bits(stein.svgd_direction(x, a, bandwidth), plain(x, a, bandwidth))

    def tilted(direction: Callable[..., Any]) -> Any:
        def call(x: Array, a: Array, y: Array, h: Any) -> Any:
            offset, origin = centred(x)
            return direction(offset, a, (stein.Mixture(y, -1.0).relative_to(origin),), (-2.0, origin), h)

        return jax.jit(call)(x, a, y, bandwidth)

    same_bits(
        tilted(lambda o, s, m, linear, h: tilted_direction(o, s, m, linear=linear, bandwidth=h)),
        tilted(former_direction),
    )
    terms = jax.jit(former_hip_terms)(x, a, b, bandwidth)
    same_bits(stein.hip_terms(x, a, b, bandwidth), terms)
    same_bits(stein.hip(x, a, b, bandwidth), terms[0] + terms[1] + terms[2] + terms[3])
    offset = centred(x)[0]
    same_bits(jax.jit(stein.frame_of)(offset, bandwidth), jax.jit(former_frame)(offset, bandwidth))
    against, constant = jax.jit(former_against_mean)(x, jax.jit(jnp.add)(a, b), 0.5, bandwidth)
    dot = jax.jit(lambda s, t: jnp.sum(s * t))
    same_bits(stein.mean_hips(x, [a, b], bandwidth), [(dot(s, against) + constant) / 400 for s in (a, b)])
    former_kernel = jax.jit(lambda x: former_frame(centred(x)[0], None).kernel)
    same_bits(jax.jit(kernel_of)(x), former_kernel(x))


def test_the_default_kernel_is_rbf_to_the_bit(precision: Any) -> None:
    x, a, b, y = (jnp.asarray(t) for t in sample(11, 5, 7, precision.dtype))
    offset, factors = centred(x)[0], (stein.Mixture(y, 1.0),)
    calls: list[Callable[..., Any]] = [
        lambda **k: stein.svgd_direction(x, a, **k),
        lambda **k: tilted_direction(offset, a, factors, **k),
        lambda **k: stein.hip(x, a, b, **k),
        lambda **k: stein.ksd(x, a, **k),
        lambda **k: stein.hip_terms(x, a, b, **k),
        lambda **k: stein.frame_of(offset, **k),
        lambda **k: kernel_of(x, **k),
        lambda **k: stein.mean_hips(x, [a, b], **k),
    ]
    for call in calls:
        same_bits(call(), call(kernel=RBF))
        first, other = (np.asarray(jax.tree.leaves(t)[0]) for t in (call(), call(kernel=IMQ)))
        assert np.max(np.abs(first - other)) > 1e-3  # the argument reaches the formulas


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The registry, as it was before once the test is over."""
    monkeypatch.setattr(stein.KERNELS, "_parts", dict(stein.KERNELS._parts))
    return stein.KERNELS


def test_kernels_are_found_by_name_and_by_import_path(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.find("rbf") is stein.RBF
    with pytest.raises(InputError, match=r"unknown value of algorithm\.kernel: 'rbg' \(did you mean 'rbf'\?\)"):
        kernels.find("rbg")
    assert kernels.register(IMQ) is IMQ
    assert kernels.find("imq") is IMQ
    module = ModuleType("somebodys_kernels")
    module.exp = EXP  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert kernels.find("somebodys_kernels:exp") is EXP
    assert kernels.group == "fedstein.kernels"


def test_a_name_is_no_kernel() -> None:
    x = np.ones((3, 2), np.float32)
    for call in (
        lambda: stein.svgd_direction(x, x, kernel="rbf"),  # type: ignore[arg-type]
        lambda: stein.ksd(x, x, kernel="rbf"),  # type: ignore[arg-type]
        lambda: stein.mean_hips(x, [x], kernel="rbf"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"kernel must be a fedstein\.stein\.Kernel, got str"):
            call()
