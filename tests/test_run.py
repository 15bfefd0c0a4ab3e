"""Run: never lose what was learned, always say what is wrong."""

import errno
import io
import itertools
import os
import pty
import re
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, config

import microgrpo as mg
from microgrpo import AdamWOptimizer, Array, BattleshipEnv, BattleshipGameRules, GRPOConfig, Params

POLICY, REWARDS = "battleship_policy.npz", "battleship_rewards.csv"
SHORT = ("M: int = 2048", "M: int = 4"), ("G: int = 16", "G: int = 2")
CONSTANTS = r"board_size|ships|hidden|G|B|M|μ|ε|β|seed|learning_rate|β1|β2|λ|observation\.shape"
SENTENCE = re.compile(rf"({CONSTANTS}) = .* cannot work: it must .*\.")


class SmallEnv(BattleshipEnv):
    """A 3 × 3 board with ships of 1 and 2 tiles."""

    rules = BattleshipGameRules(3, (0, 1, 1))


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the script into a folder with constants changed, as its reader would."""
    text = (ROOT / "microgrpo.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "microgrpo.py").write_text(text, encoding="utf-8")
    return folder / "microgrpo.py"


def start(script: Path, encoding: str = "utf-8", **streams: Any) -> subprocess.Popen[str]:
    """Start a script in its folder, with everything it prints in a pipe unless told otherwise."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, script.name]
    return subprocess.Popen(command, cwd=script.parent, env=environment, encoding="utf-8", **streams)


def run(script: Path, encoding: str = "utf-8") -> tuple[str, str, int | None]:
    """Run a script in its folder to its end: stdout, stderr, exit code."""
    process = start(script, encoding)
    return *process.communicate(timeout=120), process.returncode


