"""The table of miniature runs whose results must stay equal to the last bit: a name and the settings of each.

A case is what a user would say: settings as ``--set`` takes them, and a way to run them. Nothing of the package is
imported here. Neighbours in the table share compiled programs, so its order matters for the time and for nothing else.

The core crosses scheme x sites x method x model wherever that is valid: Parallel DSVGD refuses the reference density,
innovation needs curvature, and the references have no sites and schemes that ask nobody. Left out as redundant, because
the code that they would run is reached by their neighbours: the drawing rules and the orders of round robin with
networks and with Parallel DSVGD (the server draws without knowing model or method; they are crossed with DSVGD and
``blr``); the orders with pooled SVGD, which has one client; pool, ``report_rows``, barred clients and several clients a
round beyond one model for each kind of sites; settings of the steps beyond three methods, but for temperature, schedule
and large batches; and schemes other than the usual one for a model of one's own with Parallel DSVGD.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Settings = tuple[str, ...]


class Case(NamedTuple):
    """Settings as ``--set`` takes them, further words for the command line, and the way in which they are run.

    ``way`` is one of: run, resume, forget, flower, or fit: ``fedstein.fit`` with the model named by
    ``words``, or else with a model of one's own.
    """

    settings: Settings
    words: tuple[str, ...] = ()
    way: str = "run"
    double: bool = False


BASE: Settings = (
    "rounds=4",
    "seed=3",
    "partition.clients=5",
    "partition.rows_per_client=24",
    "algorithm.particles=4",
    "algorithm.local_steps=2",
    "algorithm.batch_size=10",
    "engine.threads=1",
)
MODELS: dict[str, Settings] = {
    "blr": ("data.name=covertype", "model.kind=blr"),
    "classifier": ("data.name=digits", "model.kind=bnn_classifier", "model.hidden=[4]"),
    "regressor": ("data.name=diabetes", "model.kind=bnn_regressor", "model.hidden=[4]"),
}
PARTICLES: dict[str, Settings] = {
    "log": ("sites.kind=particles", "sites.density=log", "algorithm.distill_steps=2"),
    "reference": ("sites.kind=particles", "sites.density=reference", "algorithm.distill_steps=2"),
}
MEAN = "sites.expand=mean"  # passes after the last round change nothing that is compared here, and take long
CURVATURE: dict[str, Settings] = {
    "full": ("sites.kind=curvature", "sites.structure=full", MEAN),
    "diagonal": ("sites.kind=curvature", "sites.structure=diagonal"),
    "eigen": ("sites.kind=curvature", "sites.structure=eigen"),
    "low_rank": ("sites.kind=curvature", "sites.structure=eigen", "sites.rank=3"),
}
SITES = {**PARTICLES, **CURVATURE}
ASKING = ("ksd", "hip", "innovation")
DRAWS = ("proportional", "greedy", "pass", "aged")
ORDERS = ("given", "seeded", "reshuffled")
KINDS: dict[str, Settings] = {
    kind: (f"selection.kind={kind}",) for kind in ("round_robin", "random", "ksd", "hip", "innovation")
}
RULES: dict[str, Settings] = {
    **{f"round_robin-{order}": (*KINDS["round_robin"], f"selection.order={order}") for order in ORDERS[:2]},
    "round_robin-reshuffled": (*KINDS["round_robin"], "selection.order=reshuffled", "rounds=8"),  # two passes
    "random": KINDS["random"],
    **{f"{kind}-{draw}": (*KINDS[kind], f"selection.draw={draw}") for kind in ASKING for draw in DRAWS},
}
AGAIN: Settings = ("rounds=8",)  # enough for somebody to train twice
PARALLEL = "algorithm.kind=parallel_dsvgd"
POOLED: Settings = ("algorithm.kind=pooled_svgd", "sites.kind=none")
FEDAVG: Settings = ("algorithm.kind=fedavg", "sites.kind=none", "algorithm.particles=1")

# Kinds of sites with the model that shows them in single variations.
SHOWN = {
    "reference": "blr",
    "full": "blr",
    "log": "classifier",
    "eigen": "classifier",
    "diagonal": "regressor",
    "low_rank": "regressor",
}


def of(model: str, *more: str | Iterable[str]) -> Settings:
    """The settings of a miniature with that model, and more of them, which win."""
    added = [part for each in more for part in ((each,) if isinstance(each, str) else each)]
    return (*BASE, *MODELS[model], *added)


def goes(scheme: str, sites: str) -> bool:
    """Innovation compares a client with its own curvature site; the other schemes go with all sites."""
    return sites in CURVATURE or not scheme.startswith("innovation")


def core() -> Iterator[tuple[str, Case]]:
    """Scheme x sites x method x model."""
    for model in MODELS:
        for sites, kept in SITES.items():
            for scheme, chosen in (RULES if model == "blr" else KINDS).items():
                if goes(scheme, sites):
                    yield f"dsvgd/{model}/{sites}/{scheme}", Case(of(model, kept, chosen))
            if sites == "reference":
                continue
            for scheme, chosen in KINDS.items():
                if goes(scheme, sites):
                    settings = of(model, PARALLEL, kept, chosen, "selection.per_round=2")
                    yield f"parallel/{model}/{sites}/{scheme}", Case(settings)
            yield f"parallel/{model}/{sites}/everybody", Case(of(model, PARALLEL, kept))
        yield f"pooled/{model}", Case(of(model, POOLED))
        for scheme in ("round_robin", "random"):
            yield f"fedavg/{model}/{scheme}", Case(of(model, FEDAVG, KINDS[scheme], "selection.per_round=2"))
        yield f"fedavg/{model}/everybody", Case(of(model, FEDAVG))
        yield f"defaults/{model}", Case(of(model, MEAN))
        yield f"paper/{model}", Case(of(model), ("--preset", "paper"))
        yield f"paper-parallel/{model}", Case(of(model, PARALLEL), ("--preset", "paper"))


def of_selection() -> Iterator[tuple[str, Case]]:
    """Pools, few rows a report, several clients a round, barred clients, caps."""
    for sites, model in SHOWN.items():
        for scheme, chosen in KINDS.items():
            if not goes(scheme, sites):
                continue
            variations = {"two": ("selection.per_round=2",), "barred": ("selection.barred=[1]",)}
            if scheme in ASKING:
                variations |= {
                    "rows": ("selection.report_rows=6",),
                    "pool-rows-two": ("selection.pool=3", "selection.report_rows=6", "selection.per_round=2"),
                }
            for name, more in variations.items():
                yield f"selection/{model}/{sites}/{scheme}/{name}", Case(of(model, SITES[sites], chosen, more))
    for scheme in ASKING:
        for draw in DRAWS:
            rule = (*RULES[f"{scheme}-{draw}"], "selection.pool=3", "selection.per_round=2", "selection.barred=[4]")
            yield f"selection/blr/full/{scheme}/{draw}-pool-two-barred", Case(of("blr", CURVATURE["full"], rule))
        for cap in ("max_ratio=0.0", "max_ratio=1.05", "max_probability=0.202"):
            chosen = (*KINDS[scheme], "selection.draw=proportional", f"selection.{cap}")
            yield f"selection/blr/full/{scheme}/{cap}", Case(of("blr", CURVATURE["full"], chosen))
    for name, method in {"parallel": (PARALLEL, *CURVATURE["full"]), "pooled": POOLED, "fedavg": FEDAVG}.items():
        yield f"selection/blr/{name}/barred", Case(of("blr", method, "selection.barred=[0, 3]"))


def of_sites() -> Iterator[tuple[str, Case]]:
    """The settings of sites, each with every structure and a model, or with all models where these differ."""
    for model in MODELS:
        for structure, kept in CURVATURE.items():
            hip = of(model, kept, KINDS["hip"])
            yield f"sites/{model}/{structure}/renew-off", Case((*hip, "sites.renew=false"))
            # Two samples fail for networks that classify with sites that are not full: shapes do not match.
            count = 1 if model == "classifier" and structure != "full" else 2
            yield f"sites/{model}/{structure}/labels", Case((*hip, f"sites.label_samples={count}"))
            together = of(model, PARALLEL, kept, KINDS["hip"], "selection.per_round=2", "sites.damping=1.0")
            yield f"sites/{model}/{structure}/parallel-renew-on", Case((*together, "sites.renew=true"))
    for prior in ("divided", "as_written"):  # divided is refused as improper for the other two models
        settings = of("classifier", PARALLEL, PARTICLES["log"], f"algorithm.prior={prior}")
        yield f"sites/classifier/log/prior-{prior}", Case(settings)
    for structure, model in {"full": "blr", "diagonal": "regressor", "eigen": "classifier", "low_rank": "blr"}.items():
        ksd = of(model, CURVATURE[structure], KINDS["ksd"])
        for value in ("damping=0.5", "stiffness=0.3", "stiffness=1.7"):
            yield f"sites/{model}/{structure}/{value}", Case((*ksd, f"sites.{value}", *AGAIN))
        few = of(model, CURVATURE[structure], KINDS["hip"], "selection.report_rows=6")
        for renew in ("true", "false"):
            yield f"sites/{model}/{structure}/few-rows-renew-{renew}", Case((*few, f"sites.renew={renew}"))
        both = of(model, CURVATURE[structure], KINDS["innovation"], "sites.damping=0.7", "sites.label_samples=1")
        yield f"sites/{model}/{structure}/damped-labels", Case(both)
    for model in MODELS:
        for method, more in {"dsvgd": (), "parallel": (PARALLEL,)}.items():
            settings = of(model, more, CURVATURE["full"], "sites.settle=false")
            yield f"sites/{model}/full/{method}-unsettled", Case(settings)
    for density, model in {"log": "classifier", "reference": "blr"}.items():
        yield f"sites/{model}/{density}/bandwidth", Case(of(model, PARTICLES[density], "sites.bandwidth=1.2", AGAIN))
        yield (
            f"sites/{model}/{density}/distill",
            Case(of(model, PARTICLES[density], "algorithm.distill_steps=5", AGAIN)),
        )


def again() -> Iterator[tuple[str, Case]]:
    """Clients that train a second time, whose old sites are taken out."""
    for sites, model in SHOWN.items():
        for scheme, chosen in KINDS.items():
            if goes(scheme, sites):
                yield f"again/{model}/{sites}/{scheme}", Case(of(model, SITES[sites], chosen, AGAIN))


METHODS: dict[str, tuple[str, Settings]] = {
    "dsvgd-full": ("blr", CURVATURE["full"]),
    "dsvgd-eigen": ("classifier", CURVATURE["eigen"]),
    "dsvgd-log": ("classifier", PARTICLES["log"]),
    "dsvgd-reference": ("blr", PARTICLES["reference"]),
    "parallel-diagonal": ("regressor", (PARALLEL, *CURVATURE["diagonal"])),
    "parallel-log": ("regressor", (PARALLEL, *PARTICLES["log"])),
    "pooled": ("blr", POOLED),
    "fedavg": ("classifier", FEDAVG),
}


def of_steps() -> Iterator[tuple[str, Case]]:
    """Temperature, schedule, batches and steps with every method."""
    for method, (model, kept) in METHODS.items():
        by_default = "constant" if "sites.kind=particles" in kept else "cosine"
        other = "cosine" if by_default == "constant" else "constant"
        for value in (
            "temperature=0.5",
            f"schedule={other}",
            "batch_size=100",
        ):  # 24 rows each, batches of 10 elsewhere
            yield f"steps/{method}/{value}", Case(of(model, kept, f"algorithm.{value}"))
        yield f"steps/{method}/checkpoints", Case(of(model, kept, "checkpoint.every=1"))
    for method in ("dsvgd-full", "dsvgd-log", "parallel-diagonal"):
        model, kept = METHODS[method]
        for value in ("local_steps=3", "step_size=0.02", "epsilon=0.001"):
            yield f"steps/{method}/{value}", Case(of(model, kept, f"algorithm.{value}"))
        yield f"steps/{method}/seed", Case(of(model, kept, "seed=11"))
        yield f"steps/{method}/evaluate-every-2", Case(of(model, kept, "evaluate.every=2"))


def of_the_rest() -> Iterator[tuple[str, Case]]:
    """Priors, starts, partitions, evaluation by clients, and the other ways to run."""
    for value in ("prior_shape=2.0", "prior_rate=0.1", "start=prior", "start=wide"):
        yield f"models/blr/{value}", Case(of("blr", f"model.{value}", MEAN))
    for value in ("prior_precision=1.0", "start=prior", "hidden=[4, 3]"):
        yield f"models/classifier/{value}", Case(of("classifier", f"model.{value}"))
    for value in ("prior_shape=2.0", "prior_rate=1.0", "hidden=[4, 3]"):
        yield f"models/regressor/{value}", Case(of("regressor", f"model.{value}"))
    yield "models/network-on-covertype", Case(of("blr", "model.kind=bnn_classifier", "model.hidden=[4]"))
    settings = of("blr", "data.name=breast_cancer", "partition.rows_per_client=0", MEAN)
    yield "models/blr-on-breast-cancer", Case(settings)

    for name, more in {
        "iid": ("partition.kind=iid",),
        "label_ratio": ("partition.kind=label_ratio", "partition.ratio=0.7", MEAN),
        "classes-balanced": ("partition.kind=classes_per_client", "partition.classes=4"),
        "classes-random": ("partition.kind=classes_per_client", "partition.classes=4", "partition.deal=random"),
        "dirichlet": ("partition.kind=dirichlet", "partition.concentration=0.5"),
        "dirichlet-all-rows": (
            "partition.kind=dirichlet",
            "partition.rows_per_client=0",
            "algorithm.batch_size=200",
        ),
    }.items():
        model = "blr" if name == "label_ratio" else "classifier"
        yield f"partition/{name}", Case(of(model, more))

    for method, (model, kept) in METHODS.items():
        asked = ("evaluate.where=clients", "evaluate.fraction=0.25", "selection.barred=[2]")
        yield f"clients-evaluate/{method}", Case(of(model, kept, asked))

    for sites, model in SHOWN.items():
        for scheme in ("ksd", "hip"):
            settings = of(model, SITES[sites], KINDS[scheme], "checkpoint.every=1")
            yield f"resume/{model}/{sites}/{scheme}", Case(settings, way="resume")
    for sites, model in {"full": "blr", "diagonal": "blr", "eigen": "classifier", "low_rank": "blr"}.items():
        settings = of(model, CURVATURE[sites], KINDS["round_robin"])
        yield f"forget/{model}/{sites}", Case(settings, way="forget")
    for method, more in {"parallel": (PARALLEL,), "pooled": POOLED, "fedavg": FEDAVG}.items():
        yield f"resume/{method}", Case(of("blr", more, "checkpoint.every=1"), way="resume")
    yield "forget/parallel", Case(of("blr", PARALLEL, CURVATURE["full"]), way="forget")


FIT: Settings = ("rounds=6", "seed=3", "algorithm.particles=4", "algorithm.local_steps=2", "algorithm.batch_size=10")


def of_fit() -> Iterator[tuple[str, Case]]:
    """A model of one's own through ``fedstein.fit``; its inputs cannot be rotated, so there are no eigen sites."""
    for sites in ("log", "reference", "full", "diagonal"):
        for scheme, chosen in KINDS.items():
            if goes(scheme, sites):
                yield f"fit/dsvgd/{sites}/{scheme}", Case((*FIT, *SITES[sites], *chosen), way="fit")
        if sites != "reference":
            yield f"fit/parallel/{sites}", Case((*FIT, *SITES[sites], PARALLEL), way="fit")
    for method, more in {"pooled": POOLED, "fedavg": FEDAVG, "defaults": (MEAN,)}.items():
        yield f"fit/{method}", Case((*FIT, *more), way="fit")
    yield "fit/clients-evaluate", Case((*FIT, MEAN, "evaluate.where=clients", "evaluate.fraction=0.25"), way="fit")
    for model in ("blr", "bnn_classifier", "bnn_regressor"):
        hidden = () if model == "blr" else ("model.hidden=[4]",)
        yield f"fit/{model}", Case((*FIT, *hidden, MEAN), (model,), way="fit")


