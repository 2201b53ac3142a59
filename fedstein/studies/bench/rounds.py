"""Whole rounds of the BNN, split by phase and compared with the matrix products that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax

from fedstein.data import Dataset, load
from fedstein.federation.evaluation import Evaluate
from fedstein.federation.protocol import first, run_round
from fedstein.federation.round_context import RoundContext
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of, prepare_run
from fedstein.studies.bench.matrix_products import (
    Products,
    curvature_products,
    dots_products,
    inner_products,
    network_products,
    pairs_products,
    stein_products,
)
from fedstein.studies.bench.steps import BATCH, BNN_PARTICLES, DIM, SIZES
from fedstein.studies.bench.timing import OnCase, Ratio, Timing, measure, ratio

PHASES = ("report", "choose", "train", "apply", "evaluate")
SHARDS = {27: 300, 120: 90}  # the number of rows of each client
SCHEMES = {
    "curvature": ("ksd", "hip", "innovation", "round_robin", "random"),
    "particles": ("ksd", "hip", "round_robin", "random"),
}
STEPS = 10  # the local steps L, and the distillation steps L' of the paper's sites


class Round(NamedTuple):
    """One row of a table: milliseconds of the whole round and of its phases, one entry for each repeat."""

    clients: int
    sites: str
    scheme: str
    phases: dict[str, list[float]]
    whole: Timing

    @property
    def name(self) -> str:
        """The scheme, the sites, and the numbers of clients and rows."""
        return f"{self.scheme}, {self.sites} sites, {self.clients} x {SHARDS[self.clients]}"

    @property
    def asked(self) -> Timing:
        """The round without its evaluation, which is optional. The CPU time is not measured separately."""
        return Timing([sum(values) for values in zip(*(self.phases[p] for p in PHASES[:-1]), strict=True)], [])


class Rounds(NamedTuple):
    """The rounds, the time of their matrix products, and the ratios of the two."""

    rounds: list[Round]
    products: dict[str, float]  # milliseconds, by the name of the round
    ratios: dict[str, Ratio]


class PhaseTimer:
    """Adds up the time of each phase of a round. The phase ``apply`` is the remainder."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its time counts for a phase."""

        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            found = jax.block_until_ready(function(*arguments, **named))
            self.spent[phase] += time.perf_counter() - began
            return found

        return run

    def timed_context(self, context: RoundContext) -> RoundContext:
        """The same run with every phase timed. The client's own program stays the object that its calls compile for."""
        scheme = context.scheme
        indicators = scheme.indicators and self.timed("choose", scheme.indicators)
        program = _copy_with(
            context.program, scheme=scheme._replace(indicators=indicators, draw=self.timed("choose", scheme.draw))
        )
        engine = _copy_with(
            context.engine,
            ask=self.timed("report", context.engine.ask),
            train=self.timed("train", context.engine.train),
        )
        evaluate: Evaluate = self.timed("evaluate", context.evaluate)
        return context._replace(program=program, engine=engine, evaluate=evaluate)


def _copy_with(whole: Any, **attributes: Any) -> Any:
    """Return a shallow copy with some attributes replaced."""
    made = copy(whole)
    vars(made).update(attributes)
    return made


class Runner:
    """Runs rounds of one setting, one after another. ``phases`` holds the time of each phase."""

    def __init__(self, dataset: Dataset, clients: int, sites: str, scheme: str, threads: int):
        settings = [
            f"data.name={dataset.name}",
            f"partition.clients={clients}",
            f"partition.rows_per_client={SHARDS[clients]}",
            f"sites.kind={sites}",
            f"selection.kind={scheme}",
            f"engine.threads={threads}",
            "checkpoint.every=1000000",
            "rounds=1000000",
            *(
                ["sites.renew=false"] if sites == "curvature" else []
            ),  # as in the paper, HIP reports are used for selection only
        ]
        config, _ = resolve(merge({}, settings), facts_of(dataset))
        self._context = prepare_run(config, dataset).context
        self._state = first(self._context)
        self.phases: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.whole = Timing([], [])

    def __call__(self) -> None:
        watch = PhaseTimer()
        wall, cpu = time.perf_counter(), time.process_time()
        self._state, _ = run_round(watch.timed_context(self._context), self._state)
        jax.block_until_ready(self._context.method.posterior(self._state.server))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        watch.spent["apply"] = wall - sum(watch.spent.values())
        for phase, seconds in watch.spent.items():
            self.phases[phase].append(seconds * 1e3)
        self.whole.wall.append(wall * 1e3)
        self.whole.cpu.append(cpu * 1e3)

    def warm(self, rounds: int) -> None:
        """Run rounds to compile, and discard their times.

        A client's first and second site may need different programs.
        """
        for _ in range(rounds):
            self()
        self.phases = {phase: [] for phase in PHASES}
        self.whole = Timing([], [])


