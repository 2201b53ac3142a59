"""Random: every client with the same probability, without replacement within a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedstein.selection.base import Draw, Memory, Scheme, SchemeKind, SelectionSettings
from fedstein.stein.kernel import Kernel


class RandomSettings(SelectionSettings):
    """Settings of random selection."""

    kind: str = "random"


def random(settings: RandomSettings, kernel: Kernel) -> Scheme:
    """Build the scheme. It needs no reports and no kernel."""

    def draw(memory: Memory, candidates: Sequence[int], indicators: None, uniforms: np.ndarray) -> Draw:
        return Draw([candidates[i] for i in np.argsort(uniforms)], None)

    return Scheme("random", draw)


RANDOM = SchemeKind("random", "every client with the same probability; no reports", RandomSettings, random)
