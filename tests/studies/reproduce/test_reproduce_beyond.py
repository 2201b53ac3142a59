"""The comparisons beyond the paper: every curve is a valid run, shared runs are one, and parts can be asked for."""

from __future__ import annotations

import pytest

from fedstein.errors import InputError
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.studies.reproduce import BEYOND, SETTINGS, make_plan
from fedstein.studies.reproduce.plan import Plan
from fedstein.studies.reproduce.variants import TUNED, VARIANTS

CLASSES = {"covertype": 2, "mnist": 9, "digits": 10}


def plan(*names: str, **changes) -> Plan:
    usual = {"seeds": 1, "rounds": None, "density": "reference", "full": False, "quick": False}
    return make_plan(names, **{**usual, **changes})


def test_every_curve_is_a_run_without_notes():
    for job in plan(*BEYOND).jobs:
        config, notes = resolve(job.config(1), Facts("classification", CLASSES[SETTINGS[job.setting].data["name"]]))
        assert notes == [], job.name
        expected = TUNED.get(job.setting, {}).get(VARIANTS[job.variant].tuned)
        assert expected is None or config.algorithm.step_size == expected
        assert config.evaluate.every == job.every


def test_figures_share_the_runs_of_tuned_curves_whatever_the_density():
    jobs = plan("sites", "draws", settings=["bnn27"]).jobs
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.density for job in jobs if not VARIANTS[job.variant].tuned} == {"log"}


def test_drawing_rules_cover_all_that_there_are():
    from fedstein.selection import DRAWS

    drawn = {VARIANTS[variant].settings["selection"].get("draw") for variant in BEYOND["draws"].variants}
    assert drawn == {*DRAWS, None}


def test_parts_of_a_comparison():
    part = plan("sites", settings=["bnn120"], variants=["curvature", "pooled"])
    assert part.variants("sites", "bnn120") == ["curvature", "pooled"]
    assert plan("sites", variants=["parallel"]).jobs == []


@pytest.mark.parametrize(("what", "settings", "variants"), [("sites", [], ["curvatur"]), ("steps", ["digits10"], [])])
def test_wrong_parts_are_refused(what, settings, variants, tmp_path):
    from fedstein.cli.reproduce import reproduce_figures

    with pytest.raises(InputError, match="curvature" if variants else "blr30"):
        reproduce_figures(what, 1, 1, "embedded", "log", settings, 1, tmp_path, False, True, variants)
