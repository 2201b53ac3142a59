"""The page that decides section IV sentence by sentence, in each order of clients and with each density."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedstein.studies.markdown import table
from fedstein.studies.reproduce.claims import (
    CLAIMS,
    MEASURES,
    MORE_CLAIMS,
    WORDS,
    Claim,
    Verdict,
    correct,
    judge_values,
)
from fedstein.studies.reproduce.evidence import RULES
from fedstein.studies.reproduce.plan import FIGURES, SETTINGS
from fedstein.studies.reproduce.run_lines import Lines, values_by_seed

BLR, BNN = ("blr30", "blr120"), ("bnn27", "bnn120")


class Condition(NamedTuple):
    """How clients are numbered, and the KDE density of the paper's sites."""

    order: str
    density: str

    @property
    def title(self) -> str:
        """The heading of its column."""
        return f"{self.order}, {self.density}"


class Sentence(NamedTuple):
    """A sentence of section IV, and the claims that say it in numbers."""

    quote: str
    claims: tuple[str, ...]  # texts of claims
    settings: tuple[str, ...]


ALL = (*BLR, *BNN)
SENTENCES = (
    Sentence(
        "the KSD-based scheme achieves the same model convergence speed as the round robin scheme at the early stage "
        "of model training",
        ("KSD converges as fast as round robin",),
        BLR,
    ),
    Sentence(
        "both schemes converge faster than the random selection scheme",
        ("KSD converges faster than random", "Round robin converges faster than random"),
        BLR,
    ),
    Sentence(
        "In the later stage of model training, the KSD-based scheme outperforms the other two schemes",
        ("KSD ends above round robin", "KSD ends above random"),
        BLR,
    ),
    Sentence(
        "the random scheme has lower model accuracy and worse model convergence",
        ("KSD ends above random", "Round robin ends above random", "KSD is steadier than random"),
        BLR,
    ),
    Sentence(
        "the model accuracy curve of the round robin scheme vibrates periodically and substantially making the model "
        "have no tendency to converge",
        ("Round robin oscillates pass by pass, KSD does not", "KSD is steadier than round robin"),
        BLR,
    ),
    Sentence(
        "the model performance of the random selection scheme is the worst, and its model accuracy and convergence are "
        "inferior to the other two schemes",
        (
            "KSD ends above random",
            "Round robin ends above random",
            "KSD is steadier than random",
            "Round robin is steadier than random",
        ),
        BNN,
    ),
    Sentence(
        "the model performance of the KSD-based scheme is better than that of the round robin scheme",
        ("KSD ends above round robin",),
        BNN,
    ),
    Sentence(
        "with the KSD-based scheme, the convergence curve is more stable than that of the round robin scheme",
        ("KSD is steadier than round robin",),
        BNN,
    ),
    Sentence(
        "with HIP-based scheme, the model accuracy curve is always stable than that of two baseline schemes",
        ("HIP is steadier than round robin", "HIP is steadier than random"),
        ALL,
    ),
    Sentence(
        "the model accuracy is almost always higher than that of two baseline schemes, which especially significant in "
        "late iterations",
        (
            "HIP ends above round robin",
            "HIP ends above random",
            "HIP is above round robin early",
            "HIP is above random early",
        ),
        ALL,
    ),
    Sentence("the performance of the HIP-based scheme is better [than KSD's]", ("HIP ends above KSD",), ALL),
    Sentence("the convergence curve of the HIP-based scheme is more stable", ("HIP is steadier than KSD",), ALL),
    Sentence(
        "the convergence speed of the HIP-based scheme is slightly faster in the BNN model",
        ("HIP converges faster than KSD",),
        BNN,
    ),
    Sentence(
        "the convergence curve of the parallel DSVGD algorithm is more stable than that of the the HIP-based scheme",
        ("Parallel DSVGD is steadier than HIP",),
        ("bnn27",),
    ),
    Sentence(
        "the model accuracy of the HIP-based scheme is asymptotically higher than that of the parallel DSVGD algorithm",
        ("HIP ends above Parallel DSVGD", "... at equal trainings of clients", "... at equal bytes"),
        ("bnn27",),
    ),
)


def judge_conditions(
    lines: Lines,
    conditions: Sequence[Condition],
    rule: str = "student",
    looks: int = 1,
    claims: Sequence[Claim] = (*CLAIMS, *MORE_CLAIMS),
) -> dict[Condition, dict[Claim, Verdict]]:
    """Judge every claim in every condition, decided over all of them together.

    A figure that has its own density whatever the condition (figure 4) counts once for each order.

    Args:
        lines: What was measured of the runs.
        conditions: The conditions.
        rule: The kind of interval, a key of ``evidence.RULES``.
        looks: As in ``evidence.decide``.
        claims: The claims of the page.

    Returns:
        The verdicts of the claims for which both schemes have a run with the same seed.
    """
    found: list[tuple[Condition, Verdict]] = []
    for condition in conditions:
        for claim in claims:
            if not applies(claim, condition, conditions):
                continue
            density = FIGURES[claim.figure].density or condition.density
            ours, theirs = (
                values_by_seed(
                    lines,
                    order=condition.order,
                    density=density,
                    setting=claim.setting,
                    scheme=scheme,
                    measure=claim.measure,
                )
                for scheme in (claim.first, claim.second)
            )
            if ours.keys() & theirs.keys():
                found.append((condition, judge_values(claim, ours, theirs, rule)))
    corrected = correct([verdict for _, verdict in found], looks)
    result: dict[Condition, dict[Claim, Verdict]] = {condition: {} for condition in conditions}
    for (condition, _), verdict in zip(found, corrected, strict=True):
        result[condition][verdict.claim] = verdict
    return result


