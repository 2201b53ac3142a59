"""The docs say what is: every key and command is documented, every code block runs."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from fedstein.cli.app import app
from fedstein.runs.config import SECTIONS, Config, check_names, merge, resolve
from fedstein.runs.defaults import Facts
from fedstein.selection import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list:
    found = [
        (page, number, text)
        for page in PAGES
        for number, (kind, text) in enumerate(FENCE.findall(page.read_text()))
        if kind == language
    ]
    return [pytest.param(page, text, id=f"{page.name}-{number}") for page, number, text in found]


def documented_keys() -> dict[str, str]:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \| ", (ROOT / "docs" / "config.md").read_text(), re.MULTILINE)
    return dict(rows)


def test_every_key_is_documented_and_every_documented_key_exists():
    keys = {f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields}
    keys |= {name for name in Config.model_fields if name not in SECTIONS}
    assert set(documented_keys()) == keys


@pytest.mark.parametrize(
    ("key", "network"),
    [
        ("sites.bandwidth", False),
        ("algorithm.particles", False),
        ("algorithm.local_steps", False),
        ("algorithm.step_size", False),
        ("algorithm.epsilon", False),
        ("algorithm.batch_size", True),
        ("checkpoint.every", True),
        ("evaluate.every", False),
        ("model.prior_rate", False),
        ("model.start", False),
        ("sites.density", False),
        ("selection.kind", True),
        ("partition.ratio", False),
    ],
)
def test_documented_defaults_are_the_defaults(key, network):
    raw: dict = {"data": {"name": "mnist"}} if network else {}
    if key in ("sites.bandwidth", "sites.density"):
        raw["sites"] = {"kind": "particles"}
    config, _ = resolve(raw, Facts("classification", 9 if network else 2))
    section, name = key.split(".")
    first = documented_keys()[key].split(",")[0].split(" for ")[0].split(" (")[0].strip("`\"' ")
    value = getattr(getattr(config, section), name)
    assert (str(value) == first) if isinstance(value, str) else (float(first) == value)


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_blocks_run(page, text, tmp_path):
    if "runs/example" in text:
        command = [sys.executable, "-c", "from fedstein.cli import main; main()", "run", "--quiet", "--set", "rounds=2"]
        subprocess.run([*command, "--out", "runs/example"], cwd=tmp_path, check=True, timeout=300)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    near = re.search(r"# near \[([-\d., ]+)\]", text)
    if near:
        got = [float(value) for value in re.findall(r"-?\d+\.\d*", result.stdout)]
        assert got == pytest.approx([float(value) for value in near[1].split(",")], abs=0.2)


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_toml_blocks_are_valid_configs(page, text):
    raw = tomllib.loads(text)
    check_names(raw)
    assert resolve(raw, Facts("classification", 2, clients=3))[1] == []


def commands_in(text: str) -> list[list[str]]:
    lines = [re.sub(r"\s#.*", "", line) for line in text.splitlines()]
    return [shlex.split(line.strip()) for line in lines if line.strip().startswith("fedstein ")]


@pytest.mark.parametrize(("page", "text"), blocks("sh"))
def test_shell_blocks_use_commands_and_settings_that_exist(page, text):
    group = typer.main.get_command(app)
    for words in commands_in(text):
        command = group.commands[words[1]]
        context_words = words[2:]
        if hasattr(command, "commands"):
            command, context_words = command.commands[words[2]], words[3:]
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in context_words if word.startswith("--")} <= options, words
        settings = [value for flag, value in itertools.pairwise(words) if flag == "--set"]
        for setting in settings:
            values = [setting.replace("$scheme", kind) for kind in SCHEMES] if "$scheme" in setting else [setting]
            for value in values:
                check_names(merge({}, [value.replace("$density", "log")]))


def test_every_command_is_documented():
    group = typer.main.get_command(app)
    everything = "\n".join(page.read_text() for page in PAGES)
    for name, command in group.commands.items():
        for sub in getattr(command, "commands", {"": None}):
            assert f"fedstein {name} {sub}".strip() in everything


def test_the_two_commands_come_first_in_the_readme():
    first, second = FENCE.findall((ROOT / "README.md").read_text())[:2]
    assert first[1].strip().endswith("fedstein run")
    assert second[1].strip() == "python3 check.py"
    assert "python3 check.py" in (ROOT / ".ci" / "run").read_text()


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)
