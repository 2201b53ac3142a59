"""What a selection scheme is: what a client reports, and in which order the server draws clients (section III-A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import Array

from fedstein.algorithms.base import Algorithm, Arrays
from fedstein.shard import Shard
from fedstein.sites.base import State

Broadcast = Callable[[Algorithm, Arrays], Arrays]  # the server's state -> what the candidates need for their reports
Survey = Callable[[Algorithm, Arrays], Any]  # runs on the client: the part of a report that the broadcast decides alone
Report = Callable[[Algorithm, Array, Any, State, Shard, int], Arrays]  # key, survey, state, shard, report rows
Indicators = Callable[[Arrays, Sequence[Arrays]], list[float]]  # broadcast, reports -> one number a client


class Draw(NamedTuple):
    """Candidates in the order in which they would be asked to train, and the distribution behind it (null: none)."""

    order: list[int]
    probabilities: list[float] | None


class Scheme(NamedTuple):
    """One scheme, as pure functions. ``report`` is None where the server needs to ask nobody."""

    name: str
    broadcast: Broadcast
    survey: Survey
    report: Report | None
    indicators: Indicators | None
    first: Callable[[int, int], dict[str, Any]]  # seed, number of clients -> the scheme's memory (plain JSON)
    draw: Callable[..., Draw]  # memory, candidates, indicators (None: no report), uniforms -> Draw
    after: Callable[[dict[str, Any], Sequence[int], int, int], dict[str, Any]]  # memory, selected, seed, clients
    score: str | None = None  # the array of a report that is the score of the client's likelihood at the particles


def no_broadcast(algorithm: Algorithm, server: Arrays) -> Arrays:
    """For schemes that ask nobody."""
    return {}


def no_survey(algorithm: Algorithm, received: Arrays) -> tuple[()]:
    """For reports that need nothing worked out beforehand."""
    return ()


def no_memory(*_: Any) -> dict[str, Any]:
    """For schemes that remember nothing between rounds."""
    return {}
