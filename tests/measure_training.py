"""Look at training itself: entropy, clipped ratios and their size in the default run.

`uv run tests/measure_training.py` takes as long as the default run and prints a row for every 256 mini-batches.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as microgrpo.py does when it is run
sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import numpy as np
from autograd.tracer import getval
from experiments import DEFAULT_RUN
from support import config

import microgrpo as mg
from microgrpo import Array, GRPOConfig, Params, Trajectories

ROWS: list[list[float]] = []
objective = mg.grpo_objective


def measured(params: Params, batch: Trajectories, A: Array, config: GRPOConfig) -> float:
    """Compute the objective; note the policy's entropy per step (nats) and what the ratios do."""
    π = config.policy({name: getval(params[name]) for name in ("W1", "b1", "W2", "b2")}, batch.observation)
    r = mg.pick(π, batch.action) / batch.π_old
    entropy = -(π * np.log(np.maximum(π, 1e-30))).sum(axis=1).mean()
    legal = (batch.observation == 0).sum(axis=(1, 2))
    clipped = np.where(A > 0, r > 1 + config.ε, r < 1 - config.ε).mean()
    ROWS.append([entropy, np.log(legal).mean(), np.abs(r - 1).mean(), np.percentile(np.abs(r - 1), 99), clipped])
    return objective(params, batch, A, config)


def main() -> None:
    """Train the default run and print the table."""
    constants = dict(DEFAULT_RUN)
    hidden, learning_rate = constants.pop("hidden"), constants.pop("learning_rate")
    mg.grpo_objective = measured
    params = mg.neural_battleship_policy_init(hidden=int(hidden))
    mg.train_grpo(mg.AdamWOptimizer(params, learning_rate=learning_rate), config(**constants))
    rows = np.array(ROWS).reshape(-1, config(**constants).μ, 5)
    print("mini-batches   entropy  of uniform play   |r - 1|: mean   99 %   clipped   (at the last gradient step)")
    for start in range(0, len(rows), 256):
        entropy, uniform, mean, high, clipped = rows[start : start + 256, -1].mean(axis=0)
        print(f"{start:5}-{start + 255:5} {entropy:10.2f} {uniform:16.2f} {mean:15.3f} {high:7.2f} {clipped:8.2%}")


if __name__ == "__main__":
    main()
