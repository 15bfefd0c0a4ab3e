"""Time the parts of a mini-batch: `uv run tests/benchmark.py` (about a minute).

Every figure is a median over repeats in this one process, in milliseconds; what is compared runs in turn.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as microgrpo.py does when it is run
sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from experiments import DEFAULT_RUN
from support import config, gradient_by_hand, mini_batch, objective_step_by_step

import microgrpo as mg
from microgrpo import AdamWOptimizer, Array, BattleshipEnv, BattleshipGameRules, GRPOConfig, Params, Trajectories

Call = Callable[[], Any]


def timed(seconds: float = 1.5, in_a_row: int = 1, **calls: Call) -> dict[str, float]:
    """Call each in turn, some times in a row, for about `seconds` in all; return the median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(times.values(), key=len)) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(in_a_row):
                call()
            times[name].append(1e3 * (time.perf_counter() - start) / in_a_row)
    return {name: median(values) for name, values in times.items()}


def by_numpy_calls(params: Params, observation: Array) -> Array:
    """Compute the policy in row order, with every derivative left to autograd."""
    x = observation.reshape(len(observation), -1)
    hidden = anp.tanh(anp.dot(x, params["W1"].T) + params["b1"])
    logits = anp.dot(hidden, params["W2"].T) + params["b2"] - 1e30 * (x * x)
    e = anp.exp(logits - anp.max(logits, axis=1, keepdims=True))
    return e / anp.sum(e, axis=1, keepdims=True)  # type: ignore[no-any-return]


def objective_with_clip(params: Params, batch: Trajectories, A: Array, c: GRPOConfig) -> float:
    """Compute the objective (β = 0) with the clip, as the paper writes it."""
    r = mg.pick(c.policy(params, batch.observation), batch.action) / batch.π_old
    gain = anp.minimum(r * A, anp.clip(r, 1 - c.ε, 1 + c.ε) * A)
    return anp.sum(gain) / -(c.B * c.G * batch.T)  # type: ignore[no-any-return]


@primitive  # type: ignore[untyped-decorator]
def linear_apart(x: Array, W: Array, b: Array) -> Array:
    """Compute what `linear` does, on arrays that autograd took from the dict one by one."""
    return (W @ x.T + b[:, None]).T  # type: ignore[no-any-return]


defvjp(
    linear_apart,
    lambda y, x, W, b: lambda g: (W.T @ g.T).T,
    lambda y, x, W, b: lambda g: g.T @ x,
    lambda y, x, W, b: lambda g: g.sum(axis=0),
)


def by_arrays(params: Params, observation: Array) -> Array:
    """Compute the policy as the script does, but for `linear_apart`."""
    x = np.asfortranarray(observation.reshape(len(observation), -1))
    hidden = anp.tanh(linear_apart(x, params["W1"], params["b1"]))
    return mg.softmax(linear_apart(hidden, params["W2"], params["b2"]), x * x)  # type: ignore[no-any-return]


def by_hand_in_rows(params: Params, batch: Trajectories, A: Array, c: GRPOConfig) -> Params:
    """Derive the objective on paper as most would write it: row order, no thought for speed."""
    x, rows = batch.observation.reshape(len(A), -1), np.arange(len(A))
    hidden = np.tanh(x @ params["W1"].T + params["b1"])
    logits = np.where(x != 0, np.float32(-1e30), hidden @ params["W2"].T + params["b2"])
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    π = e / e.sum(axis=1, keepdims=True)
    r = π[rows, batch.action] / batch.π_old
    moves = np.where(A > 0, r <= 1 + c.ε, r >= 1 - c.ε)
    g = (-A * moves * r / np.float32(c.B * c.G * x.shape[1]))[:, None]
    g_logits = -π * g
    g_logits[rows, batch.action] += g[:, 0]
    g_hidden = (g_logits @ params["W2"]) * (1 - hidden * hidden)
    return {"W1": g_hidden.T @ x, "b1": g_hidden.sum(0), "W2": g_logits.T @ hidden, "b2": g_logits.sum(0)}


def parts(c: GRPOConfig, params: Params, seconds: float = 1.5) -> tuple[dict[str, float], int]:
    """Time the parts of a mini-batch in turn, as training does them; return them with its number of rows."""
    batch, A = mini_batch(c, params)
    gradient, optimizer = grad(mg.grpo_objective), AdamWOptimizer(params)
    seeds, seeds_val = np.random.default_rng(0).integers(2**32, size=c.B).repeat(c.G), np.arange(64).repeat(8)

    def steps() -> None:
        for _ in range(c.μ):
            optimizer.step(gradient(params, batch, A, c))

    times = timed(
        seconds,
        rollout=lambda: mg.rollout(c.environment, c.policy, params, seeds, 0),
        steps=steps,
        validation=lambda: mg.rollout(c.environment, c.policy, params, seeds_val, 0),
    )
    return times, len(A)


