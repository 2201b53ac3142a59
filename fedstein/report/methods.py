"""The paragraph on methods of a report, the BibTeX of what was used, and captions that say data, seeds and interval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fedstein import __version__
from fedstein.report.citations import ALGORITHMS, MODELS, POINTS, SCHEMES, WITH_PARTICLES, Named, dataset
from fedstein.report.load import Run
from fedstein.report.summary import Summary


def methods(summary: Summary) -> tuple[str, str]:
    """Describe how the runs were made, for the methods section of a paper.

    Args:
        summary: The groups of runs.

    Returns:
        The paragraph, with citation keys in brackets, and the BibTeX of these keys.
    """
    cited: list[str] = []

    def cite(*keys: str) -> str:
        cited.extend(keys)
        return f" [{', '.join(keys)}]" if keys else ""

    configs = [summed.group.config for summed in summary.groups]
    parts = [_data_sentence(configs, cite), _model_sentence(configs, cite), _selection_sentence(configs, cite)]
    seeds = sorted({run.seed for run in summary.runs})
    ran = f"Every setting was run for {_joined(configs, 'rounds')} rounds with"
    if len(seeds) > 1:
        listed = ", ".join(map(str, seeds))
        parts.append(f"{ran} {len(seeds)} seeds ({listed}). Lines are means over seeds and bands their range.")
    else:
        parts.append(f"{ran} one seed ({seeds[0]}), so there is no interval over seeds.")
    if any(config.get("evaluate.where") == "clients" for config in configs):
        parts.append("Each client scores the predictions on rows that it holds out of its own.")
    if summary.metric == "accuracy":
        if not all(config.get("algorithm.kind") in POINTS for config in configs):
            parts.append("Predictions average class probabilities over the posterior.")
        parts.append(
            f"The expected calibration error has 15 equal-width bins of the top confidence{cite('guo2017calibration')}."
        )
    if any(config.get("evaluate.temperature") == "fit" for config in configs):
        parts.append(
            "Probabilities are scaled by a temperature that was fitted on rows held out by the clients"
            f"{cite('guo2017calibration')}."
        )
    if any(run.reference for run in summary.runs):
        parts.append(
            "Posteriors were compared with the No-U-Turn sampler on the pooled rows"
            f"{cite('hoffman2014nuts', 'phan2019composable')}."
        )
    if any(str(config.get("engine.kind")) == "flower" for config in configs):
        parts.append(f"Clients were separate processes under Flower{cite('beutel2020flower')}.")
    parts.append(f"Everything was computed with Fedstein {__version__} and JAX{cite('bradbury2018jax')}.")
    return " ".join(part for part in parts if part), bibliography(cited)


def _data_sentence(configs: Sequence[dict[str, Any]], cite: Any) -> str:
    names = dict.fromkeys(str(config.get("data.name", "")) for config in configs)
    found = [f"{entry.words}{cite(*entry.keys)}" for entry in map(dataset, names)]
    split = _joined(configs, "partition.kind")
    dealt = "" if split in ("", "given") else f", dealt out by the partition {split}"
    return f"We use {' and '.join(found)} with {_joined(configs, 'partition.clients')} clients{dealt}."


def _model_sentence(configs: Sequence[dict[str, Any]], cite: Any) -> str:
    kinds = dict.fromkeys(str(config.get("model.kind", "")) for config in configs)
    models = [MODELS.get(kind, f"the model “{kind}”" if kind else "the model") for kind in kinds]
    found = []
    for kind in dict.fromkeys(str(config.get("algorithm.kind", "")) for config in configs):
        entry = ALGORITHMS.get(kind, Named(f"the method “{kind}”"))
        found.append(f"{entry.words}{cite(*entry.keys)}")
    text = f"We fit {' and '.join(models)} by {' and by '.join(found)}"
    if all(config.get("algorithm.kind") in POINTS for config in configs):
        text = text.replace("Bayesian ", "", 1)
    stein = [config for config in configs if config.get("algorithm.kind") in WITH_PARTICLES]
    particles = _joined(stein, "algorithm.particles")
    text += f" with {particles} particles" if particles else ""
    if any(config.get("sites.kind") == "curvature" for config in configs):
        text += f"; clients' factors are Gaussian sites in natural parameters{cite('ashman2022partitioned')}"
    if any(config.get("sites.expand") == "variational" for config in configs):
        text += (
            f", expanded over the posterior{cite('opper2009variational')}, and draws are weighted by Pareto smoothed "
            f"importance sampling{cite('vehtari2024pareto')}"
        )
    return text + "."


def _selection_sentence(configs: Sequence[dict[str, Any]], cite: Any) -> str:
    found = []
    for kind in dict.fromkeys(
        str(config.get("selection.kind", "")) for config in configs if config.get("selection.kind")
    ):
        entry = SCHEMES.get(kind, Named(f"by the scheme “{kind}”"))
        found.append(f"{entry.words}{cite(*entry.keys)}")
    return f"In each round, clients are selected {' or '.join(found)}." if found else ""


def _joined(configs: Sequence[dict[str, Any]], key: str) -> str:
    values = list(dict.fromkeys(str(config[key]) for config in configs if config.get(key) is not None))
    return " or ".join(values)


def bibliography(keys: Sequence[str]) -> str:
    """The BibTeX entries of some keys, in the order of the file that ships with the package.

    Args:
        keys: The keys; one that is named twice gives one entry.
    """
    text = files("fedstein.report").joinpath("static", "references.bib").read_text("utf-8")
    entries = re.split(r"\n(?=@)", text)
    found = {match[1]: entry.strip() for entry in entries if (match := re.match(r"@\w+\{(\w+),", entry.strip()))}
    return "\n\n".join(entry for key, entry in found.items() if key in set(keys)) + "\n"


def caption(text: str, runs: Sequence[Run], interval: str) -> str:
    """A caption that can stand in a paper: what one sees, of which data, over which seeds, with which interval.

    Args:
        text: What one sees.
        runs: The runs that are shown.
        interval: What bands or bars over seeds mean; empty if there are none.
    """
    return " ".join(part for part in (text, interval, _origin(runs)) if part)


def _origin(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(str(run.config.get("data", {}).get("name", "")) for run in runs))
    shown = [dataset(name).words for name in names if name]
    clients = sorted({len(run.selected_counts) for run in runs})
    seeds = sorted({run.seed for run in runs})
    several = f"{len(seeds)} seeds ({', '.join(map(str, seeds))})"
    return (
        f"Data: {', '.join(shown) or 'unknown'}; {' or '.join(map(str, clients))} clients; "
        f"{several if len(seeds) > 1 else f'one seed ({seeds[0]}), so no interval over seeds'}."
    )
