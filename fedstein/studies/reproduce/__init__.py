"""The figures of the paper: the runs that they need, the figures themselves, and the verdicts on the claims."""

from fedstein.studies.reproduce.claims import CLAIMS, Claim, Verdict, judge
from fedstein.studies.reproduce.plan import BEYOND, FIGURES, SETTINGS, Job, Plan, make_plan
from fedstein.studies.reproduce.sentences import Condition
from fedstein.studies.reproduce.write import write_conditions, write_pages, write_results

__all__ = [
    "BEYOND",
    "CLAIMS",
    "FIGURES",
    "SETTINGS",
    "Claim",
    "Condition",
    "Job",
    "Plan",
    "Verdict",
    "judge",
    "make_plan",
    "write_conditions",
    "write_pages",
    "write_results",
]
