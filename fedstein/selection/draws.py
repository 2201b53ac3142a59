"""Drawing rules (``selection.draw``): how the server draws clients by their indicators.

A rule decides who trains and not what is reported, so every scheme with indicators works with every rule. What a rule
remembers between rounds is plain JSON and part of the checkpoint. All rules treat indicators alike: negative ones count
as zero, and a client whose report is missing or not finite comes after all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.selection.base import Draw, Memory, ReportingSettings, Scheme, no_memory

Indicators = Sequence[float | None]


class Rule(NamedTuple):
    """One drawing rule, as the three functions of a scheme that it decides."""

    first: Callable[[int, int], Memory]  # seed, number of clients -> memory
    draw: Callable[[Memory, Sequence[int], Indicators, np.ndarray, float], Draw]  # ..., candidates, ..., uniforms, most
    after: Callable[[Memory, Sequence[int], int, int], Memory]  # memory, selected, seed, number of clients
    about: str


def weigh(indicators: Indicators) -> tuple[np.ndarray, np.ndarray]:
    """Weights with largest entry 1, and who sent a report that counts; with nothing left, all of those weigh 1."""
    reported = np.array([value is not None and np.isfinite(value) for value in indicators])
    weights = np.array([max(v, 0.0) if v is not None and np.isfinite(v) else 0.0 for v in indicators])
    if not weights.max() > 0:
        weights = reported.astype(float) if reported.any() else np.ones(len(weights))
    return weights / weights.max(), reported  # so that the sum of huge reports stays finite


def at_most(probabilities: np.ndarray, most: float) -> np.ndarray:
    """The same distribution with no entry above ``most``: what is cut off goes to the others in proportion.

    If all others are zero, they share it equally. If even that exceeds ``most``, all are equally likely.
    """
    count = len(probabilities)
    if most * count <= 1:
        return np.full(count, 1 / count)
    capped = np.zeros(count, bool)
    result = probabilities
    while (result > most * (1 + 1e-12)).any():
        capped |= result >= most
        left, rest = 1 - most * capped.sum(), np.where(capped, 0.0, probabilities)
        rest = rest / rest.sum() if rest.sum() > 0 else ~capped / (~capped).sum()
        result = np.where(capped, most, rest * left)
    return result


def proportional(candidates: Sequence[int], indicators: Indicators, uniforms: np.ndarray, most: float = 1.0) -> Draw:
    """Draws without replacement in proportion to the indicators (eqn:definition1, eqn:definition2).

    Negative indicators count as zero, missing and non-finite ones never win; with nothing left the draw is uniform
    over those that reported. An exponential race (the smallest E_k / P_k first) gives the order of sequential draws
    without replacement in one sort; clients with P_k = 0 come after, in random order, those without a report last.
    No P_k is above ``most``.

    Args:
        candidates: The clients that were asked.
        indicators: One number for each; None if no report counts.
        uniforms: Uniform numbers, one for each candidate.
        most: The largest probability that one client can have.

    Returns:
        The order in which clients are asked to train, and their probabilities.
    """
    weights, reported = weigh(indicators)
    probabilities = limited(weights / weights.sum(), reported, most)
    race = -np.log(uniforms)
    with np.errstate(divide="ignore", over="ignore"):
        finish = np.where(probabilities > 0, race / probabilities, np.inf)
    order = np.lexsort((race, finish, ~reported))
    return Draw([candidates[i] for i in order], [float(p) for p in probabilities])


def limited(probabilities: np.ndarray, reported: np.ndarray, most: float) -> np.ndarray:
    """Apply ``at_most`` among the clients whose reports count; if there is none, among all clients."""
    if most >= 1:
        return probabilities
    heard = reported if reported.any() else np.ones(len(probabilities), bool)
    result = np.zeros(len(probabilities))
    result[heard] = at_most(probabilities[heard], most)
    return result


def greedy(candidates: Sequence[int], indicators: Indicators, uniforms: np.ndarray, most: float = 1.0) -> Draw:
    """Draw the largest indicator first, ties in random order. ``most``, if below 1, is the first one's probability."""
    weights, reported = weigh(indicators)
    best = (weights == weights.max()).astype(float)
    if most < 1:
        return proportional(
            candidates, [b if ok else None for b, ok in zip(best, reported, strict=True)], uniforms, most
        )
    order = np.lexsort((uniforms, -weights, ~reported))
    return Draw([candidates[i] for i in order], [float(p) for p in best / best.sum()])


