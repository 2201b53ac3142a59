"""Few rows for the number of weights: draws represent the posterior, not the mode of the hierarchical prior."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedstein
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run


@pytest.mark.slow
def test_four_clients_of_sixty_rows_do_not_end_in_the_mode_of_tiny_weights(tmp_path: Path) -> None:
    """NUTS on the 240 rows has log xi = 4.3 +- 1.0; the joint mode, where particles end, is near 8."""
    raw = {
        "rounds": 8,
        "partition": {"clients": 4, "rows_per_client": 60},
        "sites": {"expand": "variational"},
        "evaluate": {"every": 8},
        "engine": {"threads": 1},
    }
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    runner.start(prepare_run(config, dataset), tmp_path / "run", lambda record: None)
    draws = fedstein.load(tmp_path / "run").draws(using="draws")
    log_xi = draws[:, -1]
    assert 3.0 < log_xi.mean() < 5.5
    assert 0.5 < log_xi.std() < 1.6
    spread = np.median(draws[:, :-1].std(axis=0))
    assert spread > 0.03  # weights of the mode have a standard deviation of about exp(-8 / 2) = 0.02
