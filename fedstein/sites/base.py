"""What a site is: a client's approximate likelihood t_k, its state, and the cavity it leaves in q."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax import Array

from fedstein.models.base import Blocks
from fedstein.shard import Shard
from fedstein.stein.discrepancy import Frame
from fedstein.stein.kde import Mixture

State = dict[str, Array]  # a client's state: named arrays, nothing else
Own = Mapping[str, Any]  # one client's arrays, to be read: its state, or what the server remembers of it
Arrays = dict[str, Any]  # what travels in a message, and what the server keeps: named arrays


class Cavity(NamedTuple):
    """log(q / t_k) and the prior as SVGD wants them: a score, and KDE factors that stay factors."""

    score: Callable[[Blocks], Blocks] | None  # None: nothing but the linear part
    mixtures: tuple[Mixture, ...] = ()
    linear: float | None = None  # c, where the prior's score is c * theta: training then needs no array for it


class Survey(NamedTuple):
    """What a KSD report needs of the broadcast alone: worked out once a round, however many clients share a process."""

    blocks: Blocks  # the particles
    offset: Blocks  # the particles relative to their mean
    origin: Blocks
    frame: Frame
    score: Blocks  # the part of the tilted score that is the same for every client


class Sums(NamedTuple):
    """The server's side of sites that add up. The functions run on the host; sums are float64.

    ``accepted`` is the site of a client as the server last took it in, None while the client has none.
    """

    first: Callable[[Array], Arrays]  # the initial particles -> what the server keeps beside them
    tilted: Callable[[Arrays], Arrays]  # the server's state -> what a tilted report needs besides the particles
    cavity: Callable[[Arrays, Own | None], Arrays]  # ..., accepted -> what the client that trains needs besides
    absorb: Callable[[Arrays, Own | None, Arrays], Arrays]  # ..., accepted, new -> the sums
    total: Callable[[Arrays, Mapping[int, Own]], Arrays]  # ..., everybody's accepted -> the sums, worked out afresh
    # ..., everybody's accepted, scores of some clients' likelihoods at the particles -> the sums, their new arrays
    renew: Callable[[Arrays, Mapping[int, Own], Mapping[int, Any]], tuple[Arrays, dict[int, Arrays]]] | None = None


NO_SUMS = Sums(
    first=lambda particles: {},
    tilted=lambda server: {},
    cavity=lambda server, accepted: {},
    absorb=lambda server, accepted, new: {},
    total=lambda server, accepted: {},
)


class Site(NamedTuple):
    """One kind of site, as pure functions with its settings closed over."""

    name: str
    init: Callable[[Array], State]  # initial global particles -> the state that means t_k = 1
    cavity: Callable[[Arrays, Blocks, State], Cavity]  # received, its particles, state -> everybody else's part of q
    refit: Callable[[Array, Blocks, Blocks, State, Shard], State]  # key, particles before, after, ... -> state (eqn:tk)
    direction: Callable[..., Blocks]  # svgd.tilted_direction with the site's KDE settings
    survey: Callable[[Arrays, Blocks], Survey]
    own_score: Callable[[Survey, State], Blocks]  # the client's own part of the tilted score, likelihood apart
    shared: tuple[str, ...] = ()  # the arrays of the state that go to the server with every update
    sums: Sums = NO_SUMS
    site_score: Callable[[Blocks, State], Blocks] | None = None  # score of log t_k, where t_k has one
    row_gradients: Callable[[int], int] = lambda rows: 0  # rows of the shard -> rows differentiated by a refit
