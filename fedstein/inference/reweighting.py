"""Weighting of draws after the passes: draws from prior and sites are weighted by the clients' exact likelihoods.

The proposal q is the prior times the sites, a little wider (SCALE_TEMPERATURE, ``widening``) if the prior is Gaussian
given one to three parameters, so that its tails cover the posterior's. The server says which draws (``points``), and
each client answers with its log-likelihood at each of them. With these, log p = log p0 + sum_k log p_k is known up to a
constant, and the weights p / q say how wrong the sites are and mend the draws (``importance``).

If the weights are poor and the prior has a scale h, the clients expand their likelihoods once more at several values of
h (``scale_sites``), and draws from those sites are weighted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.inference import hyper_grid
from fedstein.inference.anderson import combined, mixing, positive
from fedstein.inference.cells import Cells
from fedstein.inference.collapse import Sums, log_target
from fedstein.inference.importance import RELIABLE, Weighted, weigh
from fedstein.inference.natural import GaussianSite, natural_distance
from fedstein.inference.points import CELLS, given_request, log_density_of, plain_request, points_of, purpose, uniforms
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.inference.scale_sites import Node, ScaleSites, can_have_nodes, has_scale, node, one_site, tabulate
from fedstein.models.base import Model, cut

COUNT = 4000  # draws to quote from; more are made in steps of as many
MANY = 16_000  # the most draws that are cheaper than better sites
MOST = 64_000  # the most, if the standard deviations of fewer draws are too uncertain
GROWTH = 2.0  # how many times as many draws there are after a step: the error that few draws show is itself uncertain
COUNT_AT_NODES = 8000  # the first draws from sites at several scales, which are more bytes than as many answers
FEW = 400  # draws that only check
SCALE_TEMPERATURE = 1.3
SCALE_TEMPERATURE_AT_NODES = 2.0  # used if the weights have shown that the tails of h matter
NODES = (-3.0, -1.5, 0.0, 1.5, 3.0)  # sds of h from its mean
UNCERTAIN = 0.03  # the relative Monte Carlo standard error of an sd above which more draws are needed
POOR_K, POOR_SHARE = 0.5, 0.4  # weights with a larger k, or a smaller share of effective draws, are poor

AskNodes = Callable[[list[int], np.ndarray, np.ndarray], Mapping[int, list[tuple[GaussianSite, float]]]]


class Proposal(NamedTuple):
    """Draws of q as clients will read them, the message that carries them, and log q at each, up to a constant."""

    draws: np.ndarray
    request: dict[str, np.ndarray]
    log_density: np.ndarray
    problems: tuple[str, ...] = ()  # the reasons to doubt that draws of NUTS are draws of q
    grid: Cells | None = None  # the density of h, which further batches need


class NodePasses(NamedTuple):
    """How sites at nodes are refined: at most ``most`` times, each until it moves by less than ``tolerance`` sds.

    The last ``memory`` answers are combined (``anderson``); if that is not safe, the step is damped.
    """

    most: int = 8
    damping: float = 0.6
    tolerance: float = 0.03
    memory: int = 4


class NodesFound(NamedTuple):
    """Sites at the nodes, the remaining distance after each pass, and how many expansions were requested."""

    sites: ScaleSites
    to_go: list[float]
    expansions: int


@dataclass
class _AtNode:
    """The state of one node: the sum of its sites, q, the last answer to it, and how far there was to go."""

    scale: float
    total: GaussianSite
    q: Node = field(init=False)
    value: float = 0.0
    to_go: float = np.inf
    earlier: list[tuple[GaussianSite, GaussianSite]] = field(default_factory=list)


def propose(
    model: Model,
    total: GaussianSite,
    *,
    sites: ScaleSites | None = None,
    count: int = COUNT,
    seed: int = 0,
    batch: int = 0,
    grid: Cells | None = None,
) -> Proposal:
    """Draw from the prior and the sites.

    Args:
        model: The model.
        total: The sum of the sites.
        sites: Sites at several values of the prior's scale, if there are any; they take the place of ``total``.
        count: How many draws; a multiple of four.
        seed: Fixes them.
        batch: Draws with other numbers of a batch are further ones of the same q.
        grid: The density of h, if an earlier batch has tabulated it.

    Returns:
        The proposal.

    Raises:
        InputError: Prior and sites have no finite moments, or NumPyro is needed and not installed.
    """
    if not has_scale(model) and not hyper_grid.has_grid(model):
        found = sample_posterior(model, *total, sampler=Sampler(draws=max(count // 4, 4)), seed=seed)
        request = _plain(found.flat)
        theta = points_of(model, request)
        with jax.enable_x64(True):
            return Proposal(theta, request, np.asarray(_log_target(model, total, theta)), tuple(found.problems))
    temperature = SCALE_TEMPERATURE if sites is None else SCALE_TEMPERATURE_AT_NODES
    sites, wider = sites or one_site(total), widening(model.dim)
    if grid is None:
        grid = (tabulate(model, sites) if has_scale(model) else hyper_grid.tabulate(model, total)).cells
        grid = grid.tempered(temperature)
    chosen = grid.chosen((np.arange(count) + uniforms(seed, purpose(CELLS, batch), count, 1)[:, 0]) / count)
    request = given_request(sites, grid, chosen, seed, batch, wider)
    log_q = grid.log_density[chosen] + log_density_of(model, request)
    return Proposal(points_of(model, request), request, log_q, grid=grid)


def weigh_proposal(
    model: Model,
    proposal: Proposal,
    answers: Mapping[int, np.ndarray],
    sites: Mapping[int, GaussianSite],
) -> Weighted:
    """Weight draws by prior and likelihoods.

    Args:
        model: The model.
        proposal: The draws.
        answers: The log-likelihoods at the draws of each client that answered.
        sites: Every client's site, which stands for the likelihood of one that did not answer.

    Returns:
        The weighted draws.
    """
    theta = proposal.draws
    with jax.enable_x64(True):
        prior = np.asarray(model.log_prior(cut(jnp.asarray(theta), model.widths)))
    total = prior - proposal.log_density
    for client in sorted(sites):
        total = total + (answers[client] if client in answers else site_values(sites[client], theta))
    return weigh(theta, total)


def needs_better_sites(weighted: Weighted) -> bool:
    """Tell whether better sites are needed.

    They are needed if the tail of the weights is heavy, if most draws have little weight, or if it would take very many
    draws until every standard deviation is certain. In the last case a few draws far out have much of a parameter's
    variance, because q has too few draws there, and more draws of q would find more of them.
    """
    needed = draws_needed(weighted) if len(weighted.draws) >= COUNT else 0.0  # fewer draws do not show it
    limit = POOR_K if len(weighted.draws) <= COUNT else RELIABLE
    return weighted.k > limit or weighted.share < POOR_SHARE or needed > MANY


def draws_needed(weighted: Weighted) -> float:
    """Compute how many draws it would take until the relative error of no standard deviation exceeds UNCERTAIN.

    Monte Carlo errors fall with the root of the number of draws. A single draw with a share s of a parameter's variance
    makes an error of s / 2, so that with enough draws none has more than 2 UNCERTAIN of a variance.
    """
    return len(weighted.draws) * (weighted.sd_error / UNCERTAIN) ** 2


def further_draws(model: Model, weighted: Weighted) -> int:
    """Compute how many draws to add.

    Args:
        model: The model. Clients make the draws from a seed if its prior is Gaussian given a few parameters. For other
            models every draw travels, and there are no more.
        weighted: The draws so far.

    Returns:
        How many; zero if there are enough, or MOST.
    """
    count, needed = len(weighted.draws), draws_needed(weighted)
    if not (has_scale(model) or hyper_grid.has_grid(model)) or not needed > count:
        return 0
    return max(min(COUNT * int(np.ceil(min(needed, GROWTH * count) / COUNT)), MOST) - count, 0)


def together(parts: Sequence[Proposal]) -> Proposal:
    """Several batches of draws of one q as one."""
    draws, densities = (np.concatenate([getattr(part, name) for part in parts]) for name in ("draws", "log_density"))
    return parts[-1]._replace(draws=draws, log_density=densities)


def refine_nodes(
    model: Model,
    ask: AskNodes,
    sites: Mapping[int, GaussianSite],
    total: GaussianSite,
    *,
    passes: NodePasses | None = None,
    on_pass: Callable[[float], None] = lambda to_go: None,
) -> NodesFound:
    """Expand sites at several values of the prior's scale h, each over the Gaussian of w given that h.

    Args:
        model: A model for which ``can_have_nodes`` holds.
        ask: ``ask(clients, means, covariances)`` gives the expansions of those clients that answer, with their average
            log-likelihoods. One that does not answer is not asked again, and its site is used at every node.
        sites: Every client's site.
        total: Their sum, from which every node starts.
        passes: How to refine.
        on_pass: Gets how far there was to go, in posterior sds.

    Returns:
        The sites at the nodes.

    Raises:
        InputError: Prior and sites have no finite moments.
    """
    assert can_have_nodes(model)
    passes = passes or NodePasses()
    grid = tabulate(model, one_site(total))
    at = [_AtNode(scale, total) for scale in grid.mean + grid.sd * np.array(NODES)]
    there, moving = sorted(sites), list(at)
    record: list[float] = []
    expansions = 0
    while True:
        for one in moving:
            one.q = node(model, one.scale, one.total)
        q = [one.q for one in moving]
        means, covariances = np.stack([part.mean for part in q]), np.stack([part.covariance for part in q])
        answers = ask(there, means, covariances) if there else {}
        expansions += len(moving) * len(there)
        there = [client for client in there if client in answers]
        fresh, values = _totals(sites, answers, q)
        for one, new, value in zip(moving, fresh, values, strict=True):
            one.value, one.to_go = value, natural_distance(one.total, new, one.q.mean, _floored(one.q))
            one.earlier = [*one.earlier, (one.total, new)][-passes.memory :]
        record.append(max(one.to_go for one in at))
        on_pass(record[-1])
        moving = [one for one in moving if one.to_go > passes.tolerance]
        if not moving or len(record) == passes.most:
            break
        for one in moving:
            one.total = _step(one.earlier, one.q, passes.damping)
    found = ScaleSites(
        np.array([one.scale for one in at]),
        np.stack([one.total.eta for one in at]),
        np.stack([one.total.precision for one in at]),
        np.array([one.q.bound + one.value for one in at]),
        np.array([one.q.slope for one in at]),
    )
    return NodesFound(found, record, expansions)


def widening(dim: int) -> float:
    """The factor by which proposals are wider than prior and sites: s with 2 d (s - 1)^2 = .1, at most 1.03.

    2 d (s - 1)^2 is about the variance that it adds to the logarithms of the weights.
    """
    return 1 + min(0.03, float(np.sqrt(0.05 / dim)))


def site_values(site: GaussianSite, theta: np.ndarray) -> np.ndarray:
    """log t at n x d points."""
    found: np.ndarray = theta @ site.eta - 0.5 * np.einsum("ni,ij,nj->n", theta, site.precision, theta)
    return found


def _plain(theta: np.ndarray) -> dict[str, np.ndarray]:
    covariance = np.atleast_2d(np.cov(theta, rowvar=False))
    ridge = 1e-10 * np.diag(np.maximum(np.diag(covariance), 1e-300))
    return plain_request(theta, theta.mean(axis=0), np.linalg.cholesky(covariance + ridge))


def _totals(
    sites: Mapping[int, GaussianSite],
    answers: Mapping[int, list[tuple[GaussianSite, float]]],
    q: list[Node],
) -> tuple[list[GaussianSite], np.ndarray]:
    """Sums over clients at every node: of expansions, and of average log-likelihoods."""
    totals, values = [], np.zeros(len(q))
    for j, at in enumerate(q):
        eta, precision = np.zeros_like(at.mean), np.zeros_like(at.covariance)
        for client in sorted(sites):
            if client in answers:
                site, value = answers[client][j]
            else:
                site = sites[client]
                value = float(site_values(site, at.mean[None])[0] - 0.5 * np.sum(site.precision * at.covariance))
            eta, precision, values[j] = eta + site.eta, precision + site.precision, values[j] + value
        totals.append(GaussianSite(eta, precision))
    return totals, values


def _floored(at: Node) -> np.ndarray:
    """The covariance without the zero variance of h, which has no sds to move by."""
    fixed = np.diag(at.covariance) == 0
    return at.covariance + np.diag(np.where(fixed, 1e-300, 0.0))


def _step(pairs: list[tuple[GaussianSite, GaussianSite]], at: Node, damping: float) -> GaussianSite:
    """The next sum at a node, from the sums of earlier passes and the answers to them."""
    residuals = [GaussianSite(*(b - a for a, b in zip(old, new, strict=True))) for old, new in pairs]
    shares = mixing(residuals, at.mean, _floored(at))
    mixed = None if shares is None else combined(shares, [new for _, new in pairs])
    if mixed is not None and positive(mixed):
        return mixed
    return GaussianSite(*(a + damping * (b - a) for a, b in zip(*pairs[-1], strict=True)))


def _log_target(model: Model, total: GaussianSite, theta: np.ndarray) -> jax.Array:
    sums = Sums(jnp.asarray(total.eta), jnp.asarray(total.precision))
    return jax.vmap(lambda point: log_target(model, sums, point))(jnp.asarray(theta))