def measure_rounds(counts: Sequence[int], repeats: int, quick: bool, threads: int, on_case: OnCase) -> Rounds:
    """Measure every scheme with every kind of site.

    Args:
        counts: The numbers of clients.
        repeats: How often each round is timed.
        quick: Whether to measure fewer schemes.
        threads: The number of XLA threads.
        on_case: Called with a line of progress.
    """
    dataset, found, product_times, ratios = load("mnist"), [], {}, {}
    for clients in counts:
        for sites, schemes in list(SCHEMES.items())[: 1 if quick else None]:
            chosen = schemes[:2] if quick else schemes
            runners = {scheme: Runner(dataset, clients, sites, scheme, threads) for scheme in chosen}
            for scheme, runner in runners.items():
                on_case(f"compiling: {scheme}, {sites} sites, {clients} clients")
                runner.warm(2)
            needed = {scheme: round_products(scheme, sites, clients) for scheme in chosen}
            cases = {case.name: case for products in needed.values() for case in products.cases("")}
            timed: dict[str, Timing] = {}
            for repeat in range(repeats):  # time the products next to every round, under the same conditions
                on_case(f"rounds, {sites} sites, {clients} clients, {repeat + 1} of {repeats}")
                for runner in runners.values():
                    runner()
                for name, timing in measure(list(cases.values()), 1, lambda _: None).items():
                    known = timed.setdefault(name, Timing([], []))
                    known.wall.extend(timing.wall)
                    known.cpu.extend(timing.cpu)
            for scheme, runner in runners.items():
                row = Round(clients, sites, scheme, runner.phases, runner.whole)
                found.append(row)
                products = needed[scheme]
                ratios[f"{row.name} / its products"] = ratio(
                    row.asked, *products.of(timed, ""), counts=products.counts()
                )
                product_times[row.name] = row.asked.best / ratios[f"{row.name} / its products"].best
    return Rounds(found, product_times, ratios)


def round_products(scheme: str, sites: str, clients: int) -> Products:
    """Return the matrix products of one round without its evaluation.

    Args:
        scheme: The selection scheme.
        sites: The kind of site.
        clients: The number of clients. The rows count without padding.
    """
    n, dim, rows = BNN_PARTICLES, DIM, SHARDS[clients]
    score = network_products(n, SIZES, rows)
    total = Products(())
    if scheme in ("ksd", "hip", "innovation"):
        total += score.times(clients) + pairs_products(n, dim)
    if scheme in ("ksd", "innovation"):
        total += inner_products(n, dim).times(clients)
        if sites == "particles":  # the KDE of the client: distances to its local particles, and their gradient
            total += pairs_products(n, dim).times(clients)
    if scheme == "hip":
        total += pairs_products(n, dim) + dots_products(clients, n * dim)
    step = network_products(n, SIZES, min(BATCH, rows)) + stein_products(
        n, dim, centres=2 if sites == "particles" else 0
    )
    total += step.times(STEPS)
    if sites == "curvature":
        return merged(total + score + curvature_products(n, SIZES, rows))
    return merged(total + stein_products(n, dim, centres=3, scores=False).times(STEPS))


def merged(total: Products) -> Products:
    """Merge equal products and add their counts."""
    counts: dict[str, float] = {}
    for product, count in total.products:
        counts[product.name] = counts.get(product.name, 0.0) + count
    products = {product.name: product for product, _ in total.products}
    return Products(tuple((products[name], count) for name, count in counts.items()))
