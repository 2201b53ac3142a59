"""The paper's figures from scratch: which runs they need, running them, and what they show."""

from fedstein.reproduce.claims import CLAIMS, Claim, Verdict, judge
from fedstein.reproduce.plan import BEYOND, FIGURES, SETTINGS, Job, Plan, make_plan
from fedstein.reproduce.write import write_results

__all__ = [
    "BEYOND",
    "CLAIMS",
    "FIGURES",
    "SETTINGS",
    "Claim",
    "Job",
    "Plan",
    "Verdict",
    "judge",
    "make_plan",
    "write_results",
]
