"""Nothing of a project runs on the host because `forge` was started in it. sandbox.md §5a, "Forge itself".

The project holds a package for every name of the standard library, and a program for every name of the system's,
found first on PATH. Each leaves a mark outside, where no walls lead: one that ran inside walls leaves none.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.acceptance.conftest import FORGE
from tests.deadlines import PATIENCE, WHOLE

NEIGHBOURS = ("sitecustomize", "usercustomize", "pydantic", "pydantic_core", "ruamel", "rich", "prompt_toolkit", "mcp")
PROGRAMS = ("bwrap", "rg", "uv", "uvx", "go", "forge", "python", "python3", "pip", "lsb_release", "xdg-open")
SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Planted:
    project: Path
    marks: Path
    home: Path
    environ: dict[str, str]

    def ran(self) -> list[str]:
        """What of the project has run outside the walls."""
        return sorted(path.name for path in self.marks.iterdir())

    def clear(self) -> None:
        for path in self.marks.iterdir():
            path.unlink()


@pytest.fixture(scope="module")
def planting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("planted")
    project, marks = base / "project", base / "marks"
    for folder in (project / "bin", marks):
        folder.mkdir(parents=True)
    for name in (*sys.stdlib_module_names, *NEIGHBOURS):
        if name != "__main__":
            (project / name).mkdir()
            (project / name / "__init__.py").write_text(_module(marks / f"module {name}"))
    for name in ("sitecustomize", "usercustomize"):
        (project / f"{name}.py").write_text(_module(marks / f"module {name}"))
    script = project / "bin" / ".planted"
    script.write_text(f'#!/bin/sh\n: >"{marks}/program ${{0##*/}}"\n')
    script.chmod(0o755)
    names = {name for folder in SYSTEM for name in os.listdir(folder)} | set(PROGRAMS)
    for name in names:
        (project / "bin" / name).symlink_to(script)
        if not (project / name).exists():
            (project / name).symlink_to(script)
    (project / "a.txt").write_text("planted\n")
    (project / "words.yaml").write_text('{"turns": [{"calls": [{"tool": "list_files", "args": {}}]}, {"say": "Hi."}]}')
    return project, marks


@pytest.fixture
def planted(planting: tuple[Path, Path], own_home: Path) -> Iterator[Planted]:
    project, marks = planting
    kept = {name: os.environ[name] for name in ("HOME", "FORGE_HOME", "LANG") if name in os.environ}
    path = os.pathsep.join((str(project / "bin"), "", ".", "bin", os.environ["PATH"]))
    place = Planted(project, marks, own_home / ".forge", kept | {"PATH": path})
    place.clear()
    yield place
    place.clear()


def _module(mark: Path) -> str:
    """`posix` is built in: found whatever is planted, as early as that may be."""
    return f"import posix\nposix.close(posix.open({str(mark)!r}, posix.O_CREAT | posix.O_WRONLY))\n"


def _real(planted: Planted, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=planted.project,
        env=planted.environ | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WHOLE,
    )


def test_what_is_planted_would_leave_its_mark(planted: Planted) -> None:
    subprocess.run([sys.executable, "-S", "-c", "import json"], cwd=planted.project, timeout=PATIENCE, check=False)
    subprocess.run(
        ["/usr/bin/env", "uname", "-p"], env=planted.environ, cwd=planted.project, timeout=PATIENCE, check=True
    )
    assert planted.ran() == ["module json", "program uname"]


def test_doctor_shows_none_of_its_programs_as_one_that_forge_would_use(planted: Planted, ready_forge: Any) -> None:
    done = ready_forge("doctor", cwd=planted.project, env=planted.environ, walls_known=True)
    assert planted.ran() == []
    told = [line for line in done.stdout.splitlines() if str(planted.project / "bin") in line]
    assert done.stdout and not told, done.stdout + done.stderr


EXPLAINED = ("--", "git", "status")
VERBS: dict[str, tuple[str, ...]] = {
    "run": ("run", "--model", "scripted:words.yaml", "--headless", "go"),
    "run --dry-run": ("run", "--dry-run", "--model", "scripted:words.yaml"),
    "init": ("init", "made"),
    "sessions": ("sessions", "list"),
    "call file_exists": ("call", "file_exists", "--path", "a.txt"),
    "call exec_command": ("call", "exec_command", "--cmd", "git status; uname", "--approval", "approve_all"),
    "call grep_files": ("call", "grep_files", "--pattern", "pl[a]nted", "--path", "a.txt"),
    "tools list": ("tools", "list"),
    "tools doctor": ("tools", "doctor"),
    "tools browse": ("tools", "browse", "git+https://127.0.0.1:9/none@" + "1" * 40),
    "models": ("models",),
    "mcp list": ("mcp", "list"),
    "mcp install": ("mcp", "install", "claude-code"),
    "mcp serve": ("mcp", "serve"),
    "sandbox exec": ("sandbox", "exec", *EXPLAINED),
    "sandbox explain": ("sandbox", "explain", *EXPLAINED),
    "rules check": ("rules", "check"),
    "rules explain": ("rules", "explain", *EXPLAINED),
    "rules list": ("rules", "list"),
    "hooks list": ("hooks", "list"),
    "hooks test": ("hooks", "test", "none", *EXPLAINED),
    "review": ("review", "replay", "--reviewer", "/bin/true"),
    "log": ("log",),
    "log verify": ("log", "verify", "all"),
    "trust": ("trust", "--show"),
    "doctor": ("doctor", "--help"),  # itself: the test above
    "web": ("web", "--help"),
    "acp": ("acp", "--help"),
    "runner": ("runner", "--idle", "1"),
    "ps": ("ps",),
    "attach": ("attach", "none"),
    "batch": ("batch", "none.txt"),
    "schedule": ("schedule", "add", "@daily", "go"),
    "diff": ("diff", "none"),
    "apply": ("apply", "none", "--yes"),
    "changes": ("changes",),
    "undo": ("undo", "--yes"),
    "inbox": ("inbox",),
    "send": ("send", "none", "hello"),
    "stop": ("stop", "none"),
    "store": ("store", "status"),
    "people": ("people", "list"),
    "projects": ("projects", "list"),
    "secrets": ("secrets", "list"),
    "audit": ("audit", "export"),
}


def test_no_verb_is_left_out() -> None:
    from golem_forge.cli.main import VERBS as ALL

    assert {words[0] for words in VERBS.values()} == set(ALL)


ONE_AFTER_ANOTHER = """\
import json, os, sys
from golem_forge.cli.main import main

