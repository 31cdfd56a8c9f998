"""What Forge loads and starts outside the walls comes from no project. sandbox.md §5a, "Forge itself"."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

import golem_forge
from golem_forge.sandbox.git.command import find_git
from golem_forge.sandbox.host import (
    base_python,
    find_program,
    helper_environ,
    isolated,
    isolated_module,
    own_paths,
    safe_path,
)
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.model import Level
from golem_forge.usertools.share import GitAccess
from golem_forge.usertools.share.reader import GitCommand

Program = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def program() -> Program:
    def make(folder: Path, name: str = "tool", mode: int = 0o755) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
        return path

    return make


def path_of(*folders: Path | str) -> dict[str, str]:
    return {"PATH": os.pathsep.join(map(str, folders))}


# ---- programs


def test_a_program_is_the_first_on_path_outside_the_project(project: Path, tmp_path: Path, program: Program) -> None:
    program(project)
    program(project / "bin")
    first, second = program(tmp_path / "first"), program(tmp_path / "second")
    environ = path_of(project / "bin", project, first.parent, second.parent)
    assert find_program("tool", environ=environ) == str(first)
    assert find_program("tool", environ=path_of(project / "bin")) is None
    assert find_program("other", environ=environ) is None


@table("entry", ["", ".", "bin", "../project/bin", "./bin/"])
def test_relative_entries_do_not_count(project: Path, program: Program, entry: str) -> None:
    program(project)
    program(project / "bin")
    assert find_program("tool", environ=path_of(entry)) is None
    assert find_program("sh", environ=path_of(entry, "/bin")) == "/bin/sh"


def test_links_into_the_project_and_spellings_of_it(project: Path, tmp_path: Path, program: Program) -> None:
    program(project / "bin")
    (tmp_path / "link").symlink_to(project)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tool").symlink_to(project / "bin" / "tool")
    for entry in ("link/bin", "own", "own/../project/bin", "project/../project/bin/.", "link/bin/../bin"):
        assert find_program("tool", environ=path_of(f"{tmp_path}/{entry}")) is None, entry
    (project / "out").symlink_to(program(tmp_path / "far").parent)
    assert find_program("tool", environ=path_of(project / "out")) is None, "whoever writes there could turn it"
    assert find_program("tool", environ=path_of(tmp_path / "far")) == str(tmp_path / "far" / "tool")


def test_zones_elsewhere(project: Path, tmp_path: Path, program: Program) -> None:
    made = program(tmp_path / "scratch" / "bin")
    (tmp_path / "alias").symlink_to(tmp_path / "scratch")
    environ = path_of(made.parent)
    assert find_program("tool", environ=environ) == str(made)
    for zone in ("scratch", "alias"):
        assert find_program("tool", [str(tmp_path / zone)], environ=environ) is None
    assert find_program("tool", [str(tmp_path / "scratc")], environ=environ) == str(made), "another directory"


@pytest.mark.parametrize("mark", ["forge.yaml", ".git"])
def test_the_project_around_the_working_directory(
    project: Path, program: Program, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    environ = path_of(program(project / ".venv" / "bin").parent)
    (project / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(project / "src" / "deep")
    assert find_program("tool", environ=environ) is not None
    (project / mark).touch()
    assert find_program("tool", environ=environ) is None


def test_who_works_at_home_keeps_their_programs(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home cannot be a zone to write in, nor can what contains it."""
    made = program(tmp_path / "home" / ".local" / "bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    program(tmp_path / "home")
    for here in (tmp_path / "home", tmp_path, Path("/")):
        monkeypatch.chdir(here)
        assert find_program("tool", environ=path_of(tmp_path / "home", made.parent)) == str(
            tmp_path / "home" / "tool" if here != tmp_path / "home" else made
        )
        assert find_program("sh", environ=path_of("", "/usr/bin", "/bin")) in ("/usr/bin/sh", "/bin/sh")


def test_only_a_file_that_can_be_run(project: Path, tmp_path: Path, program: Program) -> None:
    (tmp_path / "a" / "tool").mkdir(parents=True)
    program(tmp_path / "b", mode=0o644)
    made = program(tmp_path / "c")
    environ = path_of(*(tmp_path / name for name in ("missing", "a", "b", "c")))
    assert find_program("tool", environ=environ) == str(made)
    with pytest.raises(ValueError, match="not by a path"):
        find_program("../c/tool", environ=environ)


def test_a_working_directory_that_is_gone(project: Path, program: Program, tmp_path: Path) -> None:
    made = program(tmp_path / "own")
    project.rmdir()
    assert find_program("tool", environ=path_of(".", made.parent)) == str(made)


def test_a_safe_path_is_never_empty(project: Path, tmp_path: Path) -> None:
    """An empty one means the working directory."""
    assert safe_path(f"{project}/bin:.::/usr/bin:{tmp_path}/x") == f"/usr/bin:{tmp_path}/x"
    assert safe_path(f"{project}/bin:.:") == safe_path("") == os.defpath
    assert safe_path(f"/usr/bin:{tmp_path}/x", [f"{tmp_path}/x"]) == "/usr/bin"


def test_what_a_browser_is_started_with(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", str(project))
    monkeypatch.setenv("DISPLAY", ":9")
    environ = helper_environ()
    assert environ["PATH"] == "/usr/bin" and environ["DISPLAY"] == ":9"
    assert not [name for name in environ if name.startswith("PYTHON")]


# ---- interpreters


def test_a_helper_has_the_standard_library_alone(project: Path) -> None:
    (project / "json.py").write_text("raise SystemExit('the project ran')")
    (project / "sitecustomize.py").write_text("raise SystemExit('the project ran')")
    asks = "import json, sys; print(json.dumps([sys.path, sys.flags.isolated, sys.flags.no_site, sys.prefix]))"
    environ = {"PYTHONPATH": str(project), "PYTHONHOME": str(project), "PYTHONSTARTUP": "x"}
    said = subprocess.run(isolated("-c", asks), env=environ, capture_output=True, check=True, timeout=PATIENCE).stdout
    paths, alone, no_site, prefix = json.loads(said)
    assert (
        (alone, no_site) == (1, 1) and prefix == sys.base_prefix and base_python() == os.path.realpath(sys.executable)
    )
    assert not [path for path in paths if not path.startswith(os.path.join(sys.base_prefix, "lib"))]


def test_forges_own_code_is_loaded_by_its_place(tmp_path: Path) -> None:
    """What lies beside the package, in a directory of packages or in a flat checkout, is out of reach."""
    (tmp_path / "golem_forge" / "sandbox").mkdir(parents=True)
    (tmp_path / "golem_forge" / "__init__.py").touch()
    (tmp_path / "golem_forge" / "sandbox" / "__init__.py").touch()
    (tmp_path / "golem_forge" / "sandbox" / "part.py").write_text(
        "import importlib.util, sys\ndef main(): print(importlib.util.find_spec('beside'), sys.argv[1:])\n"
    )
    (tmp_path / "beside.py").touch()
    own = str(Path(golem_forge.__file__).parent)
    argv = [word.replace(own, f"{tmp_path}/golem_forge") for word in isolated_module("golem_forge.sandbox.part", "a b")]
    said = subprocess.run(
        argv, cwd=tmp_path, env={}, capture_output=True, check=True, timeout=PATIENCE, text=True
    ).stdout
    assert said == "None ['a b']\n"


def test_the_launcher_has_nothing_of_the_commands_environment() -> None:
    """It runs before there are walls; what the command gets is in its order."""
    made = landlock.launch(
        landlock.LandlockCommand(argv=("true",), env={"PYTHONPATH": "x", "GCONV_PATH": "x"}), level=Level.OFF
    )
    try:
        assert list(made.env) == ["FORGE_TREE"]
        assert made.argv[:3] == isolated()
    finally:
        made.on_exit()
        for descriptor in made.descriptors.values():
            os.close(descriptor)


def test_git_looks_for_its_own_helpers_outside_the_project(project: Path, tmp_path: Path, program: Program) -> None:
    environ = path_of(program(project / "bin", "git").parent, "", program(tmp_path / "own", "git").parent)
    git = GitCommand(folder=tmp_path, access=GitAccess(environ=environ, transports=frozenset()))
    assert find_git(environ) == str(tmp_path / "own" / "git")
    assert git._environment()["PATH"] == str(tmp_path / "own")


# ---- the process itself


def test_the_module_path_keeps_forge_and_drops_the_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    inside = ["", ".", "src", str(project), f"{project}/", f"{project}/src", f"{tmp_path}/link/x", f"{project}/a.zip"]
    outside = [entry for entry in sys.path if entry.startswith(sys.base_prefix)] + [str(tmp_path / "other")]
    assert own_paths([*inside, *outside]) == outside


def test_forge_installed_in_the_project_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout, a virtual environment in the project, and a project that is its own environment."""
    source = str(Path(golem_forge.__file__).parent.parent)
    monkeypatch.chdir(source)
    assert own_paths([source, f"{source}/golem_forge"]) == [source]
    (tmp_path / "lib").mkdir()
    monkeypatch.chdir(tmp_path)
    for prefix, packages in ((tmp_path, "lib/python3/site-packages"), (tmp_path / ".venv", "lib64/python3/x.zip")):
        monkeypatch.setattr(sys, "prefix", str(prefix))
        assert own_paths([str(tmp_path), f"{tmp_path}/src", f"{prefix}/{packages}"]) == [f"{prefix}/{packages}"]


def test_only_the_command_changes_its_process(project: Path) -> None:
    """A library does not."""
    asks = """
import os, sys
sys.path.insert(0, os.getcwd())
before = list(sys.path), os.environ["PATH"]
import golem_forge
from golem_forge.cli.main import main
from golem_forge.sandbox.host import keep_out, person_environ
assert golem_forge.open_session
main(["--version"])
keep_out(["/opt/zone"])
assert (sys.path, os.environ["PATH"]) == before and person_environ() is os.environ
sys.argv = ["forge", "--version"]
main()
main()
assert os.getcwd() not in sys.path and os.environ["PATH"] == "/opt/zone/bin:/usr/bin"
keep_out(["/opt/zone"])
assert os.environ["PATH"] == "/usr/bin" and person_environ()["PATH"] == before[1]
"""
    environ = {**os.environ, "PATH": f"{project}/bin:/opt/zone/bin:/usr/bin"}
    done = subprocess.run([sys.executable, "-c", asks], env=environ, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


# ---- every place that starts one

STARTS = {f"subprocess.{name}" for name in ("run", "call", "Popen", "check_call", "check_output", "getoutput")}
HOME_OF = {
    "sys.executable": {
        *("sandbox/host.py", "sandbox/protected.py", "sandbox/walls/probe.py"),
        *("usertools/build/requirements.py", "cli/doctor.py", "cli/mcp/install.py"),
    },
    "shutil.which": {"mcp/client/stdio_transport.py", "cli/rules.py"},
    "os.posix_spawn": {"sandbox/process/launch.py"},
    "os.system": set(),
    "webbrowser.open": set(),
}
"""Who may use it: to show it, to look inside walls, or because it is the home of how that is done."""


def _sources() -> Iterator[tuple[str, str, ast.AST]]:
    """Name, text and tree of those that could have one of these in them: parsing takes longest."""
    package = Path(golem_forge.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if any(word in text for word in ("subprocess.", "create_subprocess_", *HOME_OF)):
            yield str(file.relative_to(package)), text, ast.parse(text)


def test_whoever_starts_a_program_says_where_and_with_what() -> None:
    found, lax = 0, []
    homes = {name.partition(".")[2] for name in HOME_OF}
    for name, source, tree in _sources():
        starts = "subprocess" in source
        for node in ast.walk(tree):
            if starts and isinstance(node, ast.Call) and _starts(node.func):
                found += 1
                given = {keyword.arg for keyword in node.keywords}
                lax += [f"{name}:{node.lineno}"] if not {"env", "cwd"} <= given else []
            text = ast.unparse(node) if isinstance(node, ast.Attribute) and node.attr in homes else ""
            if text in HOME_OF and name not in HOME_OF[text]:
                lax.append(f"{name}:{node.lineno} {text}")
    assert lax == [] and found >= 6


def _starts(function: ast.expr) -> bool:
    text = ast.unparse(function)
    return text in STARTS or "create_subprocess_" in text
