"""The defaults that depend on several parts: one table of rules, each with its reason.

The command line and ``fedstein.fit`` use the same table. A default that depends on nothing else stands in its settings
class. The order of the rules matters: a rule may ask only for keys that stand before it.
"""

from __future__ import annotations

from typing import Any

from fedstein.inference.methods.base import ClientCountSettings, SvgdSettings
from fedstein.inference.methods.parallel_dsvgd import ParallelSettings
from fedstein.inference.sites import CurvatureSettings, ParticleSettings
from fedstein.models import BlrSettings
from fedstein.privacy.mechanism import NETWORKS
from fedstein.runs.draft import Draft, Facts, Rule
from fedstein.runs.sections import CUSTOM
from fedstein.selection import ReportingSettings
from fedstein.selection.power_of_choice import PowerOfChoiceSettings

FULL = 200  # parameters up to which a model of one's own gets full curvature, a d x d array for each client
FULL_NAMED = 500  # the same for a regression that a config can name, whose curvature is known in closed form
LARGEST_MOVED = 40  # parameters that NUTS moves in reasonable time, to check sites or in every pass that refines them
EVERY_ROW = 1_000_000_000  # more rows than any client has
ROUNDS = {"mnist": 60, "mnist-full": 60}


def always(draft: Draft) -> bool:
    """The condition of rules that always hold."""
    return True


def local_particles(draft: Draft) -> bool:
    """Whether sites are the paper's: local particles, which training refits."""
    return issubclass(draft.site.settings, ParticleSettings)


def has_particle_curvature(draft: Draft) -> bool:
    """Whether every particle has curvature of its own, diagonal in some basis, in place of one full matrix for all."""
    return draft["sites.structure"] not in (None, "full")


def renewing(draft: Draft) -> bool:
    """Whether HIP is the default scheme, because its reports renew sites: every particle has a site of its own."""
    usual = draft.method.answers_reports and not draft.method.full_participation
    return usual and draft.site.renewable and has_particle_curvature(draft)


def renewing_by_default(draft: Draft) -> bool:
    """The same, if the user has named no scheme."""
    return renewing(draft) and not draft.wrote("selection.kind")


def suggested_clients(draft: Draft) -> int:
    """The number of clients that suits the dataset."""
    return draft.dataset.clients or draft.facts.clients or 10


def remaining_clients(draft: Draft) -> int:
    """The number of clients that are not barred."""
    return max(1, draft["partition.clients"] - len(draft["selection.barred"] or ()))


