"""Section III as numbers: the decrease against independent derivatives, the limits, the Deltas, and the command."""

from __future__ import annotations

import csv
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forked import fedstein
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fedstein import stein
from fedstein.errors import InputError
from fedstein.federation.site_table import SiteTable
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts
from fedstein.studies.reproduce.theory.free_energy import decrease, field, field_gradient, log_stretch
from fedstein.studies.reproduce.theory.measure import Measurement, Steps, Target, measure_candidates
from fedstein.studies.reproduce.theory.ranking import Delta, distribution, gain, rank_correlation
from fedstein.studies.reproduce.theory.runs import EPSILON, LENGTHS, TheoryJob, theory_jobs

DENSITIES = ("log", "reference")


# --- the change of variables ---


def swarm(n: int = 6, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(n, d)), 3 * draw.normal(size=(n, d)), 2.3


def test_the_field_is_the_svgd_direction_at_the_particles(double):
    x, scores, h = swarm()
    at_particles = jax.vmap(partial(field, particles=x, scores=scores, bandwidth=h))(x)
    double.close(at_particles, stein.svgd_direction(x, scores, h))


def test_its_gradient_and_the_stretch_are_those_of_autodiff(double):
    x, scores, h = swarm()
    parts = {"particles": x, "scores": scores, "bandwidth": h}
    autodiff = jax.jit(jax.jacfwd(lambda t, eps: eps * field(t, **parts)))
    for theta in (x[0], x[0] + 0.3):  # at a particle and between them
        gradient = field_gradient(theta, **parts)
        double.close(gradient, autodiff(theta, 1.0))
        for eps in (1e-3, 0.4, 5.0):  # the last turns the sign of some eigenvalues: the absolute determinant counts
            moved = np.eye(4) + np.asarray(autodiff(theta, eps))
            double.close(log_stretch(gradient, eps), np.linalg.slogdet(moved)[1])


def test_the_decrease_between_gaussians_is_the_closed_form(double):
    """T = a theta maps N(0, I) to N(0, a^2 I): for p = N(0, s^2 I) the KL changes by d[(a^2 - 1)/2s^2 - log a]."""
    d, a, s = 3, 0.7, 0.5
    x = np.random.default_rng(1).normal(size=(200_000, d))
    x /= np.sqrt(np.mean(x**2))
    got = decrease(*(-0.5 * jnp.sum((c * x) ** 2, axis=1) / s**2 for c in (1, a)), jnp.full(len(x), d * np.log(a)))
    double.close(got, -d * ((a**2 - 1) / (2 * s**2) - np.log(a)))


# --- a federation of logistic regressions, a few rounds in ---


class Federation(NamedTuple):
    mini: Any
    target: Target
    particles: Any
    sites: list
    table: SiteTable  # what the engine reads them from

    def measure(self, *steps: float) -> list[Measurement]:
        return [
            measure_candidates(self.target, Steps(e, (0.05,)), self.particles, self.sites, self.mini.engine.shards)
            for e in steps
        ]


@pytest.fixture(scope="module")
def built():
    return {}


@pytest.fixture
def federation(double, miniature, built):
    """One for each density, built and played once; the first is tempered."""

    def build(density: str) -> Federation:
        if density not in built:
            built[density] = played(density, 2.5 if density == "log" else 1.0)
        return built[density]

    def played(density: str, temperature: float) -> Federation:
        settings = {
            "sites": {"kind": "particles", "density": density},
            "algorithm": {"temperature": temperature, "step_size": 0.2},
        }
        mini = miniature(model="blr", scheme="ksd", rounds=6, settings=settings)
        state, _ = mini.play()
        fresh = mini.context.program.first_state
        sites = [(state.sites.get(k) or fresh)["local"] for k in range(4)]
        assert any(np.any(np.asarray(s) != np.asarray(fresh["local"])) for s in sites), "some site was refitted"
        target = Target(mini.context.program.model, density, 0.55, temperature)
        return Federation(mini, target, state.server["particles"], sites, state.sites)

    return build


