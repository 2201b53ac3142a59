"""The docs are true: every key and command is documented, every code block runs, links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import forked
import pytest
import typer
from forked import fedstein

from fedstein.cli.app import app
from fedstein.runs.config import check_names, merge, resolve
from fedstein.runs.defaults import Facts
from fedstein.selection import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STUDIES = [  # pages of results: their commands and links are checked too
    *sorted((ROOT / "experiments").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EVERYWHERE = [*PAGES, *STUDIES, ROOT / "CHANGELOG.md"]
CONTINUED = ("docs/python.md",)  # pages on which a block goes on where the one before it ended
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str, pages: list[Path] = PAGES) -> list:
    found = [
        (page, number, text)
        for page in pages
        for number, (kind, text) in enumerate(FENCE.findall(page.read_text()))
        if kind == language
    ]
    for whole in CONTINUED if language == "python" else ():
        page = ROOT / whole
        if page in pages:
            together = "\n".join(text for each, _, text in found if each == page)
            found = [*(each for each in found if each[0] != page), (page, 0, together)]
    return [
        pytest.param(page, text, id=f"{page.relative_to(ROOT).as_posix()}-{number}") for page, number, text in found
    ]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_keys_is_what_the_command_prints():
    printed = fedstein("config", "--markdown").stdout
    assert (ROOT / "docs" / "config.md").read_text() == printed, "fedstein config --markdown > docs/config.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The run folder that several blocks read."""
    folder = tmp_path_factory.mktemp("example") / "run"
    assert fedstein("run", "--quiet", "--set", "rounds=2", "--out", folder).returncode == 0
    return folder


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_blocks_run(page, text, tmp_path, request):
    if "runs/example" in text:
        shutil.copytree(request.getfixturevalue("example"), tmp_path / "runs" / "example")
    result = forked.python(text, tmp_path)
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


COMMANDS = typer.main.get_command(app)


def commands_in(text: str) -> list[list[str]]:
    lines = [re.sub(r"\s#.*", "", line) for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line.strip()) for line in lines if line.strip().startswith("fedstein ")]


@pytest.mark.parametrize(("page", "text"), blocks("sh", [*PAGES, *STUDIES]))
def test_shell_blocks_use_commands_and_settings_that_exist(page, text):
    for words in commands_in(text):
        command = COMMANDS.commands[words[1]]
        context_words = words[2:]
        if hasattr(command, "commands"):
            named = words[2] in command.commands  # a group may have a default command
            command = command.commands[words[2] if named else command.default]
            context_words = words[3:] if named else words[2:]
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in context_words if word.startswith("--")} <= options, words
        settings = [value for flag, value in itertools.pairwise(words) if flag == "--set"]
        for setting in settings:
            values = [setting.replace("$scheme", kind) for kind in SCHEMES] if "$scheme" in setting else [setting]
            for value in values:
                check_names(merge({}, [value.replace("$density", "log")]))


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path):
    page = (ROOT / "docs" / "tutorial.md").read_text()
    found = FENCE.findall(page)
    (script,), (config,) = ([text for kind, text in found if kind == wanted] for wanted in ("python", "toml"))
    assert forked.python(script, tmp_path).returncode == 0
    (tmp_path / "hospitals.toml").write_text(config)
    lines = [line for kind, text in found if kind == "sh" for line in text.splitlines()]
    assert sum("# refused" in line for line in lines) == 2
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        result = fedstein(*words, cwd=tmp_path, seconds=600)
        assert result.returncode == (2 if "# refused" in line else 0), result.stderr
        assert " ".join(result.stderr.split()) in " ".join(page.split())
        if "summary" in words:
            rows = {row.split()[0]: row.split() for row in result.stdout.splitlines()}
    for name in ("age", "sex=male", "pain=atypical", "pain=typical", "pressure"):
        written = re.search(rf"^{name} +(-?[\d.]+) +([\d.]+)", page, re.MULTILINE)
        assert float(rows[name][1]) == pytest.approx(float(written[1]), abs=0.05)
        assert float(rows[name][2]) == pytest.approx(float(written[2]), rel=0.15)