def read_until(process: subprocess.Popen[str], beginning: str) -> str:
    """Read lines of stdout until one begins as given; return it."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(beginning):
            return line
    message = f"no line began with {beginning!r}"
    raise AssertionError(message)


def saved(folder: Path) -> tuple[Params, Array]:
    """Read the two files that a run leaves."""
    with np.load(folder / POLICY) as file:
        return dict(file), np.loadtxt(folder / REWARDS, ndmin=1)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_one_sentence(error: object) -> None:
    assert SENTENCE.fullmatch(str(error)), error


# --- a run, and what it leaves


def test_a_run_in_a_pipe_saves_both_files_and_reports_in_a_few_plain_lines(tmp_path: Path) -> None:
    out, err, code = run(edited(tmp_path, *SHORT))
    assert (err, code) == ("", 0)
    params, rewards_val = saved(tmp_path)
    assert set(params) == {"W1", "b1", "W2", "b2"}
    π = mg.neural_battleship_policy(params, np.zeros((1, 5, 5), np.float32))
    np.testing.assert_allclose(π.sum(), 1, rtol=1e-5)
    assert rewards_val.shape == (4,)
    assert ((rewards_val > 0) & (rewards_val < 1)).all()
    assert names(tmp_path) == {"microgrpo.py", POLICY, REWARDS}
    assert "Stopped after 4 of 4 mini-batches.\n" in out
    for file in (POLICY, REWARDS):
        assert re.search(rf"^wrote .*{re.escape(file)}$", out, re.MULTILINE)
    scores = dict(re.findall(r"^(\d\.\d{3}) mean score.* of (.*)$", out, re.MULTILINE))
    assert scores.keys() >= {"0.615"}
    means = {name: float(score) for score, name in re.findall(r"^(\d\.\d{3}) mean score of (.*)$", out, re.MULTILINE)}
    assert means.keys() == {"random play", "before", "after"}
    np.testing.assert_allclose(means["random play"], 0.1529, atol=0.006)  # of 4,096 games
    last = re.findall(r"^mini-batch 4 of 4, validation score (\d\.\d{3})$", out, re.MULTILINE)
    assert last == [f"{rewards_val[-1]:.3f}"]
    assert len(out.splitlines()) < 30
    assert "\r" not in out
    drawing = out.splitlines()[-5:]
    assert all(re.fullmatch(r"[.Sox]{5}(   [.Sox]{5}){4}", line) for line in drawing)


def test_a_long_run_in_a_pipe_tells_of_its_progress_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    train_small(M=37)
    out, err = capsys.readouterr()
    progress = [int(number) for number in re.findall(r"^mini-batch (\d+) of 37, ", out, re.MULTILINE)]
    assert len(progress) == len(out.splitlines()) == 10
    assert progress[-1] == 37
    assert "\r" not in out + err


def test_an_ascii_pipe_gets_the_same_lines_even_in_a_folder_whose_name_it_cannot_show(tmp_path: Path) -> None:
    folder = tmp_path / "Übung 🚢"
    folder.mkdir()
    out, err, code = run(edited(folder, *SHORT), encoding="ascii")
    assert (err, code) == ("", 0)
    assert names(folder) == {"microgrpo.py", POLICY, REWARDS}
    assert out.isascii()
    assert len(out.splitlines()) < 30
    for words in ("Stopped after 4 of 4 mini-batches.", "wrote ", POLICY, REWARDS, "mean score of after"):
        assert words in out


def run_in_terminal(script: Path, encoding: str) -> str:
    """Run a script with stdout and stderr in a pseudo-terminal: what appears there."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (30, 100))
    process = start(script, encoding, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(controller, 65536):
            shown += part
    os.close(controller)
    assert process.wait(timeout=60) == 0
    assert encoding == "utf-8" or shown.isascii()
    return shown.decode(encoding)


def test_a_terminal_gets_a_bar_and_emoji(tmp_path: Path) -> None:
    shown = run_in_terminal(edited(tmp_path, *SHORT), "utf-8")
    assert re.search(r"mini-batches: 100%\|█+\| 4/4 .*validation score 0\.\d{3}", shown)
    *_, drawing = shown.split("shots:\r\n")
    tiles = [re.findall("[🌊🚢💦💥]", line) for line in drawing.splitlines()]
    assert [len(line) for line in tiles] == [25] * 5  # five boards side by side
    assert {"🌊", "🚢", "💥"} <= set(drawing)
    assert "mini-batch 4 of 4" not in shown


def test_a_terminal_without_unicode_gets_a_bar_and_letters(tmp_path: Path) -> None:
    shown = run_in_terminal(edited(tmp_path, *SHORT), "cp1252")
    assert re.search(r"mini-batches: 100%\|#+\| 4/4 ", shown)
    *_, drawing = shown.split("shots:\r\n")
    assert all(re.fullmatch(r"[.Sox]{5}(   [.Sox]{5}){4}", line) for line in drawing.splitlines())


def test_importing_has_no_side_effect(tmp_path: Path) -> None:
    script = edited(tmp_path)
    code = "import os; before = dict(os.environ); import microgrpo; assert os.environ == before"
    command = [sys.executable, "-B", "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    result = subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, check=False, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert names(tmp_path) == {"microgrpo.py"}


# --- Ctrl-C


def interruptible(folder: Path) -> subprocess.Popen[str]:
    """Start a run of about 10 s; return when 3 % of it are done."""
    process = start(edited(folder, ("M: int = 2048", "M: int = 300"), SHORT[1]))
    read_until(process, "mini-batch 30 of 300")
    return process


def test_ctrl_c_in_the_middle_of_training_keeps_what_was_learned(tmp_path: Path) -> None:
    process = interruptible(tmp_path)
    process.send_signal(signal.SIGINT)
    stopped = re.fullmatch(r"Stopped after (\d+) of 300 mini-batches\.\n", read_until(process, "Stopped"))
    assert stopped
    out, err = process.communicate(timeout=60)
    assert (err, process.returncode) == ("", 0)
    assert "mean score of after" in out
    params, rewards_val = saved(tmp_path)
    assert 30 <= len(rewards_val) == int(stopped[1]) < 300
    π = mg.neural_battleship_policy(params, np.zeros((1, 5, 5), np.float32))
    np.testing.assert_allclose(π.sum(), 1, rtol=1e-5)
    assert names(tmp_path) == {"microgrpo.py", POLICY, REWARDS}


def test_a_second_ctrl_c_ends_the_run_at_once(tmp_path: Path) -> None:
    process = interruptible(tmp_path)
    process.send_signal(signal.SIGINT)
    read_until(process, "Stopped after")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (err, process.returncode) == ("", -signal.SIGINT)
    assert "mean score of after" not in out


def interrupted_policy(call: int) -> mg.Policy:
    """Make the policy of which one call, counted from 1, is met by Ctrl-C."""
    calls, uninterrupted = itertools.count(1), mg.neural_battleship_policy

    def policy(params: Params, observation: Array) -> Array:
        if next(calls) == call:
            raise KeyboardInterrupt
        return uninterrupted(params, observation)

    return policy


def train_small(policy: mg.Policy = mg.neural_battleship_policy, **changes: Any) -> tuple[Params, Array]:
    """Train on the small board, by default in a configuration of few games."""
    environment = changes.pop("environment", SmallEnv)
    optimizer = AdamWOptimizer(
        mg.neural_battleship_policy_init(SmallEnv.rules), learning_rate=changes.pop("learning_rate", 0.02)
    )
    changes = {"B": 1, "G": 3, "M": 5, "μ": 2, **changes}
    return mg.train_grpo(optimizer, GRPOConfig(environment, policy, mg.reference_battleship_policy, **changes))


def assert_same_training(one: tuple[Params, Array], other: tuple[Params, Array]) -> None:
    np.testing.assert_array_equal(one[1], other[1])
    for name, value in one[0].items():
        np.testing.assert_array_equal(value, other[0][name])


@pytest.mark.parametrize("call", [1, 8, 11, 15, 30, 45, 60])
def test_params_and_rewards_after_ctrl_c_are_those_of_the_last_whole_mini_batch(call: int) -> None:
    interrupted = train_small(interrupted_policy(call))
    assert len(interrupted[1]) < 5
    assert_same_training(interrupted, train_small(M=len(interrupted[1])))


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with another one for temporary files, and leave SIGINT to pytest."""
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return tmp_path


def test_ctrl_c_before_the_first_mini_batch_is_done_leaves_an_earlier_policy_untouched(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (POLICY, REWARDS):
        Path(name).write_text("from an earlier run")
    monkeypatch.setattr(mg, "neural_battleship_policy", interrupted_policy(call=20))
    mg.main()
    out, _ = capsys.readouterr()
    assert "Stopped after 0 of 2048 mini-batches.\n" in out
    assert "wrote" not in out
    assert "mean score of after" in out
    assert names(in_folder / "here") == {POLICY, REWARDS}
    assert {Path(name).read_text() for name in (POLICY, REWARDS)} == {"from an earlier run"}
    assert not names(in_folder / "temporary")


# --- files are written whole or not at all


def half(file: Any) -> None:
    file.write(b"half of i")


def write_but_disk_is_full_in(*folders: Path) -> Callable[[Any], None]:
    """Make a function that writes "half of it", but only the first half in some folders."""

    def write(file: Any) -> None:
        half(file)
        if set(Path(file.name).absolute().parents) & set(folders):
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(b"t")

    return write


Save = Callable[[str, Callable[[Any], None]], str]


@pytest.fixture
def save(capsys: pytest.CaptureFixture[str]) -> Save:
    """Give a function that saves and returns what is said about it, be it printed or handed back to be printed."""

    def save_and_listen(name: str, write: Callable[[Any], None]) -> str:
        microgrpo_save: Callable[..., str | None] = mg.save
        handed_back = microgrpo_save(name, write) or ""
        return capsys.readouterr().out + handed_back

    return save_and_listen


def test_what_cannot_be_written_here_goes_to_the_temporary_folder_and_an_earlier_file_stays(
    in_folder: Path, save: Save
) -> None:
    here, temporary = in_folder / "here", in_folder / "temporary"
    (here / "file").write_text("from an earlier run")
    said = save("file", write_but_disk_is_full_in(here))
    assert (here / "file").read_text() == "from an earlier run"
    assert (temporary / "file").read_text() == "half of it"
    assert (names(here), names(temporary)) == ({"file"}, {"file"})
    assert "No space left on device" in said
    assert f"wrote {temporary / 'file'}" in said


def test_what_can_be_written_here_replaces_an_earlier_file(in_folder: Path, save: Save) -> None:
    here = in_folder / "here"
    (here / "file.with.dots").write_text("from an earlier run, and longer")
    assert re.fullmatch(r"wrote .*file\.with\.dots\n?", save("file.with.dots", write_but_disk_is_full_in()))
    assert (here / "file.with.dots").read_text() == "half of it"
    assert (names(here), names(in_folder / "temporary")) == ({"file.with.dots"}, set())


def fails(number: int) -> Callable[..., Any]:
    """Make a function that fails as the system does, whatever it is asked to do."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_file_that_the_disk_does_not_take_over_is_not_called_written(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, save: Save
) -> None:
    monkeypatch.setattr(os, "fsync", fails(errno.EIO))
    said = save("file", half)
    assert not names(in_folder / "here") | names(in_folder / "temporary")
    assert re.search(r"could not write .*file.*Input/output error", said)
    assert "wrote" not in said


def test_when_both_folders_fail_that_is_said_and_nothing_raised(in_folder: Path, save: Save) -> None:
    folders = in_folder / "here", in_folder / "temporary"
    for folder in folders:
        (folder / "file").write_text("from an earlier run")
    said = save("file", write_but_disk_is_full_in(*folders))
    assert re.search(r"could not write .*file.*No space left on device", said)
    assert "wrote" not in said
    for folder in folders:
        assert names(folder) == {"file"}
        assert (folder / "file").read_text() == "from an earlier run"


def test_folders_that_are_gone_are_said_and_nothing_raised(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, save: Save
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(in_folder / "nowhere"))
    (in_folder / "here").rmdir()
    assert re.search(r"could not write .*file.*No such file or directory", save("file", half))


def test_a_working_directory_that_is_gone_leaves_the_temporary_folder(in_folder: Path, save: Save) -> None:
    (in_folder / "here").rmdir()
    said = save("file", half)
    assert names(in_folder / "temporary") == {"file"}
    assert f"wrote {in_folder / 'temporary' / 'file'}" in said


def test_a_disk_that_has_become_read_only_leaves_the_temporary_folder(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, save: Save
) -> None:
    calls = itertools.count()

    def write(file: Any) -> None:
        half(file)
        if next(calls) == 0:
            for place, name in ((Path, "unlink"), (os, "unlink"), (os, "remove"), (os, "rmdir")):
                monkeypatch.setattr(place, name, fails(errno.EROFS))
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    said = save("file", write)
    monkeypatch.undo()
    assert (in_folder / "temporary" / "file").read_bytes() == b"half of i"
    assert f"wrote {in_folder / 'temporary' / 'file'}" in said


def test_the_lack_of_a_temporary_folder_prevents_nothing(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, save: Save
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", fails(errno.ENOENT))  # so it does when every disk is full
    save("file", half)
    assert names(in_folder / "here") == {"file"}
    assert re.search(r"could not write .*other", save("other", write_but_disk_is_full_in(in_folder / "here")))
    assert names(in_folder / "here") == {"file"}


def limited(size: int, save: Save, name: str, write: Callable[[Any], None]) -> None:
    """Save on a disk that takes so many bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        save(name, write)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", [POLICY, REWARDS])
def test_a_disk_that_is_full_after_any_number_of_bytes_leaves_an_earlier_file_whole(
    in_folder: Path, save: Save, name: str
) -> None:
    params = mg.neural_battleship_policy_init(SmallEnv.rules)
    rewards_val = np.linspace(0, 1, 50)
    writes: dict[str, Callable[[Any], None]] = {
        POLICY: lambda file: np.savez(file, allow_pickle=False, **params),
        REWARDS: lambda file: np.savetxt(file, rewards_val, "%.6f"),
    }
    save(name, writes[name])
    whole = Path(name).read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 23, len(whole) - 22, len(whole) - 3, len(whole) - 1):
        Path(name).write_bytes(b"from an earlier run")
        limited(size, save, name, writes[name])
        assert Path(name).read_bytes() == b"from an earlier run", f"{len(whole) - size} bytes are missing"
        assert names(in_folder / "here") == {name}
        assert not names(in_folder / "temporary")
    limited(len(whole), save, name, writes[name])
    assert Path(name).stat().st_size == len(whole)


@pytest.mark.parametrize("error", [errno.EPIPE, errno.ENOSPC])
def test_output_that_nobody_takes_loses_nothing_learned(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    # What stdout is once the program behind the pipe has ended, or the disk is full.
    closed = io.StringIO()
    monkeypatch.setattr(closed, "write", fails(error))
    monkeypatch.setattr(mg, "GRPOConfig", partial(GRPOConfig, M=3, G=2))
    monkeypatch.setattr(sys, "stdout", closed)
    with suppress(OSError):
        mg.main()
    monkeypatch.undo()
    _, rewards_val = saved(in_folder / "here")
    assert rewards_val.shape == (3,)


# --- constants that cannot work


@pytest.mark.parametrize("as_script", [False, True])
def test_a_working_directory_that_cannot_be_written_to_is_refused_before_training(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, *, as_script: bool
) -> None:
    def no_training(*_: object) -> None:
        pytest.fail("trained")

    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(mg, "train_grpo", no_training)
    monkeypatch.setattr(mg, "rollout", no_training)
    if as_script:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which the script sets
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "microgrpo.py"), run_name="__main__")
        sentence = stop.value.code
    else:
        with pytest.raises(ValueError, match="working directory") as refusal:
            mg.main()
        sentence = str(refusal.value)
    assert re.fullmatch(r"working directory = '.*' cannot work: it must .*\.", str(sentence))
    assert not names(in_folder / "here")


EDITS = {
    "G": ("G: int = 16", "G: int = 1"),
    "M": ("M: int = 2048", "M: int = -1"),
    "μ": ("B=16, μ=2)", "B=16, μ=0)"),
    "B": ("B=16, μ=2)", "B=1.5, μ=2)"),
    "ε": ("ε: float = 0.9", "ε: float = -1"),
    "β": ("β: float = 0.0", "β: float = np.nan"),
    "board_size": ("rules = BattleshipGameRules()", "rules = BattleshipGameRules(board_size=0)"),
    "ships": ("rules = BattleshipGameRules()", "rules = BattleshipGameRules(ships=(0, 0, 0, 0, 0, 0, 1))"),
    "hidden": ("hidden=50)", "hidden=-50)"),
}
LEARNING_RATES = {rate: ("learning_rate=4e-3)", f"learning_rate={rate})") for rate in ("0", "-1", "np.nan", "np.inf")}


@pytest.mark.parametrize("name", ["G", "board_size"])
def test_a_constant_that_cannot_work_ends_the_script_in_one_sentence_on_stderr(tmp_path: Path, name: str) -> None:
    out, err, code = run(edited(tmp_path, EDITS[name], SHORT[0]), encoding="ascii" if name == "G" else "utf-8")
    assert (out, code) == ("", 1)
    assert err.endswith("\n")
    assert_one_sentence(err[:-1])
    assert err.startswith(f"{name} = ")
    assert names(tmp_path) == {"microgrpo.py"}


@pytest.mark.parametrize(
    ("name", "change"),
    [*EDITS.items(), *(("learning_rate", change) for change in LEARNING_RATES.values())],
    ids=[*EDITS, *LEARNING_RATES],
)
def test_edited_constants_that_cannot_work_end_the_script_in_one_sentence(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: tuple[str, str]
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # which the script sets
    script = edited(in_folder, change, *(SHORT[:1] if name != "M" else ()))
    script = script.rename(in_folder / "script.py")  # else its coverage would be measured as well
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert_one_sentence(stop.value.code)
    assert str(stop.value.code).startswith(f"{name} = ")
    assert not names(in_folder / "here")


NOT_FINITE = [float("nan"), float("inf"), -float("inf"), np.float32("nan")]
NO_INTEGERS = [2.5, 4.0, float("nan"), float("inf"), "16", None]
NO_NUMBERS = ["0.9", None]


def refusals(cases: dict[str, list[Any]]) -> pytest.MarkDecorator:
    flat = [(name, value) for name, values in cases.items() for value in values]
    return pytest.mark.parametrize(("name", "value"), flat, ids=[f"{name}={value!r}" for name, value in flat])


@refusals(
    {
        "G": [1, 0, -16, *NO_INTEGERS],
        "B": [0, -1, *NO_INTEGERS],
        "M": [-1, *NO_INTEGERS],
        "μ": [0, -1, *NO_INTEGERS],
        "seed": [-1, *NO_INTEGERS],
        "ε": [0, -0.1, 1e10, 10**400, *NOT_FINITE, *NO_NUMBERS],
        "β": [-0.1, -1e-9, *NOT_FINITE, *NO_NUMBERS],
    }
)
def test_a_configuration_that_cannot_work_is_refused_in_a_sentence(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} = {re.escape(repr(value))} cannot work: ") as refusal:
        config(**{name: value})
    assert_one_sentence(refusal.value)


@refusals(
    {
        "learning_rate": [0, 0.0, -1e-3, *NOT_FINITE, *NO_NUMBERS],
        "β1": [1, 1.5, -0.1, *NOT_FINITE, *NO_NUMBERS],
        "β2": [1.0, 2, -0.1, *NOT_FINITE, *NO_NUMBERS],
        "λ": [-0.01, *NOT_FINITE, *NO_NUMBERS],
        "ε": [-1e-8, *NOT_FINITE, *NO_NUMBERS],
    }
)
def test_an_optimizer_that_cannot_work_is_refused_in_a_sentence(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} = {re.escape(repr(value))} cannot work: ") as refusal:
        AdamWOptimizer({}, **{name: value})
    assert_one_sentence(refusal.value)


@refusals({"hidden": [-1, *NO_INTEGERS]})
def test_a_number_of_hidden_units_that_cannot_work_is_refused_in_a_sentence(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} = {re.escape(repr(value))} cannot work: ") as refusal:
        mg.neural_battleship_policy_init(hidden=value)
    assert_one_sentence(refusal.value)


def test_constants_at_the_edge_of_what_works_are_accepted() -> None:
    c = config(G=np.int64(2), B=np.int32(1), M=0, μ=1, seed=0, ε=1e-9, β=0)
    assert (c.G, c.B, c.M, c.μ, c.seed, c.ε, c.β) == (2, 1, 0, 1, 0, 1e-9, 0)
    optimizer = AdamWOptimizer({}, learning_rate=1e-12, β1=0, β2=0, λ=0)
    assert (optimizer.β1, optimizer.β2, optimizer.λ) == (0, 0, 0)
    assert mg.neural_battleship_policy_init(hidden=1)["W1"].shape == (1, 25)


def test_a_policy_trained_on_another_board_size_is_refused_in_a_sentence() -> None:
    params = mg.neural_battleship_policy_init(BattleshipGameRules(4))
    with pytest.raises(ValueError, match="16 tiles") as of_rollout:
        mg.rollout(BattleshipEnv, mg.neural_battleship_policy, params, np.arange(3), step_seed=0)
    with pytest.raises(ValueError, match="16 tiles") as of_training:
        mg.train_grpo(AdamWOptimizer(params), config(M=1))
    for refusal in (of_rollout, of_training):
        assert_one_sentence(refusal.value)


# --- numbers


@pytest.mark.parametrize(
    "changes",
    [{"learning_rate": 0.3, "β": 0.1}, {"learning_rate": 0.3, "β": 10}, {"β": 10}, {"learning_rate": 1e30}],
    ids=str,
)
def test_constants_a_hundred_times_too_large_stay_finite_or_are_said_to_fail(
    changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    params, rewards_val = train_small(M=40, B=2, **changes)
    out, err = capsys.readouterr()
    assert all(np.isfinite(value).all() for value in params.values())
    assert ((rewards_val >= 0) & (rewards_val <= 1)).all()
    if changes.get("learning_rate") == 1e30:
        assert re.search(rf"\bMini-batch {len(rewards_val) + 1} .*(infinite|NaN)", out + err)
    else:
        assert len(rewards_val) == 40


@pytest.mark.parametrize("learning_rate", [1e5, 1e20])
def test_params_so_large_that_their_policy_is_nan_are_not_called_learned(learning_rate: float) -> None:
    params, rewards_val = train_small(M=40, B=2, learning_rate=learning_rate)
    with np.errstate(all="ignore"):
        π = mg.neural_battleship_policy(params, np.zeros((1, 3, 3), np.float32))
    np.testing.assert_allclose(π.sum(), 1, rtol=1e-5)
    assert len(rewards_val) < 40


class CountingEnv(SmallEnv):
    """Counts its starts: two for each mini-batch, one of which is for validation."""

    starts = 0

    @classmethod
    def reset(cls, init_seeds: Array, step_seed: int) -> tuple[Self, Array]:
        """Count, then start."""
        CountingEnv.starts += 1
        return super().reset(init_seeds, step_seed)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_policy_that_yields_nan_stops_training_at_the_mini_batch_before(
    k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def policy(params: Params, observation: Array) -> Array:
        π = mg.neural_battleship_policy(params, observation)
        return π * np.nan if CountingEnv.starts > 2 * (k - 1) else π

    CountingEnv.starts = 0
    stopped = train_small(policy, environment=CountingEnv)
    out, err = capsys.readouterr()
    assert len(stopped[1]) == k - 1
    assert all(np.isfinite(value).all() for value in stopped[0].values())
    assert_same_training(stopped, train_small(M=k - 1))
    assert len(re.findall(rf"^Mini-batch {k} .*\.$", out + err, re.MULTILINE)) == 1


# --- constants drawn at random


INTEGERS = {"board_size": (-1, 6), "G": (0, 5), "B": (0, 3), "M": (0, 2), "μ": (0, 3), "hidden": (-1, 8)}
FLOATS = st.sampled_from([0.0, 1e-9, 0.1, 0.9, 3.0, 10.0, 1e5, 1e30, 1e300, -1.0, np.nan, np.inf, -np.inf])
SHARE = st.sampled_from([0.0, 0.5, 0.9, 0.999999, 1.0, -0.1, np.nan])


@st.composite
def constants(draw: st.DrawFn) -> dict[str, Any]:
    """Draw constants of which none, one or all may be unable to work."""
    working = {"board_size": 4, "ships": (0, 1, 1), "G": 3, "B": 2, "M": 2, "μ": 1, "hidden": 0}
    working |= {"ε": 0.5, "β": 0.0, "learning_rate": 0.01, "β1": 0.9, "β2": 0.999, "λ": 0.01}
    drawn: dict[str, Any] = {name: draw(st.integers(*limits)) for name, limits in INTEGERS.items()}
    crowded = st.sampled_from([(0, 0, 0, 4), (0, 1, 0, 0, 3), (0, 0, 1, 2, 2), (0, 0, 0, 3, 0, 3), (0, 0, 0, 0, 9)])
    drawn["ships"] = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, -1]), max_size=7).map(tuple) | crowded)
    drawn |= {name: draw(FLOATS) for name in ("ε", "β", "learning_rate", "λ")}
    drawn |= {name: draw(SHARE) for name in ("β1", "β2")}
    kept = draw(st.sets(st.sampled_from(sorted(working)), min_size=draw(st.sampled_from([0, 5, 9]))))
    return drawn | {name: working[name] for name in kept}


def can_work(c: dict[str, Any]) -> bool:
    """Say whether constants can work, but for ships that have too little room among each other."""
    n, ships = c["board_size"], c["ships"]
    fleet = (
        n >= 1 and all(count >= 0 for count in ships) and 0 < sum(k * count for k, count in enumerate(ships)) <= n * n
    )
    fleet = fleet and ships[0] == 0 and not any(ships[n + 1 :])
    least = {"G": 2, "B": 1, "M": 0, "μ": 1, "hidden": 0, "β": 0, "λ": 0, "β1": 0, "β2": 0}
    finite = all(np.isfinite(c[name]) for name in ("ε", "β", "learning_rate", "λ", "β1", "β2"))
    positive = 0 < c["ε"] <= 1e9 and c["learning_rate"] > 0
    return bool(
        fleet and finite and positive and all(c[k] >= x for k, x in least.items()) and c["β1"] < 1 and c["β2"] < 1
    )


def run_with(c: dict[str, Any]) -> tuple[Params, Array]:
    """Train with the constants given, in the order in which a reader would meet them."""

    class Env(BattleshipEnv):
        rules = BattleshipGameRules(c["board_size"], c["ships"])

    drawn = config(environment=Env, **{name: c[name] for name in ("G", "B", "M", "μ", "ε", "β")})
    params = mg.neural_battleship_policy_init(Env.rules, hidden=c["hidden"])
    return mg.train_grpo(AdamWOptimizer(params, **{k: c[k] for k in ("learning_rate", "β1", "β2", "λ")}), drawn)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(constants())
def test_constants_drawn_at_random_give_a_run_or_one_sentence(c: dict[str, Any]) -> None:
    try:
        params, rewards_val = run_with(c)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert len(rewards_val) <= c["M"]
        assert ((rewards_val >= 0) & (rewards_val <= 1)).all()
        assert all(np.isfinite(value).all() for value in params.values())
    if refusal:
        assert_one_sentence(refusal)
    assert can_work(c) == (not refusal) or (can_work(c) and "a fleet that" in refusal)
