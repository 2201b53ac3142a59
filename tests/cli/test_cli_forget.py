"""``fedstein forget`` and ``predict --posterior gaussian`` as people meet them."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from test_cli import assert_refused, fedstein, settings


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A finished run, one with particle sites, and one that forgot client 1 of the first."""
    base = tmp_path_factory.mktemp("forget")
    for name, kind in (("full", "curvature"), ("particles", "particles")):
        plain = ("sites.expand=mean",) if kind == "curvature" else ()
        chosen = settings("selection.kind=round_robin", f"sites.kind={kind}", *plain)
        result = fedstein("run", *chosen, "--out", base / name)
        assert result.returncode == 0, result.stderr
    result = fedstein("forget", base / "full", "--client", "1", "--out", base / "rest")
    assert result.returncode == 0, result.stderr
    return base, result.stdout


def test_forget_shows_its_progress_and_what_it_cost(folders):
    base, out = folders
    assert "settling: step 0, " in out
    assert "accuracy: " in out
    assert out.splitlines()[-1].startswith("client 1 is forgotten; ")
    assert (base / "rest" / "forgotten.json").is_file()


def test_refusals_are_one_line(folders, tmp_path):
    base, _ = folders
    new = tmp_path / "new"
    assert_refused(fedstein("forget", base / "particles", "--client", "0", "--out", new), "sites.kind=curvature")
    assert_refused(fedstein("forget", base / "full", "--client", "9", "--out", new), "from 0 to 3")
    assert_refused(fedstein("forget", base / "rest", "--client", "1", "--out", new), "forgotten or barred already")
    assert_refused(fedstein("forget", base / "full", "--client", "0", "--out", base / "rest"), "already holds a run")
    assert_refused(fedstein("resume", base / "rest"), "is finished")
    assert not new.exists()


def test_predict_with_either_posterior(folders, tmp_path):
    base, _ = folders
    rows = tmp_path / "rows.npz"
    np.savez(rows, x=np.random.default_rng(0).normal(size=(3, 54)))
    found = {}
    for posterior in ("particles", "gaussian"):
        result = fedstein("predict", base / "rest", rows, "--posterior", posterior)
        assert result.returncode == 0, result.stderr
        found[posterior] = list(csv.reader(io.StringIO(result.stdout)))
        assert len(found[posterior]) == 4
    assert found["particles"] != found["gaussian"]
    few = fedstein("predict", base / "rest", rows, "--posterior", "gaussian", "--draws", "3")
    assert few.returncode == 0
    assert few.stdout != fedstein("predict", base / "rest", rows, "--posterior", "gaussian").stdout
    gaussian = ("--posterior", "gaussian")
    assert_refused(fedstein("predict", base / "particles", rows, *gaussian), "has no Gaussian posterior")
    assert_refused(fedstein("predict", base / "rest", rows, "--posterior", "nuts"), "particles or gaussian")
    assert_refused(fedstein("predict", base / "rest", rows, "--draws", "3"), "--posterior gaussian")
