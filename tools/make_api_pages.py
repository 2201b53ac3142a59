"""Write ``docs/api/*.md``: one mkdocstrings directive for every name in the ``__all__`` of a public module.

python tools/make_api_pages.py    write the pages; tests/test_docs.py fails if they are out of date
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "api"
NOTE = "<!-- Written by tools/make_api_pages.py: change that file, not this one. -->"


class ApiPage(NamedTuple):
    """One page of the API reference."""

    title: str
    about: str
    modules: tuple[str, ...]  # every name in their __all__ is listed
    names: tuple[str, ...] = ()  # names of modules that have no __all__


PAGES = {
    "fedstein": ApiPage(
        "fedstein",
        "The short way in. `fedstein.fit` takes a model and one dataset for each client, and returns a `Posterior`.",
        ("fedstein",),
        (
            "fedstein.posterior_tools.PosteriorTools",
            "fedstein.evaluation.entropy.Entropy",
            "fedstein.inference.summary.Summary",
        ),
    ),
    "stein": ApiPage(
        "fedstein.stein",
        "The mathematics of Stein's method on arrays: kernels, SVGD, KSD and HIP. It needs no model and no clients.",
        ("fedstein.stein",),
    ),
    "models": ApiPage(
        "fedstein.models",
        "Priors and likelihoods. [Your own model](../models.md) shows how to write one.",
        ("fedstein.models",),
    ),
    "data": ApiPage(
        "fedstein.data",
        "Datasets, partitions and scaling. [Your own data](../own-data.md) shows how to bring a file.",
        ("fedstein.data",),
    ),
    "inference": ApiPage(
        "fedstein.inference",
        "Sites, which approximate a client's likelihood, and methods, which move the particles. "
        "[Sites](../sites.md) explains the first, [The method](../method.md) the second.",
        ("fedstein.inference.sites", "fedstein.inference.methods"),
    ),
    "selection": ApiPage(
        "fedstein.selection",
        "Selection schemes: what a client reports, and how the server chooses who trains. "
        "[The method](../method.md) has the formulas.",
        ("fedstein.selection",),
    ),
    "federation": ApiPage(
        "fedstein.federation",
        "The round loop, what an engine must provide, and how arrays are written on the wire.",
        ("fedstein.federation.codecs",),
        (
            "fedstein.federation.protocol.run_rounds",
            "fedstein.federation.engine.Engine",
            "fedstein.federation.engine.ClientInfo",
            "fedstein.federation.client.ClientProgram",
        ),
    ),
    "evaluation": ApiPage(
        "fedstein.evaluation",
        "Metrics and predictive distributions. Clients can evaluate too: they send sums, and the sums add up.",
        ("fedstein.evaluation.metrics",),
        ("fedstein.evaluation.predictive.Predictive", "fedstein.evaluation.prediction.mixture_moments"),
    ),
    "runs": ApiPage(
        "fedstein.runs",
        "Configs, run folders, checkpoints. [Runs](../guide.md) explains the files.",
        (),
        (
            "fedstein.runs.config.Config",
            "fedstein.runs.config.resolve",
            "fedstein.runs.folder.RunFolder",
            "fedstein.runs.runner.start",
            "fedstein.runs.runner.resume",
        ),
    ),
    "loggers": ApiPage(
        "fedstein.loggers",
        "Callbacks that write a run to TensorBoard, MLflow or Weights & Biases. "
        "[Recipes](../howto.md#log-a-run) shows their use.",
        ("fedstein.loggers",),
        ("fedstein.runs.callbacks.notified",),
    ),
    "sklearn": ApiPage(
        "fedstein.sklearn",
        "Estimators for scikit-learn. [Python](../python.md#scikit-learn) shows their use.",
        ("fedstein.sklearn",),
    ),
    "report": ApiPage(
        "fedstein.report",
        "Figures, tables and a web page from finished run folders.",
        ("fedstein.report", "fedstein.report.views"),
    ),
    "flower": ApiPage(
        "fedstein.flower",
        "For Flower apps of your own (extra `flower`). [Deploy on Flower](../deploy.md) shows how they are used.",
        ("fedstein.flower",),
    ),
    "plugins": ApiPage(
        "Registries and settings",
        "How a name in the config becomes an object. [Extending](../extending.md) explains plug-ins.",
        (),
        (
            "fedstein.registry.Registry",
            "fedstein.registry.only_plugins",
            "fedstein.registry.refuse_unlisted",
            "fedstein.settings.Settings",
        ),
    ),
}

# Modules that have an __all__ and no page: commands use them, other packages do not.
INTERNAL = ("fedstein.studies",)


def names_of(page: ApiPage) -> list[str]:
    """The full name of everything that a page lists."""
    exported = [path_of(module, name) for module in page.modules for name in importlib.import_module(module).__all__]
    return exported + list(page.names)


def path_of(module: str, name: str) -> str:
    """The path that mkdocstrings finds an exported name by: a module of the same name would hide a function."""
    package = hasattr(importlib.import_module(module), "__path__")
    spec = importlib.util.find_spec(f"{module}.{name}") if package else None
    if spec is None or spec.origin is None:
        return f"{module}.{name}"
    body = ast.parse(Path(spec.origin).read_text()).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return f"{module}.{name}.{name}" if name in defined else f"{module}.{name}"


def text_of(page: ApiPage) -> str:
    """The Markdown of one page."""
    directives = "\n\n".join(f"::: {name}" for name in names_of(page))
    return f"{NOTE}\n\n# {page.title}\n\n{page.about}\n\n{directives}\n"


def index_text() -> str:
    """The Markdown of the first page."""
    rows = "\n".join(f"| [{page.title}]({stem}.md) | {page.about} |" for stem, page in PAGES.items())
    return f"{NOTE}\n\n# API reference\n\n| page | what it holds |\n|---|---|\n{rows}\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {"index.md": index_text(), **{f"{stem}.md": text_of(page) for stem, page in PAGES.items()}}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.md")} - set(pages()):
        (FOLDER / stale).unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
