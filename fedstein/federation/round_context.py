"""The context that the rounds of a run share, and the state that one round passes to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedstein.federation.channel import Channel
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import Engine
from fedstein.federation.evaluation import Evaluate
from fedstein.federation.site_table import SiteTable
from fedstein.federation.spill_cache import SpillCache
from fedstein.inference.methods.base import Method
from fedstein.inference.sites.base import Arrays
from fedstein.selection.base import Scheme


class RunState(NamedTuple):
    """The state of a run after a round: everything that the next round needs."""

    round: int  # the number of finished rounds
    server: Arrays  # the method's own
    sites: SiteTable
    memory: dict[str, Any]  # the scheme's, plain JSON


class RoundContext(NamedTuple):
    """The objects and settings that every round of a run uses."""

    program: ClientProgram
    engine: Engine
    channel: Channel
    evaluate: Evaluate
    seed: int
    rounds: int
    per_round: int
    pool: int
    evaluate_every: int
    total_every: int  # rounds after which the sums of the sites are computed again
    budget: int = 0  # bytes of memory for sites; 0 sets no limit
    barred: frozenset[int] = frozenset()  # clients that take no part
    speculate: int = 0  # candidates that train along with their reports
    join: bool = False  # whether the reports of the next round come with an evaluation by clients
    renew: bool = False  # whether reports that are scores renew the sites of their senders
    max_ratio: float = 0.0  # indicators are capped at this multiple of the round's median; 0 caps none

    @property
    def method(self) -> Method:
        return self.program.method

    @property
    def scheme(self) -> Scheme:
        return self.program.scheme

    def empty_sites(self) -> SiteTable:
        """The site table before any client has trained."""
        return SiteTable(self.method.shared, SpillCache(self.budget))


def is_due(context: RoundContext, round_index: int) -> bool:
    """Whether a round ends with an evaluation."""
    return round_index == context.rounds or round_index % context.evaluate_every == 0
