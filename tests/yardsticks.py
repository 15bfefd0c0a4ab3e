"""Where a policy misses, beside the Bayes-greedy player: `uv run tests/yardsticks.py`.

The greedy player knows all 9,024 boards and fires at the tile that most of those still possible have a ship on.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import numpy as np
from support import ROOT, AllBoardsEnv, all_boards

import microgrpo as mg
from microgrpo import Array, Params

SHIP_TILES = 9


def greedy_misses() -> Array:
    """Mean number of misses of the greedy player while 0, 1, ... 8 ship tiles are hit: (9,)."""
    boards = all_boards().reshape(-1, 25)
    misses = np.zeros(SHIP_TILES)
    # Each entry: the boards that look the same so far, the tiles fired at, the hits among them.
    positions = [(np.arange(len(boards)), np.zeros(25, bool), 0)]
    while positions:
        possible, fired, hits = positions.pop()
        tile = np.where(fired, -1, boards[possible].sum(axis=0)).argmax()
        fired = fired | (np.arange(25) == tile)
        hit = boards[possible, tile]
        misses[hits] += (~hit).sum()
        if (~hit).any():
            positions.append((possible[~hit], fired, hits))
        if hit.any() and hits + 1 < SHIP_TILES:
            positions.append((possible[hit], fired, hits + 1))
    return misses / len(boards)


def policy_misses(params: Params) -> Array:
    """Mean number of misses of a policy while 0, 1, ... 8 ship tiles are hit: (9,)."""
    games = mg.rollout(AllBoardsEnv, mg.neural_battleship_policy, params, np.arange(9024).repeat(4), step_seed=0)
    hits = (games.observation == 1).sum(axis=(1, 2))
    missed = ~all_boards().reshape(-1, 25)[games.game // 4, games.action]
    return np.bincount(hits, missed, SHIP_TILES) / len(games.reward)


def main() -> None:
    """Print the table."""
    with np.load(ROOT / "battleship_policy.npz") as file:
        rows = {"greedy": greedy_misses(), "shipped policy": policy_misses(dict(file))}
    print(f"{'tiles hit so far':16}", *(f"{hits:5}" for hits in range(SHIP_TILES)), "   all  score")
    for name, misses in rows.items():
        total = misses.sum()
        print(f"{name:16}", *(f"{miss:5.2f}" for miss in misses), f"{total:6.2f}  {1 - total / 17:.4f}")


if __name__ == "__main__":
    main()
