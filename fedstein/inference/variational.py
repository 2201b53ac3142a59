"""Variational sites: passes over clients until every site is the average expansion over the posterior itself.

Each pass the server takes the moments q = N(m, V) of the prior times the sites, asks clients for their expansions over
q (``expansion.expand``), and moves the sites: to the combination of the last answers with the smallest residual
(``anderson``), or by a damped step if that is not safe. At the fixed point a site does what the client's likelihood
does on average where the posterior is; the prior is exact throughout.

A client is asked when its *innovation*, the distance between its expansion over the current q and its site, may exceed
a threshold. The server cannot know the change without asking, so it estimates it: the difference of the client's last
two expansions, divided by the distance that q moved between them, times the distance that q has moved since. The
estimate is good for small moves of q; after larger ones every client is asked. A client whose site is already right is
not asked again; its last answer stands for a new one. The passes end when the natural parameters have less than
``tolerance`` posterior sds to go, in a pass in which every client was asked.

If the prior is Gaussian given one to three parameters (``scale_sites``, ``hyper_grid``), the moments of prior and sites
are those of a grid over these, without noise; otherwise they are those of NUTS with the same random numbers in every
pass.

The functions are pure and do not depend on an engine: the caller passes the function that asks a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedstein.errors import InputError
from fedstein.inference import hyper_grid
from fedstein.inference.anderson import combined, mixing, positive
from fedstein.inference.expansion import row_gradients
from fedstein.inference.natural import GaussianSite, add_sites, moments_distance, natural_distance
from fedstein.inference.sampling import OnProgress, PosteriorDraws, Sampler, sample_posterior
from fedstein.inference.scale_sites import has_scale, moments, one_site, tabulate
from fedstein.models.base import Model

Ask = Callable[[int, np.ndarray, np.ndarray], GaussianSite]  # client, m, V -> its expansion
# clients, m, V -> the expansions of those that answered
AskTogether = Callable[[list[int], np.ndarray, np.ndarray], Mapping[int, GaussianSite]]

NUMBER = 4  # bytes of a number in a message
NEAR = 0.1  # how far q may move for a guess to mean something, in posterior sds


class Passes(NamedTuple):
    """How sites are refined.

    Attributes:
        most: The largest number of passes.
        damping: rho in site <- site + rho (expansion - site), the step if answers are not to be combined. A site of
            zero takes the first expansion as it is.
        memory: How many answers are combined.
        growth: How many times further to go than the best pass before a pass may be; beyond it the passes go back to
            the best one and take a damped step from there.
        tolerance: Stop when prior and sites would move by less than this many posterior sds, all later passes included.
        patience: Clients are asked when their innovation may exceed tolerance / sqrt(clients) times this.
        between: The sampler of the passes; it may be short, as only its moments count.
        final: The sampler of the draws that are handed out. With the warm-up of ``between`` nothing compiles twice.
    """

    most: int = 40
    damping: float = 0.6
    memory: int = 4
    growth: float = 4.0
    tolerance: float = 0.03
    patience: float = 1.0
    between: Sampler = Sampler(draws=250)
    final: Sampler = Sampler()


class PassRecord(NamedTuple):
    """One pass: how far there was still to go, in posterior sds, who was asked, what that cost, who did not answer."""

    to_go: float
    asked: tuple[int, ...]
    bytes_down: int
    bytes_up: int
    row_gradients: int
    unanswered: tuple[int, ...] = ()
    complete: bool = False  # whether every client that answers was asked, so that ``to_go`` rests on no guess


class RefinedSites(NamedTuple):
    """Every client's site after the passes, a record of each pass, and whether the stopping rule was met."""

    sites: dict[int, GaussianSite]
    records: list[PassRecord]
    settled: bool
    centre: np.ndarray | None = None  # the posterior mean of the last pass


@dataclass(frozen=True)
class Refined:
    """The result of refining sites.

    Attributes:
        sites: Every client's site.
        draws: Draws from the prior and these sites.
        records: One for each pass.
        settled: Whether the stopping rule was met.
    """

    sites: dict[int, GaussianSite]
    draws: PosteriorDraws
    records: list[PassRecord]
    settled: bool

    @property
    def bytes(self) -> int:
        """Bytes that travelled, down and up."""
        return sum(record.bytes_down + record.bytes_up for record in self.records)

    @property
    def row_gradients(self) -> int:
        return sum(record.row_gradients for record in self.records)


