#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["autograd>=1.9,<2", "numpy>=2.4,<3", "tqdm>=4.70,<5"]
# ///
"""GRPO in one readable file: a small neural network learns Battleship by trial and error.

Group Relative Policy Optimization (GRPO; DeepSeekMath, arXiv 2402.03300) plays a group of games from the same start and
calls a game good if it scored above the average of its group: no second network has to predict scores. It makes the
moves of good games a little more likely and those of bad games less. Read from top to bottom; each section needs only
what stands above it. Short names, here and in the papers:
    policy    π(a|o), the probability of taking action a on seeing observation o; its numbers θ are called params here
    reward    what a game pays; here its score, from 0 to 1
    G, B, N   games in a group; groups in a mini-batch; games played in lockstep, one per row of every array
    T, S      the most steps (moves) that one game can take; the steps that all N games took, summed
    A, r      advantage: how far a game scored above its group's average; π(a|o) now divided by π(a|o) when played
    tiles     board_size², numbered row by row; a tile's number is also the action that fires at it
"""

import contextlib
import math
import os
import signal
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

if __name__ == "__main__":  # more threads save little, and make two runs at once ten times slower
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import autograd.numpy as anp  # NumPy that remembers what it computed, to differentiate it
import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from tqdm import tqdm

Array = np.ndarray
Whole = int | np.integer
Params = dict[str, Array]
Policy = Callable[[Params, Array], Array]  # (params, observation) -> probability of each action


def require(name: str, value: object, allowed: Callable[[Any], object], must_be: str) -> None:
    """Unless `allowed`, refuse a constant and say what would work: ValueError, or SystemExit when run as a script."""
    with contextlib.suppress(TypeError):  # from comparing with what is no number
        if allowed(value):
            return
    sentence = f"{name} = {value!r} cannot work: it must be {must_be}."
    raise SystemExit(sentence) if __name__ == "__main__" else ValueError(sentence)


# === Game: ships hide on a board; fire at its tiles until every ship is hit, with few misses ==========================
@dataclass(frozen=True)
class BattleshipGameRules:
    """Side of the board in tiles; ships[k] ships of length k. ValueError if 1,000 tries to lay them all fail."""

    board_size: int = 5
    ships: tuple[int, ...] = (0, 0, 1, 1, 1, 0)

    def __post_init__(self) -> None:
        require("board_size", self.board_size, lambda n: isinstance(n, Whole) and 1 <= n <= 100, "an integer, 1 to 100")
        n, ships = int(self.board_size), self.ships
        ask = f"a tuple of how many ships have length 0 (none), 1, ... {n}, on at most {n * n} tiles"
        require("ships", ships, lambda s: isinstance(s, tuple) and all(isinstance(k, Whole) and k >= 0 for k in s), ask)
        require("ships", ships, lambda s: 0 < sum(k * int(m) for k, m in enumerate(s)) <= n * n and not s[0], ask)
        BattleshipGame.random_board(self, seed=0, tries=1000)


