"""Steps after the last round: passes that make sites variational (``sites.expand``), and a check of the sites.

The results of the rounds do not change: particles, Gaussian and records stay as they were. Only the sums change after
passes. Draws from prior and sites are then weighted by the clients' exact likelihoods: many, to quote from, after
passes; few, to find out whether the sites are right, with ``sites.expand = "mean"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.console import counted
from fedstein.errors import InputError
from fedstein.federation.engine import Engine
from fedstein.federation.round_context import RunState
from fedstein.inference.collapse import parts_of
from fedstein.inference.expansion import row_gradients
from fedstein.inference.importance import RELIABLE, Weighted
from fedstein.inference.methods import Conclusion
from fedstein.inference.natural import (
    WIRE,
    GaussianSite,
    add_sites,
    expansion_request,
    no_site,
    nodes_request,
    read_nodes,
    read_nodes_request,
    read_request,
    read_site,
)
from fedstein.inference.points import read_likelihoods
from fedstein.inference.reweighting import (
    COUNT,
    COUNT_AT_NODES,
    FEW,
    NODES,
    Proposal,
    further_draws,
    needs_better_sites,
    propose,
    refine_nodes,
    together,
    weigh_proposal,
)
from fedstein.inference.scale_sites import ScaleSites, can_have_nodes
from fedstein.inference.variational import Passes, PassRecord, refine_sites
from fedstein.models.base import Model
from fedstein.runs.build import barred_from
from fedstein.runs.config import Config
from fedstein.runs.defaults import LARGEST_MOVED

NUMBER = np.dtype(WIRE).itemsize  # bytes of a number of an expansion
PASSES = Passes()
# Draws from sites at several scales have a wider scale. They are no gain if the share of them that counts falls below
# this part of what it was.
WORSE = 0.25

UNASKED = "nodes are asked for their likelihoods only with sites.expand = 'variational'"
PRIVATE = "the clients of a private run are not asked for their likelihoods"
NARROW = (  # experiments/privacy has the coverage that was measured
    f"{PRIVATE}, and rows with Gaussian features stand for theirs: the intervals are too narrow for features that are "
    "far from Gaussian, such as columns that are 1 in few rows"
)
ROBUST = "sites were bounded because clients may lie, so their likelihoods cannot be trusted either"
UNCHECKED = (
    f"sites of a model with more than {LARGEST_MOVED} parameters whose prior is not Gaussian given a few of them are "
    "checked only with sites.expand = 'variational'"
)

Say = Callable[[str], None]


class Refinement(NamedTuple):
    """The results of the steps after the last round.

    Attributes:
        found: The conclusion, with refined sums where there were passes.
        refined: What ``summary.json`` says of the passes; None if there were none.
        weights: What ``weights.json`` says of the check of the sites; None without full sites.
        weighted: Draws to quote from; None if the sites were only checked, or could not be.
    """

    found: Conclusion
    refined: dict[str, Any] | None = None
    weights: dict[str, Any] | None = None
    weighted: Weighted | None = None


def refine_conclusion(
    config: Config, engine: Engine, state: RunState, found: Conclusion, say: Say = lambda line: None
) -> Refinement:
    """Refine the sites of a run where its config says so, and check them where they are full.

    Args:
        config: The config of the run.
        engine: How clients are reached. Barred clients are never asked.
        state: The state after the last round.
        found: What the method has made of that state.
        say: Gets a line for each pass.

    Returns:
        The conclusion, what there is to say of passes and weights, and the weighted draws. Where refining is impossible
        the sums stay as they were, and the reason is given.

    Raises:
        FedsteinError: No client answered for too long.
    """
    if found.sums is None:
        return Refinement(found)
    if config.privacy.on:
        reasons = [PRIVATE if config.model.kind == "linear" else NARROW, *([found.doubt] if found.doubt else [])]
        return Refinement(found, None, {"refused": "; ".join(reasons)})
    if config.robust.kind != "none":
        return Refinement(found, None, {"refused": ROBUST})
    clients = Clients(config, engine, state)
    refined: dict[str, Any] | None = None
    sites, passes = clients.sites(), getattr(config.sites, "expand", "mean") == "variational"
    if passes:
        try:
            sites, refined = run_passes(config, clients, sites, found, say)
        except InputError as error:
            refined, passes = {"refused": str(error)}, False
    found = found._replace(sums=add_sites(sites, clients.model.dim)) if passes else found
    if engine.remote and not passes:
        return Refinement(found, refined, {"refused": UNASKED})
    if not passes and len(parts_of(clients.model).moved) > LARGEST_MOVED:
        return Refinement(found, refined, {"refused": UNCHECKED})
    try:
        with np.errstate(all="ignore"):  # what is not finite is found by the checks
            weights, weighted = check_sites(config, clients, sites, found.sums, passes, say)
    except (InputError, np.linalg.LinAlgError) as error:
        return Refinement(found, refined, {"refused": str(error)})
    return Refinement(found, refined, weights, weighted if passes and weighted.usable else None)


class Clients:
    """The clients that may be asked after the rounds, and what that has cost."""

    def __init__(self, config: Config, engine: Engine, state: RunState):
        self.engine, self.state = engine, state
        self.model: Model = engine.program.method.spec.model
        barred = barred_from(config)
        self.rows = {client.id: client.rows for client in engine.clients if client.id not in barred}
        self.bytes_down = self.bytes_up = self.points = 0
        self.answered = set(self.rows)  # clients that have answered every request of log-likelihoods

    def sites(self) -> dict[int, GaussianSite]:
        """The accepted site of each client; that of one that never trained is one."""
        accepted = self.state.sites.accepted
        return {
            client: GaussianSite(*(np.asarray(accepted[client][name], np.float64) for name in GaussianSite._fields))
            if client in accepted
            else no_site(self.model.dim)
            for client in self.rows
        }

    def expand(self, numbers: list[int], mean: np.ndarray, covariance: np.ndarray) -> dict[int, GaussianSite]:
        request = expansion_request(mean, covariance)
        replies = self.engine.expand(self.state.round, request, numbers, self.state.sites)
        return {client: read_site(reply, read_request(request)[0]) for client, reply in replies.items()}

    def expand_at_nodes(
        self, numbers: list[int], means: np.ndarray, covariances: np.ndarray
    ) -> dict[int, list[tuple[GaussianSite, float]]]:
        request = nodes_request(means, covariances)
        replies = self.engine.expand_at_nodes(self.state.round, request, numbers, self.state.sites)
        self._count(request, numbers, replies)
        return {client: read_nodes(reply, read_nodes_request(request)[0]) for client, reply in replies.items()}

    def log_likelihoods(self, proposal: Proposal) -> dict[int, np.ndarray]:
        numbers = sorted(self.rows)
        replies = self.engine.weigh(self.state.round, proposal.request, numbers, self.state.sites)
        self._count(proposal.request, numbers, replies)
        self.points += len(proposal.draws) * sum(self.rows[client] for client in replies)
        return {client: read_likelihoods(reply) for client, reply in replies.items()}

    def _count(self, request: Mapping[str, Any], numbers: Sequence[int], replies: Mapping[int, Any]) -> None:
        self.bytes_down += len(numbers) * sum(np.asarray(array).nbytes for array in request.values())
        self.bytes_up += sum(np.asarray(array).nbytes for reply in replies.values() for array in reply.values())


def run_passes(
    config: Config, clients: Clients, sites: dict[int, GaussianSite], found: Conclusion, say: Say
) -> tuple[dict[int, GaussianSite], dict[str, Any]]:
    """Make the sites variational; returns them with what the summary says of the passes."""
    began, count = time.perf_counter(), 0
    say(f"refining the sites: passes over {counted(len(sites), 'client')}")

    def on_pass(record: PassRecord) -> None:
        nonlocal count
        count += 1
        say(f"pass {count}: {counted(len(record.asked), 'client')} asked, {record.to_go:.2g} posterior sds to go")

    refined = refine_sites(
        clients.model,
        clients.expand,
        sites,
        rows=clients.rows,
        passes=PASSES,
        seed=config.seed,
        start=np.asarray(found.server["particles"], np.float64).mean(axis=0),
        number=NUMBER,
        on_pass=on_pass,
    )
    summary = {
        **describe_passes(refined.records, [client.id for client in clients.engine.clients]),
        "settled": refined.settled,
        "without_site": [client for client, site in refined.sites.items() if not site.precision.any()],
        "seconds": time.perf_counter() - began,
    }
    return refined.sites, summary


class Draws:
    """Draws of one proposal, to which batches are added, with the clients' log-likelihoods at them."""

    def __init__(
        self,
        config: Config,
        clients: Clients,
        sites: Mapping[int, GaussianSite],
        total: GaussianSite,
        say: Say,
        at: ScaleSites | None = None,
    ):
        self.config, self.clients, self.sites, self.total, self.say, self.at = config, clients, sites, total, say, at
        self.proposals: list[Proposal] = []
        self.answers: list[dict[int, np.ndarray]] = []

    def more(self, count: int) -> Weighted:
        """Add so many draws, and weight all."""
        model, batch = self.clients.model, len(self.proposals)
        grid = self.proposals[0].grid if batch else None
        proposal = propose(model, self.total, sites=self.at, count=count, seed=self.config.seed, batch=batch, grid=grid)
        self.proposals.append(proposal)
        self.answers.append(self.clients.log_likelihoods(proposal))
        there = set(self.sites).intersection(*self.answers)  # the site of any other stands for its likelihood
        self.clients.answered &= there
        answers = {client: np.concatenate([part[client] for part in self.answers]) for client in there}
        found = weigh_proposal(model, together(self.proposals), answers, self.sites)
        self.say(f"sites checked at {len(found.draws)} draws: Pareto k {found.k:.2f}, {found.ess:.0f} effective draws")
        return found


