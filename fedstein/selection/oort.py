"""Oort (Lai et al. 2021): statistical utility with a bonus for long absence, and a share of places for newcomers.

A candidate reports U_k = n_k sqrt(mean of squared row losses). In round t the score of a client that trained last in
round t_k is

    (min(U_k, u95) - min U) / (max - min) + sqrt(.1 ln t / t_k),      u95: the 95th percentile of the U,

times (T / s_k)^a if the client needs s_k > T seconds. Clients with a score of at least ``cut_off`` times the
lowest score that would be taken are drawn in proportion to their scores; a share epsilon of the places goes to
clients that never trained, with epsilon falling from ``explore`` by a factor each round.

The authors keep the utility of the last training; here candidates report it afresh, and the bonus for absence stays.
Seconds measured while a run goes on would make its result depend on the load of the machine, and a resumed run would
be another one. Therefore the seconds are a setting, ``selection.seconds``, taken for example from the records of an
earlier run with one client a round; without it there is no system utility.

Reference: Lai, Zhu, Madhyastha and Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection",
OSDI 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.errors import InputError
from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import LIKELIHOOD, Target
from fedstein.selection.base import Draw, Memory, ReportingSettings, Scheme, SchemeKind
from fedstein.selection.draws import Indicators, after_aged, proportional
from fedstein.settings import NonNegativeFloat, PositiveFloat, Share
from fedstein.stein.kernel import Kernel


class OortSettings(ReportingSettings):
    """Settings of Oort."""

    kind: str = "oort"
    draw: Literal["proportional"] = Field("proportional", description="This scheme has no other rule.")
    explore: float = Field(0.9, ge=0, le=1, description="The share of places for clients that never trained, at first.")
    explore_decay: Share = Field(0.98, description="The factor on that share after each round.")
    explore_least: float = Field(0.2, ge=0, le=1, description="The smallest value of that share.")
    cut_off: Share = Field(0.95, description="Scores from this share of the lowest score taken can be drawn.")
    seconds: list[PositiveFloat] | None = Field(
        None, description="Seconds that each client needs for a round, by id; without them only losses count."
    )
    deadline: PositiveFloat | None = Field(
        None, description="T, the seconds above which a client counts as slow; by default the median of seconds."
    )
    slowness: NonNegativeFloat = Field(2.0, description="a in the factor (T / seconds)^a on scores of slow clients.")


def oort(settings: OortSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It compares losses, so it needs no kernel.

    Args:
        settings: The settings of ``[selection]``.
        kernel: The kernel of the run.

    Returns:
        The scheme.
    """
    if settings.deadline is not None and settings.seconds is None:
        raise InputError("selection.deadline needs selection.seconds, the seconds of each client; set both, or neither")

    def report(target: Target, prepared: Any) -> Arrays:
        weights = target.batch.weights
        squares = weights @ jnp.mean(target.row_losses**2, axis=1) / jnp.sum(weights)
        return {"utility": jnp.sqrt(squares) * jnp.asarray(target.rows, squares.dtype)}

    def indicators(broadcast: Arrays, reports: Sequence[Arrays]) -> list[float]:
        return [float(report["utility"]) for report in reports]

    def first(seed: int, clients: int) -> Memory:
        given = settings.seconds
        if given is not None and len(given) != clients:
            raise InputError(
                f"selection.seconds has {len(given)} entries, and {clients} clients take part; give one for each, by id"
            )
        return {"rounds": 0, "last": [0] * clients}

    def draw(memory: Memory, candidates: Sequence[int], values: Indicators, uniforms: np.ndarray) -> Draw:
        now, last = memory["rounds"] + 1, [memory["last"][client] for client in candidates]
        scores = oort_scores(values, last, now)
        if settings.seconds is not None:
            limit = settings.deadline or float(np.median(settings.seconds))
            slow = [min(1.0, limit / settings.seconds[client]) ** settings.slowness for client in candidates]
            scores = [None if s is None else s * factor for s, factor in zip(scores, slow, strict=True)]
        share = max(settings.explore_least, settings.explore * settings.explore_decay ** (now - 1))
        law = oort_law(scores, last, share, settings.cut_off, settings.per_round)
        return proportional(candidates, law, uniforms, settings.max_probability)

    return Scheme("oort", draw, report, indicators, uses=(LIKELIHOOD,), first=first, after=after_aged)


def oort_scores(utilities: Indicators, last: Sequence[int], now: int) -> list[float | None]:
    """The scores of the candidates.

    Args:
        utilities: U_k of each candidate; None if it did not report.
        last: The round in which each trained last; 0 if it never did.
        now: t, from 1.

    Returns:
        The scores; None if there was no report. Clients that never trained have no bonus.
    """
    heard = [u for u in utilities if u is not None and np.isfinite(u)]
    if not heard:
        return [None] * len(utilities)
    top, least = float(np.percentile(heard, 95)), min(heard)
    spread = max(min(max(heard), top) - least, 1e-12)

    def score(utility: float | None, seen: int) -> float | None:
        if utility is None or not np.isfinite(utility):
            return None
        bonus = math.sqrt(0.1 * math.log(now) / seen) if seen else 0.0
        return (min(utility, top) - least) / spread + bonus

    return [score(utility, seen) for utility, seen in zip(utilities, last, strict=True)]


def oort_law(
    scores: Indicators, last: Sequence[int], explore: float, cut_off: float, places: int
) -> list[float | None]:
    """The law of the first draw: scores above the cut-off, mixed with uniform draws of newcomers.

    Args:
        scores: The scores of the candidates; None if there was no report.
        last: The round in which each trained last; 0 if it never did.
        explore: The share of newcomers, epsilon.
        cut_off: The share of the lowest score taken that is still good enough.
        places: Clients that train in the round.

    Returns:
        The probabilities; None if there was no report.
    """
    law: list[float | None] = [None] * len(scores)
    heard = [i for i, score in enumerate(scores) if score is not None]
    fresh = [i for i in heard if not last[i]]
    known = [i for i in heard if last[i]]
    if not heard:
        return law
    share = 1.0 if not known else (explore if fresh else 0.0)
    ranked = sorted((float(scores[i] or 0.0) for i in known), reverse=True)
    lowest = ranked[min(places, len(ranked)) - 1] if ranked else 0.0
    taken = {i: float(scores[i] or 0.0) for i in known if float(scores[i] or 0.0) >= cut_off * lowest}
    total = sum(taken.values())
    for i in heard:
        exploit = (taken.get(i, 0.0) / total if total > 0 else (i in taken) / max(len(taken), 1)) * (1 - share)
        law[i] = exploit + (share / len(fresh) if i in fresh else 0.0)
    return law


OORT = SchemeKind(
    "oort",
    "squared losses of rows, absence and newcomers; a scalar from each candidate",
    OortSettings,
    oort,
    needs_row_losses=True,
)