class BattleshipGame:
    """N games at once, on boards (N, board_size, board_size) bool, True where a ship lies; ships: as (N, tiles)."""

    def __init__(self, boards: Array) -> None:
        self.shape, self.ships = boards.shape, boards.reshape(len(boards), -1)
        self.seen = np.zeros(self.ships.shape, np.float32)  # (N, tiles): 0 not fired at, -1 miss, 1 hit
        self.unhit = self.ships.sum(axis=1)  # (N,) ship tiles left; a game is over when there is none
        self.water, self.misses = self.ships.shape[1] - self.unhit, np.zeros_like(self.unhit)

    @staticmethod
    @lru_cache(maxsize=1024)  # after each mini-batch, training plays the same 64 boards to measure progress
    def random_board(rules: BattleshipGameRules, seed: int, tries: float = np.inf) -> Array:
        """Lay a fleet, (board_size, board_size) bool, the same for the same seed. ValueError if `tries` tries fail."""
        n, rng = int(rules.board_size), np.random.default_rng(seed)
        lengths = np.repeat(range(len(rules.ships)), rules.ships).tolist()
        while True:
            require("ships", rules.ships, lambda _: tries > 0, f"a fleet that random tries can lay on {n} × {n} tiles")
            tries, board = tries - 1, np.zeros((n, n), bool)
            for k in lengths:
                line, start, coin = rng.random(3).tolist()
                ship = (board.T if coin < 0.5 else board)[int(n * line)][int((n - k + 1) * start) :][:k]  # a view
                if ship.any() or len(ship) < k:
                    break  # lay the whole fleet anew, so that every legal placement is equally likely
                ship[:] = True
            else:
                board.setflags(write=False)  # it will be handed out again
                return board

    def play(self, fire: Array) -> Array:
        """Fire: (N,) int tiles -> (N,) bool, is a ship there? A tile fired at before and a finished game stay as is."""
        at = np.arange(len(fire)), fire
        hit, before = self.ships[at], self.seen[at]
        self.seen[at] = after = np.where(self.unhit > 0, np.where(hit, 1, -1), before)
        self.unhit -= after > before
        self.misses += after < before
        return hit

    def score(self) -> Array:
        """(N,) float: 0 until a game is over, then 1 - misses / (tiles without a ship + 1)."""
        return np.where(self.unhit > 0, 0, 1 - self.misses / (self.water + 1))

    def __repr__(self) -> str:
        """Draw the boards side by side: 🌊 no ship, 🚢 ship, 💦 miss, 💥 hit."""
        unseen, fired = np.where(self.ships, "🚢", "🌊"), np.where(self.ships, "💥", "💦")
        emoji = np.where(self.seen == 0, unseen, fired).reshape(self.shape)
        return "\n".join("   ".join("".join(row) for row in rows) for rows in emoji.swapaxes(0, 1))


# === Environment: what a player sees of a game and can do in it; subclass it for your own game ========================
class Environment(ABC):
    """N games played in lockstep, one per row of every array."""

    max_steps: int  # T; a game that is not done by then is cut off
    observation: Array  # (N, ...) float32, what the player of each game sees now
    rng: np.random.Generator  # the source of all chance after the start

    @classmethod
    @abstractmethod
    def reset(cls, init_seeds: Array, step_seed: int) -> tuple[Self, Array]:
        """Start game i by init_seeds[i] (equal seeds, equal starts); seed rng. Return (environment, observation)."""

    @abstractmethod
    def step(self, action: Array) -> tuple[Array, Array, Array]:
        """Take actions, (N,) int -> (observation, reward (N,), done (N,)). Rewards add up until done, not after."""

    def sample_action(self, action_proba: Array) -> Array:
        """Draw an action per row: (rows, actions) probabilities -> (rows,) int."""
        cumulative = np.cumsum(action_proba, axis=1)
        share = self.rng.random((len(cumulative), 1), dtype=cumulative.dtype.type)
        return (cumulative > share * cumulative[:, -1:]).argmax(axis=1)  # never one of probability 0


class BattleshipEnv(Environment):
    """Battleship. Action: the tile to fire at. Reward: the score. Observation: (N, board_size, board_size)."""

    rules = BattleshipGameRules()

    def __init__(self, game: BattleshipGame, step_seed: int) -> None:
        self.game, self.rng = game, np.random.default_rng(step_seed)
        self.max_steps = game.ships.shape[1]  # enough for a player who fires nowhere twice
        self.observation = game.seen.reshape(game.shape).copy()  # 0 fog of war, -1 miss, 1 hit

    @classmethod
    def reset(cls, init_seeds: Array, step_seed: int) -> tuple[Self, Array]:
        seeds, board_of_game = np.unique(init_seeds, return_inverse=True)
        boards = np.stack([BattleshipGame.random_board(cls.rules, int(seed)) for seed in seeds])
        environment = cls(BattleshipGame(boards[board_of_game]), step_seed)
        return environment, environment.observation

    def step(self, action: Array) -> tuple[Array, Array, Array]:
        self.game.play(action)
        self.observation = self.game.seen.reshape(self.game.shape).copy()
        return self.observation, self.game.score(), self.game.unhit == 0


