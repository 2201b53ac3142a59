"""Whole rounds of the BNN, split by phase, and against the matrix products that they cannot avoid."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax

from fedstein.bench.clock import OnCase, Ratio, Timing, measure, ratio
from fedstein.bench.floors import (
    Floor,
    curvature_floor,
    dots_floor,
    inner_floor,
    network_floor,
    pairs_floor,
    stein_floor,
)
from fedstein.bench.steps import BATCH, BNN_PARTICLES, DIM, SIZES
from fedstein.data import Dataset, load
from fedstein.evaluation import Evaluate
from fedstein.protocol import Parts, first, play_round
from fedstein.runs.config import merge, resolve
from fedstein.runs.wiring import facts_of, wire

PHASES = ("report", "choose", "train", "apply", "evaluate")
SHARDS = {27: 300, 120: 90}  # rows of each client
SCHEMES = {
    "curvature": ("ksd", "hip", "innovation", "round_robin", "random"),
    "particles": ("ksd", "hip", "round_robin", "random"),
}
STEPS = 10  # L, and L' of the paper's sites


class Round(NamedTuple):
    """One row: milliseconds of the whole round and of its phases, one entry a repeat."""

    clients: int
    sites: str
    scheme: str
    phases: dict[str, list[float]]
    whole: Timing

    @property
    def name(self) -> str:
        return f"{self.scheme}, {self.sites} sites, {self.clients} x {SHARDS[self.clients]}"

    @property
    def asked(self) -> Timing:
        """The round without its evaluation, which is the user's choice; its CPU time is not known apart."""
        return Timing([sum(values) for values in zip(*(self.phases[p] for p in PHASES[:-1]), strict=True)], [])


class Rounds(NamedTuple):
    rounds: list[Round]
    floors: dict[str, float]  # milliseconds, by the name of the round
    ratios: dict[str, Ratio]


class Stopwatch:
    """Adds up how long each phase of a round took. What is in none of the others is ``apply``."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            found = jax.block_until_ready(function(*arguments, **named))
            self.spent[phase] += time.perf_counter() - began
            return found

        return run

    def parts(self, parts: Parts) -> Parts:
        """The same run with every phase timed. The client's own program stays the object that its calls compile for."""
        scheme = parts.scheme
        indicators = scheme.indicators and self.timed("choose", scheme.indicators)
        program = _changed(
            parts.program, scheme=scheme._replace(indicators=indicators, draw=self.timed("choose", scheme.draw))
        )
        engine = _changed(
            parts.engine, ask=self.timed("report", parts.engine.ask), train=self.timed("train", parts.engine.train)
        )
        evaluate: Evaluate = self.timed("evaluate", parts.evaluate)
        return parts._replace(program=program, engine=engine, evaluate=evaluate)


def _changed(whole: Any, **attributes: Any) -> Any:
    """A copy with other attributes; whatever those that stay refer to is shared."""
    made = copy(whole)
    vars(made).update(attributes)
    return made


class Runner:
    """Rounds of one setting, one after another; ``phases`` collects what each took."""

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
            *(["sites.renew=false"] if sites == "curvature" else []),  # the paper's HIP: a report is for choosing
        ]
        config, _ = resolve(merge({}, settings), facts_of(dataset))
        self._parts = wire(config, dataset).parts
        self._state = first(self._parts)
        self.phases: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.whole = Timing([], [])

    def __call__(self) -> None:
        watch = Stopwatch()
        wall, cpu = time.perf_counter(), time.process_time()
        self._state, _ = play_round(watch.parts(self._parts), self._state)
        jax.block_until_ready(self._state.server["particles"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        watch.spent["apply"] = wall - sum(watch.spent.values())
        for phase, seconds in watch.spent.items():
            self.phases[phase].append(seconds * 1e3)
        self.whole.wall.append(wall * 1e3)
        self.whole.cpu.append(cpu * 1e3)

    def warm(self, rounds: int) -> None:
        """Rounds that compile; a client's first site and its second may need programs of their own."""
        for _ in range(rounds):
            self()
        self.phases = {phase: [] for phase in PHASES}
        self.whole = Timing([], [])


def measure_rounds(counts: Sequence[int], repeats: int, quick: bool, threads: int, on_case: OnCase) -> Rounds:
    """Every scheme with every kind of sites; the floors are timed beside the rounds of the same size."""
    dataset, found, floors, ratios = load("mnist"), [], {}, {}
    for clients in counts:
        for sites, schemes in list(SCHEMES.items())[: 1 if quick else None]:
            chosen = schemes[:2] if quick else schemes
            runners = {scheme: Runner(dataset, clients, sites, scheme, threads) for scheme in chosen}
            for scheme, runner in runners.items():
                on_case(f"compiling: {scheme}, {sites} sites, {clients} clients")
                runner.warm(2)
            products = {scheme: round_floor(scheme, sites, clients) for scheme in chosen}
            cases = {case.name: case for floor in products.values() for case in floor.cases("")}
            timed: dict[str, Timing] = {}
            for repeat in range(repeats):  # a floor beside every round, so that both see the same machine
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
                floor = products[scheme]
                ratios[f"{row.name} / its products"] = ratio(row.asked, *floor.of(timed, ""), counts=floor.counts())
                floors[row.name] = row.asked.best / ratios[f"{row.name} / its products"].best
    return Rounds(found, floors, ratios)


def round_floor(scheme: str, sites: str, clients: int) -> Floor:
    """Every matrix product of one round without its evaluation; rows are the client's own, without padding."""
    n, dim, rows = BNN_PARTICLES, DIM, SHARDS[clients]
    score = network_floor(n, SIZES, rows)
    floor = Floor(())
    if scheme in ("ksd", "hip", "innovation"):
        floor += score.times(clients) + pairs_floor(n, dim)
    if scheme in ("ksd", "innovation"):
        floor += inner_floor(n, dim).times(clients)
        if sites == "particles":  # the client's own KDE: distances to its local particles, and their pull
            floor += pairs_floor(n, dim).times(clients)
    if scheme == "hip":
        floor += pairs_floor(n, dim) + dots_floor(clients, n * dim)
    step = network_floor(n, SIZES, min(BATCH, rows)) + stein_floor(n, dim, centres=2 if sites == "particles" else 0)
    floor += step.times(STEPS)
    if sites == "curvature":
        return merged(floor + score + curvature_floor(n, SIZES, rows))
    return merged(floor + stein_floor(n, dim, centres=3, scores=False).times(STEPS))


def merged(floor: Floor) -> Floor:
    """Each product once, with its counts added up."""
    counts: dict[str, float] = {}
    for product, count in floor.products:
        counts[product.name] = counts.get(product.name, 0.0) + count
    products = {product.name: product for product, _ in floor.products}
    return Floor(tuple((products[name], count) for name, count in counts.items()))
