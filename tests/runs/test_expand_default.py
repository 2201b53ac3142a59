"""``sites.expand`` is "variational" by default where passes refine the sites in reasonable time, and else "mean"."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedstein
from fedstein.inference.collapse import parts_of
from fedstein.inference.methods import METHODS
from fedstein.models import MODELS, ModelTraits
from fedstein.runs import refining
from fedstein.runs.build import build_model
from fedstein.runs.config import Config, load_config, merge, resolve
from fedstein.runs.defaults import LARGEST_MOVED, RULES, Facts
from fedstein.runs.doubts import doubts
from fedstein.runs.runner import Interrupted

BINARY = Facts("classification", 2, 4, features=5)
PRIVATE = ("privacy.kind=record", "privacy.epsilon=3.0", "privacy.delta=1e-5", "data.standardize=false")
REGRESSIONS = [name for name, kind in MODELS.items() if kind.traits.structure == "full"]


def resolved(*settings: str, facts: Facts = BINARY) -> Config:
    given = {"data": {"name": "file"}, "partition": {"kind": "given", "clients": 4}}
    return resolve(merge(given, settings), facts)[0]


def expand_of(*settings: str, facts: Facts = BINARY) -> str | None:
    return getattr(resolved(*settings, facts=facts).sites, "expand", None)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_are_refined(name: str) -> None:
    kind = MODELS[name]
    facts = BINARY._replace(task=kind.task, classes=0 if kind.task == "regression" else kind.classes or 3)
    config = resolved(f"model.kind={name}", facts=facts)
    assert config.sites.expand == "variational"  # type: ignore[attr-defined]
    model = build_model(config, 5, facts.classes, facts.task)
    assert len(parts_of(model).moved) == kind.traits.moved, "the trait says what the model says"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "variational"),
        (("engine.kind=flower",), "variational"),
        (("sites.damping=0.5",), "variational"),
        (("algorithm.temperature=0.5",), "variational"),
        (("sites.expand=mean",), "mean"),
        (("sites.stiffness=0.5",), "mean"),
        (("sites.structure=diagonal",), "mean"),
        (("algorithm.kind=parallel_dsvgd",), "mean"),
        (("robust.kind=bounded",), "mean"),
        (PRIVATE, "mean"),
        (("evaluate.temperature=fit", "evaluate.where=clients"), "mean"),
        (("engine.kind=flower", "privacy.sums=secure", "evaluate.where=clients"), "mean"),
        (("model.kind=bnn_classifier", "sites.structure=full"), "mean"),
        (("model.kind=bnn_classifier",), "mean"),
        (("sites.kind=particles",), None),
        (("algorithm.kind=pvi",), None),
    ],
    ids=str,
)
def test_the_rule_in_each_case(settings: tuple[str, ...], expected: str | None) -> None:
    assert expand_of(*settings) == expected


@pytest.mark.parametrize(
    ("dim", "moved", "expected"),
    [
        (LARGEST_MOVED, LARGEST_MOVED, "variational"),
        (LARGEST_MOVED + 1, LARGEST_MOVED + 1, "mean"),
        (150, 2, "variational"),
        (150, None, "mean"),
        (201, 0, "mean"),
    ],
    ids=["NUTS moves few", "NUTS moves many", "Gaussian given two", "not known", "too large for full sites"],
)
def test_a_model_of_ones_own_is_refined_if_nuts_moves_few_parameters(
    dim: int, moved: int | None, expected: str
) -> None:
    facts = BINARY._replace(traits=ModelTraits(moved=moved), dim=dim)
    assert expand_of(facts=facts) == expected


def test_only_methods_that_leave_sums_are_refined() -> None:
    assert [name for name, kind in METHODS.items() if kind.leaves_sums] == ["dsvgd"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("sites.structure=diagonal",), "needs sites.structure = 'full', got 'diagonal'; set it to 'mean'"),
        (("sites.stiffness=0.5",), "takes the curvature as it is, got sites.stiffness = 0.5"),
        (("robust.kind=bounded",), "the passes after the last round add up what clients send"),
        (PRIVATE, "expansions are not protected; set sites.expand = 'mean'"),
        (("evaluate.temperature=fit", "evaluate.where=clients"), "scales the predictions of particles"),
    ],
    ids=str,
)
def test_a_wrong_combination_is_still_refused(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(fedstein.InputError, match=words):
        resolved(*settings, "sites.expand=variational")


def test_every_rule_for_it_gives_another_reason() -> None:
    reasons = [rule.reason for rule in RULES if rule.key == "sites.expand"]
    assert len(set(reasons)) == len(reasons) == 5


# What a run does ------------------------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"rounds": 6, "algorithm__particles": 5, "algorithm__local_steps": 3}


def clients() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    draw, found = np.random.default_rng(4), {}
    for name in ("east", "west"):
        x = draw.normal(size=(60, 2)).astype(np.float32)
        found[name] = (x, (draw.random(60) < 1 / (1 + np.exp(-x[:, 0]))).astype(int))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a default run."""
    out = tmp_path_factory.mktemp("default") / "run"
    fedstein.fit("blr", clients(), out=out, **QUICK)
    return out


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (folder / "rounds.jsonl").read_text().splitlines())
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def test_a_default_fit_is_trusted_and_has_weighted_draws(whole: Path) -> None:
    posterior = fedstein.load(whole)
    assert posterior.config.sites.expand == "variational"  # type: ignore[attr-defined]
    assert posterior.trusted, posterior.problems
    assert posterior.weighted is not None
    assert posterior.refined
    np.testing.assert_array_equal(posterior.draws(50), posterior.draws(50, using="weighted"))
    assert json.loads((whole / "summary.json").read_text())["refined"]["settled"]