# === Policy: a neural network turns an observation into a probability for every action ================================
def neural_battleship_policy_init(rules: BattleshipGameRules | None = None, seed: int = 42, hidden: int = 0) -> Params:
    """Draw float32 params W1 (hidden, tiles), b1 (hidden,), W2 (tiles, hidden), b2 (tiles,). hidden=0: one per tile."""
    require("hidden", hidden, lambda h: isinstance(h, Whole) and h >= 0, "an integer of at least 0")
    tiles = int((rules or BattleshipEnv.rules).board_size) ** 2
    hidden = hidden or tiles
    rng, deviation = np.random.default_rng(seed), np.sqrt(2 / (tiles + hidden))  # Glorot and Bengio 2010, equation 12
    W1, W2 = rng.normal(0, deviation, (hidden, tiles)), rng.normal(0, deviation, (tiles, hidden))
    params = {"W1": W1, "b1": np.zeros(hidden), "W2": W2, "b2": np.zeros(tiles)}
    return {name: value.astype(np.float32) for name, value in params.items()}


# autograd is told the derivatives of linear, softmax, pick and tanh: twice as fast. In defvjp, each outer lambda takes
# the result and the arguments and returns the function that turns g, the gradient by the result, into that by one
# argument. linear is given the whole dict, as autograd takes it apart slowly; what it does not use has a gradient of 0.
@primitive
def linear(x: Array, params: Params, W: str, b: str) -> Array:
    """Compute x @ params[W].T + params[b]: (rows, inputs) -> (rows, outputs), in Fortran order for fast row sums."""
    return (params[W] @ x.T + params[b][:, None]).T


@primitive
def softmax(logits: Array, barred: Array) -> Array:
    """(rows, actions) logits -> probabilities ∝ exp(logit), 0 where barred is 1 instead of 0."""
    e = logits - 1e30 * barred  # in less time than np.where; the rest in place, as large new arrays are slow
    e -= e.max(axis=1, keepdims=True, initial=-1e29)
    np.exp(e, out=e)  # 1 at the maximum, so the sum is at least 1; all 0 if all is barred
    return np.divide(e, np.maximum(e.sum(axis=1, keepdims=True), 1), out=e)


@primitive
def pick(π: Array, action: Array) -> Array:
    """Pick the probability of each row's action: (rows, actions), (rows,) int -> (rows,)."""
    return π[np.arange(len(action)), action]


def unpick(g: Array, π: Array, action: Array) -> Array:
    """Differentiate `pick`: zeros (rows, actions), but g, (rows,), at the places that `pick` took."""
    grad_π = np.zeros_like(π)
    grad_π[np.arange(len(action)), action] = g
    return grad_π


defvjp(
    linear,
    lambda y, x, params, W, b: lambda g: (params[W].T @ g.T).T,
    lambda y, x, params, W, b: lambda g: {k: np.zeros_like(v) for k, v in params.items()} | {W: g.T @ x, b: g.sum(0)},
)
defvjp(anp.tanh, lambda tanh, x: lambda g: g * (1 - tanh * tanh))
defvjp(softmax, lambda π, *_: lambda g: π * (g - (g * π).sum(axis=1, keepdims=True)))
defvjp(pick, lambda result, π, action: lambda g: unpick(g, π, action))


def neural_battleship_policy(params: Params, observation: Array) -> Array:
    """Probability of firing at each tile, 0 where fired at: (..., n, n) -> (..., n²). ValueError for another size."""
    leading, tiles = observation.shape[:-2], len(params["b2"])
    require("observation.shape", observation.shape[-2:], lambda n: math.prod(n) == tiles, f"a board of {tiles} tiles")
    x = np.asfortranarray(observation.reshape(-1, tiles))  # Fortran order, too
    hidden = anp.tanh(linear(x, params, "W1", "b1"))
    π = softmax(linear(hidden, params, "W2", "b2"), x * x)  # x² is 1 where fired at
    return π if len(leading) == 1 else anp.reshape(π, (*leading, tiles))


