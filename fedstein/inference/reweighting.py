"""Weighting of draws after the passes: draws from prior and sites are weighted by the clients' exact likelihoods.

The proposal q is the prior times the sites, a little wider (SCALE_TEMPERATURE, ``widening``) if the prior is Gaussian
given one to three parameters, so that its tails cover the posterior's. The server says which draws (``points``), and
each client answers with its log-likelihood at each of them. With these, log p = log p0 + sum_k log p_k is known up to a
constant, and the weights p / q say how wrong the sites are and mend the draws (``importance``).

If the weights are poor and the prior has a scale h, the clients expand their likelihoods once more at several values of
h (``scale_sites``), and draws from those sites are weighted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.inference import hyper_grid, scale_sites
from fedstein.inference.anderson import combined, mixing, positive
from fedstein.inference.collapse import Sums, log_target
from fedstein.inference.importance import Weighted, weigh
from fedstein.inference.natural import WIRE, GaussianSite, natural_distance
from fedstein.inference.points import given_request, plain_request, points_of, sites_of, uniforms
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.inference.scale_sites import ScaleSites, can_have_nodes, has_scale, node, one_site, tabulate
from fedstein.models.base import Model, cut

COUNT = 4000  # draws to quote from
MANY = 16_000  # the same, if the standard deviations of fewer draws are too uncertain
FEW = 400  # draws that only check
SCALE_TEMPERATURE = 1.3
SCALE_TEMPERATURE_AT_NODES = 2.0  # used if the weights have shown that the tails of h matter
NODES = (-3.0, -1.5, 0.0, 1.5, 3.0)  # sds of h from its mean
UNCERTAIN = 0.03  # the relative Monte Carlo standard error of an sd from which more draws are needed
POOR_K, POOR_SHARE = 0.5, 0.4  # weights with a larger k, or a smaller share of effective draws, are poor

AskNodes = Callable[[list[int], np.ndarray, np.ndarray], Mapping[int, list[tuple[GaussianSite, float]]]]


class Proposal(NamedTuple):
    """Draws of q as clients will read them, the message that carries them, and log q at each, up to a constant."""

    draws: np.ndarray
    request: dict[str, np.ndarray]
    log_density: np.ndarray
    problems: tuple[str, ...] = ()  # the reasons to doubt that draws of NUTS are draws of q


class NodePasses(NamedTuple):
    """How sites at nodes are refined: at most ``most`` times, until they move by less than ``tolerance`` sds.

    The last ``memory`` answers are combined (``anderson``); if that is not safe, the step is damped.
    """

    most: int = 6
    damping: float = 0.6
    tolerance: float = 0.05
    memory: int = 4


class NodesFound(NamedTuple):
    """Sites at the nodes, the remaining distance after each pass, and how many answers were requested and received."""

    sites: ScaleSites
    to_go: list[float]
    asked: int
    answered: int


def propose(
    model: Model, total: GaussianSite, *, sites: ScaleSites | None = None, count: int = COUNT, seed: int = 0
) -> Proposal:
    """Draw from the prior and the sites.

    Args:
        model: The model.
        total: The sum of the sites.
        sites: Sites at several values of the prior's scale, if there are any; they take the place of ``total``.
        count: How many draws; a multiple of four.
        seed: Fixes them.

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
    places = (np.arange(count) + uniforms(seed, 1, count, 1)[:, 0]) / count
    if has_scale(model):
        grid = tabulate(model, sites).tempered(temperature)
        moved = np.asarray(scale_sites.draw_scales(grid, places), WIRE)[:, None].astype(np.float64)
        log_q = np.interp(moved[:, 0], grid.points, grid.log_density)
    else:
        cells = hyper_grid.tabulate(model, total).tempered(SCALE_TEMPERATURE)
        moved, log_q = hyper_grid.draw(cells, places, uniforms(seed, 2, count, cells.points.shape[1]))
    request = given_request(sites, moved, seed, wider)
    theta, sent = points_of(model, request), sites_of(request)
    return Proposal(theta, request, log_q + scale_sites.log_density_given(model, sent, theta, wider))


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
    """Tell whether better sites are needed: the tail of the weights is heavy, or most draws have little weight."""
    return weighted.k > POOR_K or weighted.share < POOR_SHARE


def needs_more_draws(model: Model, weighted: Weighted) -> bool:
    """Tell whether more draws are needed, and can be had for a few bytes: a standard deviation is too uncertain.

    Clients make the draws from a seed if the prior is Gaussian given a few parameters. For other models every draw
    travels, and there are no more.
    """
    return (has_scale(model) or hyper_grid.has_grid(model)) and weighted.sd_error > UNCERTAIN


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
    scales = grid.mean + grid.sd * np.array(NODES)
    sums, there = [total] * len(scales), sorted(sites)
    earlier: list[list[tuple[GaussianSite, GaussianSite]]] = [[] for _ in scales]
    record: list[float] = []
    asked = answered = 0
    while True:
        q = [node(model, scale, site) for scale, site in zip(scales, sums, strict=True)]
        means, covariances = np.stack([part.mean for part in q]), np.stack([part.covariance for part in q])
        answers = ask(there, means, covariances) if there else {}
        asked, answered = asked + len(there), answered + len(answers)
        there = [client for client in there if client in answers]
        fresh, values = _totals(sites, answers, q)
        record.append(max(natural_distance(a, b, p.mean, _floored(p)) for a, b, p in zip(sums, fresh, q, strict=True)))
        on_pass(record[-1])
        if record[-1] <= passes.tolerance or len(record) == passes.most:
            break
        earlier = [[*pairs, (old, new)][-passes.memory :] for pairs, old, new in zip(earlier, sums, fresh, strict=True)]
        sums = [_step(pairs, at, passes.damping) for pairs, at in zip(earlier, q, strict=True)]
    found = ScaleSites(
        scales,
        np.stack([site.eta for site in sums]),
        np.stack([site.precision for site in sums]),
        np.array([part.bound for part in q]) + values,
        np.array([part.slope for part in q]),
    )
    return NodesFound(found, record, asked, answered)


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
    q: list[scale_sites.Node],
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


def _floored(at: scale_sites.Node) -> np.ndarray:
    """The covariance without the zero variance of h, which has no sds to move by."""
    fixed = np.diag(at.covariance) == 0
    return at.covariance + np.diag(np.where(fixed, 1e-300, 0.0))


def _step(pairs: list[tuple[GaussianSite, GaussianSite]], at: scale_sites.Node, damping: float) -> GaussianSite:
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
