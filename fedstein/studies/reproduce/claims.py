"""The claims of section IV as comparisons: an effect, a paired interval over seeds, and a verdict.

The verdicts of one page are corrected together (``correct``): a claim is decided only if Holm's correction over all
comparisons of the page lets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import NamedTuple

from fedstein.report.load import Run
from fedstein.studies.reproduce.evidence import MARGIN, decision_level, direction, holm, interval
from fedstein.studies.reproduce.spectrum import share_at_period

MEASURES = {
    "late": "accuracy, mean of the last quarter",
    "early": "accuracy, mean of the first quarter",
    "unrest": "accuracy, standard deviation within the last quarter",
    "period": "share of the variance of the accuracy at the period of one pass over the clients",
    "late_trainings": "accuracy, mean of the last quarter, up to equally many trainings of clients",
    "late_bytes": "accuracy, mean of the last quarter, up to equally many bytes",
}
BUDGETS = {"late_trainings": "trainings", "late_bytes": "bytes"}
WORDS = ("holds", "does not hold", "no difference that matters", "undecided")


class Claim(NamedTuple):
    """The claim that ``first`` is better than ``second`` in ``measure``. For "unrest", smaller is better.

    ``same`` marks the claim that there is no difference between the two.
    """

    figure: str
    setting: str
    text: str
    measure: str
    first: str
    second: str
    same: bool = False

    @property
    def margin(self) -> float:
        """The largest difference that does not matter; shares of variance have none."""
        return 0.0 if self.measure == "period" else MARGIN


class Verdict(NamedTuple):
    """The effect in favour of the claim, and its 95% interval over seeds (None with too few seeds).

    ``level`` is the smallest error level at which the interval decides, ``found`` what it says then (``above``,
    ``below`` or ``same``), and ``decided`` whether it may say so after the correction for the others of the page.
    """

    claim: Claim
    seeds: int
    first: float | None
    second: float | None
    effect: float | None
    low: float | None
    high: float | None
    level: float = 1.0
    found: str = ""
    decided: bool = False

    @property
    def word(self) -> str:
        """One of WORDS."""
        if not self.decided:
            return "undecided"
        if self.claim.same:
            return "holds" if self.found == "same" else "does not hold"
        return {"above": "holds", "below": "does not hold", "same": "no difference that matters"}[self.found]


def _claims() -> list[Claim]:
    found = []
    for setting in ("blr30", "blr120", "bnn27", "bnn120"):
        found += [
            Claim("fig1", setting, "KSD ends above round robin", "late", "ksd", "round_robin"),
            Claim("fig1", setting, "KSD ends above random", "late", "ksd", "random"),
            Claim("fig1", setting, "KSD converges faster than random", "early", "ksd", "random"),
            Claim("fig1", setting, "KSD is steadier than round robin", "unrest", "ksd", "round_robin"),
            Claim("fig2", setting, "HIP ends above round robin", "late", "hip", "round_robin"),
            Claim("fig2", setting, "HIP ends above random", "late", "hip", "random"),
            Claim("fig2", setting, "HIP is steadier than round robin", "unrest", "hip", "round_robin"),
            Claim("fig2", setting, "HIP is steadier than random", "unrest", "hip", "random"),
            Claim("fig3", setting, "HIP ends above KSD", "late", "hip", "ksd"),
            Claim("fig3", setting, "HIP is steadier than KSD", "unrest", "hip", "ksd"),
        ]
        if setting.startswith("bnn"):
            found.append(Claim("fig3", setting, "HIP converges faster than KSD", "early", "hip", "ksd"))
    found += [
        Claim("fig4", "bnn27", "HIP ends above Parallel DSVGD", "late", "hip", "parallel"),
        Claim("fig4", "bnn27", "Parallel DSVGD is steadier than HIP", "unrest", "parallel", "hip"),
    ]
    return found


def _more_claims() -> list[Claim]:
    """What the sentences of section IV say besides, for ``sentences``."""
    found = []
    for setting in ("blr30", "blr120", "bnn27", "bnn120"):
        found += [
            Claim("fig1", setting, "Round robin ends above random", "late", "round_robin", "random"),
            Claim("fig1", setting, "Round robin converges faster than random", "early", "round_robin", "random"),
            Claim("fig1", setting, "KSD is steadier than random", "unrest", "ksd", "random"),
            Claim("fig1", setting, "Round robin is steadier than random", "unrest", "round_robin", "random"),
            Claim("fig1", setting, "Round robin oscillates pass by pass, KSD does not", "period", "round_robin", "ksd"),
            Claim("fig1", setting, "KSD converges as fast as round robin", "early", "ksd", "round_robin", same=True),
            Claim("fig2", setting, "HIP is above round robin early", "early", "hip", "round_robin"),
            Claim("fig2", setting, "HIP is above random early", "early", "hip", "random"),
        ]
    return [
        *found,
        Claim("fig4", "bnn27", "... at equal trainings of clients", "late_trainings", "hip", "parallel"),
        Claim("fig4", "bnn27", "... at equal bytes", "late_bytes", "hip", "parallel"),
    ]


CLAIMS: tuple[Claim, ...] = tuple(_claims())
MORE_CLAIMS: tuple[Claim, ...] = tuple(_more_claims())


def judge(claim: Claim, first: Sequence[Run], second: Sequence[Run], rule: str = "student") -> Verdict:
    """Compare two curves, paired by seed: equal partition, equal initial particles, another scheme.

    Args:
        claim: The claim.
        first: The runs of the curve that the claim favours.
        second: The runs of the other curve.
        rule: The kind of interval, a key of ``evidence.RULES``.

    Returns:
        The verdict as if it were the only one on its page; ``correct`` takes the others into account.
    """
    ours, theirs = (_measured(claim, mine, others) for mine, others in ((first, second), (second, first)))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return Verdict(claim, 0, None, None, None, None, None)
    sign = -1 if claim.measure == "unrest" else 1
    gaps = [sign * (ours[seed] - theirs[seed]) for seed in seeds]
    effect, low, high = interval(gaps, rule)
    known = isfinite(low)
    means = [fmean(values[seed] for seed in seeds) for values in (ours, theirs)]
    level, found = decision_level(gaps, rule, claim.margin), direction(gaps, rule, claim.margin)
    verdict = Verdict(
        claim, len(seeds), means[0], means[1], effect, low if known else None, high if known else None, level, found
    )
    return correct([verdict])[0]


def correct(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Apply Holm's correction to the verdicts of one page.

    Args:
        verdicts: The verdicts.

    Returns:
        The verdicts, with those decided that the correction lets.
    """
    decided = holm([verdict.level for verdict in verdicts])
    return [verdict._replace(decided=yes) for verdict, yes in zip(verdicts, decided, strict=True)]