def reference_battleship_policy(observation: Array) -> Array:
    """Fire anywhere: uniform over the tiles not fired at before, shapes as above."""
    legal = (observation == 0).reshape(*observation.shape[:-2], -1)
    return (legal / np.maximum(legal.sum(axis=-1, keepdims=True), 1)).astype(observation.dtype)


# === GRPO: compare the games of a group, then make what won more likely ===============================================
@dataclass(frozen=True)
class GRPOConfig:
    """What to train, and how. ValueError for a constant that cannot work."""

    environment: type[Environment]
    policy: Policy
    reference_policy: Callable[[Array], Array]  # observation -> probability of each action
    ε: float = 0.9  # clip range: pushing a probability past 1 ± ε times its old value gains nothing more
    β: float = 0.0  # weight of the KL divergence (distance) from the reference policy, a penalty; 0: none
    G: int = 16  # games per group; more: a truer average to compare with
    B: int = 4  # groups per mini-batch; more: a steadier gradient
    M: int = 2048  # mini-batches
    μ: int = 10  # gradient steps per mini-batch; more: more learned from it, as far as the clip allows
    seed: int = 42  # decides which games are played
    scale_rewards: bool = True  # divide advantages by the group's standard deviation; Dr. GRPO (2503.20783): False

    def __post_init__(self) -> None:
        for name, least in {"G": 2, "B": 1, "M": 0, "μ": 1, "seed": 0}.items():
            require(name, getattr(self, name), lambda n: isinstance(n, Whole) and n >= least, f"an integer, >= {least}")
        require("ε", self.ε, lambda ε: 0 < ε <= 1e9, "a number above 0, at most 1e9")
        require("β", self.β, lambda β: 0 <= β < np.inf, "a finite number of at least 0")


class Trajectories(NamedTuple):
    """N games from start to end. From `observation` on: S rows, one per step of each game, in the order played."""

    T: int
    reward: Array  # (N,) float64
    observation: Array  # (S, ...) float32
    action: Array  # (S,) int
    π_old: Array  # (S,) float32, the probability with which the action was drawn
    game: Array  # (S,) int, which of the N games the step belongs to


def rollout(game: type[Environment], policy: Policy, params: Params, init_seeds: Array, step_seed: int) -> Trajectories:
    """Play N games to their end. init_seeds: (N,) int and step_seed, as for Environment.reset."""
    environment, observation = game.reset(init_seeds, step_seed)
    playing = np.arange(len(observation))  # the games that are not done yet
    steps: list[tuple[Array, ...]] = []
    reward, action = np.zeros(len(playing)), np.zeros(len(playing), int)
    while len(playing) and len(steps) < environment.max_steps:
        π = policy(params, seen := observation[playing])
        action[playing] = drawn = environment.sample_action(π)
        steps.append((seen, drawn, pick(π, drawn), playing))
        observation, step_reward, done = environment.step(action)  # done games repeat their last action; it is ignored
        reward[playing] += step_reward[playing]
        playing = playing[~done[playing]]
    return Trajectories(environment.max_steps, reward, *map(np.concatenate, zip(*steps, strict=True)))


def group_advantages(reward: Array, scale_rewards: bool = True) -> Array:
    """Rewards (B, G) -> advantages (B, G) float64: reward - group mean, / standard deviation if asked; 0 if all tie."""
    tie = np.ptp(reward, axis=1, keepdims=True) == 0  # the mean's rounding error must not be divided by almost 0
    A = np.where(tie, 0, reward - reward.mean(axis=1, keepdims=True))
    return A / np.where(tie, 1, reward.std(axis=1, keepdims=True)) if scale_rewards else A