def test_every_command_is_documented():
    everything = "\n".join(page.read_text() for page in PAGES)
    for name, command in COMMANDS.commands.items():
        for sub in getattr(command, "commands", {"": None}):
            assert f"fedstein {name} {sub}".strip() in everything


def test_the_two_commands_come_first_in_the_readme():
    first, second = FENCE.findall((ROOT / "README.md").read_text())[:2]
    assert first[1].strip().endswith("fedstein run")
    assert second[1].strip() == "python3 check.py"
    assert "python3 check.py" in (ROOT / ".ci" / "run").read_text()


def readme_rows() -> list:
    rows = re.findall(
        r"^\| `fedstein (run[^`]*)` \|[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    slow = {"run --set data.name=mnist": pytest.mark.slow}
    return [
        pytest.param(command, *map(float, values), id=command, marks=[slow[command]] if command in slow else [])
        for command, *values in rows
    ]


def test_the_readme_has_numbers():
    assert len(readme_rows()) == 3


@pytest.mark.parametrize(("command", "accuracy", "nll", "ece"), readme_rows())
def test_the_readme_says_what_its_commands_print(command, accuracy, nll, ece, tmp_path):
    """Another machine has other last bits, so the last round may differ by what a run varies within its tail."""
    assert fedstein(*command.split(), "--quiet", "--out", "run", cwd=tmp_path, seconds=1200).returncode == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    for name, value in (("accuracy", accuracy), ("nll", nll), ("ece", ece)):
        assert summary["final"][name] == pytest.approx(value, abs=max(0.002, 3 * summary["tail"][name]["sd"])), name


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert pages <= set(listed)


def test_the_site_loads_nothing_from_the_network():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "://" not in settings
    for page in EVERYWHERE:
        assert not re.search(r"!\[[^]]*\]\(https?:|<(script|link|img|iframe)\b", page.read_text()), page


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[a](docs/sites.md#goals)", "[a](sites.md#goals)"),
        ("index.md", "![a](docs/images/overview.png)", "![a](images/overview.png)"),
        ("results.md", "[a](../experiments/sites/README.md#goals)", "[a](experiments/sites/README.md#goals)"),
        ("results.md", "[a](../README.md)", "[a](index.md)"),
        ("deploy.md", "[a](../examples/flower)", "[a](examples/flower/README.md)"),
        ("contributing.md", "[a](docs/notation.md)", "[a](notation.md)"),
        ("experiments/sites/README.md", "[a](../../docs/sites.md)", "[a](../../sites.md)"),
        ("experiments/sites/README.md", "[a](sites.csv)", "[a](sites.csv)"),
        ("api/models.md", "[a](../models.md)", "[a](../models.md)"),
        ("deploy.md", "[a](https://flower.ai)", "[a](https://flower.ai)"),
        ("deploy.md", "[a](#security)", "[a](#security)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(page, link, expected):
    assert tool("docs_hooks").rewritten(link, page) == expected


def test_the_api_pages_list_every_public_name():
    pages = tool("make_api_pages").pages()
    folder = ROOT / "docs" / "api"
    assert {path.name for path in folder.glob("*.md")} == set(pages)
    stale = [name for name, text in pages.items() if (folder / name).read_text() != text]
    assert stale == [], "run: python tools/make_api_pages.py"


def test_every_module_with_public_names_has_an_api_page():
    api = tool("make_api_pages")
    covered = {module for page in api.PAGES.values() for module in page.modules}
    for path in sorted((ROOT / "fedstein").rglob("*.py")):
        names = [
            target.id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "__all__" in names and not module.startswith(api.INTERNAL):
            assert module in covered, f"{module}: add it to PAGES in tools/make_api_pages.py"


def test_the_figure_of_the_readme_is_small():
    assert os.path.getsize(ROOT / "docs" / "images" / "overview.png") < 200_000
