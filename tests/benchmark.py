"""Time the parts of a mini-batch: `uv run tests/benchmark.py` (about a minute and a quarter).

Every figure is a median over repeats in this one process, but for two lines that say so. What is compared runs in turn,
in a new random order each time, as a call can leave the next one a worse cache.
"""

import math
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as microgrpo.py does when it is run
sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from experiments import DEFAULT_RUN
from support import config, gradient_by_hand, mini_batch, objective_step_by_step

import microgrpo as mg
from microgrpo import (
    AdamWOptimizer,
    Array,
    BattleshipEnv,
    BattleshipGame,
    BattleshipGameRules,
    GRPOConfig,
    Params,
    Trajectories,
)

Call = Callable[[], Any]


def timed(calls: Mapping[str, Call], seconds: float, in_a_row: int = 1) -> dict[str, float]:
    """Call each in turn, some times in a row, for about `seconds` in all; return the median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(times.values(), key=len)) < 5:
        for name in random.sample(list(calls), len(calls)):
            start = time.perf_counter()
            for _ in range(in_a_row):
                calls[name]()
            times[name].append(1e3 * (time.perf_counter() - start) / in_a_row)
    return {name: median(values) for name, values in times.items()}


Layer = Callable[[Array, Params, str, str], Array]


@primitive  # type: ignore[untyped-decorator]
def linear_on_arrays(x: Array, W: Array, b: Array) -> Any:
    """Compute what `linear` does, on arrays that autograd took from the dict one by one."""
    return (W @ x.T + b[:, None]).T


@primitive  # type: ignore[untyped-decorator]
def linear_in_rows(x: Array, params: Params, W: str, b: str) -> Any:
    """Compute what `linear` does, row by row."""
    return x @ params[W].T + params[b]


def linear_untold(x: Array, params: Params, W: str, b: str) -> Any:
    """Compute what `linear` does, its derivatives left to autograd."""
    return anp.transpose(anp.dot(params[W], anp.transpose(x)) + anp.reshape(params[b], (-1, 1)))


@primitive  # type: ignore[untyped-decorator]
def tanh_untold(x: Array) -> Any:
    """Compute tanh, with the derivative that autograd would use if it were not told another."""
    return np.tanh(x)


@primitive  # type: ignore[untyped-decorator]
def softmax_where(logits: Array, barred: Array) -> Any:
    """Compute what `softmax` does, the mask by np.where."""
    logits = np.where(barred, np.float32(-1e30), logits)
    e = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-1e29))
    return e / np.maximum(e.sum(axis=1, keepdims=True), 1)


def softmax_untold(logits: Array, barred: Array) -> Any:
    """Compute what `softmax` does, its derivative left to autograd."""
    logits = logits - 1e30 * barred
    e = anp.exp(logits - anp.max(logits, axis=1, keepdims=True))
    return e / anp.sum(e, axis=1, keepdims=True)


def pick_untold(π: Array, action: Array) -> Any:
    """Compute what `pick` does, its derivative left to autograd."""
    return π[np.arange(len(action)), action]


defvjp(
    linear_on_arrays,
    lambda y, x, W, b: lambda g: (W.T @ g.T).T,
    lambda y, x, W, b: lambda g: g.T @ x,
    lambda y, x, W, b: lambda g: g.sum(axis=0),
)
defvjp(
    linear_in_rows,
    lambda y, x, params, W, b: lambda g: g @ params[W],
    lambda y, x, params, W, b: lambda g: {k: np.zeros_like(v) for k, v in params.items()} | {W: g.T @ x, b: g.sum(0)},
)
defvjp(tanh_untold, lambda tanh, x: lambda g: g / np.cosh(x) ** 2)
defvjp(softmax_where, lambda π, *_: lambda g: π * (g - (g * π).sum(axis=1, keepdims=True)))


def policy(
    layer: Layer = mg.linear, tanh: Any = anp.tanh, softmax: Any = mg.softmax, order: Literal["C", "F"] = "F"
) -> mg.Policy:
    """Make the script's policy, with some of its parts in another form."""

    def proba(params: Params, observation: Array) -> Any:
        shape, tiles = observation.shape[-2:], len(params["b2"])
        mg.require("observation.shape", shape, lambda n: math.prod(n) == tiles, f"a board of {tiles} tiles")
        x = np.asarray(observation.reshape(-1, tiles), order=order)
        hidden = tanh(layer(x, params, "W1", "b1"))
        return softmax(layer(hidden, params, "W2", "b2"), x * x)

    return proba


def gradient_of(policy: mg.Policy, pick: Any = mg.pick, *, clip: bool = False) -> Callable[..., Params]:
    """Make the gradient of the script's objective (β = 0), with some of its parts in another form."""

    def objective(params: Params, batch: Trajectories, A: Array, c: GRPOConfig) -> Any:
        r = pick(policy(params, batch.observation), batch.action) / batch.π_old
        gain = anp.minimum(r * A, anp.clip(r, 1 - c.ε, 1 + c.ε) * A if clip else A + c.ε * np.abs(A))
        return anp.sum(gain) / -(c.B * c.G * batch.T)

    return grad(objective)  # type: ignore[no-any-return]


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

    calls: dict[str, Call] = {
        "rollout": lambda: mg.rollout(c.environment, c.policy, params, seeds, 0),
        "steps": steps,
        "validation": lambda: mg.rollout(c.environment, c.policy, params, seeds_val, 0),
    }
    return timed(calls, seconds), len(A)


