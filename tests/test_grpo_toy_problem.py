"""The toy problem: one step, the whole run, every exercise it proposes, every edit it refuses."""

# ruff: noqa: S311 - random draws answers here, it guards no secret

import ast
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import grpo_toy_problem as toy

SCRIPT = Path(toy.__file__)
SOURCE = SCRIPT.read_text(encoding="utf-8")
THIRDS = '"learnable": [1 / 3, 1 / 3, 1 / 3]'
FOUR_ANSWERS = {
    "ANSWERS": '["correct", "partial", "wrong", "almost"]',
    "SCORES": "[1.0, 0.5, 0.0, 0.9]",
    THIRDS: '"learnable": [0.25, 0.25, 0.25, 0.25]',
}

finite = st.floats(allow_nan=False, allow_infinity=False)
above_0 = st.floats(0, exclude_min=True, allow_infinity=False)


@st.composite
def distributions(draw: st.DrawFn) -> list[float]:
    """Draw probabilities of 1 to 6 answers, some of them 0, whose sum is 1 up to rounding."""
    weights = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
    return [weight / sum(weights) for weight in weights]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Draw probabilities, and any finite score for each answer."""
    probs = draw(distributions())
    return probs, draw(st.lists(finite, min_size=len(probs), max_size=len(probs)))


def scripted(monkeypatch: pytest.MonkeyPatch, draws: Sequence[int]) -> random.Random:
    """Return a generator whose group is always `draws`, indices into what it may choose from."""

    def choices(population: Sequence[int], weights: Sequence[float], *, k: int) -> list[int]:
        assert len(population) == len(weights)
        assert k == len(draws)
        return [population[index] for index in draws]

    rng = random.Random()
    monkeypatch.setattr(rng, "choices", choices)
    monkeypatch.setattr(toy, "GROUP_SIZE", len(draws))
    return rng


def one_step(
    probs: list[float], scores: list[float], *, size: int = 20, lr: float = 0.15, seed: int = 0
) -> tuple[list[float], float]:
    """Take one step with these constants; patched here, as hypothesis reuses a test's fixtures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "GROUP_SIZE", size)
        patch.setattr(toy, "LR", lr)
        return toy.step(probs, scores, random.Random(seed))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def edited(tmp_path: Path, edits: dict[str, str]) -> Path:
    """Copy the script with the lines of these constants replaced, as a reader would edit them."""
    source = SOURCE
    for name, value in edits.items():
        if name.isupper():
            source, count = re.subn(rf"(?m)^{name} = [^#\n]*?(?=  #|$)", f"{name} = {value}", source)
        else:
            source, count = source.replace(name, value), source.count(name)
        assert count == 1, name
    assert not edits or source != SOURCE
    copy = tmp_path / "edited.py"
    copy.write_text(source, encoding="utf-8")
    return copy


class Printed:
    """What a run printed: the probabilities and the average reward of each row, and the text."""

    def __init__(self, output: str) -> None:
        table, self.closing = output.split("\n\n")
        self.heading, start, *rows = table.splitlines()
        self.answers = re.findall(r"P\((\w+)\)", self.heading)[:-1]
        fields = [row.split() for row in rows]
        self.average = {int(row[0]): float(row[1]) for row in fields}
        self.probs = {int(row[0]): [float(p) for p in row[2:-1]] for row in fields}
        self.probs[0] = [float(p) for p in start.split()[1:-1]]
        self.bars = {int(row[0]): row[-1] for row in fields} | {0: start.split()[-1]}

    def curve(self, answer: str) -> dict[int, float]:
        return {step: p[self.answers.index(answer)] for step, p in self.probs.items()}


def rerun(tmp_path: Path, edits: dict[str, str]) -> Printed:
    """Do an exercise: edit the script, run it, and read what it prints."""
    result = run(sys.executable, edited(tmp_path, edits))
    assert (result.returncode, result.stderr) == (0, "")
    return Printed(result.stdout)


# --- one step ---


def test_a_step_matches_one_worked_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = scripted(monkeypatch, [0, 2, 0, 1])
    monkeypatch.setattr(toy, "LR", 0.1)
    probs, average = toy.step([0.25, 0.25, 0.5], [1.0, 0.5, 0.0], rng)
    # Baseline 2.5 / 4; advantages 0.375 (twice), -0.125 and -0.625.
    assert average == 0.625
    assert probs == pytest.approx([0.25 + 0.075, 0.25 - 0.0125, 0.5 - 0.0625], rel=1e-12)


