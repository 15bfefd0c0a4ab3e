"""Rerun rows of the README's table of experiments: `uv run tests/experiments.py "G = 2" "μ = 1"`.

Each row changes the default run's constants, trains with its seeds (42, 43, ...), prints the mean score of each, and
leaves their validation scores beside you as `NAME, seed 42.csv`, for tests/plot_rewards.py to draw.

Without a name it prints the table's times: for each row that of its first 128 mini-batches, scaled to all.
"""

import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as microgrpo.py does when it is run
sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import numpy as np
from support import config, score_on_all_boards

import microgrpo as mg
from microgrpo import BattleshipEnv, BattleshipGameRules, Params

DEFAULT_RUN = {"B": 16, "μ": 2, "hidden": 50, "learning_rate": 4e-3}


class Board7(BattleshipEnv):
    """7 × 7 tiles, ships of 2, 3, 3 and 4."""

    rules = BattleshipGameRules(7, (0, 0, 1, 2, 1))


class Board10(BattleshipEnv):
    """The classic game: 10 × 10 tiles, ships of 2, 3, 3, 4 and 5."""

    rules = BattleshipGameRules(10, (0, 0, 1, 2, 1, 1))


# name: (changes to the default run's constants, number of seeds)
EXPERIMENTS: dict[str, tuple[dict[str, Any], int]] = {
    "default run": ({}, 5),
    "the original's constants": ({"B": 4, "μ": 10, "hidden": 0, "learning_rate": 3e-4}, 3),
    "G = 2": ({"G": 2}, 3),
    "G = 4": ({"G": 4}, 3),
    "G = 64": ({"G": 64}, 1),
    "μ = 1": ({"μ": 1}, 3),
    "ε = 0.1, μ = 10": ({"ε": 0.1, "μ": 10}, 1),
    "ε = 0.9, μ = 10": ({"ε": 0.9, "μ": 10}, 1),
    "β = 0.01": ({"β": 0.01}, 3),
    "β = 0.1": ({"β": 0.1}, 3),
    "learning rate 4e-2": ({"learning_rate": 4e-2}, 3),
    "learning rate 4e-4": ({"learning_rate": 4e-4}, 3),
    "scale_rewards = False": ({"scale_rewards": False}, 3),
    "hidden = 100": ({"hidden": 100}, 3),
    "hidden = 25": ({"hidden": 25}, 3),
    "7 × 7 board": ({"environment": Board7}, 1),
    "classic 10 × 10 fleet, M = 512": ({"environment": Board10, "M": 512}, 1),
}


def score(environment: type[BattleshipEnv], params: Params) -> float:
    """Mean score over all boards of the default game, over 4,096 random ones of another."""
    if environment is BattleshipEnv:
        return score_on_all_boards(params, repeats=2)
    boards = np.arange(4096) + 10**6
    return float(mg.rollout(environment, mg.neural_battleship_policy, params, boards, step_seed=0).reward.mean())


def run(name: str, seed: int, **changes: Any) -> tuple[float, float]:
    """Train once as the row says; return the mean score and the seconds that training took."""
    constants = {"environment": BattleshipEnv, **DEFAULT_RUN, **EXPERIMENTS[name][0], "seed": seed, **changes}
    environment, hidden, learning_rate = (
        constants["environment"],
        constants.pop("hidden"),
        constants.pop("learning_rate"),
    )
    c = config(**constants)
    params = mg.neural_battleship_policy_init(environment.rules, seed, hidden)
    start = time.perf_counter()
    params, rewards_val = mg.train_grpo(mg.AdamWOptimizer(params, learning_rate=learning_rate), c)
    seconds = time.perf_counter() - start
    if not changes:
        np.savetxt(f"{name}, seed {seed}.csv", rewards_val, "%.6f")
    return score(environment, params), seconds


def main() -> None:
    """Run the rows named on the command line, or time all of them."""
    for name in sys.argv[1:]:
        scores = [run(name, 42 + i)[0] for i in range(EXPERIMENTS[name][1])]
        print(f"{name}: median {median(scores):.3f} of {' '.join(f'{value:.3f}' for value in scores)}", flush=True)
    if len(sys.argv) == 1:
        lengths = {name: EXPERIMENTS[name][0].get("M", mg.GRPOConfig.M) for name in EXPERIMENTS}
        times = {name: M / 128 * run(name, 42, M=128)[1] for name, M in lengths.items()}
        print(*(f"{seconds:5.0f} s  {name}" for name, seconds in times.items()), sep="\n")


if __name__ == "__main__":
    main()
