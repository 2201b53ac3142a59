"""What a key is when it is left out: the value that suits the data and the model named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedstein.algorithms import ALGORITHMS, AlgorithmInfo, fedavg
from fedstein.data import DATASETS
from fedstein.errors import InputError
from fedstein.models import MODELS
from fedstein.selection import SCHEMES
from fedstein.sites import SITES


class Facts(NamedTuple):
    """What must be known of the data before defaults can be chosen."""

    task: str
    classes: int
    clients: int = 0  # named by the data's own client column; 0: it has none


# A key that some kinds of a section take and others do not has its default with the kind it belongs to.
BY_KIND: dict[str, dict[str, dict[str, Any]]] = {
    "partition": {
        "iid": {"rows_per_client": 0},
        "label_ratio": {"rows_per_client": 0, "ratio": 0.9},
        "classes_per_client": {"rows_per_client": 0, "classes": 3, "deal": "balanced"},
        "dirichlet": {"rows_per_client": 0, "concentration": 0.1},
        "given": {},
    },
    "model": {kind: info.settings for kind, info in MODELS.items()},
    "sites": {kind: info.settings for kind, info in SITES.items()},
    "selection": {kind: info.settings for kind, info in SCHEMES.items()},
    "algorithm": {kind: info.settings for kind, info in ALGORITHMS.items()},
    "engine": {
        "local": {},
        "flower": {
            "on_missing": "wait",
            "report_timeout": 300.0,
            "train_timeout": 900.0,
            "start_timeout": 300.0,
            "patience": 1800.0,
            "offences": 3,
            "leave_out": 10,
        },
    },
}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"sites": {"kind": "particles"}},  # and with it the paper's steps, start and density
}
BUDGET = 4096  # MiB
ROUNDS = {"mnist": 60, "mnist-full": 60}


def kinds(section: str) -> list[str]:
    """The valid values of ``section.kind``."""
    return list(BY_KIND[section])


def defaults(raw: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """``raw`` over the defaults, section by section."""
    data = {"name": "covertype", **raw.get("data", {})}
    if data["name"] == "file":
        split = {} if data.get("test_path") else {"test_fraction": 0.2}
        data = {"standardize": True, **split, **data}
    if data["name"] == "nodes":
        data = {"standardize": True, **data}
    model = {"kind": default_model(facts), **raw.get("model", {})}
    partition = default_partition(raw.get("partition", {}), data["name"], facts)
    info = ALGORITHMS[raw.get("algorithm", {}).get("kind", "dsvgd")]
    sites = {"kind": info.sites[0], **raw.get("sites", {})}
    algorithm = {"kind": "dsvgd", **default_steps(info, model["kind"], sites["kind"]), **raw.get("algorithm", {})}
    everybody = info.everybody
    structure = sites.get("structure", MODELS[model["kind"]].structure) if sites["kind"] == "curvature" else ""
    selection = default_selection(raw.get("selection", {}), info, structure, partition)
    selection = {"per_round": everyone_left(partition, raw) if everybody else 1, **selection}
    full = {
        "seed": raw.get("seed", 0),
        "rounds": raw.get("rounds", ROUNDS.get(data["name"], 120)),
        "data": data,
        "partition": partition,
        "model": model,
        "sites": sites,
        "selection": selection,
        "algorithm": algorithm,
        "engine": {
            "kind": "flower" if data["name"] == "nodes" else "local",
            "threads": 0,
            "precision": "float32",
            "device": "auto",
            "budget": BUDGET,
            **raw.get("engine", {}),
        },
        "evaluate": default_evaluation(raw.get("evaluate", {}), data),
        "checkpoint": {"every": 10, **raw.get("checkpoint", {})},
    }
    for section, by_kind in BY_KIND.items():
        full[section] = {**by_kind[full[section]["kind"]], **full[section]}
    if full["model"]["start"] == "wide" and sites["kind"] != "particles" and "start" not in raw.get("model", {}):
        full["model"]["start"] = "prior"  # the wide start is for sites that forget: docs/results.md
    if "density" in full["sites"] and "density" not in raw.get("sites", {}):
        full["sites"]["density"] = "log" if everybody else MODELS[model["kind"]].density
    if "structure" in full["sites"] and "structure" not in raw.get("sites", {}):
        full["sites"]["structure"] = MODELS[model["kind"]].structure
    if full["sites"].get("structure", "full") != "full" and "stiffness" not in raw.get("sites", {}):
        full["sites"]["stiffness"] = 0.5  # a diagonal expansion is believed too far otherwise: docs/results.md
    if full["sites"].get("structure", "eigen") != "eigen" and "rank" not in raw.get("sites", {}):
        del full["sites"]["rank"]
    if "damping" in full["sites"] and everybody and "damping" not in raw.get("sites", {}):
        full["sites"]["damping"] = default_damping(partition["clients"], full["selection"]["per_round"])
    if "renew" in full["sites"] and "renew" not in raw.get("sites", {}):
        scores = SCHEMES[full["selection"]["kind"]].scores and full["sites"]["damping"] == 1.0
        # One site for all particles is a posterior too: a few rows would make it a noisy one.
        full["sites"]["renew"] = scores and (structure != "full" or not full["selection"]["report_rows"])
    if full["sites"].get("structure", "full") != "full" and "settle" not in raw.get("sites", {}):
        full["sites"]["settle"] = False  # where particles have sites of their own these say less than the clients do
    if "prior" in full["algorithm"] and "prior" not in raw.get("algorithm", {}):
        if sites["kind"] == "particles":
            full["algorithm"]["prior"] = MODELS[model["kind"]].parallel_prior
        else:
            del full["algorithm"]["prior"]
    return full


def default_selection(
    raw: Mapping[str, Any], info: AlgorithmInfo, structure: str, partition: Mapping[str, Any]
) -> dict[str, Any]:
    """Where no scheme is named: for networks with sites that remember what was best, else KSD.

    HIP's reports renew such sites; a third of the clients report in a round, and all train equally often.
    """
    if "kind" in raw or info.schemes or info.everybody or structure in ("", "full"):
        usual = info.schemes[0] if info.schemes else "round_robin" if info.everybody else "ksd"
        return {"kind": usual, **raw}
    clients, together = partition["clients"], raw.get("per_round", 1)
    known = isinstance(clients, int) and isinstance(together, int)  # what they are not is said later
    return {"kind": "hip", "draw": "pass", "pool": max(-(-clients // 3), together) if known else 0, **raw}


def default_damping(clients: Any, together: Any) -> float:
    """Where several clients train in a round: what replaces a third of all sites, as reports may renew."""
    if not isinstance(clients, int) or not isinstance(together, int) or together < 1:  # which is said later
        return 1.0
    return min(1.0, round(clients / (3 * together), 4))


def default_partition(raw: Mapping[str, Any], name: str, facts: Facts) -> dict[str, Any]:
    """The dataset's own suggestion; its rows per client only where the number of clients is its own too."""
    info = DATASETS[name]
    suited = "iid" if name == "file" and not facts.clients else info.partition
    partition = {"kind": suited, **raw}
    if name == "nodes" and ("clients" not in raw or partition["kind"] != "given"):
        raise InputError(
            'expected partition.clients with data.name = "nodes": how many nodes take part, each with its own rows '
            "(partition.kind is 'given'); set it"
        )
    if partition["kind"] == "given":
        return {"clients": facts.clients or 1, **partition}
    clients = info.clients or facts.clients or 10
    suggested = {"rows_per_client": info.rows_per_client} if partition.get("clients", clients) == clients else {}
    return {"clients": clients, **suggested, **partition}


