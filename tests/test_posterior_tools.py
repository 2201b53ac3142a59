"""Posteriors in other tools: pandas, ArviZ, notebooks, pickle, folders; entropies and predictive intervals."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from picklable_model import model as plane
from scipy import integrate, stats
from small_run import SMALL_FIT

import fedstein
from fedstein.evaluation.by_draw import class_log_probabilities, gaussian_parts, log_likelihoods, predictive_draws
from fedstein.evaluation.entropy import class_entropy, gaussian_entropy
from fedstein.inference.summary import COLUMNS
from fedstein.models import MODELS, custom

SMALL = SMALL_FIT


def frames():
    rng = np.random.default_rng(0)
    made = {}
    for name, shift in (("east", -0.5), ("west", 0.5)):
        age, dose = rng.normal(shift, 1, 40), rng.normal(0, 1, 40)
        ill = np.where(dose + rng.logistic(size=40) > 0, "yes", "no")
        made[name] = pd.DataFrame({"age": age, "dose": dose, "ill": ill})
    return made


@pytest.fixture(scope="module")
def classified():
    return fedstein.fit("blr", frames(), target="ill", **SMALL)


def numbers():
    rng = np.random.default_rng(1)
    made = []
    for _ in range(2):
        x = rng.normal(size=(30, 2)).astype(np.float32)
        made.append((x, (x @ np.array([1.0, -0.5]) + rng.normal(size=30)).astype(np.float32)))
    return made


@pytest.fixture(scope="module")
def regressed():
    return fedstein.fit(plane(), numbers(), **{**SMALL, "rounds": 6})


def test_a_summary_is_a_frame_with_pandas_and_a_table_without(classified, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = classified.summary()
    assert list(frame.columns) == list(COLUMNS[1:])
    assert list(frame.index) == ["age", "dose", "intercept", "log xi"]
    assert frame.attrs["using"] == classified.table().using
    assert frame.loc["dose", "mean"] == classified.table()[1]["mean"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert classified.summary()[1]["name"] == "dose"


def test_a_frame_of_numbers_that_are_not_to_be_trusted_comes_with_a_warning():
    with pytest.warns(UserWarning, match=r"not to be trusted: .*never trained"):
        fedstein.fit(plane(), numbers(), **{**SMALL, "rounds": 1}).summary("gaussian")


def test_notebooks_show_a_few_facts_and_make_no_draws():
    posterior = fedstein.fit("blr", {"<east>": frames()["east"], "west": frames()["west"]}, target="ill", **SMALL)
    shown = posterior._repr_html_()
    assert "2: &lt;east&gt;, west" in shown
    assert "5 particles of 4 parameters" in shown
    assert "no, yes" in shown
    assert not posterior._made
    assert "array" not in repr(posterior)
    assert len(repr(posterior)) < 200


def test_classes_are_those_of_the_greatest_probability(classified, regressed):
    rows = frames()["east"]
    probabilities = classified.predict_proba(rows)
    np.testing.assert_array_equal(probabilities, classified.predict(rows))
    np.testing.assert_array_equal(classified.predict_class(rows) == "yes", probabilities[:, 1] > 0.5)
    gaussian = classified.predict_proba(rows, using="gaussian", draws=50, seed=3)
    np.testing.assert_array_equal(gaussian, classified.predict(rows, "gaussian", 50, 3))
    with pytest.raises(fedstein.InputError, match="is a regression and has no classes"):
        regressed.predict_proba(numbers()[0][0])


def test_single_draws_average_to_the_prediction(classified):
    rows, points = classified._rows(frames()["east"]), classified.particles
    each = np.exp(class_log_probabilities(classified.model, rows, points))
    np.testing.assert_allclose(each.mean(axis=0), classified.predict(frames()["east"]), atol=1e-6)
    beta = np.asarray(points[2], np.float64)
    logit = rows @ beta[:2] + beta[2]
    np.testing.assert_allclose(each[2, :, 1], 1 / (1 + np.exp(-logit)), atol=1e-5)
    y = np.arange(len(rows)) % 2
    found = log_likelihoods(classified.model, rows, y, points)
    np.testing.assert_allclose(np.exp(found), each[:, np.arange(len(rows)), y], atol=1e-6)
    drawn = predictive_draws(classified.model, rows, np.tile(points, (400, 1)), 0)
    assert drawn.shape == (2000, len(rows))
    assert np.abs(drawn.mean(axis=0) - each[..., 1].mean(axis=0)).max() < 5 * 0.5 / np.sqrt(2000)


def test_entropy_of_classes_is_its_definition(classified):
    rows = frames()["west"]
    found = classified.entropy(rows)
    p = classified.predict(rows).astype(float)
    np.testing.assert_allclose(found.total, stats.entropy(p, axis=1), atol=1e-5)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)
    assert (found.epistemic > -1e-6).all()
    certain = np.log(np.array([[[1.0, 1e-300]], [[1e-300, 1.0]]]))  # two draws that contradict each other
    total, aleatoric, epistemic = class_entropy(certain)
    assert total[0] == pytest.approx(np.log(2))
    assert aleatoric[0] == pytest.approx(0, abs=1e-12)
    assert epistemic[0] == pytest.approx(np.log(2))


def test_entropy_of_a_mixture_of_gaussians_is_its_integral(regressed):
    means, precisions = np.array([[-1.0], [0.5], [2.0]]), np.array([[1.0], [4.0], [0.5]])

    def density(y):
        return np.mean([stats.norm(m, p**-0.5).pdf(y) for m, p in zip(means[:, 0], precisions[:, 0], strict=True)])

    exact = integrate.quad(lambda y: -density(y) * np.log(density(y)), -15, 15, limit=200)[0]
    found = gaussian_entropy(means, np.log(precisions))
    assert found.total[0] == pytest.approx(exact, abs=2e-3)
    parts = [stats.norm(0, p**-0.5).entropy() for p in precisions[:, 0]]
    assert found.aleatoric[0] == pytest.approx(np.mean(parts))
    x = numbers()[0][0]
    entropies = regressed.entropy(x)
    np.testing.assert_allclose(entropies.aleatoric, stats.norm(0, 1).entropy(), atol=1e-5)  # noise of variance 1
    assert (entropies.epistemic >= -1e-4).all()


def test_predictive_intervals_hold_noise_and_uncertainty(regressed, classified):
    x = numbers()[0][0]
    low, high = regressed.predict_interval(x, 0.8, using="nuts", draws=8000).T
    mean, sd = regressed.predict(x, using="nuts").T
    expected = stats.norm.ppf(0.9) * sd
    np.testing.assert_allclose(low, mean - expected, atol=0.2)
    np.testing.assert_allclose(high, mean + expected, atol=0.2)
    with pytest.raises(fedstein.InputError, match="predict_proba"):
        classified.predict_interval(frames()["east"])
    with pytest.raises(fedstein.InputError, match="between 0 and 1"):
        regressed.predict_interval(x, 90)


def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


def groups(data):
    """Of InferenceData, or of a DataTree."""
    return set(data.groups() if callable(data.groups) else data.children)


def test_arviz_gets_every_group_with_names(classified):
    az, rows = arviz(), frames()["west"]
    data = classified.to_arviz(rows)
    assert {"posterior", "posterior_predictive", "log_likelihood", "observed_data"} <= groups(data)
    assert list(data.posterior.coords["parameter"].values) == ["age", "dose", "intercept", "log xi"]
    assert data.posterior["theta"].shape == (4, 1000, 4)
    assert data.posterior_predictive["ill"].shape == (4, 1000, 40)
    table = (
        az.summary(data, kind="all", round_to="none") if az.__version__ >= "1" else az.summary(data, round_to="none")
    )
    assert table.loc["theta[dose]", "mean"] == pytest.approx(classified.table()[1]["mean"], abs=1e-6)
    np.testing.assert_array_equal(data.observed_data["ill"].values, (rows["ill"] == "yes").to_numpy(int))
    loo = az.loo(data)
    pointwise = np.asarray(data.log_likelihood["ill"]).reshape(4000, 40)
    lppd = np.log(np.exp(pointwise).mean(axis=0)).sum()
    assert float(getattr(loo, "elpd_loo", None) or loo.elpd) == pytest.approx(lppd, abs=6)


def test_arviz_of_a_regression_has_its_densities(regressed):
    arviz()
    x, y = numbers()[0]
    data = regressed.to_arviz(x, y)
    theta = data.posterior["theta"].values[2, 7]
    np.testing.assert_allclose(data.log_likelihood["y"].values[2, 7], stats.norm(x @ theta, 1).logpdf(y), atol=1e-4)
    assert {"posterior"} == groups(regressed.to_arviz())
    assert regressed.to_arviz(using="particles").posterior["theta"].shape == (1, 5, 2)
    with pytest.raises(fedstein.InputError, match="expected 30 targets"):
        regressed.to_arviz(x, y[:3])
    with pytest.raises(fedstein.InputError, match="y needs the rows"):
        regressed.to_arviz(y=y)


def test_without_arviz_a_sentence_says_so(regressed, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(fedstein.InputError, match="pip install arviz"):
        regressed.to_arviz()


def same(one, other):
    np.testing.assert_array_equal(one.particles, other.particles)
    assert one.names == other.names
    assert one.labels == other.labels
    assert one.client_names == other.client_names
    assert one.rounds == other.rounds
    np.testing.assert_array_equal(one.sums.precision, other.sums.precision)


def test_pickles_come_back(classified, regressed):
    again = pickle.loads(pickle.dumps(classified))
    same(again, classified)
    np.testing.assert_array_equal(again.predict(frames()["east"]), classified.predict(frames()["east"]))
    again = pickle.loads(pickle.dumps(regressed))
    x = numbers()[0][0]
    np.testing.assert_array_equal(again.predict(x), regressed.predict(x))
    parts = gaussian_parts(again.model, x, again.particles)
    np.testing.assert_allclose(parts[0].mean(axis=0), again.predict(x)[:, 0], atol=1e-6)


def test_a_pickle_is_read_by_another_process(classified, tmp_path):
    file, rows = tmp_path / "posterior.pickle", frames()["east"]
    file.write_bytes(pickle.dumps((classified, rows)))
    script = (
        "import pickle, sys\n"
        f"posterior, rows = pickle.load(open({str(file)!r}, 'rb'))\n"
        "print(posterior.predict_class(rows)[:3].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(classified.predict_class(rows)[:3].tolist())


def test_lambdas_cannot_be_pickled_and_the_message_says_what_can():
    model = custom(
        2,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
        init=lambda key: jax.random.normal(key, (2,)),
        predict=lambda theta, x: jax.numpy.stack([x @ theta, 0 * x[:, 0]], axis=1),
        task="regression",
        name="lambdas",
    )
    posterior = fedstein.fit(model, numbers(), **SMALL)
    with pytest.raises(fedstein.InputError, match=r"'lambdas' cannot be pickled .*top of a module.*posterior\.save"):
        pickle.dumps(posterior)


def test_a_saved_posterior_is_loaded_and_reported(classified, regressed, tmp_path):
    classified.draws()
    again = fedstein.load(classified.save(tmp_path / "one"))
    same(again, classified)
    rows = frames()["east"]
    np.testing.assert_array_equal(again.predict(rows), classified.predict(rows))
    np.testing.assert_array_equal(again.draws(), classified.draws())
    assert again.columns == classified.columns
    with pytest.raises(fedstein.InputError, match="already holds a run"):
        classified.save(tmp_path / "one")
    with pytest.raises(fedstein.InputError, match="is finished"):
        fedstein.resume(tmp_path / "one")
    with pytest.raises(fedstein.InputError, match="a model of your own"):
        fedstein.load(regressed.save(tmp_path / "two"))
    same(fedstein.load(tmp_path / "two", model=plane()), regressed)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if not kind.startswith("bnn")])
def test_every_regression_names_its_parameters(kind):
    found = MODELS[kind]
    if found.task != "regression" and found.classes not in (2, None):
        pytest.skip("not for three classes")
    model = found.build(2, found.classes or (3 if found.task == "classification" else 0), found.settings())
    names = model.parameter_names(("age", "dose"))
    assert len(set(names)) == len(names) == model.dim
    assert names[0].startswith("age")


def test_softmax_names_the_labels():
    rows = frames()["east"].assign(ill=["a", "b", "c", "c"] * 10)
    posterior = fedstein.fit("softmax", [rows], target="ill", **SMALL)
    assert posterior.names[:4] == ("age [a]", "dose [a]", "intercept [a]", "age [b]")


def test_doubts_and_weighted_draws_are_saved_too(tmp_path):
    doubtful = fedstein.fit(plane(), numbers(), **{**SMALL, "rounds": 1})
    assert "never trained" in doubtful.doubts[0]
    assert fedstein.load(doubtful.save(tmp_path / "one"), model=plane()).doubts == doubtful.doubts
    refined = fedstein.fit(plane(), numbers(), **{**SMALL, "rounds": 1, "sites__expand": "variational"})
    again = fedstein.load(refined.save(tmp_path / "two"), model=plane())
    assert again.doubts == refined.doubts
    np.testing.assert_array_equal(again.draws(100), refined.draws(100))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(refined)).draws(100), refined.draws(100))


def test_arviz_1_gets_groups_in_one_mapping(regressed, monkeypatch):
    """ArviZ 1 takes the groups as one mapping and returns a tree; a stand-in shows what it is given."""
    given = {}

    def from_dict(data, *, coords, dims):
        given.update(data=data, coords=coords, dims=dims)
        return {"posterior": SimpleNamespace(attrs={})}

    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(__version__="1.0.0", from_dict=from_dict))
    tree = regressed.to_arviz(*numbers()[0], using="particles")
    assert set(given["data"]) == {"posterior", "posterior_predictive", "observed_data", "log_likelihood"}
    assert given["dims"] == {"theta": ["parameter"], "y": ["row"]}
    assert given["coords"]["parameter"] == list(regressed.names)
    assert tree["posterior"].attrs["inference_library"] == "fedstein"
