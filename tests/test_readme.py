"""README: every snippet runs, every quoted line exists, every figure that can be checked holds."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yardsticks
from experiments import DEFAULT_RUN, EXPERIMENTS
from support import ROOT, all_boards, score_on_all_boards

import microgrpo as mg

README = (ROOT / "README.md").read_text()
SCRIPT = (ROOT / "microgrpo.py").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block(fragment: str) -> str:
    """Find the one Python block that holds the fragment."""
    found = [code for code in BLOCKS if fragment in code]
    (code,) = found
    return str(code)


def numbers(text: str) -> list[float]:
    """Read the numbers in a text."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a snippet as a reader would, in a folder with the shipped policy."""
    shutil.copy(ROOT / "battleship_policy.npz", tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - it is our own
    return names


def best_expected_total() -> float:
    """Solve the README's dice game by dynamic programming, over its starts 0 to 11 as validation plays them."""
    value = dict.fromkeys(range(22, 28), 0.0)
    for total in range(21, -1, -1):
        value[total] = max(total / 21, sum(value[total + die] for die in range(1, 7)) / 6)
    return float(np.mean([value[start % 12] for start in range(64)]))


def test_the_readmes_own_game_trains_to_near_its_optimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(block("class TwentyOne"), tmp_path, monkeypatch)
    best = best_expected_total()
    assert f"{best:.3f}" in README
    assert names["rewards"][0] < 0.5
    np.testing.assert_allclose(names["rewards"][-20:].mean(), best, atol=0.01)
    assert re.search(
        r"^0\.\d\d after the first mini-batch, 0\.8\d after the last ones$", capsys.readouterr().out, re.MULTILINE
    )
    games = mg.rollout(names["TwentyOne"], names["policy"], names["params"], np.arange(512), step_seed=1)
    assert len(set(np.bincount(games.game))) > 2  # trajectories of different lengths


def test_a_gymnasium_environment_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(block("class CartPole"), tmp_path, monkeypatch)
    rewards = names["rewards"]
    assert rewards[-1] > rewards[0] + 5
    assert rewards.max() <= 50  # cut off at max_steps
    one, two = (names["CartPole"].reset(np.array([3, 3, 4]), 0)[1] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[0], one[1])
    assert not np.array_equal(one[0], one[2])


def test_the_shipped_policy_plays_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(block("first shot, %") + block("by chance"), tmp_path, monkeypatch)
    shown = re.search(r"```text\n(first shot, %.*?)```", README, re.DOTALL)
    out = capsys.readouterr().out
    assert shown
    percentages = numbers(out)
    np.testing.assert_allclose(percentages[:-2], numbers(shown[1]), atol=1)
    said = re.search(r"(\d+) % of its shots go there, where (\d+) % would", README)
    assert said
    np.testing.assert_allclose(percentages[-2:], [int(said[1]), int(said[2])], atol=1)


def test_where_the_shipped_policy_misses_is_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    yardsticks.main()
    shown = re.search(r"```text\n(tiles hit so far.*?)```", README, re.DOTALL)
    assert shown
    # On another kind of processor, rounding may change a few of the shots.
    np.testing.assert_allclose(numbers(capsys.readouterr().out), numbers(shown[1]), atol=0.04)
    assert f"{all_boards()[:, 2, 2].mean():.0%}".replace("%", " %") in README


def test_the_answers_snippets_show_what_the_answers_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = README.split("## Questions people ask")[1].split("\n## ")[0]
    snippets = re.findall(r"```python\n(.*?)```", questions, re.DOTALL)
    assert len(snippets) == questions.count("?**") + 1  # one for each question, after the common beginning
    names = run("\n".join(snippets), tmp_path, monkeypatch)
    out = capsys.readouterr().out
    objective = re.search(r"objective (-?[\d.]+)\n", out)
    gradient = re.search(r"gradient ([\d.]+)\n", out)
    assert objective
    assert gradient
    assert abs(float(objective[1])) < 0.1
    assert float(gradient[1]) > 0.003
    assert "same gradient for ε = 0.9 and 0.001: True" in out
    assert "[[ 0.          0.          0.          0.        ]" in out
    assert "[[-1.34 -0.45  0.45  1.34]\n [-1.26 -0.63  0.63  1.26]]" in out
    assert "[[-0.015 -0.005  0.005  0.015]\n [-0.4   -0.2    0.2    0.4  ]]" in out
    assert "[[-1.  1.]\n [ 1. -1.]]" in out
    assert names["pull"] > 0
    untrained, trained = re.findall(r"objective (-?[\d.]+), mean reward ([\d.]+)", out)
    assert abs(float(untrained[0])) < 0.1
    assert abs(float(trained[0])) < 0.1
    assert float(trained[1]) > float(untrained[1]) + 0.2


def test_every_line_that_the_objectives_symbols_point_to_is_in_the_script() -> None:
    table = README.split("| symbol | line")[1].split("\n\n")[0]
    lines = re.findall(r"\| `(.*?)` \|", table)
    assert len(lines) == 10
    for line in lines:
        assert line in SCRIPT


def test_the_table_of_sections_follows_the_scripts() -> None:
    sections = re.findall(r"# === (\w+):", SCRIPT)
    table = README.split("| section |")[1].split("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", table, re.MULTILINE) == sections
    assert sections == ["Game", "Environment", "Policy", "GRPO", "Train", "Run"]


def test_the_table_of_experiments_has_a_row_for_each_experiment() -> None:
    table = README.split("| experiment |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `?(.*?)`? \|", table, re.MULTILINE)[1:] == list(EXPERIMENTS)


def test_the_constants_of_the_default_run_are_the_same_everywhere() -> None:
    run_section = SCRIPT.split("# === Run:")[1]
    for text in ("B=16", "μ=2", "hidden=50", "learning_rate=4e-3"):
        assert text in run_section
    assert "B = 16, μ = 2, 50 hidden units, learning rate 4e-3" in README
    assert DEFAULT_RUN == {"B": 16, "μ": 2, "hidden": 50, "learning_rate": 4e-3}


def test_the_yardsticks_are_what_the_players_score() -> None:
    greedy = 1 - yardsticks.greedy_misses().sum() / 17
    assert f"{greedy:.3f}" == "0.615"
    for text in (README, SCRIPT, (ROOT / "tests" / "plot_rewards.py").read_text()):
        assert "0.615" in text


def test_the_shipped_policy_scores_what_the_table_says() -> None:
    with np.load(ROOT / "battleship_policy.npz") as file:
        score = score_on_all_boards(dict(file), repeats=2)
    row = re.search(r"^\| default run \| ([\d.]+)", README, re.MULTILINE)
    assert row
    assert abs(score - float(row[1])) < 0.02


def test_the_names_of_the_trainers_constants_are_ours() -> None:
    table = README.split("| here | TRL")[1].split("\n\n")[0]
    for name, default in re.findall(r"^\| `(\S+)` \((\S+)\)", table, re.MULTILINE):
        assert str(getattr(mg.GRPOConfig, name)).removesuffix(".0") == default


def test_readme_links_to_files_that_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists()


def test_the_plot_script_draws_a_readers_own_file(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "battleship_rewards.csv", np.linspace(0.1, 0.5, 40))
    command = [sys.executable, str(ROOT / "tests" / "plot_rewards.py"), "battleship_rewards.csv"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