def test_a_probability_pushed_below_0_stops_at_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = scripted(monkeypatch, [0, 2])
    monkeypatch.setattr(toy, "LR", 0.1)
    probs, average = toy.step([0.98, 0.01, 0.01], [1.0, 0.5, 0.0], rng)
    # 0.98 + 0.05, 0.01 and 0.01 - 0.05, which becomes 0.0001: together 1.0401.
    assert average == 0.5
    assert probs == pytest.approx([1.03 / 1.0401, 0.01 / 1.0401, 0.0001 / 1.0401], rel=1e-12)


@settings(deadline=None)
@given(
    distributions(),
    st.lists(st.integers(-100, 100), min_size=6, max_size=6),
    st.integers(1, 30),
    st.sampled_from([0.001, 0.15, 1.0, 7.0]),
    st.integers(0, 2**32),
)
def test_a_step_agrees_with_exact_fractions(
    probs: list[float], tenths: list[int], size: int, lr: float, seed: int
) -> None:
    scores = [tenth / 10 for tenth in tenths[: len(probs)]]
    got, average = one_step(probs, scores, size=size, lr=lr, seed=seed)

    drawn = random.Random(seed).choices(range(len(probs)), probs, k=size)
    counts = [drawn.count(answer) for answer in range(len(probs))]
    exact = [Fraction(score) for score in scores]
    total = sum((n * score for n, score in zip(counts, exact, strict=True)), Fraction())
    baseline = total / size
    want = [Fraction(p) for p in probs]
    if any(scores[answer] != scores[drawn[0]] for answer in drawn):
        for answer, count in enumerate(counts):
            want[answer] += Fraction(lr) * count * (exact[answer] - baseline)
        want = [max(p, Fraction(1, 10_000)) for p in want]
        want = [p / sum(want) for p in want]
    assert average == float(baseline)
    assert got == pytest.approx(list(map(float, want)), rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(
    distributions(),
    finite,
    st.integers(1, 60),
    above_0,
    st.integers(0, 2**32),
)
@example([1 / 3, 1 / 3, 1 / 3], 0.1, 20, 0.15, 0)
@example([0.1] * 10, 0.1, 3, 0.15, 0)
@example([1.0, 0.0], 1.0, 20, 0.15, 0)
@example([0.06, 0.24, 0.7], sys.float_info.max, 20, 1e300, 0)
def test_equal_scores_leave_the_probabilities_untouched(
    probs: list[float], score: float, size: int, lr: float, seed: int
) -> None:
    got, average = one_step(probs, [score] * len(probs), size=size, lr=lr, seed=seed)
    assert got == probs
    assert average == score


@settings(deadline=None)
@given(problems(), above_0, st.integers(0, 2**32))
def test_a_group_of_one_leaves_the_probabilities_untouched(
    problem: tuple[list[float], list[float]], lr: float, seed: int
) -> None:
    probs, scores = problem
    got, average = one_step(probs, scores, size=1, lr=lr, seed=seed)
    assert got == probs
    assert average in scores


@settings(deadline=None, max_examples=300)
@given(problems(), st.integers(1, 60), above_0, st.integers(0, 2**32))
@example(([0.5, 0.5], [sys.float_info.max, -sys.float_info.max]), 20, sys.float_info.max, 0)
@example(([0.5, 0.25, 0.25], [1e308, 0.0, -1e308]), 20, 1e300, 0)
@example(([0.5, 0.5], [1.0, 0.0]), 20, 5e-324, 0)
def test_a_step_keeps_a_probability_distribution_for_any_scores_and_any_lr(
    problem: tuple[list[float], list[float]], size: int, lr: float, seed: int
) -> None:
    probs, scores = problem
    got, average = one_step(probs, scores, size=size, lr=lr, seed=seed)
    assert len(got) == len(probs)
    assert all(0 <= p <= 1 for p in got)  # false for nan, too
    assert math.isclose(math.fsum(got), 1, abs_tol=1e-9)
    assert min(scores) <= average <= max(scores)


@settings(deadline=None)
@given(problems(), st.integers(1, 30), st.integers(0, 2**32))
@example(([0.5, 0.5], [1.0, 1.0]), 20, 0)
def test_a_step_changes_nothing_but_the_generator_it_is_given(
    problem: tuple[list[float], list[float]], size: int, seed: int
) -> None:
    probs, scores = problem
    before, everyones = (list(probs), list(scores)), random.getstate()
    first = one_step(probs, scores, size=size, seed=seed)
    assert first[0] is not probs
    first_probs = list(first[0])
    assert one_step(probs, scores, size=size, seed=seed) == first
    assert first[0] == first_probs
    assert (probs, scores) == before
    assert random.getstate() == everyones


def test_an_answer_that_starts_at_0_becomes_possible_only_when_a_group_teaches() -> None:
    start = [0.5, 0.5, 0.0]
    tied, _ = one_step(start, [1.0, 1.0, 0.0])
    taught, _ = one_step(start, [1.0, 0.0, 0.0])
    assert tied == start
    assert 0 < taught[2] < 1e-3


# --- small functions and constants ---


def test_the_defaults_are_those_of_the_contract() -> None:
    assert toy.ANSWERS == ["correct", "partial", "wrong"]
    assert toy.SCORES == toy.scores_now() == [1.0, 0.5, 0.0]
    assert (toy.EASY_MODE, toy.DIFFICULTY, toy.SEED) == (False, "learnable", 0)
    assert (toy.GROUP_SIZE, toy.STEPS, toy.LR) == (20, 40, 0.15)
    assert {name: tuple(probs) for name, probs in toy.START_PROBS.items()} == {
        "easy": (0.90, 0.08, 0.02),
        "learnable": (1 / 3, 1 / 3, 1 / 3),
        "hard": (0.06, 0.24, 0.70),
    }


def test_easy_mode_scores_every_answer_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "EASY_MODE", True)
    assert toy.scores_now() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("difficulty", ["easy", "learnable", "hard"])
