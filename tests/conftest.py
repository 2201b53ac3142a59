"""What several folders share: both float precisions, and a miniature federation built the way a run builds one."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import forked
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from jax._src import compiler

from fedstein import models
from fedstein.federation import protocol
from fedstein.federation.client import ClientProgram
from fedstein.federation.evaluation import unmeasured
from fedstein.federation.local import LocalEngine
from fedstein.federation.round_context import RoundContext, RunState
from fedstein.inference.methods import METHODS
from fedstein.runs.build import build_model, round_context
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.runs.federate import federate
from fedstein.runs.jax_setup import release_programs

# Most of the time of small tests is compilation. JAX's own tests turn most of LLVM's optimisations off in the same way.
# The processes that tests start, among them those of the digests and of the docs' commands, run the programs of users,
# and so do tests that compare their own bits with those of other processes (``user_programs``).
# XLA's new emitters of fused loops take half of the time that then remains.
jax.config.update("jax_disable_most_optimizations", True)
compiles_for_users = False
compile_options = compiler.get_compile_options


def options_of_tests(*arguments: Any, **named: Any) -> Any:
    found = compile_options(*arguments, **named)
    if not compiles_for_users:
        found.env_option_overrides = [*found.env_option_overrides, ("xla_cpu_use_fusion_emitters", False)]
    return found


compiler.get_compile_options = options_of_tests

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
LONG = re.compile("flower|digests")
BEFORE = pytest.StashKey[float]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that were measured as slow, and let the longest run first."""
    slow = set(SLOW_TESTS.read_text().splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and "flower" in item.nodeid:
            item.add_marker(pytest.mark.user_programs)
    items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order tests so that several workers begin with the longest ones: real processes and the table of digests.

    pytest-xdist gives each worker one stretch of the list. Tests with real processes mostly wait. If one worker had
    all of them, the others would be idle at the end; if all workers had some, too few would use the processor.

    Args:
        items: The tests.
        workers: The number of workers.

    Returns:
        The same tests. The long ones are at the beginning of the first two stretches.
    """
    long = [item for item in items if item.get_closest_marker("slow") and LONG.search(item.nodeid)]
    chosen = set(long)
    others = iter([item for item in items if item not in chosen])
    players = min(2, workers)
    stretches: list[list[pytest.Item]] = [[] for _ in range(players)]
    for _, of_file in itertools.groupby(long, key=lambda item: item.path):  # tests of a file share their fixtures
        min(stretches, key=len).extend(of_file)
    found: list[pytest.Item] = []
    for worker in range(workers):
        stretch = stretches[worker] if worker < players else []
        size = len(items) // workers + (worker < len(items) % workers)
        found += [*stretch, *itertools.islice(others, max(0, size - len(stretch)))]
    return [*found, *others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Choose how programs are compiled, and note how much processor time there was before the test.

    Reports of ``--junitxml`` hold how much it took.
    """
    item.stash[BEFORE] = processor_seconds()
    compile_for_users(item.get_closest_marker("user_programs") is not None)
    return (yield)


def compile_for_users(wanted: bool) -> None:
    """Choose how JAX compiles; programs that were compiled otherwise are forgotten, as JAX would use them again."""
    global compiles_for_users
    if wanted != compiles_for_users:
        jax.config.update("jax_disable_most_optimizations", not wanted)
        jax.clear_caches()
        compiles_for_users = wanted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.when == "teardown":
        item.user_properties.append(("cpu_seconds", f"{processor_seconds() - item.stash[BEFORE]:.3f}"))
    return (yield)


def processor_seconds() -> float:
    """Of this process and of those that it started and waited for."""
    return sum(os.times()[:4]) + forked.spent


NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def released_programs() -> None:
    """Compiled programs of earlier tests are forgotten before their memory maps reach the system's limit.

    Counting maps takes milliseconds, and eight tests make some thousands of the 65,530 maps at the most.
    """
    if next(NUMBERS) % 8 == 0:
        release_programs()


# Compilation makes the first example slow, and a run must not depend on the day it is made.
settings.register_profile("fedstein", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fedstein")


class Precision(NamedTuple):
    """A float type with the relative error that a few hundred operations may leave behind."""

    dtype: Any
    rtol: float

    def close(self, got: Any, expected: Any, *, factor: float = 1.0) -> None:
        """Equal up to rounding, relative to the largest entry: small entries of a sum cannot be better than that."""
        expected = np.asarray(expected, np.float64)
        scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-12)
        np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=0, atol=factor * self.rtol * scale)