def of_double() -> Iterator[tuple[str, Case]]:
    """What differs between precisions: models, sites, methods and reports; in a process of their own."""
    double = "engine.precision=float64"
    for model in MODELS:
        for sites, kept in SITES.items():
            scheme = "ksd" if sites in PARTICLES else "innovation" if sites == "diagonal" else "hip"
            yield f"double/dsvgd/{model}/{sites}/{scheme}", Case(of(model, kept, KINDS[scheme], double), double=True)
            if sites != "reference":
                yield f"double/parallel/{model}/{sites}", Case(of(model, PARALLEL, kept, double), double=True)
        yield f"double/pooled/{model}", Case(of(model, POOLED, double), double=True)
        yield f"double/fedavg/{model}", Case(of(model, FEDAVG, double), double=True)
        yield f"double/paper/{model}", Case(of(model, double), ("--preset", "paper"), double=True)
    for sites, model in {"full": "blr", "eigen": "classifier"}.items():
        settings = of(model, CURVATURE[sites], KINDS["round_robin"], double)
        yield f"double/resume/{model}/{sites}", Case((*settings, "checkpoint.every=1"), way="resume", double=True)
        yield f"double/forget/{model}/{sites}", Case(settings, way="forget", double=True)
    asked = ("evaluate.where=clients", "evaluate.fraction=0.25")
    yield "double/clients-evaluate", Case(of("classifier", asked, double), double=True)
    for sites in ("log", "reference", "full", "diagonal"):
        yield f"double/fit/{sites}", Case((*FIT, *SITES[sites], *KINDS["hip"]), way="fit", double=True)