def test_start_probs_are_a_copy_of_those_of_the_difficulty(monkeypatch: pytest.MonkeyPatch, difficulty: str) -> None:
    monkeypatch.setattr(toy, "DIFFICULTY", difficulty)
    assert toy.start_probs() == toy.START_PROBS[difficulty]
    assert toy.start_probs() is not toy.START_PROBS[difficulty]


def test_a_bar_is_filled_in_proportion() -> None:
    assert [toy.bar(p, 4) for p in (0, 0.25, 0.5, 1)] == ["....", "#...", "##..", "####"]
    assert toy.bar(1 / 3) == "#" * 8 + "." * 16


def test_every_constant_says_what_turning_it_does() -> None:
    names = re.findall(r"(?m)^([A-Z_]+) = ", SOURCE)
    commented = re.findall(r"(?m)^([A-Z_]+) = .*  # \w.{20,}", SOURCE)
    assert len(names) == 9
    assert commented == names


def test_the_docstring_names_parts_that_microgrpo_has() -> None:
    tree = ast.parse(SCRIPT.with_name("microgrpo.py").read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    defined = {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}
    lesson = toy.__doc__ or ""
    for name in ("group_advantages", "grpo_objective", "AdamWOptimizer"):
        assert name in lesson
        assert name in defined
    assert "AdamWOptimizer.step" in lesson
    methods = defined["AdamWOptimizer"].body
    assert "step" in [node.name for node in methods if isinstance(node, ast.FunctionDef)]


# --- the script as a whole ---


@pytest.fixture(scope="module")
def output() -> str:
    result = run(sys.executable, "-W", "error", SCRIPT)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_rerun_prints_the_same_bytes(output: str) -> None:
    assert run(sys.executable, SCRIPT).stdout == output


@pytest.mark.skipif(shutil.which("uv") is None, reason="the shebang needs uv")
def test_the_script_runs_by_its_shebang_and_prints_the_same_table(output: str) -> None:
    assert SOURCE.startswith("#!/usr/bin/env -S uv run")
    assert os.access(SCRIPT, os.X_OK)
    assert run(SCRIPT).stdout == output


def test_main_prints_what_the_script_prints(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    toy.main()
    assert capsys.readouterr().out == output


def test_the_script_needs_only_the_standard_library() -> None:
    block = re.search(r"(?ms)^# /// script\n(.*?)^# ///$", SOURCE)
    assert block
    metadata = tomllib.loads(re.sub(r"(?m)^# ?", "", block[1]))
    assert metadata == {"requires-python": ">=3.11", "dependencies": []}
    nodes = list(ast.walk(ast.parse(SOURCE)))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert modules <= sys.stdlib_module_names


def test_source_and_output_are_plain_ascii(output: str) -> None:
    assert SOURCE.isascii()
    assert output.isascii()


def test_the_first_step_shows_0_38_and_0_60(output: str) -> None:
    printed = Printed(output)
    assert printed.answers == ["correct", "partial", "wrong"]
    assert printed.probs[0] == [0.33, 0.33, 0.33]
    assert printed.average[1] == 0.38
    assert printed.probs[1] == [0.60, 0.40, 0.00]
    assert printed.bars[1] == toy.bar(0.604)


def test_each_of_the_first_steps_is_shown_and_few_once_nothing_changes(output: str) -> None:
    assert list(Printed(output).average) == [*range(1, 11), 20, 30, 40]


@pytest.mark.parametrize(
    "constants",
    [
        {"LR": 0.02},
        {"LR": 0.02, "STEPS": 400},
        {"GROUP_SIZE": 2},
        {"STEPS": 1},
        {"STEPS": 13, "SEED": 3},
        {"DIFFICULTY": "hard", "SCORES": [0, 1, 1]},
        {"SCORES": [7, 7, 7]},
    ],
)
def test_every_printed_number_is_that_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], constants: dict[str, Any]
) -> None:
    for name, value in constants.items():
        monkeypatch.setattr(toy, name, value)
    toy.main()
    printed = Printed(capsys.readouterr().out)

    rng, probs, unmoved, shown = random.Random(toy.SEED), toy.start_probs(), 0, printed.probs[0]
    for number in range(1, toy.STEPS + 1):
        before = probs
        probs, average = toy.step(before, toy.scores_now(), rng)
        unmoved += probs == before
        assert number in printed.probs or number not in range(1, 11)
        if number in printed.probs:
            assert printed.average[number] == float(f"{average:.2f}")
            assert printed.bars[number] == toy.bar(probs[0])
            shown = printed.probs[number]
        # A step without a row looks like the last row above it.
        assert shown == [float(f"{p:.2f}") for p in probs]
    assert list(printed.average)[-1] == toy.STEPS
    first, second = printed.closing.splitlines()[:2]
    start = f"{toy.start_probs()[0]:.2f}"
    assert first == f"P(correct) was {start} at the start and is {probs[0]:.2f} after step {number}."
    assert second == f"Steps that moved no probability at all: {unmoved} of {number}."


