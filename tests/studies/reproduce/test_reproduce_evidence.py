"""Intervals, the confidence sequence, Holm's correction, equivalence, the spectrum, and the page of sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from fedstein.cli import reproduce
from fedstein.cli.reproduce import conditions_of
from fedstein.data import load
from fedstein.evaluation.metrics import no_values
from fedstein.federation.records import RoundRecord
from fedstein.report.load import Run, load_run
from fedstein.runs import runner
from fedstein.runs.config import merge, resolve
from fedstein.runs.federate import facts_of, prepare_run
from fedstein.studies.reproduce.claims import CLAIMS, MORE_CLAIMS, Verdict, correct, judge, late_within, measure
from fedstein.studies.reproduce.evidence import (
    EFFECT,
    decision_level,
    direction,
    holm,
    interval,
    level_of,
    sequence_half,
    student_half,
)
from fedstein.studies.reproduce.plan import make_plan
from fedstein.studies.reproduce.sentences import SENTENCES, Condition, _claims_of, judge_conditions, sentences_page
from fedstein.studies.reproduce.spectrum import periodogram, share_at_period

LATE = next(claim for claim in CLAIMS if claim.measure == "late")


def sequence_factor(gaps: np.ndarray, mean: float) -> float:
    """The Bayes factor of the confidence sequence from its definition, integrated over effect size and sd.

    Numerator: the density of the data under N(mean + delta sigma, sigma^2), delta ~ N(0, g^2), with d sigma / sigma.
    """
    y = gaps - mean
    deltas = np.linspace(-8, 8, 801)
    sigmas = np.exp(np.linspace(-7, 5, 1201))

    def log_density(delta):  # over all sigmas
        rest = ((y[None, :] - delta * sigmas[:, None]) ** 2).sum(1) / (2 * sigmas**2)
        return -len(y) * np.log(sigmas) - rest

    weights = np.exp(-(deltas**2) / (2 * EFFECT**2)) / np.sqrt(2 * np.pi) / EFFECT * (deltas[1] - deltas[0])
    top = sum(w * np.exp(log_density(delta)).sum() for w, delta in zip(weights, deltas, strict=True))
    return float(top / np.exp(log_density(0.0)).sum())


def test_the_sequence_is_the_mixture_of_its_definition():
    gaps = np.array([0.4, -0.1, 0.7, 0.3, 0.5, 0.9])
    for mean in (0.0, 0.2, -0.3):
        distance = abs(gaps.mean() - mean)
        assert 1 / sequence_factor(gaps, mean) == pytest.approx(min(level_of(gaps, distance, "sequence"), 9), rel=2e-3)
    half = sequence_half(gaps, 0.05)
    assert sequence_factor(gaps, gaps.mean() + half) == pytest.approx(20, rel=2e-3)


def test_the_sequence_covers_the_mean_at_all_times_at_once_and_students_interval_does_not():
    rng = np.random.default_rng(1)
    runs, most = 2000, 60
    draws = rng.normal(0.3, 2.0, (runs, most))
    sums, squares = draws.cumsum(1), (draws**2).cumsum(1)
    missed = {"sequence": np.zeros(runs, bool), "student": np.zeros(runs, bool)}
    for n in range(2, most + 1):
        mean = sums[:, n - 1] / n
        sd = np.sqrt((squares[:, n - 1] - n * mean**2) / (n - 1))
        unit = np.sqrt(n / 2) * np.array([-1.0, 1.0]).repeat(
            1
        )  # any sample of n with sd 1 has half widths in units of sd
        sample = np.concatenate([unit * np.sqrt((n - 1) / n), np.zeros(n - 2)])
        for rule, half in (("sequence", sequence_half(sample, 0.05)), ("student", student_half(sample, 0.05))):
            missed[rule] |= np.abs(mean - 0.3) > half / np.std(sample, ddof=1) * sd
    assert missed["sequence"].mean() <= 0.05
    assert missed["student"].mean() > 0.15, "looking after every seed breaks an interval for a fixed number"


def test_students_interval_and_level_are_those_of_scipy():
    gaps = [0.01, 0.03, -0.005, 0.02]
    found, expected = interval(gaps), ttest_1samp(gaps, 0)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert level_of(gaps, abs(found.mean)) == pytest.approx(expected.pvalue)
    assert interval([0.1]).high == np.inf


@pytest.mark.parametrize("rule", ["student", "sequence"])
def test_the_level_is_the_one_at_which_the_interval_just_decides(rule):
    half = {"student": student_half, "sequence": sequence_half}[rule]
    far, near = [0.02, 0.03, 0.025, 0.021, 0.03], [0.0004, -0.0002, 0.0001, 0.0005, -0.0004, 0.0]
    level = decision_level(far, rule)
    assert half(far, level) == pytest.approx(np.mean(far), rel=1e-6)
    assert direction(far, rule) == "above"
    assert direction([-gap for gap in far], rule) == "below"
    level = decision_level(near, rule)
    assert half(near, level) == pytest.approx(0.005 - abs(np.mean(near)), rel=1e-6)
    assert direction(near, rule) == "same"
    assert decision_level(near, rule, margin=0.0) > 0.3, "without a margin nothing is the same"


def test_equivalence_is_two_one_sided_tests_at_half_the_level():
    gaps = np.array([0.0004, -0.0012, 0.0021, 0.0005, -0.0004])
    error = gaps.std(ddof=1) / np.sqrt(5)
    one_sided = [student.sf((0.005 - sign * gaps.mean()) / error, 4) for sign in (1, -1)]
    assert decision_level(gaps) == pytest.approx(2 * max(one_sided))


def test_holm_is_its_textbook_definition():
    levels = [0.01, 0.04, 0.03, 0.005]  # adjusted: 0.03, 0.06, 0.06, 0.02
    assert holm(levels) == [True, False, False, True]
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([0.02, 0.02, 0.02]) == [False, False, False]
    assert holm([]) == []


def test_the_correction_takes_verdicts_back_that_one_alone_would_give():
    verdict = Verdict(LATE, 5, 0.7, 0.6, 0.1, 0.01, 0.19, 0.04, "above")
    assert correct([verdict])[0].word == "holds"
    assert [v.word for v in correct([verdict, verdict])] == ["undecided", "undecided"]
    assert correct([verdict._replace(level=0.001, found="same")])[0].word == "no difference that matters"
    same = next(claim for claim in MORE_CLAIMS if claim.same)
    assert correct([verdict._replace(claim=same, found="same")])[0].word == "holds"
    assert correct([verdict._replace(claim=same)])[0].word == "does not hold"


def test_the_spectrum_finds_the_period_and_nothing_in_noise():
    rng = np.random.default_rng(0)
    time = np.arange(150)
    noise = 0.01 * rng.normal(size=150)
    wave = 0.05 * np.sin(2 * np.pi * time / 30)
    assert share_at_period(0.6 + 0.0005 * time + wave + noise, 30) > 0.85
    assert share_at_period(0.6 + noise, 30) < 0.15
    assert share_at_period(wave[:45], 30) is None
    assert share_at_period([0.5] * 90, 30) is None, "nothing of it varies"
    y = rng.normal(size=40)
    detrended = y - np.polyval(np.polyfit(np.arange(40), y, 1), np.arange(40))
    assert periodogram(y).sum() == pytest.approx(40 * (detrended**2).sum())  # Parseval


def fake(seed: int, accuracies: list[float], trained: int = 1, moved: int = 10) -> Run:
    lines = [
        RoundRecord(r, list(range(trained)), moved, 0, 0.1, metrics={**no_values(), "accuracy": a})
        for r, a in enumerate(accuracies, start=1)
    ]
    late = accuracies[-len(accuracies) // 4 :]
    tail = {"accuracy": {"mean": float(np.mean(late)), "sd": float(np.std(late))}}
    summary = {"final": {}, "tail": tail, "selected_counts": [], "rounds": len(lines)}
    return Run(Path("x"), {"seed": seed, "partition": {"clients": 4}}, lines, summary, None)


def test_figure_4_is_compared_at_equal_trainings_and_bytes_too():
    rising = [0.1 * r for r in range(1, 9)]
    assert late_within(fake(0, rising), "trainings", 4) == pytest.approx(0.4)  # rounds after 3 trainings, up to 4
    claim = next(claim for claim in MORE_CLAIMS if claim.measure == "late_trainings")
    hip = [fake(seed, rising) for seed in range(3)]  # 8 trainings in all
    parallel = [fake(seed, [0.5] * 8, trained=4) for seed in range(3)]  # 8 trainings after two rounds
    verdict = judge(claim, hip, parallel)
    assert (verdict.first, verdict.second) == pytest.approx((0.75, 0.5))


def test_every_sentence_has_claims_and_every_claim_of_the_paper_a_sentence():
    said = {claim for sentence in SENTENCES for claim in _claims_of(sentence)}
    for sentence in SENTENCES:
        assert {claim.text for claim in _claims_of(sentence)} == set(sentence.claims)
    assert len(CLAIMS) == 44
    assert {claim.text for claim in CLAIMS} <= {claim.text for claim in said}


def test_the_page_decides_sentences_in_each_condition_with_one_correction():
    rng = np.random.default_rng(2)

    def runs(level):
        return [fake(seed, list(level + 0.001 * rng.normal(size=16))) for seed in range(5)]

    def curves(ksd, others):
        return {
            ("fig1", "blr30", name): runs(at) for name, at in (("ksd", ksd), ("round_robin", others), ("random", 0.6))
        }

    conditions = {
        Condition("blocks", "reference"): curves(0.7, 0.65),
        Condition("dealt", "reference"): curves(0.7, 0.72),
    }
    found = judge_conditions(conditions)
    ends = next(claim for claim in CLAIMS if claim.text == "KSD ends above round robin" and claim.setting == "blr30")
    assert [verdicts[ends].word for verdicts in found.values()] == ["holds", "does not hold"]
    page = sentences_page(found, "fedstein reproduce fig1 --order all")
    assert page.count("\n## ") == len(SENTENCES)
    assert "blocks, reference: holds; dealt, reference: holds in part (1 of 2 comparisons)." in page
    assert "Not run." in page


def test_seeds_are_added_until_every_comparison_is_decided(monkeypatch, tmp_path):
    asked = []

    def draw(plans, out, workers, command, quiet, rule):
        asked.append((plans, rule))
        decided = Verdict(LATE, 5, 0.7, 0.6, 0.1, 0.01, 0.19, 0.001, "above", decided=plans >= 6)
        return [decided, decided._replace(decided=True)]

    monkeypatch.setattr(reproduce, "draw_figures", draw)
    reproduce.draw_until_decided(lambda count: count, 20, tmp_path, 1, "", True)
    assert asked == [(4, "sequence"), (5, "sequence"), (6, "sequence")]
    asked.clear()
    reproduce.draw_until_decided(lambda count: count, 5, tmp_path, 1, "", True)
    assert [count for count, _ in asked] == [4, 5], "no more than allowed"


def test_orders_and_densities_become_conditions_and_jobs():
    assert conditions_of("all", "both")[0] == Condition("blocks", "reference")
    assert len(conditions_of("all", "both")) == 6
    options = {"seeds": 1, "rounds": 2, "density": "log", "full": False, "quick": False, "settings": ["blr30"]}
    blocks, dealt = (make_plan(["fig3"], **options, order=order).jobs for order in ("blocks", "dealt"))
    assert [job.name for job in blocks] == [f"blr30-blocks-{k}-log-r2-seed0" for k in ("hip", "ksd")]
    assert [job.name for job in dealt] == [f"blr30-{k}-log-r2-seed0" for k in ("hip", "ksd")]
    assert blocks[0].config(1)["partition"]["order"] == "blocks"


@pytest.mark.slow
def test_blocks_make_round_robin_periodic_and_a_dealt_order_does_not(tmp_path):
    covertype = load("covertype")
    shares = {}
    for order in ("blocks", "dealt", "shuffled"):
        settings = (
            "partition.clients=8",
            "partition.rows_per_client=200",
            f"partition.order={order}",
            "sites.kind=particles",
            "sites.density=reference",
            "selection.kind=round_robin",
            "algorithm.particles=8",
            "rounds=40",
            "checkpoint.every=40",
            "engine.threads=1",
        )
        config, _ = resolve(merge({}, settings), facts_of(covertype))
        runner.start(prepare_run(config, covertype), tmp_path / order, lambda record: None)
        run = load_run(tmp_path / order)
        shares[order] = measure(run, "period")
        if order == "blocks":
            curve = [line["accuracy"] for line in run.rounds][-32:]
            assert np.argmax(periodogram(curve)) + 1 == 4, "the spectrum peaks at the period of a pass"
    assert shares["blocks"] > 0.5
    assert shares["dealt"] < 0.3
