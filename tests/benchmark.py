"""Time the parts of a mini-batch: `uv run tests/benchmark.py` (about two minutes).

Every figure is a median over repeats in this one process, but for the last table's. What is compared runs in
turn, in a new random order each time, as a call can leave the next one a worse cache.
"""

import math
import os
import random
import resource
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as microgrpo.py does when it is run
sys.path.insert(0, str(Path(__file__).parent.parent))  # microgrpo.py, when run as a script

import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from experiments import DEFAULT_RUN, Board7, Board10
from support import config, gradient_by_hand, mini_batch, objective_step_by_step

import microgrpo as mg
from microgrpo import AdamWOptimizer, Array, BattleshipEnv, BattleshipGame, GRPOConfig, Params, Trajectories

Call = Callable[[], Any]


def timed(calls: Mapping[str, Call], seconds: float, in_a_row: int = 1) -> dict[str, float]:
    """Call each in turn, some times in a row, for about `seconds` in all; return the median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(times.values(), key=len)) < 3:
        for name in random.sample(list(calls), len(calls)):
            start = time.perf_counter()
            for _ in range(in_a_row):
                calls[name]()
            times[name].append(1e3 * (time.perf_counter() - start) / in_a_row)
    return {name: median(values) for name, values in times.items()}


Layer = Callable[[Array, Params, str, str], Array]


@primitive  # type: ignore[untyped-decorator]
def linear_on_arrays(x: Array, W: Array, b: Array) -> Any:
    """Compute what `linear` does, on the arrays themselves."""
    return (W @ x.T + b[:, None]).T


def linear_taken_apart(x: Array, params: Params, W: str, b: str) -> Any:
    """Compute what `linear` does, on arrays that autograd takes from the dict one by one."""
    return linear_on_arrays(x, params[W], params[b])


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
    e = np.where(barred, np.float32(-1e30), logits)
    e -= e.max(axis=1, keepdims=True, initial=-1e29)
    np.exp(e, out=e)
    return np.divide(e, np.maximum(e.sum(axis=1, keepdims=True), 1), out=e)


@primitive  # type: ignore[untyped-decorator]
def softmax_in_new_arrays(logits: Array, barred: Array) -> Any:
    """Compute what `softmax` does, nothing in place."""
    logits = logits - 1e30 * barred
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
for softmax in (softmax_where, softmax_in_new_arrays):
    defvjp(softmax, lambda π, *_: lambda g: π * (g - (g * π).sum(axis=1, keepdims=True)))


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


def print_mini_batch(name: str, c: GRPOConfig, params: Params, seconds: float = 3) -> float:
    """Print one row of the first table; return the milliseconds of the whole mini-batch."""
    batch, A = mini_batch(c, params)
    optimizer = AdamWOptimizer(params)

    def steps(gradient: Callable[..., Params]) -> None:
        for _ in range(c.μ):
            optimizer.step(gradient(params, batch, A, c))

    calls: dict[str, Call] = {
        "rollout": lambda: mini_batch(c, params),
        "steps": lambda: steps(grad(mg.grpo_objective)),
        "validation": lambda: mg.rollout(c.environment, c.policy, params, np.arange(64).repeat(8), 0),
        "by hand": lambda: steps(gradient_by_hand),
    }
    rollout, all_steps, validation, all_by_hand = timed(calls, seconds).values()
    loop = 1e3 * median(timeit.repeat(lambda: objective_step_by_step(params, batch, A, c), number=1, repeat=3))
    step, by_hand, total = all_steps / c.μ, all_by_hand / c.μ, rollout + all_steps + validation
    print(
        f"{name:34} {len(A):6} {rollout:8.2f} {c.μ:3} x {step:6.2f} {validation:11.2f} {total:8.2f}"
        f" {by_hand:8.2f} {step / by_hand:6.2f} {loop:8.0f} {loop / step:6.0f}"
    )
    return total


def default_run() -> tuple[GRPOConfig, Params]:
    """Make the default run's constants and initial params."""
    params = mg.neural_battleship_policy_init(hidden=int(DEFAULT_RUN["hidden"]))
    return config(B=DEFAULT_RUN["B"], μ=DEFAULT_RUN["μ"]), params


def give_hint() -> None:
    """Let training give its hint on memory, for the rest of the process."""
    mg.train_grpo(AdamWOptimizer(mg.neural_battleship_policy_init()), config(M=0))


def gradient_of_default_run(policy: mg.Policy, *, hint: bool) -> float:
    """Milliseconds of one gradient of the default run, with this form of its policy, after the hint or without it."""
    if hint:
        give_hint()
    c, params = default_run()
    c, gradient = replace(c, policy=policy), grad(mg.grpo_objective)
    batch, A = mini_batch(c, params)
    return timed({"": lambda: gradient(params, batch, A, c)}, 1)[""]