def test_a_long_run_prints_few_rows_once_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toy, "STEPS", 2000)
    toy.main()
    assert len(Printed(capsys.readouterr().out).average) < 20


# --- the exercises, done as a reader does them ---


@pytest.mark.parametrize("difficulty", ["easy", "learnable", "hard"])
@pytest.mark.parametrize("steps", [40, 7])
def test_in_easy_mode_nothing_moves_and_the_text_says_why(tmp_path: Path, difficulty: str, steps: int) -> None:
    edits = {"EASY_MODE": "True", "DIFFICULTY": f'"{difficulty}"', "STEPS": f"{steps} + 0"}
    printed = rerun(tmp_path, edits)
    assert set(printed.average.values()) == {1.0}
    assert all(probs == printed.probs[0] for probs in printed.probs.values())
    start = f"{toy.START_PROBS[difficulty][0]:.2f}"
    assert printed.closing.splitlines() == [
        f"P(correct) was {start} at the start and is {start} after step {steps}.",
        f"Steps that moved no probability at all: {steps} of {steps}.",
        f"Every answer scored its group's average (in step {steps}: 1.00),",
        f"so each of the {20 * steps} advantages was 0: there was nothing to learn.",
    ]


def test_with_hard_the_partial_answer_climbs_first_and_the_climb_is_longer(tmp_path: Path) -> None:
    printed = rerun(tmp_path, {"DIFFICULTY": '"hard"'})
    correct, partial = printed.curve("correct"), printed.curve("partial")
    assert correct[1] <= correct[0]
    assert partial[0] < partial[1] < partial[2]
    assert partial[40] == 0
    assert correct[3] < 0.5
    assert correct[40] == 1


def test_with_easy_the_climb_is_short(tmp_path: Path) -> None:
    correct = rerun(tmp_path, {"DIFFICULTY": '"easy"'}).curve("correct")
    assert correct[0] == 0.90
    assert correct[1] == correct[40] == 1