@pytest.fixture(params=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[Precision]:
    """Both precisions, one after the other; JAX's flag is as before afterwards."""
    with jax.enable_x64(request.param == "float64"):
        yield Precision(np.dtype(request.param), 2e-5 if request.param == "float32" else 1e-11)


@pytest.fixture
def double() -> Iterator[Precision]:
    """Float64, for comparisons with derivatives taken numerically."""
    with jax.enable_x64(True):
        yield Precision(np.dtype("float64"), 1e-11)


class Miniature(NamedTuple):
    """A federation small enough to play in a moment."""

    context: RoundContext
    engine: LocalEngine

    def again(self, seed: int) -> Miniature:
        """The same federation from the start, with another seed or the same; compiled functions are shared."""
        old = self.context.program
        program = ClientProgram(
            old.model,
            old.method,
            old.scheme,
            seed=seed,
            batch_size=old.batch_size,
            report_rows=old.report_rows,
            schedule=old.schedule,
        )
        engine = LocalEngine(program, self.engine.shards)
        return Miniature(self.context._replace(program=program, engine=engine, seed=seed), engine)

    def play(self) -> tuple[RunState, list[dict[str, Any]]]:
        state, records = protocol.first(self.context), []
        for state, record in protocol.run_rounds(self.context, state):  # noqa: B007, B020 - the loop moves the state on
            records.append(record.to_dict())
        return state, records


def client_rows(
    task: str, classes: int, sizes: tuple[int, ...], counts: bool = False
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same few rows for every seed of a run."""
    draw = np.random.default_rng(7)
    rows = []
    for n in sizes:
        x = draw.normal(size=(n, 3)).astype(np.float32)
        y = draw.normal(size=n).astype(np.float32) if task == "regression" else draw.integers(0, classes, n)
        rows.append((x, np.floor(3 * np.abs(y)) if counts else y))
    return rows


@pytest.fixture
def miniature() -> Callable[..., Miniature]:
    """Build one by the names of the registries: ``miniature(model="blr", scheme="hip", seed=3)``."""

    def build(
        *,
        model: str | models.Model = "bnn_classifier",
        site: str | None = None,
        scheme: str | None = None,
        algorithm: str = "dsvgd",
        seed: int = 0,
        rounds: int = 2,
        sizes: tuple[int, ...] = (12, 11, 12, 11),
        settings: dict[str, dict[str, Any]] | None = None,
    ) -> Miniature:
        info = models.MODELS[model] if isinstance(model, str) else None
        method = METHODS[algorithm]  # its own kind of site and a scheme it works with, unless told otherwise
        usual = "ksd" if method.answers_reports and method.answers_tilted else "round_robin"
        site, scheme = site or method.sites, scheme or usual
        own_steps = {"distill_steps": 2} if site == "particles" else {}
        many = {"particles": 5} if algorithm != "fedavg" else {}
        task = info.task if info else model.task
        classes = 0 if task == "regression" else (info.classes if info else None) or 3
        traits = info.traits if info else model
        whole = traits.whole_shard  # its steps use all rows, which is the default
        raw: dict[str, Any] = {
            "seed": seed,
            "rounds": rounds,
            "data": {"name": "file"},
            "partition": {"kind": "given", "clients": len(sizes)},
            "model": {"kind": model, **({"hidden": [4]} if "hidden" in info.settings.model_fields else {})}
            if info
            else {},
            "sites": {"kind": site, **({"density": "log"} if site == "particles" else {})},
            "selection": {"kind": scheme},
            "algorithm": {
                "kind": algorithm,
                "local_steps": 2,
                **({} if whole else {"batch_size": 8}),
                **many,
                **own_steps,
            },
            "engine": {"threads": 1},
        }
        for section, values in (settings or {}).items():
            raw[section] = {**raw.get(section, {}), **values}
        config, notes = resolve(raw, Facts(task, classes, len(sizes)))
        assert notes == []
        built = model if isinstance(model, models.Model) else build_model(config, 3, classes, task)
        federation = federate(config, built, client_rows(task, classes, sizes, traits.target == "count"))
        context = round_context(config, federation.program, federation.engine, unmeasured)
        return Miniature(context, federation.engine)

    return build


class LinearGaussian(NamedTuple):
    """A model whose posterior is a Gaussian that can be written down: y = x theta + noise, theta ~ N(m, s^2 I)."""

    prior_mean: np.ndarray
    prior_sd: float
    noise_sd: float

    def model(self) -> models.Model:
        mean, sd, noise = jnp.asarray(self.prior_mean, jnp.result_type(float)), self.prior_sd, self.noise_sd
        return models.custom(
            len(self.prior_mean),
            log_prior=lambda theta: -0.5 * jnp.sum((theta - mean) ** 2) / sd**2,
            log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2 / noise**2,
            init=lambda key: mean + sd * jax.random.normal(key, mean.shape),
            predict=lambda theta, x: jnp.stack([x @ theta, jnp.full(x.shape[0], -2 * jnp.log(noise))], axis=1),
            task="regression",
            likelihood="gaussian",
            name="linear_gaussian",
        )

    def posterior(
        self, x: np.ndarray, y: np.ndarray, temperature: float = 1.0, priors: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance; ``priors`` counts the prior that many times, to show what a double count would give."""
        precision = priors * np.eye(len(self.prior_mean)) / self.prior_sd**2 + x.T @ x / self.noise_sd**2 / temperature
        shift = priors * self.prior_mean / self.prior_sd**2 + x.T @ y / self.noise_sd**2 / temperature
        return np.linalg.solve(precision, shift), np.linalg.inv(precision)


@pytest.fixture
def linear_gaussian() -> LinearGaussian:
    return LinearGaussian(np.array([1.0, -1.0]), 0.7, 0.8)
