"""A wheel is built, installed elsewhere and used from there: nothing of the repository is needed to run it.

The build needs the backend of `pyproject.toml`: from uv's cache, or from a package index. The wheel goes into a new
virtual environment; what it depends on comes from the environment of the tests, by path, without the repository's own
editable install. See how each fails: leave a file out of `src` in a copy, build, install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from tests import known_walls, machine
from tests.deadlines import PATIENCE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/golem_forge"
Forge = Callable[..., subprocess.CompletedProcess[str]]
TOOL = """\
name: greet
description: Greet somebody
version: 1.0.0
entrypoint: greet.py
parameters: [{name: who, type: string, description: whom, required: true}]
tests: [{arguments: {who: Ada}, expect: {stdout: "Hello Ada\\n"}}]
"""
TOOL_SOURCE = 'import sys\n\nprint("Hello", sys.argv[1].removeprefix("--who="))\n'


@pytest.fixture(scope="session")
def installed(meeting: Path) -> Path:
    """The environment with the wheel; made once for all processes of a run."""
    place = meeting / "wheel"
    with machine.alone(meeting):
        if not (place / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            _install(_built(place), place / "venv")
            (place / "done").touch()
    return place / "venv"


def _built(place: Path) -> Path:
    """From a copy, so that nothing is written into the repository."""
    copy = place / "source"
    copy.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    uv = [str(Path(sys.executable).parent / "uv"), "build", "--wheel", "-o", str(place), "--python", sys.executable]
    for words in ([*uv, "--offline", str(copy)], [*uv, str(copy)]):
        ran = subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE)
        if ran.returncode == 0:
            break
    assert ran.returncode == 0, ran.stderr
    [wheel] = place.glob("*.whl")
    return wheel


def _install(wheel: Path, target: Path) -> None:
    venv.create(target, with_pip=False, symlinks=True)
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--offline", "--no-deps", "--link-mode", "copy"]
    ran = subprocess.run(
        [*uv, "--python", str(target / "bin/python"), str(wheel)], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    [packages] = target.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files do not count


@pytest.fixture
def forge(installed: Path, tmp_path: Path, own_home: Path, tried_walls: Path) -> Forge:
    """The installed command, in a directory that has nothing to do with the repository."""
    known_walls.put(tried_walls, own_home / ".forge")
    (tmp_path / "todo.txt").write_text("buy milk\n")

    def run(*words: str, program: str = "forge", code: int = 0) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [str(installed / "bin" / program), *words],
            cwd=tmp_path,
            env=_environment(own_home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return ran

    return run


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return kept | {"HOME": str(home), "FORGE_HOME": str(home / ".forge")}


def test_the_wheel_has_every_file_of_the_package(installed: Path) -> None:
    """And nothing else but what says what it is."""
    [wheel] = installed.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {f"golem_forge/{path.relative_to(SOURCE)}" for path in files}
    kinds = sorted(name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name)
    assert kinds == ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]


def test_it_is_the_installed_one_that_runs(forge: Forge, installed: Path) -> None:
    code = "import golem_forge; print(golem_forge.__file__); print(golem_forge.__version__)"
    place, version = forge("-c", code, program="python").stdout.splitlines()
    assert Path(place).is_relative_to(installed)
    said = forge("--version").stdout
    assert version in said
    assert said == forge("-m", "golem_forge", "--version", program="python").stdout


def test_a_command_runs_inside_walls(forge: Forge) -> None:
    both = "wc -l todo.txt; ls /etc/shadow"
    said = forge("call", "exec_command", "--cmd", both, "--approval", "approve_all", code=1).stdout
    assert "1 todo.txt\n" in said and "No such file" in said, said


@pytest.mark.long
def test_a_user_tool_in_python_runs(forge: Forge, own_home: Path) -> None:
    folder = own_home / ".forge/tools/greet"
    folder.mkdir(parents=True)
    (folder / "tool.yaml").write_text(TOOL)
    (folder / "greet.py").write_text(TOOL_SOURCE)
    forge("tools", "activate", "greet", "--yes")
    assert forge("call", "greet", "--who", "Grace", "--approval", "approve_all").stdout == "Hello Grace\n"


@pytest.fixture
def page(installed: Path, tmp_path: Path, own_home: Path) -> Iterator[str]:
    """The address at which the installed command serves."""
    with open(tmp_path / "said.txt", "w+") as said:
        server = subprocess.Popen(
            [str(installed / "bin/forge"), "web", "--no-open"],
            cwd=tmp_path,
            env=_environment(own_home) | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            end = time.monotonic() + PATIENCE
            while not (found := re.search(r"http://[^\s/#]+", (tmp_path / "said.txt").read_text())):
                assert server.poll() is None and time.monotonic() < end, (tmp_path / "said.txt").read_text()
                time.sleep(0.05)
            yield f"{found[0]}/"
        finally:
            server.terminate()
            server.communicate(timeout=PATIENCE)


_NAMED = re.compile(r"""(?:src|href)="([^"#]+)"|(?:\bfrom|\bimport)\s*\(?\s*"(\.[^"]+)"|url\("?([^")]+)"?\)""")


def test_the_page_is_served_with_all_it_names(page: str) -> None:
    """The page, every style and script it names, every module those import, to the last."""
    known, waiting, read = {page}, [page], ""
    while waiting:
        address = waiting.pop()
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert answer.status == 200
            text = answer.read().decode()
        assert text, address
        read += text
        for found in _NAMED.finditer(text):
            named = next(each for each in found.groups() if each)
            if named.startswith("data:") or not re.search(r"\.(js|css|svg|html|woff2?|png)$", named):
                continue
            target = urljoin(address, named)
            if target.startswith(page) and target not in known:
                known.add(target)
                waiting.append(target)
    served = {each.removeprefix(page) for each in known} - {""}
    folder = next(SOURCE.rglob("index.html")).parent
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.js")} <= served
    assert all(path.read_text() in read for path in folder.rglob("*.css")), "the page's one style sheet has them all"