def test_a_group_of_2_climbs_slowly_as_many_groups_tie(tmp_path: Path) -> None:
    printed = rerun(tmp_path, {"GROUP_SIZE": "2"})
    correct = printed.curve("correct")
    assert 0.4 < correct[10] < 0.7
    assert 0.9 < correct[40] < 1
    assert "no probability at all: 24 of 40." in printed.closing


def test_a_group_of_1_never_moves_and_the_text_says_why(tmp_path: Path) -> None:
    printed = rerun(tmp_path, {"GROUP_SIZE": "1"})
    assert set(printed.average.values()) == {0.0, 0.5, 1.0}
    assert all(probs == printed.probs[0] for probs in printed.probs.values())
    assert "no probability at all: 40 of 40." in printed.closing
    assert "so each of the 40 advantages was 0" in printed.closing


@pytest.mark.parametrize("steps", [40, 100])
def test_a_smaller_lr_climbs_in_many_small_steps_to_the_same_end(tmp_path: Path, steps: int) -> None:
    correct = rerun(tmp_path, {"LR": "0.02", "STEPS": f"{steps} + 0"}).curve("correct")
    climb = [correct[step] for step in range(11)]
    assert all(0 < after - before < 0.08 for before, after in pairwise(climb))
    assert correct[18] < 0.99
    assert correct[steps] == 1


def test_a_large_lr_climbs_in_a_few_big_steps(tmp_path: Path) -> None:
    correct = rerun(tmp_path, {"LR": "1.0"}).curve("correct")
    assert correct[1] > 0.65
    assert correct[2] == correct[40] == 1


def test_adding_10_to_every_score_changes_only_the_average_reward(tmp_path: Path, output: str) -> None:
    printed, default = rerun(tmp_path, {"SCORES": "[11.0, 10.5, 10.0]"}), Printed(output)
    assert printed.probs == default.probs
    assert printed.average == pytest.approx({n: a + 10 for n, a in default.average.items()})


def test_a_fourth_answer_takes_part(tmp_path: Path) -> None:
    printed = rerun(tmp_path, FOUR_ANSWERS)
    assert printed.answers == ["correct", "partial", "wrong", "almost"]
    assert printed.probs[0] == [0.25, 0.25, 0.25, 0.25]
    correct, almost = printed.curve("correct"), printed.curve("almost")
    assert almost[5] > correct[5]  # it leads at first,
    assert almost[16] > 0  # lasts longer than "partial" does in the default run,
    assert (almost[40], correct[40]) == (0, 1)  # and is gone in the end


@pytest.mark.parametrize("left_out", list(FOUR_ANSWERS))
def test_a_fourth_answer_that_is_missing_somewhere_is_refused(tmp_path: Path, left_out: str) -> None:
    edits = {name: value for name, value in FOUR_ANSWERS.items() if name != left_out}
    result = run(sys.executable, edited(tmp_path, edits))
    blamed = "START_PROBS['learnable']" if left_out == THIRDS else "SCORES"
    size = 3 if left_out == "ANSWERS" else 4
    assert result.returncode == 1
    assert result.stderr.startswith(f"{blamed} = [")
    assert f"must be a list of {size} finite numbers, one for each of ANSWERS" in result.stderr


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_seed_takes_another_path_to_the_same_end(tmp_path: Path, output: str, seed: int) -> None:
    printed, default = rerun(tmp_path, {"SEED": str(seed)}), Printed(output)
    assert printed.average != default.average
    assert printed.probs[40] == default.probs[40]


# --- edits that cannot work ---