def third_of_clients(draft: Draft) -> int:
    """A third of the clients, rounded up, and no fewer than train in a round."""
    return max(-(-draft["partition.clients"] // 3), draft["selection.per_round"])


def third_of_remaining(draft: Draft) -> int:
    """A third of the clients that are not barred, rounded up."""
    return -(-remaining_clients(draft) // 3)


def third_of_sites(draft: Draft) -> float:
    """The damping with which one round replaces a third of all sites."""
    return min(1.0, round(draft["partition.clients"] / (3 * draft["selection.per_round"]), 4))


def reports_renew(draft: Draft) -> bool:
    """Whether reports are scores that the sites can take as they are."""
    if private(draft) or not draft.scheme.sends_scores:
        return False  # in a private run nobody reports
    if draft["selection.projection"] or draft["sites.damping"] != 1.0:
        return False
    return has_particle_curvature(draft) or not draft["selection.report_rows"]


def large(draft: Draft) -> bool:
    """Whether a model that a config can name has too many parameters for a d x d array for each client."""
    count, facts = draft.traits.parameters, draft.facts
    return count is not None and facts.features > 0 and count(facts.features, facts.classes) > FULL_NAMED


def refinable(draft: Draft) -> bool:
    """Whether the run ends with sums of full sites that passes over the clients can refine in reasonable time."""
    if draft["sites.structure"] != "full" or draft["sites.stiffness"] != 1.0 or not draft.method.leaves_sums:
        return False
    moved = draft.traits.moved
    return moved is not None and moved <= LARGEST_MOVED


def private(draft: Draft) -> bool:
    """Whether the run is private."""
    return draft["privacy.kind"] != "none"


def private_network(draft: Draft) -> bool:
    """Whether the run is private and clips the gradients of rows."""
    return private(draft) and draft["model.kind"] in NETWORKS


def private_pvi(draft: Draft) -> bool:
    """Whether the run is partitioned variational inference with noise."""
    return private(draft) and draft["algorithm.kind"] == "pvi"


def private_rounds(draft: Draft) -> int:
    """The rounds in which clients use all of their visits, or as many as full rounds can."""
    return max(1, draft["privacy.visits"] * remaining_clients(draft) // draft["selection.per_round"])


def of_model(trait: str) -> Any:
    """The value that the model's traits name."""
    return lambda draft: getattr(draft.traits, trait)


RULES: tuple[Rule, ...] = (
    Rule("privacy.kind", always, "none",
         "Protection costs accuracy and needs a decision on the budget, so it is off unless you turn it on."),
    Rule("robust.kind", always, "none",
         "Bounds reduce the weight of clients that differ from the others, so they are off unless you turn them on."),
    Rule("rounds", lambda d: d["data.name"] in ROUNDS and not private(d), lambda d: ROUNDS[d["data.name"]],
         "A run on MNIST has 60 rounds: a round costs more there than with logistic regression."),
    Rule("data.test_fraction", lambda d: "test_fraction" in d.dataset.keys and not d["data.test_path"], 0.2,
         "If no file with test rows is named, a fifth of the rows become test rows."),
    Rule("data.standardize", lambda d: "standardize" in d.dataset.keys, True,
         "Columns of users' files have any scale, and the priors expect inputs of about unit size."),
    Rule("data.coding", lambda d: "coding" in d.dataset.keys and bool(d["data.categories"]), "one-hot",
         "With a 0/1 column for each category, no category has to be chosen as the reference."),
    Rule("model.kind", lambda d: d.facts.traits is not None, CUSTOM,
         "A model that is passed to fedstein.fit has no name in the registry."),
    Rule("model.kind", lambda d: d.facts.task == "regression", "bnn_regressor",
         "It is the model for regression."),
    Rule("model.kind", lambda d: d.facts.classes == 2, "blr",
         "Two classes need no network."),
    Rule("model.kind", always, "bnn_classifier",
         "More than two classes need a network."),
    Rule("privacy.visits", private_network, 40,
         "Networks need many small steps; with fewer visits the noise of a visit is smaller, but less is learned."),
    Rule("privacy.split", private_network, 0.9,
         "Networks release few numbers on their curvature, which need little of the budget."),
    Rule("model.hidden", private_network, [16],
         "The noise grows with the number of weights: with 16 units, probabilities were better than with 100."),
    Rule("partition.kind", lambda d: d["data.name"] == "file" and not d.facts.clients, "iid",
         "A file without a column that names clients is shared out at random."),
    Rule("partition.kind", always, lambda d: d.dataset.partition,
         "Every dataset has a partition that suits it; rows that name their clients keep them."),
    Rule("partition.clients", lambda d: d["partition.kind"] == "given",
         lambda d: d.facts.clients or (d.dataset.clients if d.dataset.partition == "given" else 0) or 1,
         "The data says how many clients there are."),
    Rule("partition.clients", always, suggested_clients,
         "Every dataset has a number of clients that suits it; for unknown datasets it is 10."),
    Rule("partition.rows_per_client", lambda d: d["partition.clients"] == suggested_clients(d),
         lambda d: d.dataset.rows_per_client,
         "A dataset suggests rows for its own number of clients; with another number all rows are shared out."),
    Rule("algorithm.kind", always, "dsvgd",
         "It needs only one client in a round, and it works with every scheme and every kind of site."),
    Rule("privacy.visits", private_pvi, 20,
         "A step of a mean-field Gaussian ignores correlations, so that many damped steps are needed."),
    Rule("privacy.split", private_pvi, 0.99,
         "The curvature is released with the gradient, so that nearly all of the budget is for gradients."),
    Rule("sites.kind", always, lambda d: d.method.sites,
         "With curvature sites, results are close to those with all rows in one place. The references have no sites."),
    Rule("model.start", lambda d: not local_particles(d), "prior",
         "The wide start is for sites that forget; with other sites particles start from the prior.", BlrSettings),
    Rule("sites.structure", private_network, "diagonal",
         "Of a network in a private run, clients release gradients and one curvature for each block.",
         CurvatureSettings),
    Rule("sites.structure", lambda d: d.facts.traits is not None and d.facts.dim > FULL, "diagonal",
         f"A model of your own with more than {FULL} parameters has diagonal curvature: a d x d array for each client "
         "would be too large.", CurvatureSettings),
    Rule("sites.structure", large, "diagonal",
         f"A regression with more than {FULL_NAMED} coefficients has diagonal curvature: a d x d array for each client "
         "would be too large.", CurvatureSettings),
    Rule("sites.structure", always, of_model("structure"),
         "Small models have full curvature, networks a diagonal in a shared basis of the inputs.", CurvatureSettings),
    Rule("sites.stiffness", private_network, 1.0,
         "In a private run the step is damped instead.", CurvatureSettings),
    Rule("sites.stiffness", has_particle_curvature, 0.5,
         "A diagonal ignores correlations; trial runs with networks chose half of the curvature.", CurvatureSettings),
    Rule("sites.rank", lambda d: d["sites.structure"] == "eigen", 0,
         "With at most 2048 inputs all directions of the basis are kept, with more inputs 256.", CurvatureSettings),
    Rule("sites.settle", has_particle_curvature, False,
         "Sites of single particles are less accurate than training, so particles stay as trained.", CurvatureSettings),
    Rule("sites.expand", lambda d: private(d) or d["privacy.sums"] == "secure", "mean",
         "Expansions and log-likelihoods have no noise and are no secure sums, so a run with either kind of protection "
         "does not send them.", CurvatureSettings),
    Rule("sites.expand", lambda d: d["robust.kind"] != "none", "mean",
         "Passes add up what clients send, and a run that expects clients to lie bounds it.", CurvatureSettings),
    Rule("sites.expand", lambda d: d["evaluate.temperature"] == "fit", "mean",
         "The calibration temperature is fitted to the predictions of particles, and passes leave weighted draws to "
         "predict with.", CurvatureSettings),
    Rule("sites.expand", refinable, "variational",
         "Intervals of draws from sites that were expanded at the particles can be much too narrow. After passes over "
         "the clients, weighted draws met the goals against NUTS on all rows (docs/posterior.md).",
         CurvatureSettings),
    Rule("sites.expand", always, "mean",
         "Passes need the sums of full sites with all of their curvature, which DSVGD leaves. If the prior is not "
         f"Gaussian given at most {LARGEST_MOVED} parameters, or it is not known whether it is, every pass may take "
         "minutes.", CurvatureSettings),
    Rule("sites.density", lambda d: d.method.full_participation, "log",
         "A server that combines the density estimates of several uploads needs scores that do not vanish.",
         ParticleSettings),
    Rule("sites.density", always, of_model("density"),
         "Logistic regression follows the authors' code; in networks the score of that form vanishes.",
         ParticleSettings),
    Rule("selection.kind", private, "round_robin",
         "In a private run every visit costs privacy budget, so all clients are visited equally often."),
    Rule("selection.kind", lambda d: bool(d.method.scheme), lambda d: d.method.scheme,
         "The method was made for this scheme."),
    Rule("selection.kind", lambda d: not d.method.answers_reports or d.method.full_participation, "round_robin",
         "If clients cannot report, or if all of them train, selection by reports has no use."),
    Rule("selection.kind", renewing, "hip",
         "HIP's reports renew sites of networks, so that every client's site stays fresh."),
    Rule("selection.kind", always, "ksd",
         "KSD needs only one number from each candidate and works with every kind of site."),
    Rule("selection.per_round", lambda d: private(d) and d.scheme.asks, third_of_remaining,
         "Where a private run chooses by what was released, a third of the clients is visited in a round: who is "
         "chosen matters, and clients that are asked at the same point have their noise averaged."),
    Rule("selection.per_round", private, remaining_clients,
         "Clients that are asked at the same point in a private run have their noise averaged."),
    Rule("rounds", private, private_rounds,
         "A private run ends when every client has used its planned visits."),
    Rule("selection.per_round", lambda d: d.method.full_participation, remaining_clients,
         "In this method every client that is not barred trains in every round."),
    Rule("selection.draw", renewing_by_default, "pass",
         "If HIP is the default scheme, all clients train equally often, and reports renew their sites in between.",
         ReportingSettings),
    Rule("selection.pool", renewing_by_default, third_of_clients,
         "If HIP is the default scheme, a third of the clients report in a round, which saves bytes.",
         ReportingSettings),
    Rule("selection.pool", always, third_of_clients,
         "Power-of-choice keeps the largest losses of a random part of the clients: a third of them.",
         PowerOfChoiceSettings),
    Rule("sites.damping", lambda d: d.method.full_participation, third_of_sites,
         "If m of K clients train in a round, K / 3m lets one round replace a third of all sites.", CurvatureSettings),
    Rule("sites.renew", reports_renew, True,
         "Reports that are scores renew sites which are not damped; for a full matrix they must look at all rows.",
         CurvatureSettings),
    Rule("algorithm.batch_size", lambda d: d.traits.whole_shard, EVERY_ROW,
         "With a random intercept per client the likelihood is no sum over rows, so that a step uses all rows of a "
         "client."),
    Rule("algorithm.clients", always, remaining_clients,
         "The method's formula needs the number of clients that are not barred.", ClientCountSettings),
    Rule("algorithm.step_size", local_particles, of_model("step_size"),
         "With the paper's sites it is the step size of the authors' code for the model.", SvgdSettings),
    Rule("algorithm.step_size", always, of_model("settled_step"),
         "With this step size and the cosine schedule, particles of the model were found to converge.", SvgdSettings),
    Rule("algorithm.epsilon", always, of_model("epsilon"),
         "It is the guard of the authors' code for the model.", SvgdSettings),
    Rule("algorithm.schedule", local_particles, "constant",
         "The paper uses constant steps with its sites.", SvgdSettings),
    Rule("algorithm.distill_steps", local_particles, 10,
         "Local particles are refitted in as many steps as training takes in the paper.", SvgdSettings),
    Rule("algorithm.prior", local_particles, of_model("parallel_prior"),
         "The prior is divided out if the result is a proper density.", ParallelSettings),
    Rule("engine.kind", lambda d: d.dataset.origin == "nodes", "flower",
         "Rows that stay on nodes are reached over Flower."),
    Rule("engine.kind", always, "local",
         "Every client is played in this process."),
    Rule("evaluate.where", private, "server",
         "Counts over held-out rows are not protected, so clients do not evaluate in a private run."),
    Rule("evaluate.where", lambda d: d.dataset.origin == "nodes" and not d["data.test_path"], "clients",
         "If the server has no test rows, the clients evaluate."),
    Rule("evaluate.where", lambda d: d["evaluate.patience"] is not None, "clients",
         "Early stopping uses rows that clients hold out, never test rows."),
    Rule("evaluate.fraction", lambda d: d["evaluate.where"] == "clients", 0.2,
         "If clients evaluate, each holds out a fifth of its rows."),
)  # fmt: skip


def drafted(written: Any, facts: Facts) -> Draft:
    """The user's settings with a rule for every default that depends on other parts.

    Args:
        written: A nested dict whose names and values have been checked.
        facts: What is known of the data.

    Returns:
        The draft of a config.

    Raises:
        InputError: There is no such dataset.
    """
    return Draft(written, facts).apply(RULES)