def print_mini_batch(name: str, c: GRPOConfig, params: Params) -> None:
    """Print one row of the first table."""
    times, rows = parts(c, params, 4)
    total = sum(times.values())
    print(
        f"{name:34} {rows:6} {times['rollout']:8.2f} {c.μ:3} x {times['steps'] / c.μ:5.2f} {times['validation']:10.2f}"
        f" {total:8.2f} {15500 / total:10.0f}"
    )


def main() -> None:
    """Print the tables."""
    default = config(B=DEFAULT_RUN["B"], μ=DEFAULT_RUN["μ"])
    wide = mg.neural_battleship_policy_init(hidden=int(DEFAULT_RUN["hidden"]))
    batch, A = mini_batch(default, wide)
    gradient = grad(mg.grpo_objective)
    before_hint = timed(3, step=lambda: gradient(wide, batch, A, default))["step"]
    mg.train_grpo(AdamWOptimizer(wide), config(M=0))  # gives the hint on memory, for the rest of the process
    after_hint = timed(3, step=lambda: gradient(wide, batch, A, default))["step"]

    print("One mini-batch, untrained policy, ms. Last column: times faster than the original's 15.5 s.\n")
    print("                                     rows  rollout  gradient steps  validation     total    original/")
    print_mini_batch("original's constants", config(), mg.neural_battleship_policy_init())
    print_mini_batch("default run", default, wide)

    print("\nOne gradient step (gradient and AdamW), the original's constants, ms.\n")
    c, params = config(), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    plain = GRPOConfig(BattleshipEnv, by_numpy_calls, mg.reference_battleship_policy)
    apart = GRPOConfig(BattleshipEnv, by_arrays, mg.reference_battleship_policy)
    forms: dict[str, tuple[Callable[..., Params], GRPOConfig]] = {
        "the script": (gradient, c),
        "  with the clip, as the paper writes it": (grad(objective_with_clip), c),
        "  params taken from the dict one by one": (gradient, apart),
        "  both, and no derivative told; row order": (grad(objective_with_clip), plain),
        "derived by hand, column order": (gradient_by_hand, c),
        "derived by hand, row order": (by_hand_in_rows, c),
    }
    expected = gradient(params, batch, A, c)
    for differentiate, version in forms.values():  # they compute the same
        for name, value in differentiate(params, batch, A, version).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-6)
    optimizer = AdamWOptimizer(params)

    def steps(differentiate: Callable[..., Params], version: GRPOConfig) -> Call:
        return lambda: optimizer.step(differentiate(params, batch, A, version))

    times = timed(8, c.μ, **{name: steps(*form) for name, form in forms.items()})
    loop = timed(0, loop=lambda: objective_step_by_step(params, batch, A, c))
    times["loop over steps, objective alone"] = loop["loop"]
    for name, milliseconds in times.items():
        print(f"{name:44} {milliseconds:8.2f}   the script / this {times['the script'] / milliseconds:5.2f}")

    print("\nWhat the hint on memory buys a gradient step of the default run, ms.\n")
    print(f"without {before_hint:.2f}, with {after_hint:.2f}: {before_hint / after_hint:.2f} times faster")

    print("\nGrowth: one rollout and one gradient step, ms, and ms for 1,000 rows.\n")
    for board_size, ships in ((5, (0, 0, 1, 1, 1)), (7, (0, 0, 1, 2, 1)), (10, (0, 0, 1, 2, 1, 1))):
        rules = BattleshipGameRules(board_size, ships)
        environment = type("Env", (BattleshipEnv,), {"rules": rules})
        for B in (4, 16, 64):
            c = config(environment=environment, B=B, μ=1)
            times, rows = parts(c, mg.neural_battleship_policy_init(rules, hidden=25), 2)
            both = times["rollout"] + times["steps"]
            print(
                f"board {board_size:2}, B = {B:2}: {rows:6} rows, rollout {times['rollout']:7.2f}, "
                f"step {times['steps']:7.2f}, both for 1,000 rows {1e3 * both / rows:6.2f}"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nLargest memory of this process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
