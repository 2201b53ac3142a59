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
from fedstein.inference.reweighting import (
    COUNT,
    FEW,
    MANY,
    NODES,
    Proposal,
    needs_better_sites,
    needs_more_draws,
    propose,
    refine_nodes,
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
        return {client: np.asarray(reply["log_likelihood"], np.float64) for client, reply in replies.items()}

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
    began, answered, problems = time.perf_counter(), set(sites), list[str]()

    def weighted_from(at: ScaleSites | None, count: int) -> Weighted:
        nonlocal answered
        proposal = propose(clients.model, total, sites=at, count=count, seed=config.seed)
        answers = clients.log_likelihoods(proposal)
        answered = answered & set(answers)
        problems[:] = proposal.problems if many else ()  # few draws that only check are never enough to quote
        found = weigh_proposal(clients.model, proposal, answers, sites)
        say(f"sites checked at {len(found.draws)} draws: Pareto k {found.k:.2f}, {found.ess:.0f} effective draws")
        return found

    nodes, node_rows, can = None, 0, can_have_nodes(clients.model)
    best = weighted_from(None, COUNT if many and not can else FEW)
    if many and can:
        # few draws detect clearly poor sites; sites that seem good are judged by many draws
        if not needs_better_sites(best):
            best = weighted_from(None, COUNT)
        if needs_better_sites(best):
            refined = refine_nodes(
                clients.model,
                clients.expand_at_nodes,
                sites,
                total,
                on_pass=lambda to_go: say(f"pass at {len(NODES)} scales of the prior: {to_go:.2g} posterior sds to go"),
            )
            nodes = {"scales": refined.sites.nodes.tolist(), "passes": len(refined.to_go), "to_go": refined.to_go[-1]}
            node_rows = (
                len(refined.to_go) * len(NODES) * sum(row_gradients(clients.model, n) for n in clients.rows.values())
            )
            plain, best = best, weighted_from(refined.sites, MANY)
            if best.k > RELIABLE or best.ess < plain.share * COUNT:  # they were not better
                other = plain if len(plain.draws) == COUNT else weighted_from(None, COUNT)
                best = min(best, other, key=lambda weighted: (weighted.k > RELIABLE, -weighted.ess))
    if many and len(best.draws) < MANY and needs_more_draws(clients.model, best):
        best = weighted_from(None, MANY)
    document = {
        "draws": len(best.draws),
        "k": best.k,
        "ess": best.ess,
        "nodes": nodes,
        "problems": problems,
        "unanswered": sorted(set(sites) - answered),
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
