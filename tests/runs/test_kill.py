"""Real processes, really killed: nothing but the rounds since the last checkpoint is ever lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reading import read_rounds

BASE = [
    "partition.clients=6",
    "partition.rows_per_client=200",
    "selection.per_round=2",
    "checkpoint.every=4",
    "engine.threads=1",
]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", "from fedstein.cli import main; main()", *map(str, arguments)]


def run_arguments(out: Path, *settings: str) -> list[str | Path]:
    return ["run", *(part for s in (*BASE, *settings) for part in ("--set", s)), "--out", out, "--quiet"]


def wait_for_rounds(process: subprocess.Popen[bytes], folder: Path, rounds: int) -> None:
    deadline, path = time.monotonic() + 120, folder / "rounds.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= rounds):
        assert time.monotonic() < deadline, f"no {rounds} rounds in time"
        assert process.poll() in (None, 0), f"it ended with {process.poll()}"
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        ("sites.expand=mean", "selection.kind=ksd"),
        ("sites.expand=mean", "selection.kind=hip"),
        ("sites.expand=mean", "selection.kind=round_robin"),
        ("sites.kind=particles", "selection.kind=hip"),
        ("sites.kind=curvature", "sites.structure=eigen", "selection.kind=hip"),
    ],
    ids=" ".join,
)
def test_a_killed_run_resumes_bit_for_bit(choice, tmp_path):
    settings = (*choice, "rounds=60")
    subprocess.run(command(*run_arguments(tmp_path / "whole", *settings)), check=True, timeout=300)
    process = subprocess.Popen(command(*run_arguments(tmp_path / "cut", *settings)))
    wait_for_rounds(process, tmp_path / "cut", 21)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    killed_at = len((tmp_path / "cut" / "rounds.jsonl").read_bytes().splitlines())
    assert killed_at < 60, "the kill came before the end"
    assert not (tmp_path / "cut" / "summary.json").exists()
    resumed = subprocess.run(
        command("resume", tmp_path / "cut"), check=True, timeout=300, capture_output=True, text=True
    )
    went_on_from = int(resumed.stdout.split("after round ")[1].split()[0])
    assert killed_at - 4 <= went_on_from <= killed_at
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")
    posteriors = [(tmp_path / name / "posterior.safetensors").read_bytes() for name in ("cut", "whole")]
    assert posteriors[0] == posteriors[1]


@pytest.mark.slow
def test_a_run_that_is_killed_in_its_passes_resumes_bit_for_bit(tmp_path):
    settings = ("sites.expand=variational", "selection.kind=round_robin", "rounds=6")
    subprocess.run(command(*run_arguments(tmp_path / "whole", *settings)), check=True, timeout=300)
    process = subprocess.Popen(command(*run_arguments(tmp_path / "cut", *settings)))
    wait_for_rounds(process, tmp_path / "cut", 6)
    while not (tmp_path / "cut" / "gaussian.safetensors").exists():  # it is written just before the passes
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut" / "summary.json").exists()
    subprocess.run(command("resume", tmp_path / "cut", "--quiet"), check=True, timeout=300)
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")
    for name in ("posterior", "sums", "weighted"):
        whole, cut = ((tmp_path / folder / f"{name}.safetensors").read_bytes() for folder in ("whole", "cut"))
        assert whole == cut


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(number, tmp_path):
    out = tmp_path / "r"
    arguments = run_arguments(out, "rounds=100000", "checkpoint.every=1000000", "evaluate.every=1000")
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True)
    wait_for_rounds(process, out, 5)
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message.count("\n") == 1
    assert f"fedstein resume {out}" in message
    done = int(message.split("after round ")[1].split(";")[0])
    assert len(read_rounds(out)) == done
    assert f'"round": {done}' in (out / "checkpoint" / "manifest.json").read_text(), "not one round is lost"


@pytest.mark.slow
def test_killed_again_and_again_at_any_moment_it_still_ends_the_same(tmp_path):
    settings = ("sites.expand=mean", "selection.kind=ksd", "rounds=400", "checkpoint.every=1")
    subprocess.run(command(*run_arguments(tmp_path / "whole", *settings)), check=True, timeout=300)
    out, kills, at_the_end, draw = tmp_path / "cut", 0, 0, random.Random(7)
    arguments = command(*run_arguments(out, *settings))
    while not (out / "summary.json").exists():
        process = subprocess.Popen(arguments, stderr=subprocess.PIPE)
        seen = (out / "rounds.jsonl").read_bytes().count(b"\n") if (out / "rounds.jsonl").exists() else 0
        target = min(seen + draw.randint(1, 90), 400)
        at_the_end += target == 400
        if at_the_end > 2:  # twice it may be killed between its last round and its summary; now it may end
            assert process.wait(timeout=300) == 0, process.stderr.read()
        else:
            wait_for_rounds(process, out, target)
            time.sleep(draw.random() * 0.03)  # somewhere within a round or a checkpoint
            process.kill()
            kills += 1
        process.communicate()
        if (out / "config.toml").exists():
            arguments = command("resume", out, "--quiet")
    assert kills >= 4, "it was killed in the middle several times"
    assert read_rounds(out) == read_rounds(tmp_path / "whole")
