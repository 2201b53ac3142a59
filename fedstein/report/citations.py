"""Names of methods, selection schemes and datasets as a paper writes them, with their entries of references.bib."""

from __future__ import annotations

from typing import NamedTuple


class Named(NamedTuple):
    """The words for a thing in a sentence, and the keys of the references that belong to it."""

    words: str
    keys: tuple[str, ...] = ()


_STEIN = ("kassab2022federated", "liu2016stein")
_PVI = ("bui2018partitioned", "ashman2022partitioned")

ALGORITHMS = {
    "dsvgd": Named("distributed Stein variational gradient descent", _STEIN),
    "parallel_dsvgd": Named("parallel distributed Stein variational gradient descent", _STEIN),
    "pooled_svgd": Named("Stein variational gradient descent on the pooled rows", ("liu2016stein",)),
    "pooled_sghmc": Named("stochastic gradient Hamiltonian Monte Carlo on the pooled rows", ("chen2014stochastic",)),
    "fedavg": Named("federated averaging", ("mcmahan2017communication",)),
    "fedavg_ensemble": Named(
        "an ensemble of networks by federated averaging", ("mcmahan2017communication", "lakshminarayanan2017simple")
    ),
    "fedprox": Named("FedProx", ("li2020federated",)),
    "scaffold": Named("SCAFFOLD", ("karimireddy2020scaffold",)),
    "fedadam": Named("FedAdam", ("reddi2021adaptive",)),
    "fedpa": Named("federated posterior averaging", ("alshedivat2021federated",)),
    "pvi": Named("partitioned variational inference", _PVI),
    "fedgvi": Named("federated generalised variational inference", ("mildner2025federated",)),
    "fedep": Named("federated expectation propagation", ("guo2023federated",)),
    "fedlap": Named("FedLap", ("swaroop2025connecting",)),
    "fedivon": Named("FedIvon", ("pal2024federated",)),
    "ivon_admm": Named("IVON-ADMM", ("moellenhoff2025federated",)),
    "dsgld": Named("distributed stochastic gradient Langevin dynamics", ("ahn2014distributed",)),
    "fsgld": Named("federated stochastic gradient Langevin dynamics", ("elmekkaoui2021federated",)),
    "qlsd": Named("quantised Langevin stochastic dynamics (QLSD)", ("vono2022qlsd",)),
    "qlsd_pp": Named("quantised Langevin stochastic dynamics with reduced variance (QLSD++)", ("vono2022qlsd",)),
}
WITH_PARTICLES = {"dsvgd", "parallel_dsvgd", "pooled_svgd"}
POINTS = {"fedavg", "fedavg_ensemble", "fedprox", "scaffold", "fedadam", "fedpa"}  # networks without a prior
SCHEMES = {
    "ksd": Named("by their kernelized Stein discrepancy", ("yang2022client", "liu2016kernelized")),
    "hip": Named("by their Hilbert inner product", ("yang2022client",)),
    "innovation": Named("by how much their likelihood disagrees with their own site"),
    "round_robin": Named("in turn"),
    "random": Named("uniformly at random"),
    "gradient_norm": Named("by the norm of their gradient", ("ren2020scheduling",)),
    "folb": Named("by the inner product of their gradient with that of all clients", ("nguyen2021fast",)),
    "power_of_choice": Named("by power-of-choice", ("cho2020client",)),
    "active": Named("by active federated learning", ("goetz2019active",)),
    "oort": Named("by Oort", ("lai2021oort",)),
    "divfl": Named("by diverse client selection (DivFL)", ("balakrishnan2022diverse",)),
    "fedcor": Named("by FedCor", ("tang2022fedcor",)),
    "optimal": Named("by optimal client sampling", ("chen2022optimal",)),
}
MODELS = {
    "blr": "Bayesian logistic regression",
    "bnn_classifier": "a Bayesian neural network for classes",
    "bnn_regressor": "a Bayesian neural network for a regression",
    "linear": "Bayesian linear regression",
    "poisson": "Bayesian Poisson regression",
    "negative_binomial": "Bayesian negative binomial regression",
    "softmax": "Bayesian softmax regression",
    "random_intercept_logistic": "logistic regression with a random intercept for each client",
    "random_intercept_linear": "linear regression with a random intercept for each client",
}
DATASETS = {
    "covertype": Named("Covertype", ("blackard1999comparative",)),
    "mnist": Named("MNIST", ("lecun1998gradient",)),
    "digits": Named("the UCI optical digits", ("alpaydin1998optical",)),
    "breast_cancer": Named("the Wisconsin breast cancer data", ("street1993nuclear",)),
    "diabetes": Named("the diabetes data", ("efron2004least",)),
    "heart": Named("the UCI heart disease data of four hospitals"),
    "heart-flamby": Named("Fed-Heart-Disease, the UCI heart disease data of four hospitals as FLamby prepares them"),
    "fashion": Named("Fashion-MNIST", ("xiao2017fashion",)),
    "protein": Named("the UCI data on protein tertiary structure"),
    "contraception": Named("the contraception data of 60 districts"),
    "exam": Named("the exam scores of 65 schools"),
    "file": Named("our own data"),
    "nodes": Named("data that stay with their owners"),
}


def dataset(name: str) -> Named:
    """The words and references of a dataset; a name in quotation marks for one that is not built in.

    Args:
        name: The value of ``data.name``; empty if a run does not say.
    """
    unknown = Named(f"the data “{name}”" if name else "the data")
    return DATASETS.get(name.removesuffix("-full"), unknown)