def _measured(claim: Claim, runs: Sequence[Run], others: Sequence[Run]) -> dict[int, float]:
    """The measure of each run by seed, where it has one. A budget is the smaller total of the two runs of a seed."""
    found = {}
    totals = {run.seed: run for run in others}
    for run in runs:
        if (unit := BUDGETS.get(claim.measure)) is None:
            value = measure(run, claim.measure)
        elif run.seed in totals:
            value = late_within(run, unit, min(spent(run, unit)[-1], spent(totals[run.seed], unit)[-1]))
        else:
            value = None
        if value is not None:
            found[run.seed] = value
    return found


def spent(run: Run, unit: str) -> list[float]:
    """What a run had used after each round: ``trainings`` of clients, or ``bytes`` in both directions."""
    total, after = 0.0, []
    for line in run.rounds:
        total += len(line["selected"]) if unit == "trainings" else line["bytes_down"] + line["bytes_up"]
        after.append(total)
    return after


def late_within(run: Run, unit: str, budget: float) -> float | None:
    """The mean accuracy over the last quarter of the budget."""
    values = [
        line["accuracy"]
        for line, used in zip(run.rounds, spent(run, unit), strict=True)
        if 0.75 * budget < used <= budget and line["accuracy"] is not None
    ]
    return fmean(values) if values else None


def measure(run: Run, name: str) -> float | None:
    """Compute one number of a run.

    Args:
        run: The run.
        name: A key of MEASURES.

    Returns:
        The number, or None if the run has too few rounds.
    """
    if name == "period":
        curve = [line["accuracy"] for line in run.rounds]
        whole = [value for value in curve if value is not None]
        return share_at_period(whole, int(run.config["partition"]["clients"])) if len(whole) == len(curve) else None
    if name == "early":
        length = run.rounds[-1]["round"]
        early = [
            line["accuracy"] for line in run.rounds if line["round"] <= length / 4 and line["accuracy"] is not None
        ]
        return fmean(early) if early else None
    return run.tail["accuracy"]["sd" if name == "unrest" else "mean"]


def judge_all(
    curves: Mapping[tuple[str, str, str], Sequence[Run]], rule: str = "student", claims: Sequence[Claim] = CLAIMS
) -> list[Verdict]:
    """Judge the claims for which both curves exist, with Holm's correction over all of them.

    Args:
        curves: The runs by (figure, setting, variant).
        rule: The kind of interval, a key of ``evidence.RULES``.
        claims: The claims.

    Returns:
        The verdicts, sorted by figure.
    """
    verdicts = []
    for claim in claims:
        pair = [curves.get((claim.figure, claim.setting, variant)) for variant in (claim.first, claim.second)]
        if pair[0] and pair[1]:
            verdicts.append(judge(claim, pair[0], pair[1], rule))
    return correct(sorted(verdicts, key=lambda verdict: verdict.claim.figure))
