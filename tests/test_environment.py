"""Environment: what a player sees and can do, rewards, sampling of actions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare  # type: ignore[import-untyped]
from support import AllBoardsEnv, all_boards, golden

import microgrpo as mg
from microgrpo import Array, BattleshipEnv, BattleshipGameRules, Environment


def everywhere(games: int, board_size: int = 5, seed: int = 0) -> Array:
    """For each game a random order of all tiles: (games, tiles) int."""
    tiles = np.tile(np.arange(board_size**2), (games, 1))
    return np.random.default_rng(seed).permuted(tiles, axis=1)


def test_a_start_is_all_fog_of_war() -> None:
    environment, observation = BattleshipEnv.reset(np.arange(6), step_seed=0)
    assert (observation.shape, observation.dtype) == ((6, 5, 5), np.dtype(np.float32))
    assert not observation.any()
    assert environment.observation is observation
    assert environment.max_steps == 25


def test_an_observation_shows_misses_as_minus_1_and_hits_as_1_at_the_tile_fired_at() -> None:
    boards = np.array([0, 17, 9023, 4000])
    environment, _ = AllBoardsEnv.reset(boards, step_seed=0)
    expected = np.zeros((4, 5, 5))
    for fire in everywhere(4)[:, :7].T:
        observation, _, _ = environment.step(fire)
        for game, tile in enumerate(fire.tolist()):
            place = game, tile // 5, tile % 5
            expected[place] = 1 if all_boards()[boards[game]][place[1:]] else -1
        np.testing.assert_array_equal(observation, expected)
        assert (observation.shape, observation.dtype) == ((4, 5, 5), np.dtype(np.float32))
        assert environment.observation is observation


def test_shapes_and_max_steps_follow_from_the_rules() -> None:
    class LargeEnv(BattleshipEnv):
        rules = BattleshipGameRules(9, (0, 0, 2, 0, 1))

    environment, observation = LargeEnv.reset(np.arange(2), step_seed=0)
    assert isinstance(environment, LargeEnv)
    assert observation.shape == environment.step(np.zeros(2, int))[0].shape == (2, 9, 9)
    assert environment.max_steps == 81
    assert BattleshipEnv.reset(np.arange(2), step_seed=0)[0].max_steps == 25


def test_equal_init_seeds_give_equal_boards_whatever_the_step_seed() -> None:
    seeds = np.array([7, 3, 7, 2**32 - 1, 3, 11])
    one, other = (BattleshipEnv.reset(seeds, step_seed)[0].game.ships for step_seed in (1, 2))
    np.testing.assert_array_equal(one, other)
    same = (one[:, None] == one).all(axis=2)
    np.testing.assert_array_equal(same, seeds[:, None] == seeds)
    for board, seed in zip(one, seeds.tolist(), strict=True):
        np.testing.assert_array_equal(board, mg.BattleshipGame.random_board(BattleshipEnv.rules, seed).ravel())


def test_games_with_equal_init_seeds_are_played_apart() -> None:
    environment, _ = BattleshipEnv.reset(np.array([5, 5]), step_seed=0)
    observation, _, _ = environment.step(np.array([3, 20]))
    assert [np.flatnonzero(game).tolist() for game in observation] == [[3], [20]]


def test_the_step_seed_decides_which_actions_are_sampled() -> None:
    uniform = np.full((50, 25), 1 / 25, np.float32)
    drawn = [BattleshipEnv.reset(np.arange(50), seed)[0].sample_action(uniform).tolist() for seed in (1, 1, 2, 2**63)]
    assert drawn[0] == drawn[1]
    assert len({tuple(actions) for actions in drawn}) == 3


def test_reward_is_0_until_a_game_is_done_and_then_its_score() -> None:
    boards = np.arange(0, 9024, 300)
    environment, _ = AllBoardsEnv.reset(boards, step_seed=0)
    was_done = np.zeros(len(boards), bool)
    misses = np.zeros(len(boards))
    ships = all_boards()[boards].reshape(len(boards), 25)
    hits = np.zeros(len(boards))
    for fire in everywhere(len(boards)).T:
        _, reward, done = environment.step(fire)
        hit = ships[np.arange(len(boards)), fire]
        hits += hit
        misses += ~hit & ~was_done
        assert (reward.shape, done.shape, done.dtype) == ((len(boards),), (len(boards),), np.dtype(bool))
        np.testing.assert_array_equal(done, hits == 9)
        np.testing.assert_allclose(reward, np.where(done, 1 - misses / 17, 0), rtol=1e-15)
        was_done = done
    assert done.all()


def test_a_done_game_no_longer_changes_while_others_go_on() -> None:
    boards = np.array([100, 5000])
    environment, _ = AllBoardsEnv.reset(boards, step_seed=0)
    ships, other_water = (np.flatnonzero(tiles).tolist() for tiles in (all_boards()[100], ~all_boards()[5000]))
    for tile, other in zip(ships, other_water, strict=False):
        observation, reward, done = environment.step(np.array([tile, other]))
    assert (reward.tolist(), done.tolist()) == ([1, 0], [True, False])
    at_the_end = observation[0].copy()
    for tile in range(25):
        observation, reward, done = environment.step(np.array([tile, tile]))
        np.testing.assert_array_equal(observation[0], at_the_end)
        assert (reward[0], done[0]) == (1, True)
    assert done[1]


@pytest.mark.parametrize("case", golden("boards")["rules"], ids=lambda case: f"{case['board_size']}")
def test_every_game_ends_by_max_steps_when_no_tile_is_fired_at_twice(case: dict[str, Any]) -> None:
    env = environment_with(case)
    environment, _ = env.reset(np.arange(200), step_seed=0)
    orders = everywhere(200, case["board_size"])
    assert environment.max_steps == orders.shape[1]
    ended = np.array([environment.step(fire)[2] for fire in orders.T])
    assert ended[-1].all()
    assert not ended[-2].all()  # some games need every step


def test_an_observation_once_returned_stays_as_it_was() -> None:
    environment, start = BattleshipEnv.reset(np.arange(3), step_seed=0)
    kept = [start]
    copies = [start.copy()]
    for fire in everywhere(3)[:, :5].T:
        kept.append(environment.step(fire)[0])
        copies.append(kept[-1].copy())
    np.testing.assert_array_equal(kept, copies)


def test_changing_an_observation_does_not_change_the_game() -> None:
    environment, start = BattleshipEnv.reset(np.arange(3), step_seed=0)
    start[:] = 1
    observation, _, _ = environment.step(np.zeros(3, int))
    assert np.flatnonzero(observation[0]).tolist() == [0]


def test_environment_is_abstract() -> None:
    class Unfinished(Environment):
        """Lacks reset and step."""

    assert Environment.__abstractmethods__ == {"reset", "step"}
    abstract: type[Any]
    for abstract in (Environment, Unfinished):
        with pytest.raises(TypeError, match="abstract"):
            abstract()


def environment_with(case: dict[str, Any]) -> type[BattleshipEnv]:
    """Battleship by the rules of a golden case."""

    class Env(BattleshipEnv):
        rules = BattleshipGameRules(case["board_size"], tuple(np.bincount(case["ship_lengths"]).tolist()))

    return Env


@pytest.mark.parametrize("case", golden("boards")["rules"], ids=lambda case: f"{case['random_policy_mean_score']:.4f}")
def test_random_play_scores_what_the_formula_says(case: dict[str, Any]) -> None:
    games = np.arange(300).repeat(60)
    policy = lambda _, observation: mg.reference_battleship_policy(observation)  # noqa: E731
    reward = mg.rollout(environment_with(case), policy, {}, games, step_seed=1).reward
    S, tiles = sum(case["ship_lengths"]), case["board_size"] ** 2
    W = tiles - S
    expected = 1 - (W * S / (S + 1)) / (W + 1)
    np.testing.assert_allclose(case["random_policy_mean_score"], expected, rtol=1e-12)
    assert abs(reward.mean() - expected) < 4 * reward.std() / np.sqrt(len(games))
    if (tiles, S) == (25, 9):
        np.testing.assert_allclose(expected, 0.1529, atol=5e-5)
        np.testing.assert_allclose(reward.mean(), 0.1529, atol=0.003)


def sampler(rng: Any = 0) -> BattleshipEnv:
    """Make an environment to sample with, from a seed or a stand-in for its generator."""
    environment, _ = BattleshipEnv.reset(np.arange(1), step_seed=rng if isinstance(rng, int) else 0)
    environment.rng = environment.rng if isinstance(rng, int) else rng
    return environment


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_drawn_as_often_as_their_probabilities_say(dtype: Any) -> None:
    rows = np.array([[0, 0.1, 0.2, 0, 0.7, 0], [0.25, 0.05, 0.05, 0.6, 0, 0.05], [0.5, 0, 0, 0, 0, 0.5]], dtype)
    draws = 50_000
    drawn = sampler(3).sample_action(rows.repeat(draws, axis=0)).reshape(3, draws)
    for row, actions in zip(rows, drawn, strict=True):
        times = np.bincount(actions, minlength=6)
        assert not times[row == 0].any()
        assert chisquare(times[row > 0], row[row > 0] / row.sum(dtype=float) * draws).pvalue > 1e-4


def test_rows_are_drawn_apart_from_each_other() -> None:
    drawn = sampler(4).sample_action(np.full((20_000, 2), 0.5, np.float32))
    pairs = np.bincount(2 * drawn[::2] + drawn[1::2], minlength=4)
    assert chisquare(pairs).pvalue > 1e-4


@dataclass
class Stuck:
    """Stands in for a generator whose random numbers are all alike."""

    share: float

    def random(self, size: tuple[int, ...], dtype: Any = np.float64) -> Array:
        largest = np.nextafter(dtype(1), dtype(0))
        return np.full(size, min(dtype(self.share), largest), dtype)


SHARES = st.sampled_from([0.0, 1.0, 1e-30, 1e-7, 1 - 1e-7]) | st.floats(0, 1)  # Stuck lowers 1 to the number below it


@st.composite
def probabilities(draw: st.DrawFn) -> Array:
    """Draw a row of probabilities, many of them 0, some tiny."""
    weight = st.sampled_from([0.0, 0.0, 1.0, 1e-7, 1e-30]) | st.floats(1e-6, 1)
    weights = np.array(draw(st.lists(weight, min_size=1, max_size=30).filter(any)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    row = (weights / weights.sum()).astype(dtype)
    zeros = [np.zeros(draw(st.integers(0, 3)), dtype) for _ in range(2)]  # tiles first and last
    return np.concatenate([zeros[0], row, zeros[1]])


def surely(dtype: Any) -> Array:
    """Probability 1 - 1e-7 of action 2, 1e-7 of action 4, 0 of the others."""
    return np.array([0, 0, 1 - 1e-7, 0, 1e-7, 0, 0], dtype)


@settings(deadline=None)
@given(probabilities(), SHARES)
@example(surely(np.float32), 0.0)
@example(surely(np.float32), 1.0)
@example(surely(np.float64), 0.0)
@example(surely(np.float64), 1.0)
@example(np.array([0, 0, 1, 0, 0], np.float32), 1.0)
@example(np.array([0, 1 / 3, 1 / 3, 1 / 3, 0], np.float32), 1.0)
def test_an_action_of_probability_0_is_never_drawn(row: Array, share: float) -> None:
    drawn = sampler(Stuck(share)).sample_action(np.stack([row, row[::-1]]))
    assert row[drawn[0]] > 0
    assert row[::-1][drawn[1]] > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_extreme_random_numbers_draw_the_first_and_the_last_possible_action(dtype: Any) -> None:
    rows = np.array([[0, 0.5, 0.25, 0.25, 0, 0], [0.25, 0, 0, 0.25, 0.25, 0.25]], dtype)
    assert sampler(Stuck(0.0)).sample_action(rows).tolist() == [1, 0]
    assert sampler(Stuck(0.5)).sample_action(rows).tolist() == [2, 4]
    assert sampler(Stuck(1.0)).sample_action(rows).tolist() == [3, 5]


def test_rows_that_sum_to_a_little_more_or_less_than_1_are_drawn_from_as_well() -> None:
    row = np.array([0, 1, 1, 0], np.float32)
    for total in (0.9, 0.999999, 1.000001, 1.1):
        for share, action in ((0.0, 1), (0.4, 1), (0.6, 2), (1.0, 2)):
            drawn = sampler(Stuck(share)).sample_action((row * total / 2)[None].astype(np.float32))
            assert drawn.tolist() == [action]
