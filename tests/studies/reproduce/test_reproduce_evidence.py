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
    Levels,
    decide,
    holm,
    interval,
    level_of,
    levels_of,
    sequence_half,
    student_half,
)
from fedstein.studies.reproduce.plan import make_plan
from fedstein.studies.reproduce.run_lines import Lines, RunKey
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
def test_the_levels_are_those_at_which_the_interval_just_decides(rule):
    half = {"student": student_half, "sequence": sequence_half}[rule]
    far, near = [0.02, 0.03, 0.025, 0.021, 0.03], [0.0004, -0.0002, 0.0001, 0.0005, -0.0004, 0.0]
    found = levels_of(far, rule)
    assert half(far, found.apart) == pytest.approx(np.mean(far), rel=1e-6)
    assert found.alike == 1.0
    found = levels_of(near, rule)
    width = found.alike * (2 if rule == "student" else 1)  # the interval of level 1 - 2 alpha
    assert half(near, width) == pytest.approx(0.005 - abs(np.mean(near)), rel=1e-6)
    assert found.apart > 0.3
    assert levels_of(near, rule, margin=0.0).alike == 1.0, "without a margin nothing is the same"


def test_equivalence_is_two_one_sided_tests():
    gaps = np.array([0.0004, -0.0012, 0.0021, 0.0005, -0.0004])
    one_sided = [
        ttest_1samp(gaps, margin, alternative=side).pvalue for margin, side in ((0.005, "less"), (-0.005, "greater"))
    ]
    assert levels_of(gaps).alike == pytest.approx(max(one_sided))
    assert levels_of([0.001]) == Levels(), "one seed decides nothing"


def simulated(rng, means, error, runs, seeds=10):
    """Levels of pages whose comparisons have true means and standard errors, for Student's rule: runs x comparisons."""
    gaps = rng.normal(means, error * np.sqrt(seeds), (runs, seeds, len(means)))
    centre, e = np.abs(gaps.mean(1)), gaps.std(1, ddof=1) / np.sqrt(seeds)
    apart = 2 * student.sf(centre / e, seeds - 1)
    alike = np.where(centre < 0.005, student.sf((0.005 - centre) / e, seeds - 1), 1.0)
    return gaps.mean(1), apart, alike


@pytest.mark.parametrize(
    ("means", "error"),
    [
        ([0.0] * 60, 0.004),  # no difference anywhere, and too few seeds to show it
        ([0.0] * 60, 0.001),  # ... and enough to show it for most
        ([0.005] * 60, 0.0012),  # differences that just matter, with much power
        ([0.0] * 20 + [0.005] * 20 + [0.03] * 20, 0.0015),
    ],
)
def test_a_page_has_any_wrong_verdict_with_at_most_five_per_cent(means, error):
    means, runs = np.array(means), 400
    signs, apart, alike = simulated(np.random.default_rng(5), means, error, runs)
    wrong = right = 0
    for page in range(runs):
        words = np.array(decide([Levels(*pair) for pair in zip(apart[page], alike[page], strict=True)]))
        false_difference = (words == "apart") & ((means == 0) | (np.sign(signs[page]) != np.sign(means)))
        false_equivalence = (words == "alike") & (np.abs(means) >= 0.005)
        wrong += (false_difference | false_equivalence).any()
        right += (words != "").mean()
    assert wrong / runs <= 0.05
    if error < 0.002:
        assert right / runs > 0.2, "and most decisions are made"


def test_one_correction_over_the_smaller_level_would_not_keep_the_error_rate():
    means, runs = np.full(60, 0.005), 200
    _, apart, alike = simulated(np.random.default_rng(5), means, 0.001, runs, seeds=20)
    wrong = 0
    for page in range(runs):
        rejected = np.array(holm(np.minimum(apart[page], alike[page]).tolist()))
        wrong += (rejected & (alike[page] < apart[page])).any()
    assert wrong / runs > 0.25, "which is why there are two corrections"


