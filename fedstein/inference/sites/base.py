"""The contract of a site: a client's approximate likelihood t_k, its state, and the cavity it leaves in q."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax import Array

from fedstein.data.shard import Shard
from fedstein.models.base import Blocks, Model
from fedstein.settings import Settings
from fedstein.stein.kde import Mixture

State = dict[str, Array]  # a client's state: named arrays, nothing else
Own = Mapping[str, Any]  # one client's arrays, to be read: its state, or what the server has accepted of it
Arrays = dict[str, Any]  # what travels in a message, and what the server keeps: named arrays


class Cavity(NamedTuple):
    """log(q / t_k) and the prior in the form that SVGD takes: a score, and KDE factors that stay factors."""

    score: Callable[[Blocks], Blocks] | None  # None if the linear part is all there is
    mixtures: tuple[Mixture, ...] = ()
    linear: float | None = None  # c, if the score of the prior is c * theta; training then needs no array for it


class SiteSums(NamedTuple):
    """The server's side of sites that add up. These functions run on the host, and sums are float64.

    ``accepted`` is a client's site as the server last accepted it; it is None while the client has none.
    """

    first: Callable[[Any], Arrays]  # the initial particles -> the sums before any client has trained
    tilted: Callable[[Arrays], Arrays]  # the server's state -> what a report on the tilted target needs besides
    cavity: Callable[[Arrays, Own | None], Arrays]  # ..., accepted -> what the client that trains needs besides
    absorb: Callable[[Arrays, Own | None, Arrays], Arrays]  # ..., accepted, new site -> the sums with the new site
    total: Callable[[Mapping[int, Own]], Arrays]  # every accepted site -> the sums, computed afresh
    # The server's state, every accepted site, scores of some clients' likelihoods at the particles -> the sums, and
    # the arrays of those clients' sites that have changed. None: such sites cannot be renewed by reports.
    renew: Callable[[Arrays, Mapping[int, Own], Mapping[int, Any]], tuple[Arrays, dict[int, Arrays]]] | None = None


NO_SUMS = SiteSums(
    first=lambda particles: {},
    tilted=lambda server: {},
    cavity=lambda server, accepted: {},
    absorb=lambda server, accepted, new: {},
    total=lambda accepted: {},
)


class Kde(NamedTuple):
    """The kernel density estimate behind sites that are made of particles."""

    density: str
    bandwidth: float


class Site(NamedTuple):
    """One kind of site, as pure functions with its settings closed over.

    Attributes:
        name: The value of ``sites.kind``.
        init: Initial global particles -> the state that means t_k = 1.
        cavity: What the client received, the particles in it, its state -> the other clients' part of q (``Cavity``).
        refit: Key, particles before and after training, state, shard -> the new state (eqn:tk).
        common_score: What was received, the particles, the particles relative to their mean -> the part of the cavity
            score that is the same for every client, prior included.
        own_score: Particles, particles relative to their mean, that mean, state -> the client's own part of the cavity
            score.
        direction: ``svgd.tilted_direction`` with the site's KDE settings and the kernel.
        shared: The arrays of the state that go to the server with every update.
        sums: The server's side, for sites that add up.
        site_score: Particles, state -> the score of log t_k; None if t_k has none.
        row_gradients: Rows of the shard -> rows that a refit differentiates.
        kde: The density estimate, for sites that are made of particles.
        full: Whether one d x d site serves all particles, so that prior and sums are a posterior of their own.
        settles: Whether the particles settle on prior and sums after the last round.
        natural: The names of the shift and the precision that a site has for each particle; empty if it has none.
    """

    name: str
    init: Callable[[Array], State]
    cavity: Callable[[Arrays, Blocks, State], Cavity]
    refit: Callable[[Array, Blocks, Blocks, State, Shard], State]
    common_score: Callable[[Arrays, Blocks, Blocks], Blocks]
    own_score: Callable[[Blocks, Blocks, Blocks, State], Blocks]
    direction: Callable[..., Blocks]
    shared: tuple[str, ...] = ()
    sums: SiteSums = NO_SUMS
    site_score: Callable[[Blocks, State], Blocks] | None = None
    row_gradients: Callable[[int], int] = lambda rows: 0
    kde: Kde | None = None
    full: bool = False
    settles: bool = False
    natural: tuple[str, str] = ("", "")


class SiteSettings(Settings):
    """The keys of ``[sites]`` that every kind has."""

    kind: str


class SiteKind(NamedTuple):
    """A kind of site that a config can name.

    Attributes:
        name: The value of ``sites.kind``.
        about: One line that says what the sites are.
        settings: The settings class, a subclass of ``SiteSettings``.
        build: Makes the site from the model, the settings of ``[sites]`` and those of ``[algorithm]``.
        keeps_state: Whether clients have sites at all; the references (pooled SVGD, FedAvg) do without.
        has_score: Whether log t_k has a score in closed form, which innovation needs.
        adds_up: Whether the server's sum over clients stands for all of them, so that a client can be taken out again.
        renewable: Whether reports that are likelihood scores can renew sites.
    """

    name: str
    about: str
    settings: type[SiteSettings]
    build: Callable[[Model, Any, Any], Site]
    keeps_state: bool = True
    has_score: bool = False
    adds_up: bool = False
    renewable: bool = False
