"""The part of the table of ``cases.py`` that the check computes."""

from __future__ import annotations

import itertools

from cases import BASE, CASES, EVERYDAY, FIT, Case

# Two of KINDS_CROSSED are together in some case of the part if they are in the table. IMPLIED come with a model or with
# sites. Every other setting is in the part at least once.
KINDS_CROSSED = (
    "algorithm.kind=",
    "sites.kind=",
    "way=",
    "double=",
    "sites.structure=",
    "sites.density=",
    "sites.rank=",
    "model.kind=",
    "selection.kind=",
)
IMPLIED = ("data.name=", "model.hidden=", "algorithm.distill_steps=", "sites.expand=")


def crossed(one: str, other: str) -> bool:
    """Whether these two settings must meet in the part that the check computes."""
    return one.startswith(KINDS_CROSSED) and other.startswith(KINDS_CROSSED)


def meetings(case: Case) -> set[tuple[str, ...]]:
    """The settings of a case, and the pairs of them that must meet."""
    words = {*case.settings, *case.words, f"way={case.way}", f"double={case.double}"} - {*BASE, *FIT}
    kept = sorted(word for word in words if not word.startswith(IMPLIED))
    return {(word,) for word in kept} | {pair for pair in itertools.combinations(kept, 2) if crossed(*pair)}


def covering() -> tuple[str, ...]:
    """A sixth of the table, with every setting and with all pairs of settings that must meet (``crossed``).

    Chosen greedily: the case that adds most pairs comes next. The whole table is for changes of the computation:
    ``python tests/digests/compute.py``.
    """

    found = {name: meetings(case) for name, case in CASES.items()}
    chosen = list(EVERYDAY)
    missing = set().union(*found.values()).difference(*(found[name] for name in chosen))
    while missing:
        best = max(found, key=lambda name: len(found[name] & missing))
        chosen.append(best)
        missing -= found[best]
    return tuple(name for name in CASES if name in set(chosen))
