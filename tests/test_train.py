"""Train: AdamW and the training loop."""

from typing import Any

import numpy as np
import pytest
from autograd import grad
from support import config, golden, score_on_all_boards

import microgrpo as mg
from microgrpo import AdamWOptimizer, Array, BattleshipEnv, GRPOConfig, Params

SEEDS_PLAYED: list[Array] = []


class RecordingEnv(BattleshipEnv):
    """Battleship that notes which games were started."""

    @classmethod
    def reset(cls, init_seeds: Array, step_seed: int) -> tuple["RecordingEnv", Array]:
        """Note the seeds, then start."""
        SEEDS_PLAYED.append(np.append(init_seeds, step_seed))
        return super().reset(init_seeds, step_seed)


@pytest.mark.parametrize("case", golden("adamw")["cases"], ids=["defaults", "others"])
def test_adamw_equals_golden_values(case: dict[str, Any]) -> None:
    given = {name: np.array(value) for name, value in golden("adamw")["params_before"].items()}
    names = {"learning_rate": "learning_rate", "beta1": "β1", "beta2": "β2", "eps": "ε", "weight_decay": "λ"}
    hyperparameters = {names[name]: value for name, value in case["hyperparameters"].items()}
    optimizer = AdamWOptimizer(given, **hyperparameters)
    for step in case["steps"]:
        optimizer.step({name: np.array(value) for name, value in step["grad"].items()})
        for name, value in step["params_after"].items():
            np.testing.assert_allclose(optimizer.params[name], value, rtol=1e-12)


def test_adamw_has_the_stated_defaults() -> None:
    optimizer = AdamWOptimizer({})
    defaults = optimizer.learning_rate, optimizer.β1, optimizer.β2, optimizer.ε, optimizer.λ
    assert defaults == (3e-4, 0.9, 0.999, 1e-8, 0.01)