verbs, marks = json.loads(sys.argv[1]), sys.argv[2]
for name, words in verbs.items():
    try:
        main(words)
    except SystemExit:
        pass
    print(f"\\n{name}: {os.listdir(marks)}", flush=True)
"""


def test_no_verb_runs_it(planted: Planted, ready_forge: Any) -> None:
    program = planted.home.parent / "verbs.py"
    program.write_text(ONE_AFTER_ANOTHER)
    served = ready_forge(*VERBS["mcp serve"], cwd=planted.project, env=planted.environ)  # its streams are its own
    others = {name: words for name, words in VERBS.items() if name != "mcp serve"}
    words = (json.dumps(others), str(planted.marks))
    done = ready_forge.program(str(program), *words, cwd=planted.project, env=planted.environ)
    assert "Traceback" not in served.stderr + done.stderr, served.stderr + done.stderr
    assert [name for name in others if f"\n{name}: []\n" not in done.stdout] == [], done.stdout + done.stderr
    assert planted.ran() == []


def test_tools_of_the_person_are_made_and_tested(planted: Planted, ready_forge: Any) -> None:
    for words in (("new", "mine", "--description", "Mine."), ("build", "mine"), ("test", "mine")):
        done = ready_forge("tools", *words, cwd=planted.project, env=planted.environ)
        assert done.returncode == 0, done.stdout + done.stderr
        assert planted.ran() == []


def test_searching_without_ripgrep(planted: Planted, ready_forge: Any) -> None:
    planted.home.mkdir(mode=0o700, exist_ok=True)
    (planted.home / "config.yaml").write_text("sandbox: {walls: off}\n")
    words = ("call", "grep_files", "--pattern", "pl[a]nted", "--path", "a.txt", "--json", "--approval", "approve_all")
    done = ready_forge(*words, cwd=planted.project, env=planted.environ)
    assert '"engine": "python"' in done.stdout.replace('":"', '": "'), done.stdout + done.stderr
    assert planted.ran() == []


def test_the_client_of_a_model_and_the_first_walled_call_find_no_program_of_the_project(
    planted: Planted, ready_forge: Any, wire: Any, tmp_path: Path
) -> None:
    """The client asks `uname` what machine this is, and the walls are tried; in the project, and with the project
    elsewhere. In the project it is the real command, which imports that client there."""
    look = wire.WireCall(name="exec_command", args={"cmd": "/bin/cat a.txt"})
    turns = [wire.WireTurn(calls=(look,)), wire.WireTurn(say="Hi."), wire.WireTurn(say="Hi.")]
    with wire.WireServer(turns) as server:
        base = f"models.openai.base_url={server.base_url('openai')}"
        words = ("run", "--model", "openai:any", "--headless", "--set", base, "-p", str(planted.project), "go")
        assert not (planted.home / "cache" / "walls.json").exists(), "nothing is known of them"
        real = _real(planted, FORGE, *words, "--approval", "approve_all", OPENAI_API_KEY="none")
        assert "Hi." in real.stdout, real.stdout + real.stderr
        assert "planted" in str(server.requests[1].body), "the command ran"
        ready = ready_forge(*words, cwd=tmp_path, env=planted.environ | {"OPENAI_API_KEY": "none"})
        assert "Hi." in ready.stdout, ready.stdout + ready.stderr
    assert planted.ran() == []


def test_the_page_and_the_browser_it_opens(planted: Planted, tried_walls: Path) -> None:
    """On a desktop, by a program of PATH."""
    import pexpect

    known_walls.put(tried_walls, planted.home)
    opened = planted.home / "opened"
    desktop = planted.home / "desktop"
    desktop.mkdir(mode=0o700, parents=True)
    (desktop / "xdg-open").write_text(f'#!/bin/sh\nprintf %s "$1" >"{opened}.new"; mv "{opened}.new" "{opened}"\n')
    (desktop / "xdg-open").chmod(0o755)
    environ = planted.environ | {"DISPLAY": ":9", "BROWSER": "xdg-open"}
    environ["PATH"] = environ["PATH"].replace("::", f":{desktop}::", 1)
    page = pexpect.spawn(FORGE, ["web"], cwd=str(planted.project), env=environ, timeout=WHOLE, encoding="utf-8")
    try:
        page.expect("Forge in your browser: http")
        until = time.monotonic() + PATIENCE
        while not opened.exists() and not planted.ran():
            assert time.monotonic() < until, "no browser was opened"
            time.sleep(0.02)
    finally:
        page.kill(signal.SIGTERM)
        page.close(force=True)
    assert planted.ran() == []
    assert opened.read_text().startswith("file://")


AS_A_SCRIPT = """\
import sys
sys.path[:0] = ["", {project!r}, {project!r} + "/."]
sys.argv = ["forge", *sys.argv[1:]]
from golem_forge.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("words", [("--version",), ("tools", "list")], ids=" ".join)
def test_a_project_on_the_module_path_is_dropped(planted: Planted, words: tuple[str, ...]) -> None:
    """As an editable install in the environment, or a variable, puts it there. Only a name that is not loaded yet
    could be taken: so Forge loads none before it has dropped the project."""
    program = AS_A_SCRIPT.format(project=str(planted.project))
    done = _real(planted, sys.executable, "-I", "-c", program, *words)
    assert done.returncode == 0, done.stderr
    assert planted.ran() == []


def test_inside_walls_the_projects_programs_are_first_as_ever(planted: Planted, ready_forge: Any) -> None:
    words = ("sandbox", "exec", "--", "/bin/sh", "-c", "command -v uname")
    done = ready_forge(*words, cwd=planted.project, env=planted.environ)
    assert done.stdout.strip() == "/workspace/bin/uname", done.stdout + done.stderr