def test_looks_share_the_error_rate():
    levels = [Levels(0.02, 1.0)]
    assert decide(levels) == ["apart"]
    assert decide(levels, looks=2) == [""]
    gaps = np.random.default_rng(3).normal(0, 0.02, (20_000, 20))  # the mean is zero
    at_ten, at_twenty = (ttest_1samp(gaps[:, :count], 0, axis=1).pvalue for count in (10, 20))
    for looks, kept in ((1, False), (2, True)):  # ten seeds, and ten more where nothing was decided
        share = 0.05 / 2 / looks
        assert (((at_ten <= share) | (at_twenty <= share)).mean() <= 0.025) == kept


def test_holm_is_its_textbook_definition():
    levels = [0.01, 0.04, 0.03, 0.005]  # adjusted: 0.03, 0.06, 0.06, 0.02
    assert holm(levels) == [True, False, False, True]
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([0.02, 0.02, 0.02]) == [False, False, False]
    assert holm([]) == []


def test_the_correction_takes_verdicts_back_that_one_alone_would_give():
    verdict = Verdict(LATE, 5, 0.7, 0.6, 0.1, 0.01, 0.19, Levels(0.02, 1.0))
    assert correct([verdict])[0].word == "holds"
    assert correct([verdict._replace(effect=-0.1)])[0].word == "does not hold"
    assert [v.word for v in correct([verdict, verdict])] == ["undecided", "undecided"]
    alone = verdict._replace(seeds=1, levels=Levels())
    assert [v.word for v in correct([verdict, alone])] == ["holds", "undecided"], "one seed has no test to correct for"
    alike = verdict._replace(levels=Levels(0.5, 0.001))
    assert correct([alike])[0].word == "no difference that matters"
    assert correct([alike._replace(levels=Levels(0.001, 0.001))])[0].word == "no difference that matters"
    same = next(claim for claim in MORE_CLAIMS if claim.same)
    assert correct([alike._replace(claim=same)])[0].word == "holds"
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


def lines_of(ksd: float, round_robin: float, order: str) -> Lines:
    rng = np.random.default_rng(2)
    levels = {"ksd": ksd, "round_robin": round_robin, "random": 0.6}
    return {
        RunKey(order, "reference", "blr30", scheme, seed, 150): {
            "late": late + 0.001 * rng.normal(),
            "early": 0.5 + 0.001 * rng.normal(),
            "unrest": 0.01 + 0.001 * rng.normal(),
        }
        for scheme, late in levels.items()
        for seed in range(6)
    }


def test_the_page_decides_sentences_in_each_condition_with_one_correction():
    lines = {**lines_of(0.7, 0.65, "blocks"), **lines_of(0.7, 0.72, "dealt")}
    found = judge_conditions(lines, [Condition("blocks", "reference"), Condition("dealt", "reference")])
    ends = next(claim for claim in CLAIMS if claim.text == "KSD ends above round robin" and claim.setting == "blr30")
    assert [verdicts[ends].word for verdicts in found.values()] == ["holds", "does not hold"]
    page = sentences_page(found, "fedstein reproduce fig1 --order all")
    assert page.count("\n## ") == len(SENTENCES)
    assert "blocks, reference: holds; dealt, reference: holds in part (1 of 2 comparisons)." in page
    assert "Not run: BLR, 120 clients (blocks, reference; dealt, reference)." in page
    assert "2 looks" in sentences_page(found, "", looks=2)


def test_figure_4_counts_once_for_each_order():
    lines = {
        RunKey("blocks", "log", "bnn27", scheme, seed, 100): {"late": late + seed / 1e4}
        for scheme, late in (("hip", 0.7), ("parallel", 0.8))
        for seed in range(3)
    }
    densities = [Condition("blocks", density) for density in ("reference", "log")]
    assert [len(found) for found in judge_conditions(lines, densities).values()] == [0, 1]
    assert [len(found) for found in judge_conditions(lines, densities[:1]).values()] == [1], "its own density"


def test_seeds_are_added_until_every_comparison_is_decided(monkeypatch, tmp_path):
    asked = []

    def draw(plans, out, workers, command, quiet, rule):
        asked.append((plans, rule))
        verdict = Verdict(LATE, 5, 0.7, 0.6, 0.1, 0.01, 0.19, found="apart" if plans >= 6 else "")
        return [verdict, verdict._replace(found="apart")]

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
