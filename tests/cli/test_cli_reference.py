"""``fedstein reference`` as people meet it, and the report that shows what it wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import assert_refused, fedstein, settings


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "run"
    result = fedstein("run", *settings("algorithm.particles=20"), "--out", folder, "--quiet")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_reference_then_report(finished, tmp_path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    before = fedstein("report", folder)
    assert "NUTS" not in before.stdout + (folder / "report" / "report.html").read_text("utf-8")
    result = fedstein("reference", folder, "--draws", "50", "--warmup", "60", "--chains", "2")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("fedstein: warning: this reference is not to be trusted")  # 100 draws are few
    assert result.stderr.count("\n") == 1
    assert "1 run with 1 posterior; 1 to sample" in result.stdout
    assert "\x1b" not in result.stdout
    got = json.loads((folder / "reference.json").read_text())
    assert got["trusted"] is False
    assert got["particles"]["count"] == 20
    assert got["nuts"]["divergences"] == 0
    assert 0.5 < got["draws"]["sd_ratio"]["median"] < 1.5
    after = fedstein("report", folder)
    assert after.returncode == 0, after.stderr
    assert "from NUTS" in after.stdout
    page = (folder / "report" / "report.html").read_text("utf-8")
    assert "<h2>Distance from NUTS</h2>" in page
    assert "not to be trusted" in page
    assert (folder / "report" / "figures" / "distances.png").is_file()


def test_without_numpyro_one_line_says_how_to_get_it(finished) -> None:
    code = "import sys; sys.modules['numpyro'] = None; from fedstein.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "reference", finished], capture_output=True, text=True, timeout=300, check=False
    )
    assert_refused(result, "pip install numpyro")
    assert not (finished / "reference.json").exists()