def print_mini_batch(name: str, c: GRPOConfig, params: Params) -> None:
    """Print one row of the first table."""
    times, rows = parts(c, params, 4)
    total = sum(times.values())
    print(
        f"{name:34} {rows:6} {times['rollout']:8.2f} {c.μ:3} x {times['steps'] / c.μ:5.2f} {times['validation']:10.2f}"
        f" {total:8.2f} {15500 / total:10.0f}"
    )


def default_run() -> tuple[GRPOConfig, Params]:
    """Make the default run's constants and initial params."""
    params = mg.neural_battleship_policy_init(hidden=int(DEFAULT_RUN["hidden"]))
    return config(B=DEFAULT_RUN["B"], μ=DEFAULT_RUN["μ"]), params


def give_hint() -> None:
    """Let training give its hint on memory."""
    mg.train_grpo(AdamWOptimizer(mg.neural_battleship_policy_init()), config(M=0))


def gradient_of_default_run() -> float:
    """Milliseconds of one gradient of the default run."""
    c, params = default_run()
    batch, A = mini_batch(c, params)
    gradient = grad(mg.grpo_objective)
    return timed({"": lambda: gradient(params, batch, A, c)}, 3)[""]


def in_another_process(**environment: str) -> float:
    """Milliseconds of that gradient, after the hint, in a new process with these environment variables."""
    code = "import benchmark; benchmark.give_hint(); print(benchmark.gradient_of_default_run())"
    run = [sys.executable, "-c", code]
    cwd, env = Path(__file__).parent, os.environ | environment
    return float(subprocess.run(run, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout.split()[-1])


def print_beside_the_script(times: dict[str, float]) -> None:
    """Print milliseconds, and how they compare with "the script"."""
    for name, milliseconds in times.items():
        print(f"{name:44} {milliseconds:8.2f}   this / the script {milliseconds / times['the script']:6.2f}")


def main() -> None:
    """Print the tables."""
    default, wide = default_run()
    before_hint = gradient_of_default_run()
    give_hint()  # for the rest of the process
    after_hint = gradient_of_default_run()

    print("One mini-batch, untrained policy, ms. Last column: times faster than the original's 15.5 s.\n")
    print("                                     rows  rollout  gradient steps  validation     total    original/")
    print_mini_batch("original's constants", config(), mg.neural_battleship_policy_init())
    print_mini_batch("default run", default, wide)

    print("\nOne gradient step (gradient and AdamW), the original's constants, ms.\n")
    c, params = config(), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    on_arrays: Layer = lambda x, params, W, b: linear_on_arrays(x, params[W], params[b])  # noqa: E731
    untold = policy(linear_untold, tanh_untold, softmax_untold, "C")
    forms: dict[str, Callable[..., Params]] = {
        "the script": grad(mg.grpo_objective),
        "  with the clip, as the paper writes it": gradient_of(policy(), clip=True),
        "  params taken from the dict one by one": gradient_of(policy(on_arrays)),
        "  row order": gradient_of(policy(linear_in_rows, order="C")),
        "  mask by np.where": gradient_of(policy(softmax=softmax_where)),
        "  derivative of linear left to autograd": gradient_of(policy(linear_untold)),
        "  derivative of tanh left to autograd": gradient_of(policy(tanh=tanh_untold)),
        "  derivative of softmax left to autograd": gradient_of(policy(softmax=softmax_untold)),
        "  derivative of pick left to autograd": gradient_of(policy(), pick_untold),
        "  all left to autograd, clip, row order": gradient_of(untold, pick_untold, clip=True),
        "derived by hand, column order": gradient_by_hand,
        "derived by hand, row order": by_hand_in_rows,
    }
    expected = forms["the script"](params, batch, A, c)
    for differentiate in forms.values():  # they compute the same
        for name, value in differentiate(params, batch, A, c).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-6)
    optimizer = AdamWOptimizer(params)

    def step(differentiate: Callable[..., Params]) -> Call:
        return lambda: optimizer.step(differentiate(params, batch, A, c))

    times = timed({name: step(differentiate) for name, differentiate in forms.items()}, 20, c.μ)
    times |= timed({"loop over steps, objective alone": lambda: objective_step_by_step(params, batch, A, c)}, 0)
    print_beside_the_script(times)

    print("(the derivative of tanh pays where NumPy has no AVX-512: there, cosh is ten times slower)")

    print("\nOne validation, its 512 games played by the untrained policy, ms.\n")
    seeds, in_rows = np.arange(64).repeat(8), policy(linear_in_rows, order="C")

    def play(policy: mg.Policy, *, lay_anew: bool = False) -> None:
        if lay_anew:
            BattleshipGame.random_board.cache_clear()
        mg.rollout(BattleshipEnv, policy, params, seeds, 0)

    plays: dict[str, Call] = {
        "the script": lambda: play(mg.neural_battleship_policy),
        "  row order": lambda: play(in_rows),
        "  mask by np.where": lambda: play(policy(softmax=softmax_where)),
        "  the 64 boards laid anew each time": lambda: play(mg.neural_battleship_policy, lay_anew=True),
    }
    print_beside_the_script(timed(plays, 8))

    print("\nOne gradient step of the default run, ms.\n")
    print_beside_the_script(
        {
            "the script": after_hint,
            "  without the hint on memory": before_hint,
            "  another process, a thread for every core": in_another_process(OPENBLAS_NUM_THREADS=str(os.cpu_count())),
            "  another process, one thread, as in a run": in_another_process(OPENBLAS_NUM_THREADS="1"),
        }
    )

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
