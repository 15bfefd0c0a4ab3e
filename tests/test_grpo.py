"""GRPO: rollout, advantages, objective and gradient."""

from typing import Any

import numpy as np
import pytest
from autograd import grad
from autograd.test_util import check_grads
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import config, golden, gradient_by_hand, mini_batch, objective_step_by_step

import microgrpo as mg
from microgrpo import Array, BattleshipEnv, BattleshipGameRules, GRPOConfig, Params, Trajectories


class SmallEnv(BattleshipEnv):
    """A 3 × 3 board with ships of 1 and 2 tiles."""

    rules = BattleshipGameRules(3, (0, 1, 1))


def as_float64(params: Params) -> Params:
    return {name: value.astype(float) for name, value in params.items()}


def golden_mini_batch() -> tuple[Params, Trajectories, Array]:
    data = golden("grpo")
    trajectories = [trajectory for group in data["groups"] for trajectory in group["trajectories"]]
    steps = [(game, step) for game, trajectory in enumerate(trajectories) for step in trajectory["steps"]]
    batch = Trajectories(
        T=data["max_steps"],
        reward=np.array([trajectory["reward"] for trajectory in trajectories]),
        observation=np.array([step["observation"] for _, step in steps]),
        action=np.array([step["action"] for _, step in steps]),
        π_old=np.array([step["old_probability"] for _, step in steps]),
        game=np.array([game for game, _ in steps]),
    )
    params = {name: np.array(value) for name, value in data["params"].items()}
    A = mg.group_advantages(batch.reward.reshape(2, 4))
    np.testing.assert_allclose(A, [group["advantages"] for group in data["groups"]], rtol=1e-12)
    return params, batch, A.ravel()[batch.game]


@pytest.mark.parametrize(
    "expected", golden("grpo")["expected"], ids=lambda case: f"ε={case['epsilon']},β={case['beta']}"
)
def test_objective_and_gradient_equal_golden_values(expected: dict[str, Any]) -> None:
    params, batch, A = golden_mini_batch()
    c = config(B=2, G=4, ε=expected["epsilon"], β=expected["beta"])
    np.testing.assert_allclose(mg.grpo_objective(params, batch, A, c), expected["objective"], rtol=1e-12)
    gradient = grad(mg.grpo_objective)(params, batch, A, c)
    assert gradient.keys() == expected["gradient"].keys()
    for name, value in expected["gradient"].items():
        np.testing.assert_allclose(gradient[name], value, rtol=1e-9, atol=1e-14)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Params, Trajectories, Array, GRPOConfig]:
    """Draw a mini-batch in float64, params some way off those that played it, and a configuration."""
    c = config(
        environment=SmallEnv,
        B=draw(st.integers(1, 3)),
        G=draw(st.integers(2, 5)),
        ε=draw(st.sampled_from([0.05, 0.2, 0.9, 3.0])),
        β=draw(st.sampled_from([0.0, 0.04, 1.0])),
        scale_rewards=draw(st.booleans()),
    )
    seed = draw(st.integers(0, 10**6))
    params = as_float64(mg.neural_battleship_policy_init(SmallEnv.rules, seed=seed, hidden=draw(st.integers(1, 6))))
    batch, A = mini_batch(c, params, seed)
    batch = batch._replace(π_old=batch.π_old.astype(float), observation=batch.observation.astype(float))
    size = draw(st.sampled_from([0.0, 0.1, 1.0]))
    rng = np.random.default_rng(seed)
    params = {name: value + size * rng.normal(size=value.shape) for name, value in params.items()}
    return params, batch, A.astype(float), c


@given(cases())
@settings(deadline=None, max_examples=60)
def test_objective_equals_a_loop_over_groups_trajectories_and_steps(
    case: tuple[Params, Trajectories, Array, GRPOConfig],
) -> None:
    np.testing.assert_allclose(mg.grpo_objective(*case), objective_step_by_step(*case), rtol=1e-9, atol=1e-12)