def check_sites(
    config: Config, clients: Clients, sites: Mapping[int, GaussianSite], total: GaussianSite, many: bool, say: Say
) -> tuple[dict[str, Any], Weighted]:
    """Weight draws from prior and sites by the clients' likelihoods.

    Args:
        config: The config of the run.
        clients: The clients.
        sites: Every client's site.
        total: Their sum.
        many: Whether to make draws to quote from, at better sites where these are poor, or only to check.
        say: Gets a line on the weights.

    Returns:
        What ``weights.json`` says, and the weighted draws.

    Raises:
        InputError: Prior and sites have no finite moments.
    """
    began, nodes, node_rows = time.perf_counter(), None, 0
    model, can = clients.model, can_have_nodes(clients.model)
    first = Draws(config, clients, sites, total, say)
    best = first.more(FEW if can or not many else COUNT)
    if many and can and not needs_better_sites(best):  # more draws judge better
        first = Draws(config, clients, sites, total, say)
        best = first.more(COUNT)
        while not needs_better_sites(best) and (count := further_draws(model, best)):
            best = first.more(count)
    used = first
    if many and can and needs_better_sites(best):
        refined = refine_nodes(
            model,
            clients.expand_at_nodes,
            sites,
            total,
            on_pass=lambda to_go: say(f"pass at {len(NODES)} scales of the prior: {to_go:.2g} posterior sds to go"),
        )
        nodes = {"scales": refined.sites.nodes.tolist(), "passes": len(refined.to_go), "to_go": refined.to_go[-1]}
        node_rows = refined.expansions * sum(row_gradients(model, n) for n in clients.rows.values()) // len(sites)
        plain, used = best, Draws(config, clients, sites, total, say, refined.sites)
        best = used.more(COUNT_AT_NODES)
        if best.k > RELIABLE or best.share < WORSE * plain.share:  # they are not better
            if len(plain.draws) < COUNT:
                first = Draws(config, clients, sites, total, say)
                plain = first.more(COUNT)
            best, used = min((best, used), (plain, first), key=lambda pair: (pair[0].k > RELIABLE, -pair[0].ess))
    while many and (count := further_draws(model, best)):
        best = used.more(count)
    document = {
        "draws": len(best.draws),
        "k": best.k,
        "ess": best.ess,
        "nodes": nodes,
        "problems": list(used.proposals[-1].problems) if many else [],  # draws that only check are never enough
        "unanswered": sorted(set(sites) - clients.answered),
        "bytes_down": clients.bytes_down,
        "bytes_up": clients.bytes_up,
        "row_likelihoods": clients.points,
        "row_gradients": node_rows,
        "seconds": time.perf_counter() - began,
    }
    return document, best


def describe_passes(records: Sequence[PassRecord], clients: Sequence[int]) -> dict[str, Any]:
    """Describe the result of the passes, and how often each client was asked."""
    return {
        "passes": len(records),
        "to_go": records[-1].to_go,
        "asked": sum(len(record.asked) for record in records),
        "asked_counts": [sum(client in record.asked for record in records) for client in clients],
        "bytes_down": sum(record.bytes_down for record in records),
        "bytes_up": sum(record.bytes_up for record in records),
        "row_gradients": sum(record.row_gradients for record in records),
        "unanswered": sorted({client for record in records for client in record.unanswered}),
    }