@pytest.mark.parametrize("density", DENSITIES)
def test_the_tilted_score_is_the_gradient_of_the_tilted_log_density(federation, double, density):
    f = federation(density)

    @jax.jit
    def both(x, local, shard):
        # q in the target is the KDE of the particles before the step: its centres stay where they are.
        gradient = jax.grad(lambda p: jnp.sum(f.target.log_tilted(p, x, local, shard)))(x)
        return f.target.cavity_score(x, local) + f.target.likelihood_score(x, shard), gradient

    for local, shard in zip(f.sites, f.mini.engine.shards, strict=True):
        double.close(*both(f.particles, local, shard), factor=10)


@pytest.mark.parametrize("density", DENSITIES)
def test_the_rates_are_ksd_and_hip_as_eps_goes_to_zero(federation, density):
    """-change/eps tends to ksd(s~_k) locally and to hip(s~_k, s_global) globally, the error in proportion to eps."""
    measurements = federation(density).measure(1e-3, 1e-4, 1e-5)
    for rate, changes in (
        (measurements[0].ksd, [each.local[:, 0] for each in measurements]),
        (measurements[0].rate, [each.globally[:, 0] for each in measurements]),
    ):
        errors = [
            np.abs(change / eps - rate) / np.max(np.abs(rate))
            for change, eps in zip(changes, (1e-3, 1e-4, 1e-5), strict=True)
        ]
        assert np.max(errors[2]) < 1e-3
        assert np.max(errors[0]) / np.max(errors[1]) == pytest.approx(10, rel=0.2)
        assert np.max(errors[1]) / np.max(errors[2]) == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("density", DENSITIES)
def test_the_decrease_is_that_of_the_definition(federation, double, density):
    """Written out for one candidate and a long step, with autodiff's determinant."""
    f, eps, k = federation(density), 0.01, 2
    (seen,) = f.measure(eps)
    x, shards = f.particles, f.mini.engine.shards
    local = f.sites[k]

    @jax.jit
    def move(x):
        score = f.target.cavity_score(x, local) + f.target.likelihood_score(x, shards[k])
        h = stein.median_bandwidth(stein.squared_distances(x))

        def step(theta):
            return theta + eps * field(theta, x, score, h)

        return jax.vmap(step)(x), jax.vmap(jax.jacfwd(step))(x)

    moved, gradients = move(x)
    stretch = np.linalg.slogdet(np.asarray(gradients))[1]

    def log_global(points):
        return f.target.log_prior(points) + sum(f.target.log_likelihood(points, shard) for shard in shards)

    for log_target, got in (
        (lambda p: f.target.log_tilted(p, x, local, shards[k]), seen.local[k, 0]),
        (log_global, seen.globally[k, 0]),
    ):
        change = jax.jit(lambda a, b, f=log_target: f(a) - f(b))(x, moved)
        double.close(got, -np.mean(np.asarray(change) - stretch), factor=100)
    assert np.sqrt(np.mean((seen.epsilon[k, 1] * np.asarray(moved - x) / eps) ** 2)) == pytest.approx(0.05)


@pytest.mark.parametrize("density", DENSITIES)
def test_the_indicators_are_what_the_clients_report(federation, double, density):
    f = federation(density)
    (seen,) = f.measure(1e-6)
    reports = f.mini.engine.ask(7, {"particles": f.particles}, range(4), f.table)
    double.close(seen.ksd, [float(reports[k]["ksd"]) for k in range(4)])
    scores = [jax.jit(f.target.likelihood_score)(f.particles, shard) for shard in f.mini.engine.shards]
    mean = sum(scores) / 4
    double.close(seen.hip, [stein.hip(f.particles, score, mean) for score in scores])


