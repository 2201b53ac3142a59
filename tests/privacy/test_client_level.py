"""Client level: what a whole client can change, that nothing is biased, and that ledgers of two kinds do not mix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_mechanism import CLIP, SETTINGS, model_of, rows
from test_private_runs import config_of, prepared, silent
from typer.testing import CliRunner

from fedstein.cli.app import app
from fedstein.errors import InputError
from fedstein.flower.node.policy import Refused, make_policy, refuse_weak_privacy
from fedstein.privacy import mechanism
from fedstein.privacy.accounting import epsilon_of, mu_of
from fedstein.privacy.ledger import Ledger, Release
from fedstein.runs import runner
from fedstein.runs.audit import audit

CLIENT = {"kind": "client", "epsilon": 3.0, "visits": 2, "client_rows": 100}


@pytest.mark.parametrize("name", mechanism.SUPPORTED)
@pytest.mark.parametrize("count", [0, 3, 40, 3000])
def test_no_client_is_longer_than_the_sensitivities(name: str, count: int) -> None:
    family = mechanism.family_of(model_of(name), SETTINGS)
    bounds = mechanism.sensitivities(family, CLIP, 20)
    x, y = rows(name, count, 1)
    beta = np.random.default_rng(2).standard_normal(4 * family.predictors) * 3
    exact = mechanism.clipped_sums(family, beta, x, y, CLIP)
    found = mechanism.clipped_client(exact, bounds)
    for key, bound in bounds.items():
        assert np.linalg.norm(found[key]) <= bound * (1 + 1e-12)
    if count == 0:
        assert not any(array.any() for array in found.values())  # an empty client: noise around zero
    if count == 3:  # few rows are not touched
        np.testing.assert_array_equal(found["moments"], exact["moments"])
        np.testing.assert_array_equal(found["gradient"], exact["gradient"])
    if count == 3000:  # and the bound is reached, so it is not generous
        assert np.linalg.norm(found["moments"]) == pytest.approx(bounds["moments"])


def test_a_large_client_counts_as_a_smaller_one_and_is_not_biased() -> None:
    random = np.random.default_rng(0)
    family = mechanism.family_of(model_of("blr"), SETTINGS)
    x = np.concatenate([random.standard_normal((5000, 3)), np.ones((5000, 1))], axis=1)
    beta = np.array([0.5, -0.5, 0.2, 0.1])
    y = (random.random(5000) < 1 / (1 + np.exp(-x @ beta))).astype(int)
    exact = mechanism.clipped_sums(family, beta, x, y, CLIP)
    found = mechanism.clipped_client(exact, mechanism.sensitivities(family, CLIP, 500))
    factor = found["moments"][-1, -1] / exact["moments"][-1, -1]
    assert factor < 0.5
    np.testing.assert_allclose(found["gradient"], factor * exact["gradient"], rtol=1e-12)  # the same factor on both


def test_ledgers_of_rows_and_of_clients_are_not_added_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path, 1.0, 1e-5, protects="client").charge([Release("a", "gradient", 9.0, "run", 0, 0)])
    assert Ledger(path, 1.0, 1e-5, protects="client").spent > 0
    with pytest.raises(InputError, match=r"kind = 'client', the run has 'record': the two cannot be added up"):
        Ledger(path, 1.0, 1e-5)
    old = tmp_path / "old.jsonl"
    old.write_text('{"format": "fedstein ledger 1", "epsilon": 1.0, "delta": 1e-05}\n')  # before there were two kinds
    Ledger(old, 1.0, 1e-5)
    with pytest.raises(InputError, match="cannot be added up"):
        Ledger(old, 1.0, 1e-5, protects="client")


def test_the_number_of_rows_belongs_to_client_level() -> None:
    with pytest.raises(InputError, match=r"privacy.client_rows goes with privacy.kind = 'client'"):
        config_of(privacy={"client_rows": 5})
    with pytest.raises(InputError, match="which needs it"):
        config_of(privacy={"kind": "client"})


def test_a_policy_for_rows_takes_client_level_at_what_it_promises_for_rows() -> None:
    policy = make_policy(config_of())  # record level, epsilon 3
    with pytest.raises(Refused, match=r"promises 6\.\d+ for a row"):
        refuse_weak_privacy(policy, config_of(privacy=CLIENT))
    enough = epsilon_of(mu_of(3.0, 1e-5) / 2, 1e-5)
    refuse_weak_privacy(policy, config_of(privacy={**CLIENT, "epsilon": 0.999 * enough}))
    with pytest.raises(Refused, match="it demands 'client'"):
        refuse_weak_privacy(make_policy(config_of(privacy=CLIENT)), config_of())


@pytest.mark.slow
def test_a_run_and_its_audit_say_client(tmp_path: Path) -> None:
    runner.start(prepared(privacy=CLIENT), tmp_path / "run", silent)
    for line in audit(tmp_path / "run"):
        assert line["protects"] == "client"
        assert line["spent"]["epsilon"] == pytest.approx(3.0)
    shown = CliRunner().invoke(app, ["audit", str(tmp_path / "run")])
    assert shown.exit_code == 0
    assert "client" in shown.stdout.splitlines()[1].split()
