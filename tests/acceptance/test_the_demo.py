"""`make demo` and the other examples do what their first lines say, with a person at a terminal and without."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "examples.demo")


def screen_module() -> ModuleType:
    place = ROOT / "tests" / "ui" / "terminal" / "screen.py"
    spec = importlib.util.spec_from_file_location("terminal_screen", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """With a directory for temporary files that must be empty afterwards, and no key."""
    place = tmp_path / "tmp"
    place.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and name != "NO_COLOR"}
    return kept | {"TMPDIR": str(place)}


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def unattended(environ: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        DEMO, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50
    )


def test_without_a_terminal_it_answers_itself_and_says_so(environ: Mapping[str, str]) -> None:
    before = contents(ROOT / "examples")
    ran = unattended(environ)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert "There is no model behind it" in lines[0]
    assert "There is no terminal, so the demo answers the question itself and says so." in lines[:6]
    told = [
        "✓ run_tests - 2 of 3 passed; failed: test_three_mugs",
        "-    return int(price * 100)",
        "+    return round(price * 100)",
        "  worker: main › fixer",
        "  nobody is here to ask: the demo answers yes, once",
        "✓ apply_patch",
        "✓ run_tests - 3 of 3 passed",
        "✗ soak_tests - interrupted",
        "The demo pressed Ctrl+C",
        "; 0 are left.",
        "$ forge run --resume last",
        "✓ run_tests - 3 of 3 passed",
        "Nothing was changed but what you allowed.",
        "  closed  main ",
        "  ok, ",
        " cart.py | 2 +-",
    ]
    missing = iter(lines)
    assert [text for text in told if not any(text in line for line in missing)] == [], ran.stdout
    assert contents(ROOT / "examples") == before, "the checkout is never changed"
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


def test_at_a_terminal_the_person_answers_the_card(environ: Mapping[str, str]) -> None:
    with screen_module().Terminal(DEMO, cwd=ROOT, env=environ, columns=110, rows=40) as terminal:
        terminal.wait_for("+    return round(price * 100)", 20)
        terminal.wait_for("[y/N]", anywhere=False)
        assert "y allows it, n does not" in terminal.text
        terminal.settle()
        assert "✓ apply_patch" not in terminal.text, "nothing is written before the answer"
        terminal.send("y")
        terminal.wait_for("The demo pressed Ctrl+C", 20)
        code = terminal.wait_end(20)
        shown = terminal.text
    assert code == 0, shown
    assert "✓ apply_patch" in shown and "✗ soak_tests - interrupted" in shown and "; 0 are left." in shown
    assert "resumed" in shown and "Nothing was changed but what you allowed." in shown and "cart.py | 2 +-" in shown
    assert "the demo answers" not in shown and "Traceback" not in shown


def test_what_goes_wrong_is_said_and_is_the_exit_code(environ: Mapping[str, str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "examples" / "repair" / "forge.yaml").open("a") as file:
        file.write("budgte: {}\n")
    ran = unattended(environ, cwd=tmp_path)
    assert ran.returncode == 1
    assert "forge.yaml:13: budgte: unknown key 'budgte'; did you mean 'budget'?" in ran.stdout
    assert "demo: FAILED: the run ended with 1 before the soak test" in ran.stderr
    assert "── 3." not in ran.stdout and "That was all" not in ran.stdout


@pytest.mark.parametrize(
    ("name", "last"),
    [("embed.py", "plates now: 10"), ("one_path.py", "hash chain intact")],
)
def test_the_other_examples_run_as_they_are(name: str, last: str, environ: Mapping[str, str]) -> None:
    command = (sys.executable, str(ROOT / "examples" / name))
    ran = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith(last)
    assert list(Path(environ["TMPDIR"]).iterdir()) == []