def message_bytes(dim: int, number: int = NUMBER) -> int:
    """d + d (d + 1) / 2 numbers: a mean and a covariance down, or eta and Lambda up."""
    return number * (dim + dim * (dim + 1) // 2)


@dataclass
class _Client:
    """The server's state of one client during the passes."""

    site: GaussianSite
    fresh: GaussianSite | None = None  # the expansion of its last answer
    asked_at: tuple[np.ndarray, np.ndarray] | None = None  # the q of that expansion
    sensitivity: float = math.inf  # innovation per distance that q had moved
    silent: bool = False  # whether it did not answer; it is then not asked again

    def moved(self, mean: np.ndarray, covariance: np.ndarray) -> float:
        """How far q has moved since the client was last asked."""
        return math.inf if self.asked_at is None else moments_distance(*self.asked_at, mean, covariance)

    def expected(self, mean: np.ndarray, covariance: np.ndarray) -> float:
        """The expected innovation: how much the next answer would probably change the site."""
        moved = self.moved(mean, covariance)
        if moved > NEAR:
            return math.inf
        return self.sensitivity * moved if moved else 0.0

    def answer(self, fresh: GaussianSite, mean: np.ndarray, covariance: np.ndarray) -> None:
        """Store an expansion, and update the estimate of how much expansions depend on q."""
        moved = self.moved(mean, covariance)
        if self.fresh is not None and 0 < moved < math.inf:
            self.sensitivity = natural_distance(self.fresh, fresh, mean, covariance) / moved
        self.fresh, self.asked_at = fresh, (mean, covariance)

    @property
    def last_answer(self) -> GaussianSite:
        """The last answer, or the site itself if there was none."""
        return self.fresh if self.fresh is not None else self.site

    def damped(self, site: GaussianSite, answer: GaussianSite, damping: float) -> None:
        """Move from a site towards an answer."""
        rho = damping if site.precision.any() else 1.0
        self.site = GaussianSite(*(old + rho * (new - old) for old, new in zip(site, answer, strict=True)))


class _Point(NamedTuple):
    """A pass to combine: every client's site and answer, and how far there was to go."""

    sites: dict[int, GaussianSite]
    answers: dict[int, GaussianSite]
    residual: GaussianSite
    to_go: float


def refine(
    model: Model,
    ask: Ask,
    sites: Mapping[int, GaussianSite],
    *,
    rows: Mapping[int, int] | None = None,
    passes: Passes | None = None,
    seed: int = 0,
    start: np.ndarray | None = None,
    on_pass: Callable[[PassRecord], None] = lambda record: None,
    on_progress: OnProgress = lambda share: None,
) -> Refined:
    """Refine sites until they are the average expansions over the posterior, and sample it.

    Args:
        model: The model.
        ask: ``ask(client, m, V)`` gives a client's expansion over N(m, V).
        sites: The sites to begin with, one for each client: those of a run, or ``no_site``.
        rows: The number of rows of each client, to count row-gradients; not counted if it is missing.
        passes: How to refine.
        seed: Fixes every draw. All passes use the same random numbers, so that they can settle.
        start: Where the first search for a mode begins.
        on_pass: Gets the record of each pass.
        on_progress: Gets the share of the final draws that is done.

    Returns:
        The sites, the draws, and a record of each pass.

    Raises:
        InputError: There is no client, or a sampled posterior has no finite moments.
    """
    passes = passes or Passes()

    def each(numbers: list[int], mean: np.ndarray, covariance: np.ndarray) -> dict[int, GaussianSite]:
        return {number: ask(number, mean, covariance) for number in numbers}

    found = refine_sites(model, each, sites, rows=rows, passes=passes, seed=seed, start=start, on_pass=on_pass)
    total = add_sites(found.sites, model.dim)
    draws = sample_posterior(
        model, *total, sampler=passes.final, seed=seed, start=found.centre, on_progress=on_progress
    )
    return Refined(found.sites, draws, found.records, found.settled)


def refine_sites(
    model: Model,
    ask: AskTogether,
    sites: Mapping[int, GaussianSite],
    *,
    rows: Mapping[int, int] | None = None,
    passes: Passes | None = None,
    seed: int = 0,
    start: np.ndarray | None = None,
    number: int = NUMBER,
    on_pass: Callable[[PassRecord], None] = lambda record: None,
) -> RefinedSites:
    """Refine sites without sampling in the end, asking the clients of a pass together.

    Args:
        model: The model.
        ask: ``ask(clients, m, V)`` gives the expansions over N(m, V) of those clients that answer. One that does not
            is not asked again, and keeps the site that it has.
        sites: The sites to begin with, one for each client: those of a run, or ``no_site``.
        rows: The number of rows of each client, to count row-gradients; not counted if it is missing.
        passes: How to refine.
        seed: Fixes every draw. All passes use the same random numbers, so that they can settle.
        start: Where the first search for a mode begins.
        number: The bytes of a number in a message.
        on_pass: Gets the record of each pass.

    Returns:
        The sites, and a record of each pass.

    Raises:
        InputError: There is no client, or a sampled posterior has no finite moments.
    """
    if not sites:
        raise InputError("expected at least one client to refine the sites of, got none")
    passes = passes or Passes()
    clients = {client: _Client(site) for client, site in sorted(sites.items())}
    records: list[PassRecord] = []
    points: list[_Point] = []
    settled = False
    while not settled and len(records) < passes.most:
        q = _moments(model, clients, passes, seed, start)
        start = q[0]
        record = _one_pass(model, ask, clients, rows or {}, passes, number, *q)
        records.append(record)
        on_pass(record)
        settled = record.complete and record.to_go <= passes.tolerance
        if settled:
            for client in clients.values():
                client.site = client.last_answer  # the final sites are the clients' last answers
        else:
            points = _step(clients, points, record.to_go, passes, *q)
    return RefinedSites({name: client.site for name, client in clients.items()}, records, settled, start)


def _moments(
    model: Model, clients: Mapping[int, _Client], passes: Passes, seed: int, start: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the prior and the sites as they are."""
    total = add_sites({number: client.site for number, client in clients.items()}, model.dim)
    if has_scale(model):
        sites = one_site(total)
        return moments(model, sites, tabulate(model, sites))
    if hyper_grid.has_grid(model):
        return hyper_grid.moments(model, total, hyper_grid.tabulate(model, total, start))
    draws = sample_posterior(model, *total, sampler=passes.between, seed=seed, start=start)
    if not (np.isfinite(draws.mean).all() and np.isfinite(draws.covariance).all()):
        raise InputError(
            "the prior and the sites have no finite moments; let clients train first, or use a proper prior"
        )
    return draws.mean, draws.covariance


def _one_pass(
    model: Model,
    ask: AskTogether,
    clients: Mapping[int, _Client],
    rows: Mapping[int, int],
    passes: Passes,
    size: int,
    mean: np.ndarray,
    covariance: np.ndarray,
) -> PassRecord:
    """Ask the clients whose sites may have changed, and measure the distance that remains."""
    threshold = passes.patience * passes.tolerance / math.sqrt(len(clients))
    before = add_sites({n: client.site for n, client in clients.items()}, model.dim)

    def take(numbers: list[int]) -> float:
        answers = ask(numbers, mean, covariance) if numbers else {}
        for number in numbers:
            if number in answers:
                clients[number].answer(answers[number], mean, covariance)
            else:
                clients[number].silent = True
        ahead = add_sites({n: client.last_answer for n, client in clients.items()}, model.dim)
        return natural_distance(before, ahead, mean, covariance)

    there = {n: client for n, client in clients.items() if not client.silent}
    asked = [n for n, client in there.items() if client.expected(mean, covariance) > threshold]
    to_go = take(asked)
    if to_go <= passes.tolerance:
        late = [n for n, client in there.items() if not client.silent and client.moved(mean, covariance) > 0]
        to_go, asked = take(late), asked + late  # about to stop: rely on no guess
    complete = all(client.silent or client.moved(mean, covariance) == 0 for client in there.values())
    silent = tuple(n for n in sorted(asked) if clients[n].silent)
    each, answered = message_bytes(model.dim, size), [n for n in asked if n not in silent]
    work = sum(row_gradients(model, rows.get(n, 0)) for n in answered)
    return PassRecord(to_go, tuple(sorted(asked)), len(asked) * each, len(answered) * each, work, silent, complete)


def _step(
    clients: Mapping[int, _Client],
    points: list[_Point],
    to_go: float,
    passes: Passes,
    mean: np.ndarray,
    covariance: np.ndarray,
) -> list[_Point]:
    """Move every site; returns the passes that the next step may combine."""
    sites, answers = ({n: part(c) for n, c in clients.items()} for part in (lambda c: c.site, lambda c: c.last_answer))
    before, ahead = add_sites(sites, len(mean)), add_sites(answers, len(mean))
    here = _Point(sites, answers, GaussianSite(*(b - a for a, b in zip(before, ahead, strict=True))), to_go)
    best = min([*points, here], key=lambda point: point.to_go)
    if to_go > passes.growth * best.to_go:
        for n, client in clients.items():
            client.damped(best.sites[n], best.answers[n], passes.damping)
        return []
    points = [*points, here][-passes.memory :]
    shares = mixing([point.residual for point in points], mean, covariance)
    if shares is not None:
        mixed = {n: combined(shares, [point.answers[n] for point in points]) for n in clients}
        if positive(add_sites(mixed, len(mean))):
            for n, client in clients.items():
                client.site = mixed[n]
            return points
    for n, client in clients.items():
        client.damped(sites[n], answers[n], passes.damping)
    return [here]