def in_passes(
    memory: Memory, candidates: Sequence[int], indicators: Indicators, uniforms: np.ndarray, most: float = 1.0
) -> Draw:
    """Draw in proportion among the candidates not yet selected in this pass; if there are none, the next pass begins.

    ``passes`` says in which pass each client was last selected. Candidates go tier by tier, the oldest pass first,
    which with a pool also prefers those that earlier pools left out.
    """
    passes = [memory["passes"][client] for client in candidates]
    _, reported = weigh(indicators)
    silent = np.where(reported, 0, 1) if reported.any() else np.zeros(len(passes), int)
    tiers = list(zip(silent.tolist(), passes, strict=True))
    order: list[int] = []
    probabilities = [0.0] * len(tiers)
    for tier in sorted(set(tiers)):
        members = [i for i, own in enumerate(tiers) if own == tier]
        drawn = proportional(members, [indicators[i] for i in members], uniforms[members], most)
        if not order:
            for i, p in zip(members, drawn.probabilities or [], strict=True):
                probabilities[i] = p
        order += drawn.order
    return Draw([candidates[i] for i in order], probabilities)


def after_passes(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
    """A skipped client joins the current pass; a client that the pass has had already begins the next one."""
    passes = list(memory["passes"])
    for client in selected:
        current = max(passes)
        passes[client] = current if passes[client] < current else current + 1
    return {"passes": passes}


def aged(
    memory: Memory, candidates: Sequence[int], indicators: Indicators, uniforms: np.ndarray, most: float = 1.0
) -> Draw:
    """Draw in proportion to indicator x age: the rounds since the client was last selected, or since the start."""
    weights, reported = weigh(indicators)
    if not any(v is not None and np.isfinite(v) and v > 0 for v in indicators):
        return proportional(candidates, indicators, uniforms, most)  # nothing to weigh: uniform
    ages = [memory["rounds"] + 1 - memory["last"][client] for client in candidates]
    scaled = [w * age if ok else None for w, age, ok in zip(weights.tolist(), ages, reported, strict=True)]
    return proportional(candidates, scaled, uniforms, most)


def after_aged(memory: Memory, selected: Sequence[int], seed: int, clients: int) -> Memory:
    rounds, last = memory["rounds"] + 1, list(memory["last"])
    for client in selected:
        last[client] = rounds
    return {"rounds": rounds, "last": last}


def without_memory(law: Callable[[Sequence[int], Indicators, np.ndarray, float], Draw], about: str) -> Rule:
    """Build a rule that remembers nothing between rounds."""
    return Rule(no_memory, lambda memory, *given: law(*given), no_memory, about)


class BoundRule(NamedTuple):
    """A drawing rule with the largest probability that one client can have, in the form that a scheme takes."""

    first: Callable[[int, int], Memory]
    draw: Callable[[Memory, Sequence[int], Any, np.ndarray], Draw]
    after: Callable[[Memory, Sequence[int], int, int], Memory]

    def scheme(self, name: str, report: Any, indicators: Any, **others: Any) -> Scheme:
        """A scheme that draws by this rule.

        Args:
            name: The value of ``selection.kind``.
            report: What a client reports, as in ``Scheme``.
            indicators: One number for each report, as in ``Scheme``.
            **others: Other attributes of ``Scheme``.
        """
        return Scheme(name, self.draw, report, indicators, first=self.first, after=self.after, **others)


def rule_of(settings: ReportingSettings) -> BoundRule:
    """The drawing rule of ``selection.draw``, limited by ``selection.max_probability``.

    Args:
        settings: The settings of a scheme that asks candidates.

    Returns:
        The three functions of a scheme that the rule decides.
    """
    rule, most = DRAWS[settings.draw], settings.max_probability

    def draw(memory: Memory, candidates: Sequence[int], indicators: Indicators, uniforms: np.ndarray) -> Draw:
        return rule.draw(memory, candidates, indicators, uniforms, most)

    return BoundRule(rule.first, draw, rule.after)


def capped_at_median(indicators: Indicators, ratio: float) -> tuple[list[float | None], list[int]]:
    """Cut indicators at ``ratio`` times the median of the positive ones, and tell which were cut; 0 cuts none.

    The others count as zero in every draw. For an even number of indicators this is the lower median: of two reports,
    a huge one must not set its own limit.
    """
    positive = sorted(value for value in indicators if value is not None and value > 0)
    limit = ratio * positive[(len(positive) - 1) // 2] if positive and ratio else 0.0
    cut = [i for i, value in enumerate(indicators) if value is not None and limit > 0 and value > limit]
    return [limit if i in cut else value for i, value in enumerate(indicators)], cut


DRAWS: dict[str, Rule] = {
    "proportional": without_memory(proportional, "in proportion to the indicators: the paper's"),
    "greedy": without_memory(greedy, "the largest indicator"),
    "pass": Rule(
        lambda seed, clients: {"passes": [0] * clients},
        in_passes,
        after_passes,
        "in proportion, among those not yet selected in this pass over the clients",
    ),
    "aged": Rule(
        lambda seed, clients: {"rounds": 0, "last": [0] * clients},
        aged,
        after_aged,
        "in proportion to indicator x rounds since last selected",
    ),
}
