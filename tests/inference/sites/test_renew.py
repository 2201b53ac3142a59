"""Sites that are renewed by reports: expanded where the particles are now, with the curvature they had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import FedsteinError
from fedstein.federation import protocol
from fedstein.federation.reports import renew_sites
from fedstein.inference.sites.curvature import natural_sums
from fedstein.inference.target import TILTED
from fedstein.models.base import join

N, D = 5, 4
FEDERATION: dict[str, Any] = {"site": "curvature", "scheme": "hip", "rounds": 6}


@pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("reporters", [(1,), (0, 2)], ids=["a third", "more than a third"])
def test_a_renewed_site_has_the_reported_score_at_the_particles(full: bool, reporters: tuple[int, ...]) -> None:
    """All of it where a third of the sites is renewed; with more of them, each by so much less."""
    draw = np.random.default_rng(0)
    shapes = {"eta": (D,) if full else (N, D), "precision": (D, D) if full else (N, D)}
    sums = natural_sums(lambda dtype: {name: np.zeros(shape, dtype) for name, shape in shapes.items()}, full)
    theta = draw.normal(size=(N, D)).astype(np.float32)
    server: dict[str, Any] = {"particles": theta, **sums.first(theta)}
    accepted: dict[int, Any] = {}
    for client in range(3):
        root = draw.normal(size=(D, D))
        precision = root @ root.T if full else draw.uniform(size=(N, D))
        accepted[client] = {
            "eta": draw.normal(size=shapes["eta"]).astype(np.float32),
            "precision": precision.astype(np.float32),
        }
        server = {**server, **sums.absorb(server, None, accepted[client])}
    scores = {client: draw.normal(size=(N, D)).astype(np.float32) for client in reporters}
    assert sums.renew is not None
    changed, fresh = sums.renew(server, accepted, scores)
    assert set(changed) == {"eta"}
    assert set(fresh) == set(reporters)
    share = 1 / len(reporters)

    def score_of(own: Any) -> Any:  # full: one site for all particles, at the mean particle
        exact = theta.astype(np.float64)
        return own["eta"] - (own["precision"] @ exact.mean(axis=0) if full else own["precision"] * exact)

    for client, score in scores.items():
        assert fresh[client]["eta"].dtype == np.float32
        before, got = score_of(accepted[client]), score_of({**accepted[client], **fresh[client]})
        expected = (1 - share) * before + share * (score.mean(axis=0) if full else score)
        np.testing.assert_allclose(got, expected, atol=3e-6)
    after = {client: {**own, **fresh.get(client, {})} for client, own in accepted.items()}
    total = sums.total(after)
    np.testing.assert_allclose(changed["eta"], total["eta"], rtol=0, atol=1e-12)
    assert not np.shares_memory(changed["eta"], server["eta"]), "the state of the round before is kept"


def test_an_exact_site_is_as_good_as_new(linear_gaussian: Any, miniature: Callable[..., Any]) -> None:
    """Linear regression: a site is the likelihood itself, so there is nothing to renew, wherever the particles are."""
    model = linear_gaussian._replace(prior_mean=np.array([1.0, -1.0, 0.5])).model()
    federation = miniature(model=model, **FEDERATION, settings={"sites": {"structure": "full"}})
    context = federation.context
    assert context.renew, "HIP's reports are scores: the default"
    state, _ = federation.play()
    x, y = ([np.asarray(getattr(s, kind), np.float64)[: s.rows] for s in federation.engine.shards] for kind in "xy")
    assert len(state.sites.accepted) > 1
    exact = sum(x[k].T @ y[k] for k in state.sites.accepted) / linear_gaussian.noise_sd**2
    np.testing.assert_allclose(state.server["eta"], exact, rtol=0, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize(("model", "structure"), [("blr", "full"), ("bnn_classifier", "eigen")])
def test_when_everybody_reports_the_sites_come_a_third_of_the_way_to_the_likelihoods(
    model: str, structure: str, miniature: Callable[..., Any]
) -> None:
    federation = miniature(model=model, **FEDERATION, settings={"sites": {"structure": structure}})
    state, _ = federation.play()
    elsewhere = {**state.server, "particles": state.server["particles"] + 0.5}
    state = state._replace(server=elsewhere)
    context, theta = federation.context, federation.context.program.model.split(state.server["particles"])
    context.channel.begin(9)  # a new round: what was broadcast in the last one is not where clients report
    reports = federation.engine.ask(9, context.method.broadcast(state.server, ()), range(4), state.sites)
    later = renew_sites(context, 9, state, reports, {})
    assert sorted(later.sites) == sorted(state.sites), "a client without a site has none to renew"
    assert later.sites.changed_since(state.sites) == sorted(state.sites)
    score = np.zeros_like(np.asarray(state.server["particles"]))
    for client in state.sites.accepted:
        shard = federation.engine.shards[client]
        x, y = shard.x[: shard.rows], shard.y[: shard.rows]
        score = score + np.asarray(join(context.program.model.likelihood_score(theta, x, y, jnp.ones(len(y)))))
    before, after = (context.method.broadcast(s.server, (TILTED,))["site_score"] for s in (state, later))
    if structure == "full":
        before, after, score = before.mean(axis=0), after.mean(axis=0), score.mean(axis=0)
    expected = before + (score - before) / 3
    np.testing.assert_allclose(after, expected, rtol=0, atol=2e-5 * np.abs(score).max())
    assert np.abs(before - score).max() > 1e-2 * np.abs(score).max()


@pytest.mark.user_programs  # otherwise a site that was expanded at the same particles is renewed to the same bits
def test_only_those_who_reported_are_renewed_and_the_sums_stay_theirs(miniature: Callable[..., Any]) -> None:
    settings = {"selection": {"pool": 2}, "sites": {"structure": "eigen"}}
    federation = miniature(**{**FEDERATION, "rounds": 8}, settings=settings)
    context, state, seen = federation.context, protocol.first(federation.context), 0
    for _ in range(context.rounds):
        before = {k: np.asarray(own["eta"]) for k, own in state.sites.accepted.items()}
        curved = {k: np.asarray(own["precision"]) for k, own in state.sites.accepted.items()}
        state, record = protocol.run_round(context, state)
        for client, eta in before.items():
            moved = not np.array_equal(eta, state.sites.accepted[client]["eta"])
            assert moved == (client in record["candidate_ids"])
            if client not in record["selected"]:
                seen += moved
                np.testing.assert_array_equal(state.sites.accepted[client]["precision"], curved[client])
        total = context.method.spec.site.sums.total(state.sites.accepted)
        np.testing.assert_allclose(state.server["eta"], total["eta"], rtol=0, atol=1e-9)
    assert seen > 1


def test_a_round_that_comes_to_nothing_renews_nothing(
    miniature: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = miniature(**FEDERATION)
    state, _ = federation.play()
    kept = {k: np.asarray(own["eta"]).copy() for k, own in state.sites.items()}
    eta = state.server["eta"].copy()
    monkeypatch.setattr(federation.engine, "train", lambda *_: None)
    with pytest.raises(FedsteinError, match="round 7"):
        protocol.run_round(federation.context._replace(rounds=7), state)
    np.testing.assert_array_equal(state.server["eta"], eta)
    for client, own in state.sites.items():
        np.testing.assert_array_equal(own["eta"], kept[client])


def test_a_report_that_is_out_of_all_proportion_renews_nothing(
    miniature: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = miniature(**FEDERATION, settings={"selection": {"draw": "pass"}})
    state, records = federation.play()
    ask, liar = federation.engine.ask, records[-1]["selected"][0]  # not drawn again in this pass
    monkeypatch.setattr(
        federation.engine,
        "ask",
        lambda *a: {k: {"score": 1e4 * r["score"] if k == liar else r["score"]} for k, r in ask(*a).items()},
    )
    after, record = protocol.run_round(federation.context._replace(rounds=7), state)
    assert record["faults"] == {"capped": [liar]}
    same = {k: np.array_equal(own["eta"], after.sites.accepted[k]["eta"]) for k, own in state.sites.accepted.items()}
    assert [k for k, unchanged in same.items() if unchanged] == [liar]
    assert liar not in record["selected"]