def test_the_passes_change_nothing_about_the_rounds(whole: Path, tmp_path: Path) -> None:
    plain = fedstein.fit("blr", clients(), out=tmp_path / "run", sites__expand="mean", **QUICK)
    assert plain.weighted is None
    assert rounds_of(tmp_path / "run") == rounds_of(whole)
    for name in ("posterior", "gaussian"):
        assert (tmp_path / "run" / f"{name}.safetensors").read_bytes() == (whole / f"{name}.safetensors").read_bytes()


def test_a_run_that_is_stopped_in_its_passes_is_completed_by_resume(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(record: Any) -> None:
        raise KeyboardInterrupt

    out, real = tmp_path / "cut", refining.refine_sites
    with monkeypatch.context() as patched:
        patched.setattr(refining, "refine_sites", lambda *given, **more: real(*given, **{**more, "on_pass": stopped}))
        with pytest.raises(Interrupted, match=f"after the last round.* fedstein resume {out}"):
            fedstein.fit("blr", clients(), out=out, **QUICK)
    assert not (out / "summary.json").exists(), "the run is not finished"
    assert len(rounds_of(out)) == QUICK["rounds"], "and no round is lost"
    fedstein.resume(out, progress=True)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "refining the sites: passes over 2 clients", "no round is played again"
    assert shown[-1].startswith("sites checked at 4000 draws")
    for name in ("posterior", "gaussian", "sums", "weighted"):
        assert (out / f"{name}.safetensors").read_bytes() == (whole / f"{name}.safetensors").read_bytes()


def test_a_folder_of_an_earlier_default_goes_on_without_passes(whole: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(record: Any) -> None:
        if record["round"] == 4:
            raise Stop

    out = tmp_path / "old"
    earlier: dict[str, Any] = {**QUICK, "sites__expand": "mean", "checkpoint__every": 1}
    with pytest.raises(Stop):
        fedstein.fit("blr", clients(), out=out, on_round=stop, **earlier)
    assert tomllib.loads((out / "config.toml").read_text())["sites"]["expand"] == "mean"
    posterior = fedstein.resume(out)
    assert posterior.weighted is None
    assert "refined" not in json.loads((out / "summary.json").read_text())
    assert rounds_of(out) == rounds_of(whole)
    text = (out / "config.toml").read_text().replace('expand = "mean"\n', "")  # of a version without the key
    (tmp_path / "config.toml").write_text(text)
    assert load_config(tmp_path / "config.toml").sites.expand == "mean"  # type: ignore[attr-defined]


def test_weighted_draws_of_fewer_rounds_do_not_stay(tmp_path: Path) -> None:
    from fedstein.inference.importance import Weighted
    from fedstein.runs.kept_draws import read_weighted, write_weights

    draws = np.random.default_rng(0).normal(size=(50, 2))
    write_weights(tmp_path, {}, Weighted(draws, np.full(50, -np.log(50)), 0.1))
    assert read_weighted(tmp_path) is not None
    write_weights(tmp_path, {"refused": "no"}, None)
    assert read_weighted(tmp_path) is None


def test_a_posterior_without_a_forgotten_client_says_that_it_was_not_checked(whole: Path) -> None:
    posterior = fedstein.load(whole)
    records = [*posterior.rounds, {**posterior.rounds[-1], "selected": [], "forgotten": 1}]
    assert "A client was forgotten" in doubts(posterior.config, records, None, None)[0]