@pytest.mark.parametrize("density", DENSITIES)
def test_the_log_density_belongs_to_the_score_where_the_kde_is_alive_and_where_it_is_dead(double, density):
    for d, far in ((3, 0.0), (12, 0.0), (55, 3.0)):
        draw = np.random.default_rng(d)
        points, centres = draw.normal(size=(4, d)), far + draw.normal(size=(5, d))
        forms = (partial(form, density=density, dim=d) for form in (stein.kde_log_density, stein.kde_score))
        log_density, score = forms
        expected = jax.jit(jax.grad(lambda p, c, f=log_density: jnp.sum(f(p, c))))(points, centres)
        double.close(jax.jit(score)(points, centres), expected, factor=10)
    with pytest.raises(ValueError, match="log, reference"):
        stein.kde_log_density(points, centres, density="lgo")


# --- ranks, Deltas, clipping ---

FLOATS = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(st.integers(-3, 3), FLOATS), min_size=3, max_size=30))
def test_the_rank_correlation_is_spearmans(pairs):
    a, b = (np.array(side, float) for side in zip(*pairs, strict=True))
    if len(set(a)) < 2 or len(set(b)) < 2:
        assert np.isnan(rank_correlation(a, b))
    else:
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


@given(st.lists(st.floats(0, 1e3, width=32), min_size=2, max_size=30).filter(any))
def test_delta_is_never_negative_where_the_indicators_are_not(values):
    a = np.array(values)
    delta = Delta.of(a)
    tiny = 1e-12 * np.max(a)
    assert delta.clipped >= -tiny
    assert delta.clipped == pytest.approx(delta.as_written, abs=tiny), "nothing to clip"
    assert delta.clipped == pytest.approx(len(a) * np.var(a) / np.sum(a), abs=1e-9 * np.max(a))
    assert (delta.negative, delta.total) == (0, pytest.approx(delta.kept))
    assert Delta.of(np.full(4, 7.0)).clipped == pytest.approx(0, abs=1e-12), "equal indicators gain nothing"


@given(st.lists(FLOATS, min_size=2, max_size=30).filter(any))
def test_clipping_keeps_delta_from_falling_below_zero(values):
    a = np.array(values)
    delta, tiny = Delta.of(a), 1e-9 * np.max(np.abs(a))
    assert delta.clipped >= -tiny
    if abs(delta.total) > 1e-3 * np.max(np.abs(a)):
        assert delta.as_written * np.sign(delta.total) >= -tiny


def test_what_clipping_does_is_counted():
    a = np.array([3.0, -1.0, 1.0, -2.0])
    delta = Delta.of(a)
    assert (delta.negative, delta.total, delta.kept) == (2, 1.0, 4.0)
    assert distribution(a) == pytest.approx([0.75, 0, 0.25, 0])
    assert delta.clipped == pytest.approx(0.75 * 3 + 0.25 - 0.25)
    assert delta.as_written == pytest.approx(15 - 0.25)
    nobody = Delta.of(-np.abs(a))
    assert (nobody.negative, nobody.kept, nobody.clipped) == (4, 0, pytest.approx(0)), "uniform when nothing is left"
    assert nobody.as_written < 0
    assert gain(np.array([1.0, 5.0]), np.array([0.0, 1.0])) == 2


# --- the command ---


