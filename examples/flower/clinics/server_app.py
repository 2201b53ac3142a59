"""A ServerApp of your own. Fedstein's strategy chooses which clinic trains, and updates the particles."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedstein.flower import FedStein

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, then print which clinics were chosen and how accurate the posterior is."""
    settings = context.run_config
    strategy = FedStein(
        {
            "data": {"name": "breast_cancer"},  # each node simulates a clinic; "nodes": each reads its own file
            "partition": {"clients": settings["clients"]},
            "rounds": settings["num-rounds"],
        },
        selection=str(settings["selection"]),
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Compute a metric of your own from the particles."""
        return MetricRecord({"spread": float(arrays["particles"].numpy().std(axis=0).mean())})

    result = strategy.start(
        grid=grid,
        initial_arrays=strategy.initial_arrays(),
        num_rounds=int(settings["num-rounds"]),
        evaluate_fn=evaluate,
    )
    chosen = [record["selected"][0] for record in strategy.records]
    print(f"clinics: chosen {chosen}, accuracy {strategy.records[-1]['accuracy']:.3f}", flush=True)
    print(f"clinics: spread {result.evaluate_metrics_serverapp[len(chosen)]['spread']:.4f}", flush=True)
    if settings["out"]:
        np.save(Path(str(settings["out"])), strategy.posterior(), allow_pickle=False)
