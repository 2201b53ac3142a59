"""The claims of section IV as comparisons: an effect, a paired interval over seeds, and a verdict.

The verdicts of one page are corrected together (``correct``): a claim is decided only if the correction over all
comparisons of the page lets it (``evidence.decide``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import NamedTuple

from fedstein.report.load import Run
from fedstein.studies.reproduce.evidence import MARGIN, Levels, decide, interval, levels_of
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

    ``levels`` are the smallest error levels at which the two tests of the comparison reject. ``found`` is what the
    page as a whole lets it say: ``apart``, ``alike``, or nothing.
    """

    claim: Claim
    seeds: int
    first: float | None
    second: float | None
    effect: float | None
    low: float | None
    high: float | None
    levels: Levels = Levels()
    found: str = ""

    @property
    def decided(self) -> bool:
        """Whether there is a verdict."""
        return bool(self.found)

    @property
    def word(self) -> str:
        """One of WORDS."""
        if not self.decided:
            return "undecided"
        if self.claim.same:
            return "holds" if self.found == "alike" else "does not hold"
        if self.found == "alike":
            return "no difference that matters"
        return "holds" if (self.effect or 0.0) > 0 else "does not hold"


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
    """Return further claims that the sentences of section IV contain, for ``sentences``."""
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
    ours, theirs = (measured(claim, mine, others) for mine, others in ((first, second), (second, first)))
    return judge_values(claim, ours, theirs, rule)


def judge_values(
    claim: Claim, ours: Mapping[int, float], theirs: Mapping[int, float], rule: str = "student"
) -> Verdict:
    """Compare the measured values of two schemes, paired by seed.

    Args:
        claim: The claim.
        ours: The value of the scheme that the claim favours, by seed.
        theirs: The value of the other scheme, by seed.
        rule: The kind of interval, a key of ``evidence.RULES``.

    Returns:
        The verdict as if it were the only one on its page.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return Verdict(claim, 0, None, None, None, None, None)
    sign = -1 if claim.measure == "unrest" else 1
    gaps = [sign * (ours[seed] - theirs[seed]) for seed in seeds]
    effect, low, high = interval(gaps, rule)
    known = isfinite(low)
    means = [fmean(values[seed] for seed in seeds) for values in (ours, theirs)]
    verdict = Verdict(
        claim,
        len(seeds),
        means[0],
        means[1],
        effect,
        low if known else None,
        high if known else None,
        levels_of(gaps, rule, claim.margin),
    )
    return correct([verdict])[0]


def correct(verdicts: Sequence[Verdict], looks: int = 1) -> list[Verdict]:
    """Decide the verdicts of one page together.

    A comparison with one seed has no test, whatever its value, so it is not among those corrected for.

    Args:
        verdicts: The verdicts.
        looks: As in ``evidence.decide``.

    Returns:
        The verdicts, with those decided that the correction lets.
    """
    tested = [verdict for verdict in verdicts if verdict.seeds > 1]
    found = iter(decide([verdict.levels for verdict in tested], looks=looks))
    return [verdict._replace(found=next(found) if verdict.seeds > 1 else "") for verdict in verdicts]


def measured(claim: Claim, runs: Sequence[Run], others: Sequence[Run]) -> dict[int, float]:
    """The measure of each run by seed, if it has one. A budget is the smaller total of the two runs of a seed."""
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
    """Return the cumulative cost after each round: ``trainings`` of clients, or ``bytes`` in both directions."""
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
