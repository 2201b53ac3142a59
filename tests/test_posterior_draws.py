"""Draws to quote from: NUTS on the sums that a run leaves, refined sites, the run folder and ``fedstein summary``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedstein
from fedstein.cli import main
from fedstein.errors import InputError
from fedstein.inference.natural import GaussianSite, packed, unpacked
from fedstein.inference.sampling import Sampler
from fedstein.inference.summary import COLUMNS
from fedstein.models import Glm, custom
from fedstein.posterior import Posterior, load
from fedstein.report.load import load_run
from fedstein.report.summary import summarise
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.runs.kept_draws import read_sums

DIM = 3
LINEAR = custom(
    DIM,
    log_prior=lambda theta: -0.5 * theta @ theta,
    log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
    init=lambda key: jax.random.normal(key, (DIM,)),
    predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(len(x))], axis=1),
    task="regression",
)._replace(linear_prior_score=-1.0, glm=Glm(lambda f, y, extra: -0.5 * (y - f[0]) ** 2))
SMALL: dict[str, Any] = {
    "seed": 3,
    "rounds": 4,
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 3},
    "algorithm": {"particles": 5, "local_steps": 3},
    "selection": {"kind": "round_robin"},
    "engine": {"threads": 1},
}


def linear_clients(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal((n, DIM)).astype(np.float32), rng.standard_normal(n).astype(np.float32)) for n in (20, 35)
    ]


def fit_linear(**more: Any) -> Posterior:
    settings = {"rounds": 4, "algorithm__particles": 8, "selection__kind": "round_robin", "sites__structure": "full"}
    settings["sites__expand"] = "mean"
    return fedstein.fit(LINEAR, linear_clients(), **{**settings, **more})


def exact_sums() -> GaussianSite:
    x, y = (np.concatenate(parts).astype(np.float64) for parts in zip(*linear_clients(), strict=True))
    return GaussianSite(x.T @ y, x.T @ x)


def run(out: Path, **sections: Any) -> Path:
    raw = {**SMALL, **sections}
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    runner.start(prepare_run(config, dataset), out, lambda record: None)
    return out


def command(*words: Any) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "blr", sites={"expand": "mean"})


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("expand", ["mean", "variational"])
def test_draws_of_a_linear_model_have_the_moments_of_the_closed_form(expand: str) -> None:
    posterior, exact = fit_linear(sites__expand=expand), exact_sums()
    covariance = np.linalg.inv(exact.precision + np.eye(DIM))
    mean, sd = covariance @ exact.eta, np.sqrt(np.diag(covariance))
    draws = posterior.draws()
    assert draws.shape == (4000, DIM)
    assert posterior.trusted, posterior.problems
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1, atol=5 / np.sqrt(2 * 4000))
    low, high = posterior.interval(0.9).T
    np.testing.assert_allclose(low, mean - 1.645 * sd, atol=0.1 * sd.max())
    np.testing.assert_allclose(high, mean + 1.645 * sd, atol=0.1 * sd.max())
    assert posterior.sums is not None
    tight = 1e-6 if expand == "variational" else 1e-4
    np.testing.assert_allclose(posterior.sums.precision, exact.precision, rtol=tight, atol=tight)
    np.testing.assert_allclose(posterior.sums.eta, exact.eta, rtol=tight, atol=tight)


def test_passes_reach_clients_that_never_trained_and_never_the_barred() -> None:
    clients = linear_clients()
    posterior = fit_linear(rounds=1)
    assert not posterior.trusted
    assert "1 client (1) never trained" in posterior.problems[0]
    assert "not to be trusted" in repr(posterior)
    assert "sites expanded at the particles" in repr(posterior)
    refined = fit_linear(rounds=1, sites__expand="variational")
    assert "sites expanded at the particles" not in repr(refined)
    assert refined.trusted, refined.problems
    barred = fit_linear(rounds=1, sites__expand="variational", selection__barred=[1])
    x = clients[0][0].astype(np.float64)
    assert barred.sums is not None
    np.testing.assert_allclose(barred.sums.precision, x.T @ x, rtol=1e-6, atol=1e-6)


def test_draws_can_be_few_or_many_and_from_any_posterior() -> None:
    posterior = fit_linear()
    assert not posterior.sample(sampler=Sampler(chains=2, draws=10)).trusted  # too few to say
    assert posterior.draws(10).shape == (10, DIM)
    assert posterior.draws(4100).shape == (4100, DIM)
    np.testing.assert_array_equal(posterior.draws(7), posterior.draws(7))
    assert np.abs(posterior.draws(7, seed=1) - posterior.draws(7)).max() > 0
    assert posterior.draws(11, using="gaussian").shape == (11, DIM)
    assert posterior.draws(using="particles").shape == (8, DIM)
    assert posterior.names == ("theta[0]", "theta[1]", "theta[2]")
    with pytest.raises(InputError, match="at least one draw"):
        posterior.draws(0)
    with pytest.raises(InputError, match="between 0 and 1"):
        posterior.interval(90)
    rows = linear_clients()[0][0][:4]
    assert posterior.predict(rows, using="nuts", draws=50).shape == (4, 2)


def test_a_run_folder_keeps_sums_and_draws(folder: Path) -> None:
    posterior = load(folder)
    sums = read_sums(folder)
    assert sums is not None
    assert (sums.eta.dtype, sums.precision.shape) == (np.float64, (32, 32))
    assert not (folder / "draws.safetensors").exists()
    assert posterior.names[:2] == ("mean radius", "mean texture")
    assert posterior.names[-2:] == ("intercept", "log xi")
    draws = posterior.draws()
    again = load(folder)
    assert again.sample().diagnostics.seconds == posterior.sample().diagnostics.seconds  # read, not made
    np.testing.assert_array_equal(again.draws(), draws)
    table = again.table()
    assert (len(table), table.using) == (32, "nuts")
    assert tuple(table[0]) == COLUMNS
    assert all(row["5%"] < row["median"] < row["95%"] and row["R-hat"] < 1.01 and row["ESS"] > 400 for row in table)
    assert str(table).splitlines()[0].split() == list(COLUMNS)
    assert len(table[:2]) == 2


def test_draws_that_do_not_belong_to_the_sums_or_are_damaged_are_made_anew(folder: Path) -> None:
    first = load(folder).draws()
    (folder / "draws.safetensors").write_bytes((folder / "draws.safetensors").read_bytes()[:-8] + bytes(8))
    np.testing.assert_array_equal(load(folder).draws(), first)
    (folder / "draws.json").write_text("{}")
    np.testing.assert_array_equal(load(folder).draws(), first)
    (folder / "sums.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged"):
        load(folder)


def test_draws_that_are_not_to_be_trusted_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "weights.json").unlink()  # they are those of sites that are not the likelihoods, which is said as well
    posterior = load(folder)
    posterior.draws()
    assert "not to be trusted" not in repr(posterior)
    about = json.loads((folder / "draws.json").read_text())
    assert about["trusted"]
    (folder / "draws.json").write_text(json.dumps({**about, "problems": ["The chains disagree."]}))
    again = load(folder)
    assert not again.trusted
    assert "not to be trusted" in repr(again)
    assert "not to be trusted:\nThe chains disagree." in str(again.table())
    assert command("summary", folder) == 0
    assert "not to be trusted:\nThe chains disagree." in capsys.readouterr().out


def test_the_command_prints_names_and_says_what_it_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("summary", folder) == 0
    shown = capsys.readouterr().out
    assert "worst fractal dimension" in shown
    assert "log xi" in shown
    assert "one standard deviation of its feature" in shown
    assert "from NUTS draws from the prior times the sites; not to be trusted:\nThe sites do not match" in shown
    assert "The sites were expanded at the particles." in shown
    assert (folder / "draws.json").exists()
    assert command("summary", folder, "--posterior", "everything") == 2
    assert "nuts, gaussian or particles" in capsys.readouterr().err


def test_without_full_sites_particles_are_summarised_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(tmp_path / "run", sites={"kind": "particles"}, rounds=1)
    assert not (out / "sums.safetensors").exists()
    posterior = load(out)
    assert posterior.diagnostics is None
    assert not posterior.trusted
    assert posterior.draws().shape == (5, 32)
    with pytest.raises(InputError, match="no sums of full sites"):
        posterior.draws(using="nuts")
    assert command("summary", out) == 2
    shown = capsys.readouterr()
    assert "intercept" in shown.out
    assert "too close together to quote intervals from" in shown.err


def test_without_numpyro_or_pandas_a_sentence_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = load(folder)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        posterior.table("gaussian").to_pandas()
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(InputError, match="pip install numpyro"):
        posterior.draws(seed=5)


def test_a_folder_that_cannot_be_written_to_still_gives_draws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("fedstein.runs.kept_draws.write_bytes", refuse)
    assert load(folder).draws(5).shape == (5, 32)
    assert not (folder / "draws.json").exists()


def test_sites_of_nearly_separable_rows_are_disproved_at_the_particles_and_confirmed_after_passes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_particles = load(folder)
    assert not at_particles.trusted
    assert "The sites do not match the clients' likelihoods" in at_particles.problems[0]
    assert "set sites.expand = 'variational'" in str(at_particles.table())
    assert "not to be trusted" in repr(at_particles)
    (note,) = [note for note in summarise([load_run(folder)]).notes if "trusted" in note]
    assert note.startswith("Intervals of run are not to be trusted: The sites do not match")
    assert at_particles.weighted is None
    out = run(tmp_path / "refined", sites={"kind": "curvature", "structure": "full", "expand": "variational"})
    refined = load(out)
    assert refined.trusted, refined.problems
    assert "not to be trusted" not in repr(refined)
    assert not [note for note in summarise([load_run(out)]).notes if "trusted" in note]
    weights = json.loads((out / "weights.json").read_text())
    assert weights["k"] <= 0.7
    assert weights["ess"] > 1000
    assert refined.weighted is not None
    assert refined.weighted.draws.shape == (weights["draws"], 32)
    assert weights["draws"] >= 8000
    draws = refined.draws()
    np.testing.assert_array_equal(draws, refined.draws(using="draws"))
    np.testing.assert_array_equal(np.sort(draws, axis=0), np.sort(refined.draws(using="weighted"), axis=0))
    np.testing.assert_allclose(draws.mean(axis=0), refined.weighted.mean, atol=0.02 * draws.std(axis=0).max())
    table = refined.table()
    assert (table.using, table.trusted, table.cells()[0][-2]) == ("weighted", True, "-")
    narrow = at_particles.draws().std(axis=0)
    assert np.median(draws.std(axis=0) / narrow) > 1.5
    x = load_dataset(SMALL).train_x[:5]
    assert refined.predict(x).shape == (5, 2)
    assert np.abs(refined.predict(x) - refined.predict(x, using="particles")).max() > 0
    assert refined.predict(x, using="draws", draws=4000) == pytest.approx(refined.predict(x, draws=4000))
    assert command("summary", out) == 0
    assert "weighted by the clients' likelihoods" in capsys.readouterr().out
    with pytest.raises(InputError, match="no weighted draws"):
        at_particles.draws(using="weighted")


def test_variational_passes_need_full_sites() -> None:
    with pytest.raises(InputError, match=r"sites\.expand = 'variational' needs sites\.structure = 'full'"):
        fit_linear(sites__structure="diagonal", sites__settle=False, sites__expand="variational")
    with pytest.raises(InputError, match=r"takes the curvature as it is, got sites\.stiffness = 0\.5"):
        fit_linear(sites__stiffness=0.5, sites__expand="variational")


def test_a_triangle_is_the_matrix_again() -> None:
    root = np.random.default_rng(0).standard_normal((4, 4))
    np.testing.assert_array_equal(unpacked(packed(root + root.T), 4), root + root.T)


@pytest.mark.slow
def test_refined_draws_are_closer_to_pooled_nuts_than_the_site_gaussian(tmp_path: Path) -> None:
    """Few rows: the hierarchical prior's posterior is far from the Laplace form."""
    from fedstein.models import blr
    from fedstein.studies.reference import nuts
    from fedstein.studies.reference.target import Pooled

    rng = np.random.default_rng(4)
    beta = rng.standard_normal(5)
    parts = []
    for n in (20, 25, 15):
        x = (rng.standard_normal((n, 5)) + 0.5 * rng.standard_normal(5)).astype(np.float32)
        parts.append((x, (rng.random(n) < 1 / (1 + np.exp(-x @ beta))).astype(np.int32)))
    posterior = fedstein.fit(
        "blr",
        parts,
        rounds=30,
        selection__kind="round_robin",
        sites__expand="variational",
        sites__structure="full",
        standardise=False,  # the pooled rows below are as they are
    )
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    target = Pooled(posterior.model, blr(5).prepare(x), y, 1.0)
    theta, _ = nuts.sample(target, nuts.Sampler(draws=3000, warmup=500), lambda share: None)
    theta = theta.reshape(-1, posterior.model.dim)
    mean, sd = theta.mean(axis=0), theta.std(axis=0)
    assert posterior.trusted, posterior.problems
    assert posterior.gaussian is not None
    draws, gaussian = posterior.draws(), posterior.gaussian
    refined = np.abs(draws.mean(axis=0) - mean) / sd, np.abs(np.log(draws.std(axis=0) / sd))
    laplace = np.abs(gaussian.mean - mean) / sd, np.abs(np.log(gaussian.sd / sd))
    assert refined[0].max() < 0.25
    assert refined[0].mean() < 0.7 * laplace[0].mean()
    assert refined[1].mean() < 0.7 * laplace[1].mean()


@pytest.mark.slow
def test_few_rows_do_not_end_in_the_degenerate_mode(tmp_path: Path) -> None:
    """Covertype with 4 x 60 rows: log xi of an earlier version was 7.9, where all weights are tiny; NUTS says 4.2.

    The numbers are those of NUTS on the pooled rows (4 chains x 4000 draws; ``fedstein.studies.posterior_goals``).
    """
    raw = {"partition": {"clients": 4, "rows_per_client": 60}, "rounds": 40}
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    runner.start(prepare_run(config, dataset), tmp_path / "run", lambda record: None)
    posterior = load(tmp_path / "run")
    assert posterior.trusted, posterior.problems
    draws = posterior.draws()
    assert draws[:, -1].mean() == pytest.approx(4.19, abs=0.3 * 1.05)
    assert draws[:, -1].std() == pytest.approx(1.05, rel=0.15)
    assert np.median(draws[:, :-1].std(axis=0)) == pytest.approx(0.171, rel=0.1)
    assert posterior.weighted is not None
    away = (posterior.weighted.draws - posterior.weighted.mean) ** 2 / np.diag(posterior.weighted.covariance)
    assert (posterior.weighted.weights[:, None] * away).max() < 0.1  # no draw has much of a weight's variance
