"""Game: placement of fleets, hand-played games, rules that cannot work."""

import re
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare  # type: ignore[import-untyped]
from support import all_boards, golden

from microgrpo import Array, BattleshipGame, BattleshipGameRules

CASES = golden("boards")["rules"]
NAMES = [f"{case['board_size']}-{case['ship_lengths']}" for case in CASES]
DRAWS = {9024: 100_000, 264: 8000, 36: 3000, 84: 4000}  # enough for each placement to occur; by number of placements


def ships(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Count the ships of each length."""
    return tuple(np.bincount(lengths).tolist())


@cache
def drawn_boards(board_size: int, lengths: tuple[int, ...], draws: int) -> Array:
    rules = BattleshipGameRules(board_size, ships(lengths))
    draw = BattleshipGame.random_board.__wrapped__
    return np.array([draw(rules, seed) for seed in range(draws)])


def numbered(boards: Array) -> Array:
    """Tell boards from each other by one integer each."""
    tiles = boards.reshape(len(boards), -1)
    numbers: Array = tiles @ (1 << np.arange(tiles.shape[1]))
    return numbers


def assert_equally_likely(drawn: Array, legal: Array) -> None:
    """Compare drawn boards with the legal placements, of which several can look the same."""
    boards, placements = np.unique(numbered(legal), return_counts=True)
    occurred, times = np.unique(numbered(drawn), return_counts=True)
    np.testing.assert_array_equal(occurred, boards)
    if len(boards) > 1:
        assert chisquare(times, placements * (len(drawn) / len(legal))).pvalue > 1e-4


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_enumeration_equals_golden_values(case: dict[str, Any]) -> None:
    boards = all_boards(case["board_size"], tuple(case["ship_lengths"]))
    assert len(boards) == case["legal_placements"]
    assert len(np.unique(boards, axis=0)) == case["distinct_occupancies"]
    np.testing.assert_allclose(boards.mean(axis=0), case["occupancy_probability"], rtol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_legal_placement_occurs_and_all_are_equally_likely(case: dict[str, Any]) -> None:
    key = case["board_size"], tuple(case["ship_lengths"])
    assert_equally_likely(drawn_boards(*key, DRAWS[case["legal_placements"]]), all_boards(*key))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_each_tile_is_occupied_as_often_as_in_all_placements(case: dict[str, Any]) -> None:
    drawn = drawn_boards(case["board_size"], tuple(case["ship_lengths"]), DRAWS[case["legal_placements"]])
    expected = np.array(case["occupancy_probability"])
    standard_error = np.sqrt(expected * (1 - expected) / len(drawn))
    assert (abs(drawn.mean(axis=0) - expected) < 4.5 * standard_error).all()


@pytest.mark.parametrize(("board_size", "lengths"), [(3, (2, 2)), (3, (1, 1, 3)), (2, (1,)), (2, (2, 2)), (1, (1,))])
def test_ships_of_the_same_length_and_full_boards_are_laid_as_likely(board_size: int, lengths: tuple[int, ...]) -> None:
    assert_equally_likely(drawn_boards(board_size, lengths, 2000), all_boards(board_size, lengths))


def test_a_board_is_reproducible_from_its_seed_and_other_seeds_give_other_boards() -> None:
    rules = BattleshipGameRules()
    boards = [BattleshipGame.random_board(rules, seed) for seed in range(100)]
    BattleshipGame.random_board.cache_clear()
    again = [BattleshipGame.random_board(BattleshipGameRules(), seed) for seed in range(100)]
    np.testing.assert_array_equal(boards, again)
    assert len(np.unique(boards, axis=0)) >= 97  # two of 100 boards are alike in about every other such sample


def test_huge_seeds_give_boards_of_their_own() -> None:
    boards = [BattleshipGame.random_board(BattleshipGameRules(), seed) for seed in (0, 2**63, 2**64 - 1, 2**100)]
    assert len(np.unique(boards, axis=0)) == 4
    assert {int(board.sum()) for board in boards} == {9}


def test_a_board_is_the_same_for_its_next_receiver_whatever_the_last_one_did_to_it() -> None:
    board = BattleshipGame.random_board(BattleshipGameRules(), 5)
    before = board.copy()
    with suppress(ValueError):  # read-only
        board[:] = False
    np.testing.assert_array_equal(BattleshipGame.random_board(BattleshipGameRules(), 5), before)


def test_a_board_is_square_and_says_where_ships_lie() -> None:
    board = BattleshipGame.random_board(BattleshipGameRules(7, (0, 2, 0, 1)), 3)
    assert (board.shape, board.dtype, board.sum()) == ((7, 7), np.dtype(bool), 5)


# The hand-played board: ships of 2, 3 and 4 tiles. Tile numbers: ships 0, 1, 7, 12, 17, 20 to 23.
BOARD = np.array([list(row) for row in ("ss...", "..s..", "..s..", "..s..", "ssss.")]) == "s"
SHIP_TILES = [0, 1, 7, 12, 17, 20, 21, 22, 23]
WATER_TILES = [2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14, 15, 16, 18, 19, 24]


def fire(game: BattleshipGame, tiles: list[int]) -> list[bool]:
    """Fire at one tile after the other, the same in each game; return the hits of the first game."""
    return [bool(game.play(np.full(game.shape[0], tile))[0]) for tile in tiles]


def test_a_perfect_game_scores_1() -> None:
    game = BattleshipGame(BOARD[None])
    assert all(fire(game, SHIP_TILES))
    assert game.score().tolist() == [1]


def test_firing_everywhere_before_the_last_ship_tile_scores_1_17th() -> None:
    game = BattleshipGame(BOARD[None])
    fire(game, WATER_TILES + SHIP_TILES)
    np.testing.assert_allclose(game.score(), 1 - 16 / 17, rtol=1e-15)


def test_a_game_scores_by_its_misses() -> None:
    game = BattleshipGame(BOARD[None])
    assert fire(game, [3, 0, 1, 24]) == [False, True, True, False]
    fire(game, [*SHIP_TILES[2:-1], 10, SHIP_TILES[-1]])
    np.testing.assert_allclose(game.score(), 1 - 3 / 17, rtol=1e-15)


def test_an_unfinished_game_scores_0() -> None:
    game = BattleshipGame(BOARD[None])
    assert game.score().tolist() == [0]
    for tile in WATER_TILES + SHIP_TILES[:-1]:
        fire(game, [tile])
        assert game.score().tolist() == [0]


def test_a_repeated_shot_changes_nothing() -> None:
    game = BattleshipGame(BOARD[None])
    fire(game, [0, 2])
    drawn = repr(game)
    fire(game, [2, 0, 2, 2, 0])
    assert repr(game) == drawn
    fire(game, SHIP_TILES[1:])
    np.testing.assert_allclose(game.score(), 1 - 1 / 17, rtol=1e-15)


def test_a_shot_after_the_end_changes_nothing() -> None:
    game = BattleshipGame(BOARD[None])
    fire(game, [5, *SHIP_TILES])
    drawn, score = repr(game), game.score()
    fire(game, [2, 3, 5, 0, 24])
    assert repr(game) == drawn
    np.testing.assert_array_equal(game.score(), score)
    assert (game.seen[0, [2, 3, 24]] == 0).all()


def test_play_says_of_each_game_whether_its_shot_hit() -> None:
    game = BattleshipGame(np.stack([BOARD, BOARD.T, BOARD]))
    hits = game.play(np.array([1, 1, 2]))
    assert (hits.dtype, hits.tolist()) == (np.dtype(bool), [True, False, False])
    assert game.play(np.array([2, 5, 22])).tolist() == [False, True, True]


def play_by_hand(board: Array, shots: list[int]) -> tuple[list[int], float]:
    """Play one game as the rules read: what is seen of each tile, and the score."""
    seen, left, misses = [0] * board.size, int(board.sum()), 0
    water = board.size - left
    for tile in shots:
        if left and not seen[tile]:
            seen[tile] = 1 if board.ravel()[tile] else -1
            left -= seen[tile] == 1
            misses += seen[tile] == -1
    return seen, 0 if left else 1 - misses / (water + 1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 35), st.permutations(range(9))), min_size=1, max_size=5), st.data())
def test_games_are_independent_and_follow_the_rules(games: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    boards = all_boards(3, (2, 3))[[number for number, _ in games]]
    repeat = data.draw(st.integers(0, 8))  # a shot to fire twice
    shots = np.array([[*order[: repeat + 1], *order[repeat:]] for _, order in games])
    shots = shots[:, : data.draw(st.integers(1, 10))]
    game = BattleshipGame(boards)
    for tiles in shots.T:
        hits = game.play(tiles)
        np.testing.assert_array_equal(hits, boards.reshape(len(games), 9)[np.arange(len(games)), tiles])
    for row, (board, fired) in enumerate(zip(boards, shots.tolist(), strict=True)):
        seen, score = play_by_hand(board, fired)
        assert game.seen[row].tolist() == seen
        np.testing.assert_allclose(game.score()[row], score, rtol=1e-15)


def test_playing_leaves_the_boards_given_as_they_were() -> None:
    boards = BOARD[None].copy()
    fire(BattleshipGame(boards), list(range(25)))
    np.testing.assert_array_equal(boards[0], BOARD)


def test_repr_draws_one_board_row_by_row() -> None:
    game = BattleshipGame(BOARD[None])
    fire(game, [0, 2, 23, 24])
    assert repr(game) == "💥🚢💦🌊🌊\n🌊🌊🚢🌊🌊\n🌊🌊🚢🌊🌊\n🌊🌊🚢🌊🌊\n🚢🚢🚢💥💦"


def test_repr_draws_several_boards_side_by_side() -> None:
    boards = np.array([[[True, True], [False, False]], [[False, True], [False, True]], [[False, False], [True, False]]])
    game = BattleshipGame(boards)
    game.play(np.array([0, 0, 1]))
    assert repr(game) == "💥🚢   💦🚢   🌊💦\n🌊🌊   🌊🚢   🚢🌊"


@pytest.mark.parametrize("board_size", [0, -1, 101, 10**30, 2.5, 5.0, "5", None, float("nan"), np.float64(5)], ids=repr)
def test_a_board_size_that_cannot_work_is_refused_in_a_sentence(board_size: Any) -> None:
    with pytest.raises(ValueError, match=rf"^board_size = {re.escape(repr(board_size))} cannot work: it must .*\.$"):
        BattleshipGameRules(board_size=board_size)


@pytest.mark.parametrize(
    "ships",
    [
        pytest.param((), id="empty"),
        pytest.param((0,), id="only-length-0"),
        pytest.param((0, 0, 0), id="no-ship"),
        pytest.param([0, 0, 1], id="list"),
        pytest.param(np.array([0, 0, 1]), id="array"),
        pytest.param(3, id="number"),
        pytest.param("001", id="text"),
        pytest.param((0, -1, 2), id="negative-count"),
        pytest.param((0, 1.5), id="fraction"),
        pytest.param((0, 1.0), id="float"),
        pytest.param((0, "1"), id="count-as-text"),
        pytest.param((0, None, 1), id="count-missing"),
        pytest.param((0, 0, 0, 0, 0, 0, 1), id="longer-than-the-board"),
        pytest.param((1, 0, 1), id="a-ship-of-length-0"),
        pytest.param((0, 26), id="a-tile-too-many"),
        pytest.param((0, 0, 1, 1, 1, 4), id="more-ship-tiles-than-tiles"),
        pytest.param((0, 10**30), id="far-too-many"),
        pytest.param((0, 0, 0, 0, 2**62), id="far-too-many-for-64-bits"),
        # Ships of 5 lie in parallel lines; the 2 lines that 3 of them leave have room for one ship of 3 each.
        pytest.param((0, 0, 0, 3, 0, 3), id="24-tiles-that-do-not-fit"),
    ],
)
def test_ships_that_cannot_work_are_refused_in_a_sentence(ships: Any) -> None:
    with pytest.raises(ValueError, match=rf"^ships = {re.escape(repr(ships))} cannot work: it must .*\.$"):
        BattleshipGameRules(ships=ships)


@pytest.mark.parametrize(("board_size", "count"), [(6, 9), (10, 25)])
def test_a_board_that_ships_of_4_cannot_tile_is_refused(board_size: int, count: int) -> None:
    # Colour the board in 2 × 2 blocks like a chess board: a ship of 4 covers two tiles of each colour, but a board of
    # an odd number of blocks each way does not have as many tiles of one colour as of the other.
    with pytest.raises(ValueError, match=rf"^ships = \(0, 0, 0, 0, {count}\) cannot work: it must .*\.$"):
        BattleshipGameRules(board_size, (0, 0, 0, 0, count))


def test_a_ship_may_be_as_long_as_the_board_and_zeros_may_follow() -> None:
    rules = BattleshipGameRules(3, (0, 0, 0, 1, 0, 0, 0, 0))
    assert {BattleshipGame.random_board(rules, seed).sum() for seed in range(20)} == {3}
    assert BattleshipGame.random_board(BattleshipGameRules(1, (0, 1)), 0).tolist() == [[True]]
    assert BattleshipGame.random_board(BattleshipGameRules(100, (0,) * 100 + (1,)), 0).sum() == 100


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8, np.int8, np.uint64])
def test_numpy_integers_are_accepted(integer: Any) -> None:
    rules = BattleshipGameRules(integer(12), tuple(map(integer, (0, 0, 1, 1, 1, 0))))
    board = BattleshipGame.random_board(rules, 7)
    np.testing.assert_array_equal(board, BattleshipGame.random_board.__wrapped__(BattleshipGameRules(12), 7))


def test_the_default_rules_are_a_5_by_5_board_with_ships_of_2_3_and_4() -> None:
    assert BattleshipGameRules() == BattleshipGameRules(5, (0, 0, 1, 1, 1, 0))