def in_new_processes(
    copies: int = 1, *, hint: bool = True, policy: str = "mg.neural_battleship_policy", **environment: str
) -> float:
    """Milliseconds of that gradient in so many processes at once, with these environment variables."""
    code = f"from benchmark import *; print(gradient_of_default_run({policy}, hint={hint}))"
    run, cwd, env = [sys.executable, "-c", code], Path(__file__).parent, os.environ | environment
    started = [subprocess.Popen(run, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True) for _ in range(copies)]
    return median(float(process.communicate()[0].split()[-1]) for process in started)


def print_beside_the_script(times: dict[str, float]) -> None:
    """Print milliseconds, and how they compare with "the script"."""
    for name, milliseconds in times.items():
        print(f"{name:44} {milliseconds:8.2f}   this / the script {milliseconds / times['the script']:6.2f}")


def main() -> None:
    """Print the tables."""
    give_hint()

    print("One mini-batch, played by the untrained policy, ms. Each row of the arrays is a step of a game.\n")
    print(
        "Beside a gradient step with AdamW: the same derived by hand; the objective alone in a loop over the steps.\n"
    )
    print(f"{'':34}   rows  rollout  gradient     validation    total  by hand  step/    loop  loop/")
    print(f"{'':34}                     steps                                hand          step")
    print_mini_batch("the default run", *default_run())
    totals = {}
    for environment in (BattleshipEnv, Board7, Board10):
        n = environment.rules.board_size
        for B in (4, 16, 64):
            params = mg.neural_battleship_policy_init(environment.rules, hidden=25)
            totals[n, B] = print_mini_batch(f"board {n} x {n}, B = {B}", config(environment=environment, B=B), params)
        print(f"{'':34} B = 64 takes {totals[n, 64] / totals[n, 4]:.1f} times as long as B = 4.")
    print("\nThe original, whose constants are those of board 5 x 5 and B = 4, takes 15,500 ms:")
    print(f"{15500 / totals[5, 4]:.0f} times as long.")

    print("\nOne gradient step (gradient and AdamW), the original's constants, ms.\n")
    c, params = config(), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    untold = policy(linear_untold, tanh_untold, softmax_untold, "C")
    forms: dict[str, Callable[..., Params]] = {
        "the script": grad(mg.grpo_objective),
        "  with the clip, as the paper writes it": gradient_of(policy(), clip=True),
        "  params taken from the dict one by one": gradient_of(policy(linear_taken_apart)),
        "  row order": gradient_of(policy(linear_in_rows, order="C")),
        "  mask by np.where": gradient_of(policy(softmax=softmax_where)),
        "  softmax in new arrays": gradient_of(policy(softmax=softmax_in_new_arrays)),
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

    print_beside_the_script(timed({name: step(form) for name, form in forms.items()}, 20, c.μ))
    print("(Below: what the derivative of tanh buys without AVX-512, and softmax in place with large arrays.)")

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

    print("\nOne gradient, 64 groups on a board of 10 x 10, ms.\n")
    c, params = config(environment=Board10, B=64), mg.neural_battleship_policy_init(Board10.rules, hidden=25)
    batch, A = mini_batch(c, params)
    names = "the script", "  softmax in new arrays"
    print_beside_the_script(timed({name: partial(forms[name], params, batch, A, c) for name in names}, 10))

    print("\nOne gradient of the default run, ms, in processes of their own.\n")
    cores = str(os.cpu_count() or 1)
    versions: dict[str, Callable[[], float]] = {
        "the script": in_new_processes,
        "  without the hint on memory": lambda: in_new_processes(hint=False),
        f"  {cores} threads": lambda: in_new_processes(OPENBLAS_NUM_THREADS=cores),
        "  two runs at once": lambda: in_new_processes(2),
        f"  two runs at once, {cores} threads each": lambda: in_new_processes(2, OPENBLAS_NUM_THREADS=cores),
        "  on a machine without AVX-512": lambda: in_new_processes(NPY_DISABLE_CPU_FEATURES="X86_V4"),
        "    derivative of tanh left to autograd": lambda: in_new_processes(
            policy="policy(tanh=tanh_untold)", NPY_DISABLE_CPU_FEATURES="X86_V4"
        ),
    }
    measured: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(3):
        for name, version in versions.items():
            measured[name].append(version())
    print_beside_the_script({name: median(values) for name, values in measured.items()})

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nLargest memory of this process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