def of_flower() -> Iterator[tuple[str, Case]]:
    """Clients behind Flower's messages, in this process; the last, because importing Flower changes how logs look."""
    for sites, model in SHOWN.items():
        for scheme in ("ksd", "hip"):
            yield f"flower/{model}/{sites}/{scheme}", Case(of(model, SITES[sites], KINDS[scheme]), way="flower")
    for method, more in {
        "parallel-curvature": (PARALLEL,),
        "parallel-particles": (PARALLEL, "sites.kind=particles"),
        "fedavg": FEDAVG,
        "clients-evaluate": ("evaluate.where=clients", "selection.barred=[2]"),
        "two-pool": (*KINDS["hip"], "selection.pool=3", "selection.per_round=2", "selection.draw=aged"),
    }.items():
        yield f"flower/{method}", Case(of("classifier", more), way="flower")


def table() -> dict[str, Case]:
    """Every case by its name; no name twice."""
    found: dict[str, Case] = {}
    for group in (core, of_selection, of_sites, again, of_steps, of_the_rest, of_fit, of_double, of_flower):
        for name, case in group():
            assert name not in found, f"{name} is in the table twice"
            found[name] = case
    return found


CASES = table()

# The everyday part: each method, each way to run and most kinds of sites, once.
EVERYDAY = (
    "dsvgd/blr/full/ksd-proportional",
    "dsvgd/blr/full/hip-greedy",
    "dsvgd/blr/full/innovation-aged",
    "dsvgd/blr/reference/hip-pass",
    "dsvgd/classifier/eigen/hip",
    "parallel/regressor/diagonal/everybody",
    "pooled/blr",
    "fedavg/blr/random",
    "resume/blr/full/hip",
    "forget/blr/full",
    "fit/dsvgd/full/hip",
    "flower/blr/full/hip",
)


def nested(settings: Iterable[str]) -> dict[str, Any]:
    """Settings as ``--set`` takes them, as one dict with a dict for each section."""
    made: dict[str, Any] = {}
    for text in settings:
        name, _, value = text.partition("=")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        section, _, key = name.partition(".")
        if key:
            made.setdefault(section, {})[key] = parsed
        else:
            made[section] = parsed
    return made
