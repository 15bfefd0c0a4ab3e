"""The project's files: metadata that must agree, what is committed and what is not."""

import os
import re
import tomllib

from support import ROOT

import microgrpo as mg

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def metadata(script: str) -> dict[str, object]:
    """Read the PEP 723 block of a script."""
    block = re.search(r"^# /// script\n(.*?)^# ///$", (ROOT / script).read_text(), re.MULTILINE | re.DOTALL)
    assert block
    return tomllib.loads("".join(line[2:] + "\n" for line in block[1].splitlines()))


def test_script_and_project_ask_for_the_same_python_and_packages() -> None:
    script = metadata("microgrpo.py")
    assert script["requires-python"] == PROJECT["project"]["requires-python"] == ">=3.11"
    assert script["dependencies"] == PROJECT["project"]["dependencies"]
    names = [re.split("[>=<]", bound)[0] for bound in PROJECT["project"]["dependencies"]]
    assert names == ["autograd", "numpy", "tqdm"]
    assert metadata("grpo_toy_problem.py") == {"requires-python": ">=3.11", "dependencies": []}


def test_both_scripts_run_by_themselves() -> None:
    for script in ("microgrpo.py", "grpo_toy_problem.py"):
        assert (ROOT / script).read_text().startswith("#!/usr/bin/env -S uv run --script\n")
        assert os.access(ROOT / script, os.X_OK)


def test_the_script_stays_short_enough_to_hold_in_mind() -> None:
    assert len((ROOT / "microgrpo.py").read_text().splitlines()) <= 420


def test_every_public_name_of_the_script_says_what_it_is() -> None:
    names = re.findall(r"^(?:class|def) (\w+)", (ROOT / "microgrpo.py").read_text(), re.MULTILINE)
    assert len(names) >= 20
    for name in names:
        assert len(getattr(mg, name).__doc__) > 30
