"""The contract of a selection scheme: what a client reports, and in which order the server draws clients.

A scheme follows section III-A of the paper: the server broadcasts, candidates report, the server draws. The formula of
a scheme stands in the scheme's own file; it takes what it needs from a ``Target``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedstein.inference.sites.base import Arrays
from fedstein.inference.target import SharedTarget, Target
from fedstein.settings import Count, NonNegativeFloat, Positive, Settings, Share
from fedstein.stein.kernel import Kernel

SCORE = "score"  # the array of a report that is the score of the client's likelihood at the particles, N x d
Memory = dict[str, Any]  # what a scheme remembers between rounds: plain JSON, part of the checkpoint


class Draw(NamedTuple):
    """Candidates in the order in which they are asked to train, and the distribution behind it, if there is one.

    ``certain`` are clients that come first whatever the random numbers are.
    """

    order: list[int]
    probabilities: list[float] | None
    certain: frozenset[int] = frozenset()


def no_memory(*_: Any) -> Memory:
    """The ``first`` function of schemes that remember nothing between rounds."""
    return {}


class Scheme(NamedTuple):
    """One selection scheme, as pure functions with its settings closed over.

    Attributes:
        name: The value of ``selection.kind``.
        draw: Memory, candidates, indicators (None if no client is asked), uniform numbers -> ``Draw``.
        report: Runs on the client, compiled: ``Target``, what ``prepare`` gave -> named arrays. None: nobody is asked.
        indicators: On the server: the broadcast as clients received it, the reports -> one number for each report.
        prepare: Runs on the client, compiled, once a round for all clients of a process: ``SharedTarget`` -> arrays.
        uses: The quantities of the target that reports need (``inference.target``): they decide what is broadcast.
        first: Seed, number of clients -> the memory before round 1.
        after: Memory, the clients that trained, seed, number of clients -> the memory of the next round.
        learn: Memory, the reports that count by client -> the memory that ``draw`` and ``after`` get. None: a scheme
            that remembers nothing of its reports.
        weights: Candidates, the draw, its uniform numbers, the clients that trained -> a weight for the step of each
            of them. None: all weigh the same. It needs a method with ``Method.weigh``.
    """

    name: str
    draw: Callable[[Memory, Sequence[int], Any, np.ndarray], Draw]
    report: Callable[[Target, Any], Arrays] | None = None
    indicators: Callable[[Arrays, Sequence[Arrays]], list[float]] | None = None
    prepare: Callable[[SharedTarget], Any] = lambda shared: ()
    uses: tuple[str, ...] = ()
    first: Callable[[int, int], Memory] = no_memory
    after: Callable[[Memory, Sequence[int], int, int], Memory] = no_memory
    learn: Callable[[Memory, Mapping[int, Arrays]], Memory] | None = None
    weights: Callable[[Sequence[int], Draw, np.ndarray, Sequence[int]], dict[int, float]] | None = None


class SelectionSettings(Settings):
    """The keys of ``[selection]`` that every scheme has."""

    kind: str
    per_round: Positive = Field(1, description="Clients that train in a round.")
    barred: list[Count] | None = Field(
        None,
        description="Clients that take no part, because they were forgotten or should not be asked: ids, or the names "
        "that the data gives its clients, which become ids.",
    )


class ReportingSettings(SelectionSettings):
    """The keys of the schemes that ask candidates for reports."""

    draw: Literal["proportional", "greedy", "pass", "aged"] = Field(
        "proportional",
        description="How clients are drawn from their indicators: in proportion, the largest first, in proportion "
        "among those not yet drawn in this pass, or in proportion to indicator times rounds since the last draw.",
    )
    pool: Count = Field(0, description="Candidates, drawn at random, that are asked in a round; 0 asks every client.")
    report_rows: Count = Field(0, description="Rows, drawn at random, that a report looks at; 0 looks at all rows.")
    max_ratio: NonNegativeFloat = Field(
        100.0,
        description="An indicator is cut at this many times the median of the round's positive indicators, and the "
        "record of the round names the client; 0 sets no limit.",
    )
    speculate: Count = Field(
        0,
        description="Candidates that train along with their reports, before the draw: those that would be drawn with "
        "the reports of earlier rounds. If one of them is drawn, the round needs no further message. The work of the "
        "others is counted and dropped. Results are the same. It cannot be used if reports renew sites.",
    )
    max_probability: Share = Field(1.0, description="The largest probability that one client can have.")


class SchemeKind(NamedTuple):
    """A selection scheme that a config can name.

    Attributes:
        name: The value of ``selection.kind``.
        about: One line that says how the scheme chooses.
        settings: The settings class: a subclass of ``ReportingSettings`` for schemes that ask candidates, else of
            ``SelectionSettings``.
        build: Makes the scheme from its settings and the kernel of the run.
        needs_site_score: Whether it works only with sites that have a score.
        sends_scores: Whether a report holds the client's likelihood score under ``SCORE``, which can renew sites.
        needs_tilted: Whether reports are about the tilted target (q / t_k) p_k, which methods without a prior lack.
        needs_row_losses: Whether reports need the loss of every single row, which models of whole clients lack.
    """

    name: str
    about: str
    settings: type[SelectionSettings]
    build: Callable[[Any, Kernel], Scheme]
    needs_site_score: bool = False
    sends_scores: bool = False
    needs_tilted: bool = False
    needs_row_losses: bool = False

    @property
    def asks(self) -> bool:
        """Whether candidates are asked for reports."""
        return issubclass(self.settings, ReportingSettings)
