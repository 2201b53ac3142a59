"""The page that compares methods: paired differences, what it took to get there, from runs with known numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstein.evaluation.metrics import no_values
from fedstein.federation.records import RoundRecord
from fedstein.report.load import Run
from fedstein.studies.reproduce.compare import comparison, costs, gap, per_round, reached, scores
from fedstein.studies.reproduce.plan import BEYOND


def made(seed: int, accuracies: list[float], clients: int = 2) -> Run:
    """A finished run; every round costs 2 MB down, 1 MB up and a million row-gradients of each kind."""
    work = {"train": 10**6, "site": 2 * 10**6, "report": 3 * 10**6}
    rounds = [
        RoundRecord(
            round=number,
            selected=[number % 2],
            bytes_down=2 * 10**6,
            bytes_up=10**6,
            seconds=0.5,
            metrics={**no_values(), "accuracy": accuracy},
            row_gradients=work,
        )
        for number, accuracy in enumerate(accuracies, start=1)
    ]
    tail = {m: {"mean": accuracies[-1], "sd": 0.01} for m in ("accuracy", "nll", "ece")}
    summary = {"tail": tail, "selected_counts": [0] * clients}
    return Run(Path("run"), {"seed": seed}, rounds, summary, None)


def test_the_difference_is_paired_by_seed():
    ours, theirs = [made(0, [0.7]), made(1, [0.9])], [made(1, [0.8]), made(0, [0.6])]
    assert gap(ours, theirs) == "+0.1000 (+0.1000 to +0.1000)"
    assert gap(ours[:1], theirs) == "+0.1000"


def test_costs_count_up_to_the_first_round_that_got_there():
    run = made(0, [0.5, 0.7, 0.6, 0.8])
    assert (reached(run, 0.7), reached(run, 0.75), reached(run, 0.9)) == (2, 4, None)
    assert costs("pooled", [run], 0.7)[1:] == ["yes", "2", "4", "2", "2M", "4M", "6M", "0.50"]
    assert costs("pooled", [run], 0.9)[1:4] == ["not reached", "4", "8"]


def test_the_page_has_every_method_and_both_references():
    variants = BEYOND["sites"].variants
    curves = {("sites", "blr30", variant): [made(0, [0.5, 0.8]), made(1, [0.5, 0.8])] for variant in variants}
    curves["sites", "blr30", "pooled"] = [made(0, [0.7, 0.9]), made(1, [0.7, 0.9])]
    page = comparison("sites", curves, "fedstein reproduce sites")
    assert "## BLR, 30 clients: 2 rounds, 2 seeds" in page
    assert "to reach an accuracy of 0.890" in page
    assert page.count("| Curvature, KSD |") == 3 + 3, "scores, two tables of costs, three goals"
    row = scores("curvature", {variant: curves["sites", "blr30", variant] for variant in variants})
    assert row[1] == "0.8000"
    assert row[5].startswith("-0.1000")
    assert scores("pooled", {variant: curves["sites", "blr30", variant] for variant in variants})[5] == "–"
    assert pytest.approx(0.01) == float(row[2])


def test_a_page_with_some_curves_only_compares_with_what_is_there():
    curves = {("draws", "bnn27", variant): [made(0, [0.5, 0.8])] for variant in ("curvature", "innovation_greedy")}
    page = comparison("draws", curves, "fedstein reproduce draws")
    assert "against Curvature, round robin" in page
    assert "goal" not in page
    alone = comparison("sites", {("sites", "bnn27", "curvature"): [made(0, [0.5])]}, "fedstein reproduce sites")
    assert "against" not in alone.splitlines()[8]
    assert "to reach an accuracy" not in alone


def test_a_round_is_a_mean_over_rounds():
    assert per_round("pooled", [made(0, [0.5, 0.7])])[1:] == ["2", "1", "1,000,000", "2,000,000", "3,000,000", "0.500"]
