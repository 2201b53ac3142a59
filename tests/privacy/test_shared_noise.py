"""Noise that is shared out in secure sums: enough of it whoever drops out, and no share is ever sent alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_private_runs import LINEAR, config_of, prepared, silent

from fedstein.errors import InputError
from fedstein.federation.secure_round import threshold_of
from fedstein.federation.secure_sum import least_threshold
from fedstein.inference.noisy_sites import Scales, expand_at, observe
from fedstein.inference.noisy_sums import add_round, no_rounds, observe_sums
from fedstein.models import blr
from fedstein.privacy import mechanism
from fedstein.privacy.accounting import mu_of, plan_of, spent_mu
from fedstein.privacy.guard import Guard, Unprotected
from fedstein.privacy.settings import PrivacySettings
from fedstein.privacy.shared_noise import SharedNoise
from fedstein.runs import runner
from fedstein.runs.audit import audit

SECURE = PrivacySettings(kind="record", epsilon=1.0, sums="secure", visits=2)
BOUNDS = {"gradient": 2.0, "moments": 4.0}


def shares(clients: int, shared: SharedNoise, width: int = 4000) -> np.ndarray:
    """The noise that each client adds, clients x width."""
    exact = {"gradient": np.zeros(width)}
    return np.array(
        [Guard(SECURE, bytes([k]) * 32).release(k, 0, exact, BOUNDS, shared)["gradient"] for k in range(clients)]
    )


def test_whoever_drops_out_or_colludes_the_noise_that_is_left_is_enough() -> None:
    clients, threshold = 7, least_threshold(7)
    needed = plan_of(SECURE).gradient * BOUNDS["gradient"]
    noise = shares(clients, SharedNoise("a", threshold))
    left = noise[: threshold - SECURE.colluders].sum(axis=0).std()
    assert left == pytest.approx(needed, rel=0.04)
    factor = SharedNoise("a", threshold).factor(clients, SECURE.colluders)
    assert noise.sum(axis=0).std() == pytest.approx(needed * factor**0.5, rel=0.04)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.06
    assert not np.any(noise == shares(clients, SharedNoise("b", threshold)))  # another sum has noise of its own
    with pytest.raises(InputError, match="somebody must be left"):
        SharedNoise("a", 3).share(3)


def test_a_plan_with_moments_at_every_visit_spends_the_same_budget() -> None:
    plan = plan_of(SECURE)
    assert len(plan.multipliers) == 4
    assert spent_mu(plan.multipliers) == pytest.approx(mu_of(1.0, 1e-5), rel=1e-9)


def test_a_share_of_the_noise_is_never_sent_alone() -> None:
    exact = {"gradient": np.zeros(2)}
    with pytest.raises(Unprotected, match="a share of the noise protects a secure sum"):
        Guard(SECURE, b"k" * 32).release(0, 0, exact, BOUNDS)
    plain = PrivacySettings(kind="record", epsilon=1.0)
    with pytest.raises(Unprotected, match="nothing else is sent with it"):
        Guard(plain, b"k" * 32).release(0, 0, exact, BOUNDS, SharedNoise("a", 3))
    run = prepared(privacy={"sums": "secure"})
    shard = run.engine.shards[0]  # type: ignore[attr-defined]
    with pytest.raises(Unprotected, match="masked sums alone"):
        run.federation.program.train(1, 0, {"point": np.zeros(31, np.float32)}, {}, None, shard)


def test_everybody_is_asked_in_every_round() -> None:
    config = config_of(privacy={"sums": "secure"})
    assert (config.selection.per_round, config.rounds) == (3, 2)
    for sections, said in (
        ({"selection": {"per_round": 2}, "rounds": 2}, "asks everybody in every round"),
        ({"selection": {"kind": "ksd"}}, "asks everybody in every round"),
        ({"privacy": {"sums": "secure", "dropouts": 1}}, "expected at most 0"),
        ({"privacy": {"sums": "secure", "colluding": 3}}, "somebody must be left"),
        ({"privacy": {"sums": "plain", "colluding": 1}}, "goes with privacy.sums = 'secure'"),
        ({"partition": {"clients": 2}}, "at least 3 clients"),
    ):
        with pytest.raises(InputError, match=said):
            config_of(**{"privacy": {"sums": "secure"}, **sections})
    assert threshold_of(10, SECURE) == 7
    assert threshold_of(10, SECURE.model_copy(update={"dropouts": 1})) == 9


def test_sums_without_noise_say_the_same_as_the_clients_one_by_one() -> None:
    random, family = np.random.default_rng(0), mechanism.family_of(blr(3), SECURE)
    accepted: dict[int, Any] = {}
    server: dict[str, Any] = no_rounds(2, 4, 4, 10)
    points = [np.zeros(4), np.array([0.5, -0.2, 0.1, 0.3])]
    rows = []
    for _ in range(3):
        x = np.concatenate([random.standard_normal((200, 3)), np.ones((200, 1))], axis=1)
        rows.append((x, (random.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)))
    for number, point in enumerate(points, start=1):
        each = [mechanism.clipped_sums(family, point, x, y, 3.0) for x, y in rows]
        sums = {name: sum(found[name] for found in each) for name in each[0]}
        server |= add_round(server, number, point, sums, [0, 1, 2], 1.0)
        for k, found in enumerate(each):
            before = accepted.get(k, {"gradients": np.zeros((0, 4)), "points": np.zeros((0, 4))})
            accepted[k] = {
                "gradients": np.concatenate([before["gradients"], found["gradient"][None]]),
                "points": np.concatenate([before["points"], point[None]]),
                "moments": found["moments"][np.tril_indices(4)],
                "visits": number,
            }
    exact = Scales(0.0, 0.0)
    one, other = observe(accepted, 4, exact), observe_sums(server, 4, exact)
    assert other is not None
    for a, b in zip(expand_at(one, family, points[1]), expand_at(other, family, points[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-7)
    noisy = observe_sums({**server, "factors": np.array([1.5, 1.5])}, 4, Scales(2.0, 0.0))
    assert noisy is not None
    assert noisy.variance == pytest.approx(4.0 * 1.5 / 2)


@pytest.mark.slow
@pytest.mark.parametrize("sections", [{}, {**LINEAR, "privacy": {"largest_target": 3.0}}], ids=["blr", "linear"])
def test_a_run_spends_its_budget(tmp_path: Path, sections: dict[str, Any]) -> None:
    privacy = {**sections.get("privacy", {}), "sums": "secure", "visits": 1}
    runner.start(prepared(**{**sections, "privacy": privacy}), tmp_path / "run", silent)
    for line in audit(tmp_path / "run"):
        assert line["spent"]["epsilon"] == pytest.approx(3.0)
        assert line["releases"] == {"gradient": 1, "moments": 1}