@given(cases())
@settings(deadline=None, max_examples=40)
def test_gradient_equals_finite_differences_of_that_loop(case: tuple[Params, Trajectories, Array, GRPOConfig]) -> None:
    params, batch, A, c = case
    r = mg.pick(c.policy(params, batch.observation), batch.action) / batch.π_old
    if np.min(np.abs(r[:, None] - [1 - c.ε, 1 + c.ε])) < 1e-4:
        return  # on a corner of the clip there is no derivative
    gradient = grad(mg.grpo_objective)(*case)
    rng = np.random.default_rng(0)
    direction = {name: rng.normal(size=value.shape) for name, value in params.items()}
    h = 1e-6
    ends = [{name: params[name] + sign * h * direction[name] for name in params} for sign in (-1, 1)]
    low, high = (objective_step_by_step(end, batch, A, c) for end in ends)
    slope = sum(float(np.sum(gradient[name] * direction[name])) for name in params)
    np.testing.assert_allclose(slope, (high - low) / (2 * h), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("β", [0.0, 0.5])
@pytest.mark.parametrize("ε", [0.1, 0.9])
def test_gradient_passes_autograds_own_check(ε: float, β: float) -> None:
    params, batch, A = golden_mini_batch()
    c = config(B=2, G=4, ε=ε, β=β)
    check_grads(lambda params: mg.grpo_objective(params, batch, A, c), modes=["rev"], order=1)(params)


@pytest.mark.parametrize("moved", [0.0, 0.3])
def test_gradient_equals_the_one_derived_on_paper(moved: float) -> None:
    c = config(B=3, G=8, ε=0.2)
    params = mg.neural_battleship_policy_init(hidden=11)
    batch, A = mini_batch(c, params)
    params["W2"] += np.float32(moved) * np.random.default_rng(0).normal(size=params["W2"].shape).astype(np.float32)
    gradient, by_hand = grad(mg.grpo_objective)(params, batch, A, c), gradient_by_hand(params, batch, A, c)
    for name, value in by_hand.items():
        assert gradient[name].dtype == np.float32
        np.testing.assert_allclose(gradient[name], value, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("A", [1.0, -1.0])
@pytest.mark.parametrize(("ratio", "side"), [(0.5, "below"), (1.0, "inside"), (1.5, "above")])
def test_clip_stops_only_what_already_moved_far_in_the_direction_of_the_advantage(
    A: float, ratio: float, side: str
) -> None:
    def two_actions(params: Params, observation: Array) -> Array:
        return params["π"] * np.ones((len(observation), 1))

    c = GRPOConfig(SmallEnv, two_actions, lambda o: np.full((len(o), 2), 0.5), ε=0.2, B=1, G=2)
    batch = Trajectories(1, np.zeros(2), np.zeros((1, 1)), np.array([0]), np.array([0.4 / ratio]), np.array([0]))
    params = {"π": np.array([[0.4, 0.6]])}
    gradient = grad(mg.grpo_objective)(params, batch, np.array([A]), c)["π"]
    clipped = (A > 0 and side == "above") or (A < 0 and side == "below")
    expected = 0 if clipped else -A / batch.π_old[0] / 2
    np.testing.assert_allclose(gradient, [[expected, 0]])
    value = mg.grpo_objective(params, batch, np.array([A]), c)
    np.testing.assert_allclose(value, -A * (np.clip(ratio, 0.8, 1.2) if clipped else ratio) / 2)


def test_the_largest_clip_range_clips_nothing_even_where_the_advantage_is_0() -> None:
    c, params = config(B=3, ε=1e9), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    A[batch.game == 0] = 0
    params["W2"] += np.float32(3)
    params["b2"][:5] = 9  # far from the policy that played
    r = mg.pick(c.policy(params, batch.observation), batch.action) / batch.π_old
    assert r.max() > 10
    unclipped = -(r.astype(float) * A).sum() / (c.B * c.G * batch.T)
    np.testing.assert_allclose(mg.grpo_objective(params, batch, A, c), unclipped, rtol=1e-4)
    assert all(np.isfinite(value).all() for value in grad(mg.grpo_objective)(params, batch, A, c).values())


def test_every_ratio_is_exactly_1_at_the_first_gradient_step() -> None:
    c, params = config(), mg.neural_battleship_policy_init()
    batch, _ = mini_batch(c, params)
    # Played with 64 rows at a time, evaluated with all at once: equal, or one rounding apart where BLAS adds up in
    # another order for another number of rows.
    np.testing.assert_array_max_ulp(mg.pick(c.policy(params, batch.observation), batch.action), batch.π_old, maxulp=8)


def test_old_probability_is_the_very_number_that_the_action_was_drawn_with() -> None:
    drawn = []

    class Recorder(BattleshipEnv):
        def sample_action(self, action_proba: Array) -> Array:
            action = super().sample_action(action_proba)
            drawn.append(action_proba[np.arange(len(action)), action])
            return action

    batch, _ = mini_batch(config(environment=Recorder), mg.neural_battleship_policy_init())
    np.testing.assert_array_equal(batch.π_old, np.concatenate(drawn))


def test_objective_is_0_before_the_first_gradient_step_and_its_gradient_is_not() -> None:
    c, params = config(ε=0.2), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    # All trajectories of equal length would give exactly 0; here they differ by a few steps.
    whole = {name: value.astype(float) for name, value in params.items()}
    surrogate = mg.grpo_objective(whole, batch, A, c)
    np.testing.assert_allclose(surrogate, -A.sum() / (4 * 16 * 25), atol=1e-6)
    assert max(np.abs(value).max() for value in grad(mg.grpo_objective)(params, batch, A, c).values()) > 1e-4


def test_no_tile_is_fired_at_twice_and_every_trajectory_ends_with_its_last_hit() -> None:
    batch, _ = mini_batch(config(), mg.neural_battleship_policy_init())
    assert batch.T == 25
    for game in range(64):
        rows = np.flatnonzero(batch.game == game)
        actions = batch.action[rows]
        assert len(set(actions)) == len(actions)
        seen = batch.observation[rows].reshape(-1, 25)
        np.testing.assert_array_equal((seen != 0).sum(axis=1), np.arange(len(rows)))
        hits = (seen[-1] == 1).sum()
        assert hits == 8  # of 9: the last shot hits the last one
        np.testing.assert_allclose(batch.reward[game], 1 - (len(rows) - 9) / 17)


def test_games_of_a_group_share_their_board_and_differ_in_play() -> None:
    boards: dict[int, set[tuple[int, ...]]] = {}
    batch, _ = mini_batch(config(), mg.neural_battleship_policy_init())
    plays = {tuple(batch.action[batch.game == game].tolist()) for game in range(64)}
    assert len(plays) == 64
    for game in range(64):
        rows = np.flatnonzero(batch.game == game)
        last = batch.observation[rows[-1]].ravel()
        ships = {*np.flatnonzero(last == 1).tolist(), int(batch.action[rows[-1]])}
        boards.setdefault(game // 16, set()).add(tuple(sorted(ships)))
    assert [len(boards_of_group) for boards_of_group in boards.values()] == [1, 1, 1, 1]
    assert len(set.union(*boards.values())) == 4


@pytest.mark.parametrize("G", range(2, 34))
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.7, 1 - 5 / 17, 0.0, 1e-300])
def test_advantages_are_exactly_0_where_rewards_tie(G: int, reward: float) -> None:
    for dtype in (np.float32, np.float64):
        for scale_rewards in (True, False):
            assert not mg.group_advantages(np.full((3, G), reward, dtype), scale_rewards).any()


@given(
    arrays(float, st.tuples(st.integers(1, 4), st.integers(2, 33)), elements=st.integers(0, 17).map(lambda k: k / 17))
)
def test_advantages_have_mean_0_and_deviation_1_where_rewards_differ(reward: Array) -> None:
    A, unscaled = mg.group_advantages(reward), mg.group_advantages(reward, scale_rewards=False)
    for a, u, r in zip(A, unscaled, reward, strict=True):
        if len(set(r.tolist())) == 1:
            assert not a.any()
        else:
            np.testing.assert_allclose([a.mean(), a.std()], [0, 1], atol=1e-12)
            np.testing.assert_array_equal(np.argsort(a, kind="stable"), np.argsort(r, kind="stable"))
        np.testing.assert_allclose(u, [x - sum(r) / len(r) for x in r], atol=1e-15)


def test_a_group_whose_rewards_tie_beside_others_moves_nothing() -> None:
    c = config(G=4, B=2)
    params = mg.neural_battleship_policy_init()
    batch, _ = mini_batch(c, params)
    reward = np.array([[0.1, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    A = mg.group_advantages(reward).ravel()[batch.game].astype(np.float32)
    half = batch.game >= 4
    alone = batch._replace(**{k: getattr(batch, k)[half] for k in ("observation", "action", "π_old", "game")})
    both, one = (grad(mg.grpo_objective)(params, b, a, c) for b, a in ((batch, A), (alone, A[half])))
    for name, value in one.items():
        np.testing.assert_allclose(both[name], value, rtol=1e-3, atol=1e-8)


def test_kl_term_stays_finite_where_the_policy_all_but_excludes_what_the_reference_does() -> None:
    c, params = config(β=1.0), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    params["b2"][:] = np.linspace(0, 300, 25)  # probabilities down to e^-300, 0 in float32
    gradient = grad(mg.grpo_objective)(params, batch, A, c)
    assert np.isfinite(mg.grpo_objective(params, batch, A, c))
    assert all(np.isfinite(value).all() for value in gradient.values())


def test_kl_term_is_the_estimator_of_the_paper_for_small_and_large_ratios() -> None:
    π, π_ref = np.array([[0.5, 0.5], [1e-6, 1 - 1e-6], [0.9, 0.1]]), np.array([[1e-7, 1], [0.5, 0.5], [1e-3, 0.999]])
    c = GRPOConfig(SmallEnv, lambda params, _: params["π"], lambda _: π_ref, β=2.0, B=1, G=3)
    batch = Trajectories(1, np.zeros(3), np.zeros((3, 1)), np.zeros(3, int), π[:, 0], np.arange(3))
    kl = [q / p - np.log(q / p) - 1 for p, q in zip(π[:, 0], π_ref[:, 0], strict=True)]
    np.testing.assert_allclose(mg.grpo_objective({"π": π}, batch, np.zeros(3), c), 2.0 * np.mean(kl), rtol=1e-9)


def test_one_call_of_the_policy_evaluates_the_whole_mini_batch() -> None:
    c, params = config(), mg.neural_battleship_policy_init()
    batch, A = mini_batch(c, params)
    rows = []

    def counting(params: Params, observation: Array) -> Array:
        rows.append(len(observation))
        return mg.neural_battleship_policy(params, observation)

    c = GRPOConfig(BattleshipEnv, counting, mg.reference_battleship_policy)
    grad(mg.grpo_objective)(params, batch, A, c)
    assert rows == [len(batch.action)]
