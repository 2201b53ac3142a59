"""Private runs: what they refuse, that they resume and repeat, and that the posterior includes the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedstein
from fedstein.cli.app import app
from fedstein.errors import InputError
from fedstein.inference.grid_moments import grid_gaussian
from fedstein.inference.methods.private_sites import doubt_of
from fedstein.inference.natural import packed
from fedstein.inference.noisy_sites import SETTLED, Scales, noisy_posterior
from fedstein.inference.sampling import Sampler, sample_posterior
from fedstein.models import blr
from fedstein.privacy import mechanism
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.guard import Guard
from fedstein.privacy.ledger import BudgetSpent
from fedstein.privacy.noise import seed_secret
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs import runner
from fedstein.runs.audit import audit
from fedstein.runs.config import Config, resolve
from fedstein.runs.federate import PreparedRun, facts_of, load_dataset, prepare_run

BASE: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 3},
    "algorithm": {"particles": 4},
    "engine": {"threads": 1},
    "privacy": {"kind": "record", "epsilon": 3.0, "visits": 2},
}
LINEAR: dict[str, Any] = {"data": {"name": "diabetes"}, "model": {"kind": "linear"}}


def config_of(**sections: Any) -> Config:
    raw = {**BASE, **{k: {**BASE.get(k, {}), **v} if isinstance(v, dict) else v for k, v in sections.items()}}
    return resolve(raw, facts_of(load_dataset(raw)))[0]


def prepared(**sections: Any) -> PreparedRun:
    config = config_of(**sections)
    return prepare_run(config, load_dataset(config.to_dict()))


def silent(record: Any) -> None:
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private") / "run"
    runner.start(prepared(), folder, silent)
    return folder


def test_defaults_of_a_private_run() -> None:
    config = config_of()
    assert (config.rounds, config.selection.kind, config.selection.per_round) == (2, "round_robin", 3)
    assert config.evaluate.where == "server"
    assert "privacy" in config.to_dict()
    with pytest.raises(InputError, match=r"privacy\.epsilon is not used"):
        config_of(privacy={"kind": "none"})


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"algorithm": {"kind": "fedep"}, "sites": {"kind": "none"}}, "works with algorithm.kind = 'dsvgd' or 'pvi'"),
        ({"model": {"kind": "random_intercept_logistic"}}, "got 'random_intercept_logistic': for other"),
        ({"model": {"kind": "bnn_classifier"}, "sites": {"structure": "full"}}, "sites.structure = 'diagonal'"),
        ({"model": {"kind": "bnn_classifier"}, "selection": {"kind": "ksd"}}, "asks everybody at the same point"),
        ({"model": {"kind": "bnn_classifier"}, "privacy": {"sums": "secure"}}, "no bound has been derived"),
        ({"sites": {"kind": "particles"}}, "sites.structure = 'full'"),
        ({"sites": {"expand": "variational"}}, "expansions are not protected"),
        ({"selection": {"kind": "oort"}}, "reports are not protected"),
        ({"evaluate": {"where": "clients"}}, "counts over held-out rows are not protected"),
        ({"channel": {"codec": "int8"}}, "channel.codec = 'plain'"),
        ({"rounds": 3}, "more often than privacy.visits = 2"),
        ({"selection": {"kind": "random", "per_round": 1}, "rounds": 7}, "more often than privacy.visits = 2"),
        ({"privacy": {"largest_count": 3}}, "largest_count is for model.kind = 'poisson'"),
        ({"privacy": {"largest_target": 3}}, "largest_target is for model.kind = 'linear'"),
        (LINEAR, "needs privacy.largest_target"),
        ({**LINEAR, "selection": {"kind": "ksd"}, "privacy": {"largest_target": 3}}, "the same sums"),
    ],
)
def test_what_would_send_something_unprotected_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config_of(**sections)


def test_scales_of_own_files_must_be_public(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"{i % 5},{i * i % 7},{i % 2}\n" for i in range(40)))
    raw = {**BASE, "data": {"path": str(path), "task": "classification"}}
    with pytest.raises(InputError, match=r"privacy.public = \['scaling'\]"):
        resolve(raw, facts_of(load_dataset(raw)))
    raw["privacy"] = {**BASE["privacy"], "public": ["scaling"]}
    resolve(raw, facts_of(load_dataset(raw)))


@pytest.mark.slow
def test_a_run_repeats_itself_spends_its_budget_and_is_audited(finished: Path, tmp_path: Path) -> None:
    runner.start(prepared(), tmp_path / "again", silent)
    for name in ("posterior.safetensors", "sums.safetensors"):
        assert (finished / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert "intervals are too narrow for features that are far from Gaussian" in " ".join(
        fedstein.load(finished).doubts
    )
    lines = audit(finished)
    assert [line["ledger"] for line in lines] == [f"ledger/client-{k}.jsonl" for k in range(3)]
    for line in lines:
        assert line["releases"] == {"gradient": 2, "moments": 1}
        assert line["spent"]["epsilon"] == pytest.approx(3.0)
        assert line["by_accountant"]["pld"] == pytest.approx(3.0, rel=5e-3)
    shown = CliRunner().invoke(app, ["audit", str(finished)])
    assert shown.exit_code == 0
    assert "client-2.jsonl" in shown.stdout
    assert "3.000" in shown.stdout
    with pytest.raises(InputError, match="has no ledger"):
        audit(tmp_path)


@pytest.mark.slow
def test_a_run_that_is_resumed_sends_the_same_and_spends_nothing_twice(finished: Path, tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.start(prepared(), tmp_path / "run", stop)  # after the first releases, before any checkpoint
    assert audit(tmp_path / "run")[0]["releases"] == {"gradient": 1, "moments": 1}
    folder, config = runner.open_run(tmp_path / "run")
    runner.resume(folder, config, lambda done, changes: None, silent)
    assert (tmp_path / "run" / "posterior.safetensors").read_bytes() == (
        finished / "posterior.safetensors"
    ).read_bytes()
    assert audit(tmp_path / "run")[0]["releases"] == {"gradient": 2, "moments": 1}


@pytest.mark.slow
def test_a_ledger_that_several_runs_share_refuses_the_second(tmp_path: Path) -> None:
    own = {"ledger": str(tmp_path / "ledgers")}
    runner.start(prepared(privacy=own), tmp_path / "one", silent)
    with pytest.raises(BudgetSpent, match="its budget is 3"):
        runner.start(prepared(privacy=own, seed=2), tmp_path / "two", silent)
    assert audit(tmp_path / "ledgers")[0]["releases"] == {"gradient": 2, "moments": 1}


def site_of(x: np.ndarray, y: np.ndarray, point: np.ndarray, noise: np.ndarray) -> dict[str, np.ndarray]:
    family = mechanism.family_of(blr(x.shape[1] - 1), PrivacySettings(kind="record"))
    exact = mechanism.clipped_sums(family, point, x, y, 1e3)
    return {
        "gradients": (exact["gradient"] + noise)[None],
        "points": point[None],
        "moments": packed(exact["moments"]),
        "visits": np.int32(1),
    }


def test_without_noise_the_posterior_is_the_usual_one_and_with_noise_it_is_wider() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.standard_normal((4000, 3)), np.ones((4000, 1))], axis=1)
    truth = np.array([0.6, -0.4, 0.0, 0.3])
    y = (random.random(4000) < 1 / (1 + np.exp(-x @ truth))).astype(int)
    model, family = blr(3), mechanism.family_of(blr(3), PrivacySettings(kind="record"))
    exact = {0: site_of(x, y, truth, np.zeros(4))}
    found = noisy_posterior(model, family, exact, Scales(0.0, 0.0), np.zeros(5)).gaussian
    p = 1 / (1 + np.exp(-x @ found.mean[:4]))
    information = (x * (p * (1 - p))[:, None]).T @ x
    np.testing.assert_allclose(found.sd[:4], np.sqrt(np.diag(np.linalg.inv(information))), rtol=0.05)
    assert np.all(np.abs(found.mean[:4] - truth) < 4 * found.sd[:4])
    # Many releases with noise: the spread of the means about the exact one is what the posterior adds for it.
    scale = 60.0
    means, sds = [], []
    for _ in range(60):
        noisy = {0: site_of(x, y, truth, scale * random.standard_normal(4))}
        each = noisy_posterior(model, family, noisy, Scales(scale, 0.0), np.zeros(5)).gaussian
        means.append(each.mean[:4])
        sds.append(each.sd[:4])
    added = np.sqrt(np.mean(np.square(sds), axis=0) - found.sd[:4] ** 2)
    np.testing.assert_allclose(added, np.std(means, axis=0), rtol=0.25)


@pytest.mark.slow
def test_moments_on_a_grid_agree_with_nuts() -> None:
    random = np.random.default_rng(1)
    model = blr(3)
    root = random.standard_normal((10, 4))
    precision, eta = np.zeros((5, 5)), np.append(3 * random.standard_normal(4), 0.0)
    precision[:4, :4] = root.T @ root
    found = grid_gaussian(model, eta, precision)
    drawn = sample_posterior(model, eta, precision, sampler=Sampler(draws=1000), seed=1)
    np.testing.assert_array_less(np.abs(found.mean - drawn.mean) / drawn.sd, 0.08)
    np.testing.assert_allclose(found.sd, drawn.sd, rtol=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [100.0, 3.0])
def test_few_separable_rows_have_one_posterior_wherever_the_search_starts(epsilon: float) -> None:
    """Long steps turn back and forth on these rows, or run away; the accuracy was .37 with almost no noise."""
    data = load_dataset({"data": {"name": "breast_cancer"}})
    x = np.concatenate([data.train_x, np.ones((len(data.train_x), 1))], axis=1).astype(float)
    settings = PrivacySettings(kind="record", epsilon=epsilon, visits=1)
    model, family = blr(data.train_x.shape[1]), mechanism.family_of(blr(30), settings)
    plan, clip = plan_of(settings), settings.bound(31)
    bounds = mechanism.sensitivities(family, clip)
    scales = Scales(plan.gradient * bounds["gradient"], plan.moments * bounds["moments"])
    guard, accepted = Guard(settings, seed_secret(0)), {}
    for client, rows in enumerate(np.array_split(np.random.default_rng(0).permutation(len(x)), 3)):
        exact = mechanism.clipped_sums(family, np.zeros(31), x[rows], data.train_y[rows], clip)
        noisy = guard.release(client, 0, exact, bounds)
        released = {"gradients": noisy["gradient"][None], "points": np.zeros((1, 31)), "visits": 1}
        accepted[client] = {**released, "moments": packed(noisy["moments"])}
    searched = noisy_posterior(model, family, accepted, scales, np.zeros(32))
    first = searched.gaussian
    assert (searched.to_go < SETTLED) == (epsilon < 100)
    assert (doubt_of(searched.to_go) is None) == (epsilon < 100)
    test = np.concatenate([data.test_x, np.ones((len(data.test_x), 1))], axis=1)
    assert np.mean((test @ first.mean[:-1] > 0) == (data.test_y > 0)) > 0.93
    if epsilon < 100:  # with almost no noise no mean reproduces itself, and the closest is taken
        again = noisy_posterior(model, family, accepted, scales, first.mean + 0.5 * first.sd).gaussian
        assert np.max(np.abs(again.mean - first.mean) / first.sd) < 0.05


def test_a_search_that_does_not_settle_is_said(tmp_path: Path) -> None:
    """With almost no noise, synthetic rows cannot have given the releases, so no mean reproduces itself."""
    folder = tmp_path / "run"
    runner.start(prepared(privacy={"epsilon": 100.0, "visits": 1}), folder, silent)
    posterior = fedstein.load(folder)
    assert not posterior.trusted
    assert any("did not settle" in problem for problem in posterior.problems)