def test_adamw_leaves_the_callers_params_and_every_earlier_step_as_they_were() -> None:
    given = {"W": np.ones((2, 2), np.float32)}
    optimizer = AdamWOptimizer(given, learning_rate=0.1)
    first = optimizer.params
    optimizer.step({"W": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(given["W"], 1)
    np.testing.assert_array_equal(first["W"], 1)
    given["W"][:] = 7  # nor does the caller change what the optimizer works on
    assert AdamWOptimizer(first).params["W"] is not first["W"]
    assert (optimizer.params["W"] < 1).all()
    assert (optimizer.params["W"] < 0.95).all()
    assert optimizer.params["W"].dtype == np.float32


def test_adamw_stands_still_where_the_gradient_is_0_but_for_the_decay() -> None:
    optimizer = AdamWOptimizer({"W": np.full(3, 2.0)}, learning_rate=0.1, λ=0.5)
    optimizer.step({"W": np.zeros(3)})
    np.testing.assert_allclose(optimizer.params["W"], 2.0 * (1 - 0.1 * 0.5), rtol=1e-15)


def test_config_has_the_originals_defaults() -> None:
    c = config()
    assert (c.ε, c.β, c.G, c.B, c.M, c.μ, c.scale_rewards) == (0.9, 0.0, 16, 4, 2048, 10, True)


def train(**changes: Any) -> tuple[Params, Array]:
    learning_rate = changes.pop("learning_rate", 3e-3)
    optimizer = AdamWOptimizer(mg.neural_battleship_policy_init(hidden=32), learning_rate=learning_rate)
    return mg.train_grpo(optimizer, config(**changes))


def test_a_short_run_clearly_beats_random_play() -> None:
    params, rewards_val = train(M=120, B=8, μ=2, learning_rate=5e-3)
    assert rewards_val.shape == (120,)
    assert score_on_all_boards(params) > 0.3  # random play: 0.153
    np.testing.assert_allclose(rewards_val[-10:].mean(), score_on_all_boards(params), atol=0.05)


def test_two_runs_with_the_same_constants_give_the_same_params_bit_for_bit() -> None:
    (params, rewards_val), (again, rewards_again) = train(M=3), train(M=3)
    for name, value in params.items():
        np.testing.assert_array_equal(value, again[name])
    np.testing.assert_array_equal(rewards_val, rewards_again)


def test_the_seed_changes_the_games_played_and_not_those_for_validation() -> None:
    played = []
    for seed in (1, 2):
        SEEDS_PLAYED.clear()
        train(M=3, B=2, G=4, seed=seed, environment=RecordingEnv)
        played.append([seeds.tolist() for seeds in SEEDS_PLAYED])
    one, two = played
    assert [len(seeds) - 1 for seeds in one] == [8, 512] * 3
    assert one[1::2] == two[1::2]
    assert all(validation[:-1] == np.repeat(range(64), 8).tolist() for validation in one[1::2])
    for mine, other in zip(one[::2], two[::2], strict=True):
        assert not set(mine) & set(other)
    for seeds in one[::2]:
        assert len(set(seeds[:4])) == len(set(seeds[4:8])) == 1  # a group shares its start
        assert seeds[0] != seeds[4]
    assert len({tuple(seeds) for seeds in one[::2]}) == 3


@pytest.mark.parametrize("scale_rewards", [True, False])
def test_training_takes_exactly_the_steps_that_the_formula_says(*, scale_rewards: bool) -> None:
    """Follow two mini-batches of three gradient steps with the parts that other tests hold to be right."""
    params, rewards_val = train(M=2, B=2, G=4, μ=3, seed=7, scale_rewards=scale_rewards)
    c, rng = config(B=2, G=4), np.random.default_rng(7)
    optimizer = AdamWOptimizer(mg.neural_battleship_policy_init(hidden=32), learning_rate=3e-3)
    for i in range(2):
        *init_seeds, step_seed = rng.integers(2**32, size=3)
        games = np.repeat(init_seeds, 4)
        batch = mg.rollout(BattleshipEnv, c.policy, optimizer.params, games, step_seed)
        groups = batch.reward.reshape(2, 4)
        deviations = [np.std(r) if scale_rewards and np.ptp(r) else 1 for r in groups]
        advantages = [(r - np.mean(r)) / s for r, s in zip(groups, deviations, strict=True)]
        A = np.concatenate(advantages)[batch.game].astype(np.float32)
        for _ in range(3):
            optimizer.step(grad(mg.grpo_objective)(optimizer.params, batch, A, c))
        validation = mg.rollout(BattleshipEnv, c.policy, optimizer.params, np.repeat(range(64), 8), i)
        assert rewards_val[i] == validation.reward.mean()
    for name, value in optimizer.params.items():
        np.testing.assert_array_equal(params[name], value)


def test_no_mini_batches_change_nothing() -> None:
    params, rewards_val = train(M=0)
    assert rewards_val.shape == (0,)
    for name, value in mg.neural_battleship_policy_init(hidden=32).items():
        np.testing.assert_array_equal(params[name], value)


@pytest.mark.parametrize(
    "changes", [{"G": 2}, {"G": 7, "B": 1}, {"μ": 1}, {"B": 3, "β": 0.1}, {"ε": 0.1}, {"scale_rewards": False}]
)
def test_edited_constants_train(changes: dict[str, Any]) -> None:
    before = mg.neural_battleship_policy_init(hidden=32)
    params, rewards_val = train(**{"M": 2, "B": 2, "G": 4, **changes})
    assert ((rewards_val >= 0) & (rewards_val <= 1)).all()
    for name, value in params.items():
        assert value.dtype == np.float32
        assert not np.array_equal(value, before[name])


def test_the_classic_fleet_on_a_10_by_10_board_trains() -> None:
    class ClassicEnv(BattleshipEnv):
        rules = mg.BattleshipGameRules(board_size=10, ships=(0, 0, 1, 2, 1, 1))

    optimizer = AdamWOptimizer(mg.neural_battleship_policy_init(ClassicEnv.rules, hidden=8))
    c = GRPOConfig(ClassicEnv, mg.neural_battleship_policy, mg.reference_battleship_policy, M=1, B=1, G=2, μ=1)
    params, rewards_val = mg.train_grpo(optimizer, c)
    assert params["W1"].shape == (8, 100)
    assert 0 < rewards_val[0] < 1


def test_the_shipped_policy_plays_well_over_all_boards() -> None:
    with np.load(mg.__file__.replace("microgrpo.py", "battleship_policy.npz")) as file:
        params = dict(file)
    assert set(params) == {"W1", "b1", "W2", "b2"}
    assert score_on_all_boards(params) > 0.5