def applies(claim: Claim, condition: Condition, conditions: Sequence[Condition]) -> bool:
    """Whether a claim is judged in a condition: with a density of its own, only in one condition of each order."""
    own = FIGURES[claim.figure].density
    if own is None or own == condition.density:
        return True
    return Condition(condition.order, own) not in conditions


def sentences_page(
    verdicts: Mapping[Condition, Mapping[Claim, Verdict]], command: str, rule: str = "student", looks: int = 1
) -> str:
    """Write the page as Markdown.

    Args:
        verdicts: The verdicts of each condition.
        command: The command that made the page.
        rule: The kind of interval.
        looks: As in ``evidence.decide``.

    Returns:
        The page.
    """
    count = sum(verdict.seeds > 1 for found in verdicts.values() for verdict in found.values())
    lines = [
        "# Section IV, sentence by sentence",
        "",
        f"`{command}`",
        "",
        "Each sentence of the paper's section IV is a number: accuracy at the end (mean of the last quarter of the "
        "rounds), speed (mean of the first quarter), steadiness (standard deviation within the last quarter), and "
        "periodicity (share of the curve's variance at the period of one pass over the clients). A cell has the two "
        "values, the effect in favour of the claim, its 95% interval over seeds "
        f"({RULES[rule]}), the seeds and the verdict. A mean that is shown to be within ±.005 (two one-sided tests) is "
        f"*no difference that matters*. Verdicts have Holm's correction over all {count} comparisons with several "
        "seeds, once for the tests of a difference and once for those of its absence, so that the probability of any "
        f"wrong verdict is at most 5%{_of_looks(looks)}. Conditions are the order in which clients are numbered "
        "(blocks: sorted by label, as the paper's oscillating round robin suggests; dealt: neighbours differ; "
        "shuffled: by the seed) and the KDE density.",
        "",
        *table(["condition", *WORDS, "comparisons"], [_counts(c, found) for c, found in verdicts.items()]),
        "",
    ]
    for number, sentence in enumerate(SENTENCES, start=1):
        rows = _rows(sentence, verdicts)
        lines += [f"## {number}. “{sentence.quote}”", ""]
        if rows:
            heads = ["setting", "claim", "measured by", *(condition.title for condition in verdicts)]
            lines += [*table(heads, rows), "", f"**{_conclusion(sentence, verdicts)}**", ""]
        if missing := _not_run(sentence, verdicts):
            lines += [f"Not run: {missing}.", ""]
    return "\n".join(lines)


def _of_looks(looks: int) -> str:
    if looks == 1:
        return ""
    return f" over {looks} looks (seeds were added after verdicts had been seen, so each look has 5% / {looks})"


def _not_run(sentence: Sentence, verdicts: Mapping[Condition, Mapping[Claim, Verdict]]) -> str:
    """The settings of a sentence that have no runs, with the conditions in which they have none."""
    parts = []
    for setting in sentence.settings:
        claims = [claim for claim in _claims_of(sentence) if claim.setting == setting and claim.measure != "period"]
        missing = [
            condition.title
            for condition, found in verdicts.items()
            if any(applies(claim, condition, list(verdicts)) and claim not in found for claim in claims)
        ]
        if missing:
            parts.append(f"{SETTINGS[setting].title} ({'; '.join(missing)})")
    return ", ".join(parts)


def _counts(condition: Condition, found: Mapping[Claim, Verdict]) -> list[str]:
    words = [verdict.word for verdict in found.values()]
    return [condition.title, *(str(words.count(word)) for word in WORDS), str(len(words))]


def _claims_of(sentence: Sentence) -> list[Claim]:
    return [
        claim
        for setting in sentence.settings
        for text in sentence.claims
        for claim in (*CLAIMS, *MORE_CLAIMS)
        if (claim.setting, claim.text) == (setting, text)
    ]


def _rows(sentence: Sentence, verdicts: Mapping[Condition, Mapping[Claim, Verdict]]) -> list[list[str]]:
    rows = []
    for claim in _claims_of(sentence):
        cells = [_cell(found.get(claim)) for found in verdicts.values()]
        if any(cell != "–" for cell in cells):
            rows.append([SETTINGS[claim.setting].title, claim.text, MEASURES[claim.measure], *cells])
    return rows


def _cell(verdict: Verdict | None) -> str:
    if verdict is None or verdict.effect is None:
        return "–"
    span = "no interval" if verdict.low is None else f"{verdict.low:+.4f} to {verdict.high:+.4f}"
    return (
        f"{verdict.first:.4f} and {verdict.second:.4f}: {verdict.effect:+.4f} ({span}), {verdict.seeds} "
        f"{'seed' if verdict.seeds == 1 else 'seeds'}, **{verdict.word}**"
    )


def _conclusion(sentence: Sentence, verdicts: Mapping[Condition, Mapping[Claim, Verdict]]) -> str:
    """List the conditions under which the whole sentence holds, as far as it was run."""
    parts = []
    for condition, found in verdicts.items():
        here = [found[claim] for claim in _claims_of(sentence) if claim in found and found[claim].effect is not None]
        if not here:
            continue
        words = {verdict.word for verdict in here}
        if words == {"holds"}:
            said = "holds"
        elif "does not hold" in words or "no difference that matters" in words:
            held = sum(verdict.word == "holds" for verdict in here)
            said = "does not hold" if not held else f"holds in part ({held} of {len(here)} comparisons)"
        else:
            held = sum(verdict.word == "holds" for verdict in here)
            said = "undecided" if not held else f"holds where decided ({held} of {len(here)} comparisons)"
        parts.append(f"{condition.title}: {said}")
    return "; ".join(parts) + "."