def grpo_objective(params: Params, batch: Trajectories, A: Array, config: GRPOConfig) -> float:
    """Compute the loss: DeepSeekMath's equation 3, negated, T as length. A: (S,) float32, each step's advantage."""
    π = pick(config.policy(params, batch.observation), batch.action)  # π_θ(a|o), (S,)
    r = π / batch.π_old  # 1 at a mini-batch's first gradient step, with the gradient of log π
    # The paper's min(r·A, clip(r, 1 - ε, 1 + ε)·A) in fewer operations: a gain ends at (1 + ε)·A if A > 0, at (1 - ε)·A
    # if A < 0. Past that it is flat, so there is no gradient.
    gain = anp.minimum(r * A, A + config.ε * np.abs(A))
    if config.β > 0:  # KL(π_θ ‖ π_ref), by the estimator of equation 4
        π_ref = pick(config.reference_policy(batch.observation), batch.action)
        log_ratio = np.log(np.maximum(π_ref, 1e-12)) - anp.log(anp.maximum(π, 1e-12))
        gain = gain - config.β * (anp.exp(log_ratio) - log_ratio - 1)
    return anp.sum(gain) / -(config.B * config.G * batch.T)  # T, not own lengths: all moves weigh alike (Dr. GRPO)


# === Train: AdamW follows the gradient, mini-batch by mini-batch ======================================================
@dataclass
class AdamWOptimizer:
    """Adam with decoupled weight decay (arXiv 1711.05101, algorithm 2) on a copy of params. ValueError as above."""

    params: Params
    learning_rate: float = 3e-4  # about how much a step changes each parameter
    β1: float = 0.9  # memory of m, the running mean of the gradient
    β2: float = 0.999  # memory of v, the running mean of its square
    ε: float = 1e-8  # keeps a gradient of 0 from dividing by 0
    λ: float = 0.01  # weight decay

    def __post_init__(self) -> None:
        for name in ("learning_rate", "ε"):
            require(name, getattr(self, name), lambda x: 0 < x < np.inf, "a finite number above 0")
        for name, end in {"β1": 1, "β2": 1, "λ": np.inf}.items():
            require(name, getattr(self, name), lambda x: 0 <= x < end, f"at least 0 and below {end}")
        self.params = {name: value.copy() for name, value in self.params.items()}
        self.m = {name: np.zeros_like(value) for name, value in self.params.items()}
        self.v, self.t = dict(self.m), 0

    def step(self, grad: Params) -> None:
        """Move params against their gradient (same names and shapes), into a new dict."""
        self.t, params = self.t + 1, dict(self.params)
        for name, g in grad.items():
            self.m[name] = m = self.β1 * self.m[name] + (1 - self.β1) * g
            self.v[name] = v = self.β2 * self.v[name] + (1 - self.β2) * g * g
            update = m / (1 - self.β1**self.t) / (np.sqrt(v / (1 - self.β2**self.t)) + self.ε)
            params[name] = self.params[name] - self.learning_rate * (update + self.λ * self.params[name])
        self.params = params


def train_grpo(optimizer: AdamWOptimizer, grpo_config: GRPOConfig) -> tuple[Params, Array]:
    """Train (DeepSeekMath, algorithm 1) until the end, Ctrl-C or a number not finite. Returns (params, rewards_val).

    rewards_val[i]: mean reward of 8 games from each of 64 fixed starts, played after mini-batch i.
    """
    c, params, rewards_val, rng = grpo_config, optimizer.params, np.zeros(0), np.random.default_rng(grpo_config.seed)
    np.empty(31 * 2**20, np.uint8)  # freed at once: glibc then keeps freed memory, up to this size, for new arrays
    bar = tqdm(range(c.M), "mini-batches", disable=None)  # in a file or pipe: ten lines instead
    with np.errstate(all="ignore"), contextlib.suppress(KeyboardInterrupt), bar:
        for i in bar:
            *init_seeds, step_seed = rng.integers(2**32, size=c.B + 1)
            batch = rollout(c.environment, c.policy, optimizer.params, np.repeat(init_seeds, c.G), step_seed)
            A = group_advantages(batch.reward.reshape(c.B, c.G), c.scale_rewards).ravel()[batch.game].astype(np.float32)
            for _ in range(c.μ):
                optimizer.step(grad(grpo_objective)(optimizer.params, batch, A, c))
            games_val = rollout(c.environment, c.policy, optimizer.params, np.arange(64).repeat(8), step_seed=i)
            if not all(np.isfinite(value).all() for value in (np.log(games_val.π_old), *optimizer.params.values())):
                bar.write(f"Mini-batch {i + 1} left a number that is infinite or NaN: training ends before it.")
                break
            params, rewards_val = optimizer.params, np.append(rewards_val, games_val.reward.mean())
            bar.set_postfix_str(line := f"validation score {rewards_val[-1]:.3f}")
            if bar.disable and (i + 1) * 10 // c.M > i * 10 // c.M:
                with contextlib.suppress(OSError):  # from a pipe that nobody reads any more
                    print(f"mini-batch {i + 1} of {c.M}, {line}", flush=True)
    return params, rewards_val


