"""Selection schemes: one file each, its formula inside it; ``draws`` holds the drawing rules."""

from fedstein.registry import Registry
from fedstein.selection.active import ACTIVE
from fedstein.selection.base import (
    SCORE,
    Draw,
    Memory,
    ReportingSettings,
    Scheme,
    SchemeKind,
    SelectionSettings,
)
from fedstein.selection.divfl import DIVFL
from fedstein.selection.draws import DRAWS, Rule, proportional, rule_of
from fedstein.selection.fedcor import FEDCOR
from fedstein.selection.folb import FOLB
from fedstein.selection.gradient_norm import GRADIENT_NORM
from fedstein.selection.hip import HIP
from fedstein.selection.innovation import INNOVATION
from fedstein.selection.ksd import KSD
from fedstein.selection.oort import OORT
from fedstein.selection.optimal import OPTIMAL
from fedstein.selection.power_of_choice import POWER_OF_CHOICE
from fedstein.selection.random import RANDOM
from fedstein.selection.round_robin import ROUND_ROBIN

SCHEMES: Registry[SchemeKind] = Registry("selection.kind", "fedstein.schemes", SchemeKind)
for _kind in (
    ROUND_ROBIN,
    RANDOM,
    KSD,
    HIP,
    INNOVATION,
    GRADIENT_NORM,
    FOLB,
    POWER_OF_CHOICE,
    ACTIVE,
    OORT,
    DIVFL,
    FEDCOR,
    OPTIMAL,
):
    SCHEMES.register(_kind)

__all__ = [
    "DRAWS",
    "SCHEMES",
    "SCORE",
    "Draw",
    "Memory",
    "ReportingSettings",
    "Rule",
    "Scheme",
    "SchemeKind",
    "SelectionSettings",
    "proportional",
    "rule_of",
]