REFUSED = [
    ("ANSWERS", "[]", "ANSWERS", "a list of strings"),
    ("ANSWERS", "None", "ANSWERS", "a list of strings"),
    ("ANSWERS", "'yes'", "ANSWERS", "a list of strings"),
    ("ANSWERS", "[1, 2, 3]", "ANSWERS", "a list of strings"),
    ("ANSWERS", "['yes', 'no']", "SCORES", "a list of 2 finite numbers"),
    ("SCORES", "[1.0, 0.5]", "SCORES", "a list of 3 finite numbers"),
    ("SCORES", "1.0", "SCORES", "a list of 3 finite numbers"),
    ("SCORES", "[1.0, 0.5, '0']", "SCORES", "a list of 3 finite numbers"),
    ("SCORES", "[1.0, 0.5, float('nan')]", "SCORES", "a list of 3 finite numbers"),
    ("SCORES", "[1.0, 0.5, float('inf')]", "SCORES", "a list of 3 finite numbers"),
    ("SCORES", "[1.0, 0.5, 10**400]", "SCORES", "a list of 3 finite numbers"),
    ("EASY_MODE", "'no'", "EASY_MODE", "True or False"),
    ("DIFFICULTY", "'medium'", "DIFFICULTY", "one of ['easy', 'learnable', 'hard']"),
    ("DIFFICULTY", "['easy']", "DIFFICULTY", "one of ['easy', 'learnable', 'hard']"),
    ("GROUP_SIZE", "0", "GROUP_SIZE", "an integer of at least 1"),
    ("GROUP_SIZE", "2.0", "GROUP_SIZE", "an integer of at least 1"),
    ("STEPS", "-1", "STEPS", "an integer of at least 1"),
    ("STEPS", "'40'", "STEPS", "an integer of at least 1"),
    ("LR", "0", "LR", "a finite number above 0"),
    ("LR", "-0.1", "LR", "a finite number above 0"),
    ("LR", "float('inf')", "LR", "a finite number above 0"),
    ("LR", "float('nan')", "LR", "a finite number above 0"),
    ("LR", "None", "LR", "a finite number above 0"),
    ("SEED", "None", "SEED", "an integer"),
    ("START_PROBS", "[0.2, 0.3, 0.5]", "START_PROBS", "a dict of lists"),
]
REFUSED_PROBS = [
    "[0.5, 0.5]",
    "[0.5, 0.6, -0.1]",
    "[0.5, 0.5, 0.5]",
    "[0.3, 0.3, 0.3]",
    "[0.0, 0.0, 0.0]",
    "[0.5, 0.5, float('nan')]",
    "[0.5, 0.5, '0']",
    "None",
]


@pytest.mark.parametrize(("constant", "value", "blamed", "allowed"), REFUSED)
def test_a_constant_that_cannot_work_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: str, blamed: str, allowed: str
) -> None:
    monkeypatch.setattr(toy, constant, eval(value))  # noqa: S307 - the literals above
    sentence = f"{blamed} = {getattr(toy, blamed)!r} cannot work: it must be {allowed}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        toy.check()
    with pytest.raises(ValueError, match=re.escape(sentence)):
        toy.main()


@pytest.mark.parametrize("value", REFUSED_PROBS)
def test_start_probs_that_are_no_distribution_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    probs = eval(value)  # noqa: S307 - the literals above
    monkeypatch.setitem(toy.START_PROBS, "learnable", probs)
    sentence = f"START_PROBS['learnable'] = {probs!r} cannot work: it must be a list of 3 finite"
    with pytest.raises(ValueError, match=re.escape(sentence) + ".* none negative, that sum to 1"):
        toy.check()


@pytest.mark.parametrize("probs", [[1 / 3] * 3, [1.0, 0.0, 0.0], [1, 0, 0], [0.3333333] * 3])
def test_start_probs_that_sum_to_1_up_to_rounding_are_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], probs: list[float]
) -> None:
    monkeypatch.setitem(toy.START_PROBS, "learnable", probs)
    toy.main()
    assert "after step 40" in capsys.readouterr().out


def test_whole_numbers_whose_differences_are_no_floats_still_teach(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toy, "SCORES", [17 * 10**307, -17 * 10**307, -17 * 10**307])
    toy.main()
    assert "is 1.00 after step 40" in capsys.readouterr().out


def test_easy_mode_does_not_hide_scores_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "EASY_MODE", True)
    monkeypatch.setattr(toy, "SCORES", [1.0, 0.5, math.nan])
    with pytest.raises(ValueError, match=r"^SCORES = "):
        toy.main()


@pytest.mark.parametrize(
    "edits",
    [
        {"SCORES": "[1.0, 0.5, 'none']"},
        {"DIFFICULTY": '"medium"'},
        {"GROUP_SIZE": "0"},
        {"STEPS": "0.5"},
        {"LR": "-0.15"},
        {THIRDS: '"learnable": [0.5, 0.5, 0.5]'},
    ],
)
def test_the_script_ends_in_one_sentence_without_a_traceback(tmp_path: Path, edits: dict[str, str]) -> None:
    result = run(sys.executable, edited(tmp_path, edits))
    assert (result.returncode, result.stdout) == (1, "")
    (sentence,) = result.stderr.splitlines()
    name = next(iter(edits)) if THIRDS not in edits else "START_PROBS['learnable']"
    assert re.fullmatch(rf"{re.escape(name)} = .+ cannot work: it must be .+\.", sentence)
