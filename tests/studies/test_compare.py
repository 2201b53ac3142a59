"""``fedstein compare``: the grid, what is held equal, what is said to differ, and a small real comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_run import SMALL_RUN

from fedstein.errors import InputError
from fedstein.runs.config import merge
from fedstein.runs.series import read_series
from fedstein.studies.compare import compare, parse_over, plan_comparison

SCHEMES = "selection.kind=round_robin,ksd,hip"


def plan(*over: str, fair: bool = False, settings: tuple[str, ...] = ()):
    layers = [("the command line", merge({}, settings))] if settings else []
    return plan_comparison(layers, [parse_over(text) for text in over], fair)


def test_values_are_split_at_commas_outside_brackets_and_quotes():
    assert parse_over("model.hidden=[20],[20,30]").values == ([20], [20, 30])
    assert parse_over("data.target='a,b',c").values == ("a,b", "c")
    assert parse_over("algorithm.step_size=0.1, 0.05").values == (0.1, 0.05)


@pytest.mark.parametrize("text", ["selection.kind", "selection.kind=", "selection.kind=ksd,", "=ksd,hip", "k=a,,b"])
def test_an_over_of_another_form_is_refused(text):
    with pytest.raises(InputError, match="--over expects section"):
        parse_over(text)


def test_one_value_or_the_same_value_twice_is_refused():
    for text in ("selection.kind=ksd", "selection.kind=ksd,ksd,hip"):
        with pytest.raises(InputError, match="at least two different values"):
            parse_over(text)


def test_what_follows_from_the_compared_key_is_listed():
    found = plan(SCHEMES)
    assert found.differing == {"sites.renew": {"round_robin": False, "ksd": False, "hip": True}}
    assert found.partial["selection.pool"] == ["ksd", "hip"]
    assert "sites.renew (false: round_robin / ksd, true: hip)" in found.notes()[0]


def test_fair_sets_it_alike_and_says_to_what_whatever_the_order_of_the_values():
    for over in (SCHEMES, "selection.kind=hip,round_robin,ksd"):
        found = plan(over, fair=True)
        assert found.held == {"sites.renew": False}  # true does not suit round robin
        assert found.differing == {}
        assert found.notes()[0] == "Held equal besides selection.kind (--fair): sites.renew = false."
    for variant in found.variants:
        assert variant.config.sites.renew is False


def test_fair_configs_differ_in_the_compared_key_and_what_belongs_to_its_kind_only():
    first, second = (v.config.to_dict() for v in plan("sites.kind=curvature,particles", fair=True).variants)
    assert first["model"] == second["model"]
    assert first["selection"] == second["selection"]
    shared = first["algorithm"].keys() & second["algorithm"].keys()
    assert {k: first["algorithm"][k] for k in shared} == {k: second["algorithm"][k] for k in shared}


def test_fair_is_refused_where_no_value_suits_all():
    with pytest.raises(InputError, match="--fair cannot hold"):
        plan("algorithm.kind=dsvgd,fedavg", fair=True)


def test_a_setting_of_the_user_is_not_changed_by_fair():
    found = plan("selection.kind=ksd,hip", fair=True, settings=("sites.renew=false",))
    assert found.held == {}
    assert [variant.config.sites.renew for variant in found.variants] == [False, False]


def test_several_keys_give_every_combination_by_seed():
    found = plan("selection.kind=ksd,hip", "algorithm.particles=5,10")
    names = [run.name for run in found.runs(2)]
    assert names[:4] == [f"{kind}-particles={n}-seed0" for kind in ("ksd", "hip") for n in (5, 10)]
    assert len(set(names)) == 8


def test_a_leftover_of_the_base_does_not_stop_a_variant_that_does_not_take_it():
    found = plan("selection.kind=round_robin,ksd", settings=("selection.pool=5",))
    assert found.variants[1].config.selection.pool == 5


def test_contradictions_are_refused():
    with pytest.raises(InputError, match="compared by --over and set by --set"):
        plan("selection.kind=ksd,hip", settings=("selection.kind=ksd",))
    with pytest.raises(InputError, match="every key once"):
        plan("selection.kind=ksd,hip", "selection.kind=random,ksd")
    with pytest.raises(InputError, match="say how many with --seeds"):
        parse_over("seed=1,2")
    with pytest.raises(InputError, match="unknown"):
        plan("selection.kindd=ksd,hip")


def test_the_folder_follows_from_the_comparison():
    assert plan(SCHEMES).place() == plan(SCHEMES).place()
    assert plan(SCHEMES).place() != plan(SCHEMES, fair=True).place()


@pytest.mark.slow
def test_a_comparison_runs_is_not_repeated_and_ends_in_a_paired_report(tmp_path: Path):
    settings = merge({}, [*SMALL_RUN, "rounds=3"])
    over, out = {"selection.kind": ["round_robin", "random"]}, tmp_path / "c"
    result = compare(over, settings=settings, seeds=2, fair=True, jobs=2, out=out)
    groups = [row for row in result.rows if row["level"] == "group"]
    assert [row["group"].split(",")[0] for row in groups] == ["round_robin", "random"]
    assert [row["seeds"] for row in groups] == [2, 2]
    assert groups[1]["difference_low"] is not None
    assert result.notes[0].startswith("Held equal besides selection.kind (--fair)")
    assert "Held equal besides selection.kind" in result.html.read_text()
    series = read_series(out)
    assert series is not None
    assert [run.name for run in series.runs] == [f"{k}-seed{s}" for s in (0, 1) for k in ("round_robin", "random")]
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}
    assert len(stamps) == 4
    compare(over, settings=settings, seeds=2, fair=True, jobs=1, out=out)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")} == stamps
    (out / "series.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(InputError, match="is damaged"):
        read_series(out)