# === Run: train, save, show what was learned ==========================================================================
def save(name: str, write: Callable[[Any], None]) -> str:
    """Write a file whole or not at all; among the temporary files if not here. Returns what to say about it."""
    said = ""
    for folder in (Path.cwd, tempfile.gettempdir):
        try:
            with tempfile.TemporaryDirectory(dir=folder(), ignore_cleanup_errors=True) as aside:
                with Path(aside, name).open("wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                return f"{said}wrote {Path(aside, name).replace(Path(aside).parent / name)}"
        except OSError as error:
            said += f"could not write {name}: {error}\n"
    return said


def report(config: GRPOConfig, before: Params, after: Params) -> None:
    """Compare the mean scores of players on 1,024 boards; replay a game of the trained policy."""
    random_play = (lambda _, observation: config.reference_policy(observation)), before
    players = {"random play": random_play, "before": (config.policy, before), "after": (config.policy, after)}
    for name, player in players.items():
        played = rollout(BattleshipEnv, *player, np.arange(1024).repeat(4) + 10**6, step_seed=0)
        print(f"{played.reward.mean():.3f} mean score of {name}")
    print("0.615 mean score, on the default rules, of firing where most boards that are still possible have a ship")
    shots = rollout(BattleshipEnv, config.policy, after, np.array([10**6]), step_seed=0).action
    stops, (replay, _) = np.linspace(1, len(shots), 5).astype(int), BattleshipEnv.reset(np.full(5, 10**6), step_seed=0)
    for t, tile in enumerate(shots):
        replay.step(np.where(t < stops, tile, shots[0]))  # copy k stops after stops[k] shots: a repeat changes nothing
    emoji = sys.stdout.isatty() and sys.stdout.encoding.lower().startswith("utf")
    drawn = repr(replay.game).translate({} if emoji else str.maketrans("🌊🚢💦💥", ".Sox"))
    print(f"A game of the trained policy after {', '.join(map(str, stops))} shots:\n{drawn}")


def main() -> None:
    """Train, save, report: 4 × the default groups, for a steadier gradient; 2 steps per batch, as games are cheap."""
    config = GRPOConfig(BattleshipEnv, neural_battleship_policy, reference_battleship_policy, B=16, μ=2)
    before = neural_battleship_policy_init(hidden=50)  # twice as many units as tiles, for finer patterns of hits
    optimizer = AdamWOptimizer(before, learning_rate=4e-3)  # large, as the gradient is steady
    require("working directory", ".", lambda path: os.access(path, os.W_OK), "one that results can be written to")
    after, rewards_val = train_grpo(optimizer, config)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on, Ctrl-C ends at once
    said = [f"Stopped after {len(rewards_val)} of {config.M} mini-batches."]
    if len(rewards_val):  # else nothing was learned
        said.append(save("battleship_policy.npz", lambda file: np.savez(file, allow_pickle=False, **after)))
        said.append(save("battleship_rewards.csv", lambda file: np.savetxt(file, rewards_val, "%.6f")))
    print("\n".join(said).encode("ascii", "replace").decode())
    report(config, before, after)


if __name__ == "__main__":
    main()
