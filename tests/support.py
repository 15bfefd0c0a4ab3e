"""What several tests share: every board there is, golden values, and plain versions to compare with."""

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

import microgrpo as mg
from microgrpo import Array, BattleshipEnv, BattleshipGame, GRPOConfig, Params, Trajectories

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    """Read golden/<name>.json; its "source" says what made it."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


@cache
def all_boards(board_size: int = 5, lengths: tuple[int, ...] = (2, 3, 4)) -> Array:
    """Every legal placement of a fleet, one by one: (placements, board_size, board_size) bool."""
    tile = np.arange(board_size**2).reshape(board_size, board_size).tolist()
    lines = [*tile, *map(list, zip(*tile, strict=True))]  # rows and columns
    ways = [
        {tuple(line[start : start + length]) for line in lines for start in range(board_size - length + 1)}
        for length in lengths
    ]
    fleets = [sum(fleet, ()) for fleet in itertools.product(*ways)]
    boards = [np.isin(np.arange(board_size**2), fleet) for fleet in fleets if len(set(fleet)) == len(fleet)]
    return np.array(boards).reshape(-1, board_size, board_size)


class AllBoardsEnv(BattleshipEnv):
    """The default game, where game i starts on board number init_seeds[i] of all_boards()."""

    @classmethod
    def reset(cls, init_seeds: Array, step_seed: int) -> tuple[Self, Array]:
        """Start on the boards numbered init_seeds."""
        environment = cls(BattleshipGame(all_boards()[init_seeds]), step_seed)
        return environment, environment.observation


def score_on_all_boards(params: Params, repeats: int = 1) -> float:
    """Mean score of sampled play over all 9,024 boards of the default game."""
    boards = np.arange(len(all_boards())).repeat(repeats)
    return float(mg.rollout(AllBoardsEnv, mg.neural_battleship_policy, params, boards, step_seed=0).reward.mean())


def config(**changes: Any) -> GRPOConfig:
    """Make the default configuration for Battleship, with changes."""
    players = mg.neural_battleship_policy, mg.reference_battleship_policy
    return GRPOConfig(changes.pop("environment", BattleshipEnv), *players, **changes)


def mini_batch(config: GRPOConfig, params: Params, seed: int = 0) -> tuple[Trajectories, Array]:
    """Play a mini-batch as training does; return it with the advantage of each step."""
    init_seeds = np.random.default_rng(seed).integers(2**32, size=config.B).repeat(config.G)
    batch = mg.rollout(config.environment, config.policy, params, init_seeds, step_seed=seed)
    A = mg.group_advantages(batch.reward.reshape(config.B, config.G), config.scale_rewards)
    return batch, A.ravel()[batch.game].astype(np.float32)


def objective_step_by_step(params: Params, batch: Trajectories, A: Array, config: GRPOConfig) -> float:
    """Compute the objective as the formula reads: a loop over groups, trajectories and steps."""
    total = 0.0
    for group in range(config.B):
        of_group = 0.0
        for trajectory in range(group * config.G, (group + 1) * config.G):
            of_trajectory = 0.0
            for s in np.flatnonzero(batch.game == trajectory):
                π = float(config.policy(params, batch.observation[s])[batch.action[s]])
                π_ref = float(config.reference_policy(batch.observation[s])[batch.action[s]])
                r = π / float(batch.π_old[s])
                clipped = min(max(r, 1 - config.ε), 1 + config.ε)
                kl = π_ref / π - np.log(π_ref / π) - 1
                of_trajectory += min(r * float(A[s]), clipped * float(A[s])) - config.β * kl
            of_group += of_trajectory / batch.T
        total += of_group / config.G
    return -total / config.B


def gradient_by_hand(params: Params, batch: Trajectories, A: Array, config: GRPOConfig) -> Params:
    """Derive the objective of the neural Battleship policy on paper (β = 0), in the script's column order."""
    rows = np.arange(len(A))
    x = batch.observation.reshape(len(A), -1).T.copy()  # (tiles, S)
    hidden = np.tanh(params["W1"] @ x + params["b1"][:, None])
    π = params["W2"] @ hidden + params["b2"][:, None] - np.asarray(1e30, x.dtype) * (x * x)
    π -= π.max(axis=0)
    np.exp(π, out=π)
    π /= π.sum(axis=0)
    r = π[batch.action, rows] / batch.π_old
    moves = np.where(A > 0, r <= 1 + config.ε, r >= 1 - config.ε)  # not clipped
    g = -A * moves * r / np.asarray(config.B * config.G * batch.T, r.dtype)  # by log π(a|o)
    g_logits = -π * g
    g_logits[batch.action, rows] += g
    g_hidden = (params["W2"].T @ g_logits) * (1 - hidden * hidden)
    return {
        "W1": g_hidden @ x.T,
        "b1": g_hidden.sum(axis=1),
        "W2": g_logits @ hidden.T,
        "b2": g_logits.sum(axis=1),
    }
