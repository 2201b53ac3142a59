"""The claims of section IV as comparisons: an effect, a paired interval over seeds, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from fedstein.report.load import Run
from fedstein.report.summary import paired_interval

MEASURES = {
    "late": "accuracy, mean of the last quarter",
    "early": "accuracy, mean of the first quarter",
    "unrest": "accuracy, standard deviation within the last quarter",
}


class Claim(NamedTuple):
    """The claim that ``first`` is better than ``second`` in ``measure``. For "unrest", smaller is better."""

    figure: str
    setting: str
    text: str
    measure: str
    first: str
    second: str


class Verdict(NamedTuple):
    """The effect in favour of the claim, and its 95% interval over seeds (None with one seed)."""

    claim: Claim
    seeds: int
    first: float | None
    second: float | None
    effect: float | None
    low: float | None
    high: float | None

    @property
    def word(self) -> str:
        """ "holds", "does not hold", or "undecided" if the interval contains zero."""
        if self.low is None or self.high is None:
            return "undecided"
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "undecided"


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


CLAIMS: tuple[Claim, ...] = tuple(_claims())


def judge(claim: Claim, first: Sequence[Run], second: Sequence[Run]) -> Verdict:
    """Compare two curves, paired by seed: equal partition, equal initial particles, another scheme.

    Args:
        claim: The claim.
        first: The runs of the curve that the claim favours.
        second: The runs of the other curve.

    Returns:
        The verdict.
    """
    measured = [{run.seed: measure(run, claim.measure) for run in runs} for runs in (first, second)]
    ours, theirs = ({seed: value for seed, value in each.items() if value is not None} for each in measured)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return Verdict(claim, 0, None, None, None, None, None)
    sign = -1 if claim.measure == "unrest" else 1
    effect, low, high = paired_interval([sign * (ours[seed] - theirs[seed]) for seed in seeds])
    means = [fmean(values[seed] for seed in seeds) for values in (ours, theirs)]
    return Verdict(claim, len(seeds), means[0], means[1], effect, low, high)


def measure(run: Run, name: str) -> float | None:
    """Compute one number of a run.

    Args:
        run: The run.
        name: A key of MEASURES.

    Returns:
        The number, or None if the run has too few rounds.
    """
    if name == "early":
        length = run.rounds[-1]["round"]
        early = [
            line["accuracy"] for line in run.rounds if line["round"] <= length / 4 and line["accuracy"] is not None
        ]
        return fmean(early) if early else None
    return run.tail["accuracy"]["sd" if name == "unrest" else "mean"]


def judge_all(curves: Mapping[tuple[str, str, str], Sequence[Run]]) -> list[Verdict]:
    """Judge the claims for which both curves exist.

    Args:
        curves: The runs by (figure, setting, variant).

    Returns:
        The verdicts, sorted by figure.
    """
    verdicts = []
    for claim in CLAIMS:
        pair = [curves.get((claim.figure, claim.setting, variant)) for variant in (claim.first, claim.second)]
        if pair[0] and pair[1]:
            verdicts.append(judge(claim, pair[0], pair[1]))
    return sorted(verdicts, key=lambda verdict: verdict.claim.figure)