def default_evaluation(raw: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The server evaluates on its test rows, if it has any, unless the clients are asked to."""
    where = "clients" if data["name"] == "nodes" and not data.get("test_path") else "server"
    given = {"every": 1, "where": where, **raw}
    return {"fraction": 0.2, **given} if given["where"] == "clients" else given


def everyone_left(partition: Mapping[str, Any], raw: Mapping[str, Any]) -> Any:
    """The number of clients that are not barred."""
    clients, barred = partition["clients"], raw.get("selection", {}).get("barred")
    return clients - len(barred) if isinstance(barred, list) and isinstance(clients, int) else clients


def default_steps(info: AlgorithmInfo, model: str, sites: str) -> dict[str, Any]:
    """Step size, guard, schedule and L': the paper's with its own sites, else what was found to settle."""
    if info.build is fedavg:
        return {"step_size": 0.5, "schedule": "cosine"}
    if sites == "particles":
        authors = {"step_size": MODELS[model].step_size, "epsilon": MODELS[model].epsilon}
        return {**authors, "schedule": "constant", "distill_steps": 10}
    return {"step_size": MODELS[model].settled_step, "epsilon": MODELS[model].epsilon, "schedule": "cosine"}


def default_model(facts: Facts) -> str:
    if facts.task == "regression":
        return "bnn_regressor"
    return "blr" if facts.classes == 2 else "bnn_classifier"


def inapplicable(full: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Keys that the chosen kind does not take: (section, key, why)."""
    found = []
    for section, by_kind in BY_KIND.items():
        kind = full[section]["kind"]
        elsewhere = {key for settings in by_kind.values() for key in settings} - set(by_kind[kind])
        found += [(section, key, f"{section}.kind is {kind!r}") for key in full[section] if key in elsewhere]
    if full["sites"]["kind"] != "particles" and "distill_steps" in full["algorithm"]:
        found.append(("algorithm", "distill_steps", f"sites.kind is {full['sites']['kind']!r}"))
    if full["sites"]["kind"] == "curvature" and "prior" in full["algorithm"]:
        found.append(("algorithm", "prior", "sites.kind is 'curvature'"))
    if full["algorithm"]["kind"] == "fedavg" and "epsilon" in full["algorithm"]:
        found.append(("algorithm", "epsilon", "algorithm.kind is 'fedavg'"))
    if full["sites"].get("structure", "eigen") != "eigen" and "rank" in full["sites"]:
        found.append(("sites", "rank", f"sites.structure is {full['sites']['structure']!r}"))
    if full["evaluate"]["where"] != "clients" and "fraction" in full["evaluate"]:
        found.append(("evaluate", "fraction", f"evaluate.where is {full['evaluate']['where']!r}"))
    if full["data"]["name"] == "file" and full["data"].get("test_path") and "test_fraction" in full["data"]:
        found.append(("data", "test_fraction", "data.test_path names the test rows"))
    own = ("name", *DATASETS[full["data"]["name"]].keys)
    found += [("data", key, f"data.name is {full['data']['name']!r}") for key in full["data"] if key not in own]
    return found
