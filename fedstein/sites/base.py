"""What a site is: a client's approximate likelihood t_k, its private state, and the cavity it leaves in q."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax import Array

from fedstein.models.base import Blocks
from fedstein.stein.discrepancy import Frame
from fedstein.stein.kde import Mixture

State = dict[str, Array]  # a client's private state: named arrays, nothing else


class Cavity(NamedTuple):
    """log(q / t_k) and the prior as SVGD wants them: a score, and KDE factors that stay factors."""

    score: Callable[[Blocks], Blocks]
    mixtures: tuple[Mixture, ...]
    linear: float | None = None  # c, where the score is c * theta: training then needs no array for it


class Survey(NamedTuple):
    """What a KSD report needs of the broadcast alone: worked out once a round, however many clients share a process."""

    blocks: Blocks  # the particles
    offset: Blocks  # the particles relative to their mean
    origin: Blocks
    frame: Frame
    score: Blocks  # the part of the tilted score that is the same for every client


class Site(NamedTuple):
    """One kind of site, as pure functions with its settings closed over."""

    name: str
    init: Callable[[Array], State]  # initial global particles -> the state that means t_k = 1
    cavity: Callable[[Blocks, State], Cavity]  # global particles as received, state -> everybody else's part of q
    refit: Callable[[Blocks, Blocks, State], State]  # particles before, after, state -> state (eqn:tk)
    direction: Callable[..., Blocks]  # svgd.tilted_direction with the site's KDE settings
    survey: Callable[[Blocks], Survey]
    own_score: Callable[[Survey, State], Blocks]  # the client's own part of the tilted score, likelihood apart