def command(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return fedstein("reproduce", "theory", "--out", out, *words)


SMALL = ("--seeds", "1", "--rounds", "6", "--density", "log", "--jobs", "2")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    done = command(out, *SMALL)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_command_leaves_numbers_a_figure_and_a_page(result):
    out, said = result
    clients, rounds = rows(out / "theory.csv"), rows(out / "theory_rounds.csv")
    assert len(clients) == 2 * 2 * 30, "schemes, looks, clients"
    assert [(r["scheme"], r["round"]) for r in rounds] == [("ksd", "1"), ("ksd", "6"), ("hip", "1"), ("hip", "6")]
    for ending in ("png", "svg", "pdf"):
        assert (out / f"theory.{ending}").stat().st_size > 3000
    page = (out / "theory.md").read_text()
    assert "fedstein reproduce theory --seeds 1 --rounds 6 --density log" in page
    assert "2 runs" in said
    assert "theory.md" in said
    for row in clients:
        for which, rate in (("local", "ksd"), ("global", "rate")):
            assert float(row[f"{which}_limit"]) / EPSILON == pytest.approx(float(row[rate]), rel=1e-3)
        assert float(row["epsilon_round"]) == pytest.approx(10 * float(row["epsilon_step"]), rel=1e-4)
    for row in rounds:
        mine = [r for r in clients if (r["scheme"], r["round"]) == (row["scheme"], row["round"])]
        for name in ("ksd", "hip"):
            values = np.array([float(r[name]) for r in mine])
            assert float(row[f"delta_{name}"]) == pytest.approx(len(values) * np.var(values) / np.sum(values), rel=1e-3)
            assert float(row[f"delta_{name}"]) >= 0
            assert int(row[f"negative_{name}"]) == np.sum(values < 0) == 0
            for length in LENGTHS:
                true = [float(r[f"global_{length}"]) for r in mine]
                got = float(row[f"rank_{name}_global_{length}"])
                assert got == pytest.approx(spearmanr(values, true).statistic, abs=1e-2)
        assert sum(float(r["probability"]) for r in mine) == pytest.approx(1, abs=1e-4)
        assert sum(int(r["selected"]) for r in mine) == 1


@pytest.mark.slow
def test_it_looks_at_the_run_that_would_have_been_played_anyway(result):
    """The reports of the run are the indicators of the look before the round."""
    out, _ = result
    for scheme in ("ksd", "hip"):
        folder = out / "runs" / f"theory-blr30-{scheme}-log-r6-seed0"
        lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        assert [bool(line["look"]) for line in lines] == [True, False, False, False, False, True]
        for line in (lines[0], lines[5]):
            np.testing.assert_allclose(line["reports"], line["look"][scheme], rtol=1e-9)


@pytest.mark.slow
def test_a_stopped_reproduction_goes_on_to_the_same_bits(result):
    out, _ = result
    before = {path.name: path.read_bytes() for path in out.glob("theory*")}
    done, torn = (out / "runs" / f"theory-blr30-{scheme}-log-r6-seed0" for scheme in ("hip", "ksd"))
    (torn / "summary.json").unlink()
    (torn / "rounds.jsonl").write_text("torn")
    for path in out.glob("theory*"):
        path.unlink()
    stamp = (done / "summary.json").stat().st_mtime_ns
    again = command(out, *SMALL, "--quiet")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (done / "summary.json").stat().st_mtime_ns == stamp, "what is finished is not run again"
    assert before == {path.name: path.read_bytes() for path in out.glob("theory*")}


def test_the_settings_are_the_papers_in_float64():
    jobs = theory_jobs(None, None, "reference", full=False, quick=False)
    assert [(job.variant, job.seed) for job in jobs[:3]] == [("ksd", 0), ("hip", 0), ("ksd", 1)]
    assert len(jobs) == 10
    assert len(theory_jobs(None, None, "log", full=False, quick=True)) == 4
    config, notes = resolve(jobs[0].config(4), Facts("classification", 2))
    assert notes == []
    assert (config.engine.precision, config.engine.threads, config.sites.kind) == ("float64", 1, "particles")
    assert (config.partition.clients, config.partition.rows_per_client, config.partition.ratio) == (30, 500, 0.9)
    assert (config.algorithm.local_steps, config.algorithm.particles, config.rounds) == (10, 20, 150)
    assert len({job.name for job in (*jobs, TheoryJob("blr30", "ksd", "reference", 0, 40, False))}) == 11


def test_what_cannot_be_is_said_in_one_line(tmp_path, monkeypatch):
    from fedstein.cli.reproduce import reproduce_figures

    wrong = command(tmp_path, "--density", "lgo")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "reference, log" in wrong.stderr
    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="fedstein data get"):
        reproduce_figures("theory", 1, 1, "full", "log", [], 1, tmp_path / "out", False, True)
    with pytest.raises(InputError, match="theory, pages, all"):
        reproduce_figures("theorie", 1, 1, "embedded", "log", [], 1, tmp_path / "out", False, True)
