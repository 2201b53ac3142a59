"""Methods: one file each behind one contract."""

from fedstein.inference.methods.base import (
    Accepted,
    Conclusion,
    Method,
    MethodKind,
    MethodSettings,
    SvgdSettings,
    Training,
)
from fedstein.inference.methods.dsgld import DSGLD
from fedstein.inference.methods.dsvgd import DSVGD
from fedstein.inference.methods.fedadam import FEDADAM
from fedstein.inference.methods.fedavg import FEDAVG
from fedstein.inference.methods.fedavg_ensemble import FEDAVG_ENSEMBLE
from fedstein.inference.methods.fedep import FEDEP
from fedstein.inference.methods.fedgvi import FEDGVI
from fedstein.inference.methods.fedivon import FEDIVON
from fedstein.inference.methods.fedlap import FEDLAP
from fedstein.inference.methods.fedpa import FEDPA
from fedstein.inference.methods.fedprox import FEDPROX
from fedstein.inference.methods.fsgld import FSGLD
from fedstein.inference.methods.ivon_admm import IVON_ADMM
from fedstein.inference.methods.parallel_dsvgd import PARALLEL_DSVGD
from fedstein.inference.methods.pooled_sghmc import POOLED_SGHMC
from fedstein.inference.methods.pooled_svgd import POOLED_SVGD
from fedstein.inference.methods.pvi import PVI
from fedstein.inference.methods.qlsd import QLSD
from fedstein.inference.methods.qlsd_pp import QLSD_PP
from fedstein.inference.methods.scaffold import SCAFFOLD
from fedstein.registry import Registry

METHODS: Registry[MethodKind] = Registry("algorithm.kind", "fedstein.methods", MethodKind)
for _kind in (
    DSVGD,
    PARALLEL_DSVGD,
    POOLED_SVGD,
    POOLED_SGHMC,
    FEDAVG,
    FEDAVG_ENSEMBLE,
    FEDPROX,
    SCAFFOLD,
    FEDADAM,
    PVI,
    FEDGVI,
    FEDEP,
    FEDLAP,
    FEDPA,
    FEDIVON,
    IVON_ADMM,
    DSGLD,
    FSGLD,
    QLSD,
    QLSD_PP,
):
    METHODS.register(_kind)

__all__ = [
    "METHODS",
    "Accepted",
    "Conclusion",
    "Method",
    "MethodKind",
    "MethodSettings",
    "SvgdSettings",
    "Training",
]
