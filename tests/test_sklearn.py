"""The estimators in scikit-learn's own machinery, and its own checks of them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedstein.models import custom
from fedstein.sklearn import FederatedClassifier, FederatedRegressor

QUICK = {"rounds": 6, "particles": 6, "settings": {"algorithm": {"local_steps": 5}, "sites": {"expand": "mean"}}}
# The checks ask for some fifty fits of other sizes; one client's method without sites compiles fastest.
TINY = {"rounds": 2, "particles": 4, "settings": {"algorithm": {"kind": "pooled_svgd", "local_steps": 10}}}
EXPECTED_FAILURES: dict[str, str] = {}  # check -> reason; none is needed


@pytest.mark.slow
@parametrize_with_checks(
    [FederatedClassifier(**TINY), FederatedRegressor(**TINY)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 3)) * [1.0, 100.0, 0.01] + [0.0, 50.0, 1.0]
    z = (x - [0.0, 50.0, 1.0]) / [1.0, 100.0, 0.01]
    owner = np.array(["east", "north", "west"])[np.arange(120) % 3]
    return x, z @ np.array([2.0, -1.0, 0.5]) + 0.3 * rng.normal(size=120), owner


@pytest.fixture(scope="module")
def classifier():
    x, z, owner = rows()
    return FederatedClassifier(**QUICK).fit(x, np.where(z > 0, "ill", "healthy"), clients=owner)


def test_a_classifier_learns_from_clients(classifier):
    x, z, _ = rows()
    y = np.where(z > 0, "ill", "healthy")
    assert classifier.classes_.tolist() == ["healthy", "ill"]
    assert classifier.posterior_.client_names == ("east", "north", "west")
    reference = LogisticRegression().fit(StandardScaler().fit_transform(x), y)
    assert classifier.score(x, y) >= reference.score(StandardScaler().fit_transform(x), y) - 0.03
    probabilities = classifier.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(classifier.predict(x), classifier.classes_[probabilities.argmax(axis=1)])
    np.testing.assert_array_equal(classifier.posterior_.predict_class(x), classifier.predict(x))


def test_a_regressor_learns_from_clients_in_the_units_of_y():
    x, z, owner = rows()
    y = 1000 + 50 * z
    estimator = FederatedRegressor(rounds=20).fit(x, y, clients=owner)
    assert estimator.score(x, y) >= LinearRegression().fit(x, y).score(x, y) - 0.01
    mean, sd = estimator.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, estimator.predict(x))
    assert sd.mean() == pytest.approx(50 * 0.3, rel=0.3)
    low, high = estimator.posterior_.predict_interval(x).T
    assert 0.8 < np.mean((low < y) & (y < high)) <= 1


def test_clones_and_pickles_predict_alike(classifier):
    x = rows()[0]
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    copy = clone(classifier)
    assert not hasattr(copy, "posterior_")
    assert copy.get_params() == classifier.get_params()
    assert copy.set_params(rounds=3).rounds == 3


def test_names_of_columns_are_kept_and_checked():
    x, z, owner = rows()
    frame = pd.DataFrame(x, columns=["age", "dose", "height"])
    estimator = FederatedClassifier(**QUICK).fit(frame, z > 0, clients=pd.Series(owner))
    assert estimator.posterior_.names[:3] == ("age", "dose", "height")
    assert estimator.predict(frame).dtype == bool
    np.testing.assert_array_equal(
        estimator.posterior_.predict(frame[["height", "dose", "age"]]), estimator.posterior_.predict(frame)
    )
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame[["height", "dose", "age"]])


def test_pipelines_searches_and_cross_validation_route_the_clients():
    x, z, owner = rows()
    y = (z > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = FederatedClassifier(**QUICK).set_fit_request(clients=True)
        pipeline = make_pipeline(StandardScaler(), estimator).fit(x, y, clients=owner)
        assert pipeline[-1].posterior_.client_names == ("east", "north", "west")
        assert pipeline.score(x, y) > 0.9
        search = GridSearchCV(pipeline, {"federatedclassifier__selection": ["round_robin", "random"]}, cv=2)
        search.fit(x, y, clients=owner)
        assert search.best_estimator_[-1].posterior_.client_names == ("east", "north", "west")
        assert search.best_score_ > 0.85
        assert cross_val_score(pipeline, x, y, cv=2, params={"clients": owner}).min() > 0.85


def test_without_clients_there_is_one():
    x, z, _ = rows()
    estimator = FederatedRegressor(**QUICK).fit(x, z)
    assert estimator.posterior_.client_names == ("client-0",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clients": ["a"]}, "expected 120 clients, one for each row, got 1"),
        ({"model": "linear"}, "is for regression, this estimator for classification"),
        ({"model": "lgr"}, "expected one of"),
        ({"settings": {"algorithm": {"partciles": 3}}}, "did you mean 'particles'"),
        ({"settings": {"data": {"name": "mnist"}}}, r"\[data\] has no meaning"),
        ({"y": np.zeros(120)}, "at least two classes, got one class"),
    ],
)
def test_what_fedstein_refuses_is_a_value_error(change, words):
    x, z, owner = rows()
    more = {key: value for key, value in change.items() if key not in ("clients", "y")}
    with pytest.raises(ValueError, match=words):
        FederatedClassifier(**{**QUICK, **more}).fit(x, change.get("y", z > 0), change.get("clients", owner))


def test_the_seed_decides():
    x, z, owner = rows()
    one, two, other = (FederatedClassifier(**QUICK, random_state=seed).fit(x, z > 0, owner) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.posterior_.particles, two.posterior_.particles)
    assert np.abs(one.posterior_.particles - other.posterior_.particles).max() > 0
    FederatedClassifier(**TINY, random_state=np.random.RandomState(0)).fit(x, z > 0, owner)


def test_a_model_of_ones_own_can_be_a_parameter():
    import jax.numpy as jnp

    model = custom(
        3,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
        init=lambda key: jnp.zeros(3),
        predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(len(x))], axis=1),
        task="regression",
    )
    x, z, owner = rows()
    assert clone(FederatedRegressor(model, **QUICK)).fit(x, z, owner).score(x, z) > 0.8
