"""Policy: the network, its derivatives, the reference policy."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from autograd.test_util import check_grads
from hypothesis import given
from hypothesis import strategies as st
from support import golden

import microgrpo as mg
from microgrpo import Array, BattleshipGameRules, Params


def golden_params() -> Params:
    """Params of the golden 3 × 3 game, float64."""
    return {name: np.array(value) for name, value in golden("grpo")["params"].items()}


@st.composite
def observations(draw: st.DrawFn, board_size: int = 4) -> Array:
    """Draw boards in which at least one tile has not been fired at: (1 to 6, n, n) float32."""
    count = draw(st.integers(1, 6))
    tiles = board_size**2
    rows = draw(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=tiles, max_size=tiles), min_size=count))
    observation = np.array(rows, np.float32)
    observation[np.arange(len(rows)), [draw(st.integers(0, tiles - 1)) for _ in rows]] = 0
    return observation.reshape(-1, board_size, board_size)


def test_policy_equals_golden_values() -> None:
    for case in golden("grpo")["policy"]:
        π = mg.neural_battleship_policy(golden_params(), np.array(case["observation"]))
        np.testing.assert_allclose(π, case["probabilities"], rtol=1e-12, atol=0)


@given(observations())
def test_tiles_fired_at_have_probability_exactly_0_and_the_rest_sum_to_1(observation: Array) -> None:
    params = mg.neural_battleship_policy_init(BattleshipGameRules(4, (0, 0, 1)))
    for π in (mg.neural_battleship_policy(params, observation), mg.reference_battleship_policy(observation)):
        assert π.shape == (len(observation), 16)
        assert π.dtype == np.float32
        fired = observation.reshape(π.shape) != 0
        assert (π[fired] == 0).all()
        assert (π[~fired] > 0).all()
        np.testing.assert_allclose(π.sum(axis=1), 1, rtol=1e-6)


@given(observations())
def test_reference_policy_is_uniform_over_what_was_not_fired_at(observation: Array) -> None:
    π = mg.reference_battleship_policy(observation)
    for row, board in zip(π, observation, strict=True):
        assert set(row[row > 0].tolist()) == {np.float32(1 / (board == 0).sum())}


@pytest.mark.parametrize("games", [(), (1,), (3,), (2, 3), (2, 1, 3)])
def test_any_leading_axes_give_the_same_probabilities(games: tuple[int, ...]) -> None:
    params = mg.neural_battleship_policy_init(seed=1)
    observation = np.random.default_rng(0).integers(-1, 2, (*games, 5, 5)).astype(np.float32)
    observation[..., 2, 3] = 0
    flat = observation.reshape(-1, 5, 5)
    one_by_one = np.array([mg.neural_battleship_policy(params, board) for board in flat]).reshape(*games, 25)
    np.testing.assert_allclose(mg.neural_battleship_policy(params, observation), one_by_one, rtol=1e-5)
    uniform = np.array([mg.reference_battleship_policy(board) for board in flat]).reshape(*games, 25)
    np.testing.assert_array_equal(mg.reference_battleship_policy(observation), uniform)


@pytest.mark.parametrize("games", [(), (4,), (2, 2)])
def test_gradient_is_right_for_any_leading_axes(games: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    observation = rng.integers(-1, 2, (*games, 3, 3)).astype(float)
    observation[..., 1, 1] = 0
    weight = rng.normal(size=(*games, 9))
    check_grads(
        lambda params: anp.sum(mg.neural_battleship_policy(params, observation) * weight), modes=["rev"], order=1
    )(golden_params())


def test_each_derivative_told_to_autograd_equals_finite_differences() -> None:
    rng = np.random.default_rng(0)
    x, params = rng.normal(size=(5, 4)), {"W": rng.normal(size=(3, 4)), "b": rng.normal(size=3)}
    for argument in range(2):
        check_grads(lambda *args: mg.linear(*args, "W", "b"), argnum=argument, modes=["rev"], order=1)(x, params)
    barred = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0.0]])
    check_grads(lambda logits: mg.softmax(logits, barred), modes=["rev"], order=1)(rng.normal(size=(5, 3)))
    check_grads(lambda π: mg.pick(π, np.array([0, 2, 2, 1, 0])), modes=["rev"], order=1)(rng.random((5, 3)))
    check_grads(anp.tanh, modes=["rev"], order=1)(x)


@pytest.mark.parametrize("form", ["first", "last", "twice"])
def test_linear_may_share_params_with_other_operations(form: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3))
    params = {"W": rng.normal(size=(3, 3)), "b": rng.normal(size=3), "scale": rng.normal(size=3), "unused": np.ones(2)}

    def value(params: Params) -> Array:
        if form == "first":
            y = mg.linear(x, params, "W", "b") * params["scale"] + params["b"]
        elif form == "last":
            y = mg.linear(x * params["scale"] + params["b"], params, "W", "b")
        else:
            y = mg.linear(anp.tanh(mg.linear(x, params, "W", "b")), params, "W", "scale")
        return anp.sum(y**2)  # type: ignore[no-any-return]

    check_grads(value, modes=["rev"], order=1)(params)
    assert not grad(value)(params)["unused"].any()


def test_linear_and_pick_are_what_they_say() -> None:
    rng = np.random.default_rng(0)
    x, W, b = rng.normal(size=(5, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    np.testing.assert_allclose(mg.linear(x, {"u": W, "v": b}, "u", "v"), x @ W.T + b, rtol=1e-12)
    np.testing.assert_array_equal(
        mg.pick(x, np.array([3, 0, 1, 1, 2])), [x[i, j] for i, j in enumerate([3, 0, 1, 1, 2])]
    )


def test_softmax_survives_a_confident_logit_on_a_tile_that_was_fired_at() -> None:
    params = mg.neural_battleship_policy_init(BattleshipGameRules(2, (0, 1)))
    params["b2"][:] = [1000, -1000, -1001, 500]
    observation = np.array([[[-1, 0], [0, 1]]], np.float32)
    params["W2"][:] = 0
    π = mg.neural_battleship_policy(params, observation)[0]
    np.testing.assert_allclose(π, [0, 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0], rtol=1e-6)


def test_a_board_with_no_tile_left_has_probability_0_everywhere() -> None:
    observation = np.ones((2, 5, 5), np.float32)
    assert not mg.neural_battleship_policy(mg.neural_battleship_policy_init(), observation).any()
    assert not mg.reference_battleship_policy(observation).any()


def test_float32_stays_float32_through_the_policy_and_its_gradient() -> None:
    params = mg.neural_battleship_policy_init()
    observation = np.zeros((7, 5, 5), np.float32)
    assert mg.neural_battleship_policy(params, observation).dtype == np.float32
    gradient = grad(lambda params: anp.sum(mg.neural_battleship_policy(params, observation) ** 2))(params)
    assert {value.dtype for value in gradient.values()} == {np.dtype(np.float32)}


def test_initial_params_have_the_stated_shapes_and_spread() -> None:
    params = mg.neural_battleship_policy_init(BattleshipGameRules(7, (0, 0, 1)), seed=5, hidden=300)
    shapes = {name: value.shape for name, value in params.items()}
    assert shapes == {"W1": (300, 49), "b1": (300,), "W2": (49, 300), "b2": (49,)}
    assert {value.dtype for value in params.values()} == {np.dtype(np.float32)}
    assert not params["b1"].any()
    assert not params["b2"].any()
    for name in ("W1", "W2"):  # 14,700 normal numbers: their deviation is known to about 0.6 %
        assert abs(params[name].mean()) < 4 * np.sqrt(2 / 349 / 14700)
        np.testing.assert_allclose(params[name].std(), np.sqrt(2 / 349), rtol=0.03)
    assert not np.array_equal(params["W1"], params["W2"].T)


def test_initial_params_follow_their_seed_and_by_default_have_a_unit_per_tile() -> None:
    params, again, other = (mg.neural_battleship_policy_init(seed=seed) for seed in (1, 1, 2))
    assert params["W1"].shape == params["W2"].shape == (25, 25)
    np.testing.assert_array_equal(params["W1"], again["W1"])
    assert not np.array_equal(params["W1"], other["W1"])


def test_a_board_of_another_size_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"^observation\.shape = \(7, 7\) cannot work: .* 25 tiles"):
        mg.neural_battleship_policy(mg.neural_battleship_policy_init(), np.zeros((2, 7, 7), np.float32))
