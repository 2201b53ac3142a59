"""Sites, methods, schemes and client programs for tests of the mathematics, built without a config."""

from __future__ import annotations

from typing import Any

from fedstein.federation.client import ClientProgram
from fedstein.inference.methods import METHODS, Method, SvgdSettings
from fedstein.inference.sites import SITES, Site
from fedstein.inference.target import SharedTarget, Target
from fedstein.models import Model
from fedstein.models.base import join
from fedstein.selection import SCHEMES, Scheme
from fedstein.stein import KERNELS
from fedstein.stein.adagrad import AdaGrad

OPTIMISER = AdaGrad(0.05, 1e-6)


def method_settings(kind: str = "dsvgd", *, optimiser: AdaGrad = OPTIMISER, steps: int = 1, **more: Any) -> Any:
    """The settings of ``[algorithm]``; ``steps`` is L, and the optimiser gives step size and epsilon."""
    settings = METHODS[kind].settings
    own = {"epsilon": optimiser.epsilon} if issubclass(settings, SvgdSettings) else {}
    return settings(local_steps=steps, step_size=optimiser.step_size, **own, **more)


def site_of(kind: str, model: Model, method: Any, **settings: Any) -> Site:
    """A site of that kind beside a method with these settings."""
    return SITES[kind].build(model, SITES[kind].settings(**settings), method)


def particle_site(model: Model, *, density: str, bandwidth: float, steps: int, optimiser: AdaGrad) -> Site:
    """The paper's site; ``steps`` is L'."""
    method = method_settings(optimiser=optimiser, distill_steps=steps)
    return site_of("particles", model, method, density=density, bandwidth=bandwidth)


def curvature_site(model: Model, *, particles: int, temperature: float = 1.0, **settings: Any) -> Site:
    """A curvature site for that many particles."""
    return site_of("curvature", model, method_settings(particles=particles, temperature=temperature), **settings)


def method_of(kind: str, model: Model, site: Site, **settings: Any) -> Method:
    """A method of that kind."""
    return METHODS[kind].build(model, site, method_settings(kind, **settings))


def dsvgd(model: Model, site: Site, **settings: Any) -> Method:
    """Distributed SVGD."""
    return method_of("dsvgd", model, site, **settings)


def scheme_of(kind: str, *, kernel: str = "rbf", **settings: Any) -> Scheme:
    """A selection scheme of that kind."""
    return SCHEMES[kind].build(SCHEMES[kind].settings(**settings), KERNELS[kernel])


def program_of(
    model: Model, method: Method, scheme: str | Scheme, *, report_rows: int = 0, **more: Any
) -> ClientProgram:
    """What a client computes."""
    chosen = scheme_of(scheme) if isinstance(scheme, str) else scheme
    return ClientProgram(model, method, chosen, report_rows=report_rows, **more)


def train_client(
    program: ClientProgram, round_index: int, client: int, received: Any, state: Any, shard: Any
) -> tuple[Any, Any]:
    """One client's training: its update, and its whole state afterwards."""
    update, private = program.train(round_index, client, received, {}, state, shard)
    return update, program.state_after(round_index, client, update, private, received, {})


def likelihood_score(method: Method, key: Any, particles: Any, shard: Any, rows: int = 0) -> Any:
    """The score of a client's tempered likelihood at particles, N x d."""
    shared = SharedTarget(method.spec, {"particles": particles})
    return join(Target(method.spec, shared.terms(()), key, {}, shard, rows).likelihood_score)


def innovation_of(method: Method, key: Any, particles: Any, state: Any, shard: Any, rows: int = 0) -> Any:
    """What a client would report under selection by innovation."""
    scheme, shared = scheme_of("innovation"), SharedTarget(method.spec, {"particles": particles})
    assert scheme.report is not None
    target = Target(method.spec, shared.terms(scheme.uses), key, state, shard, rows)
    return scheme.report(target, scheme.prepare(shared))["innovation"]
