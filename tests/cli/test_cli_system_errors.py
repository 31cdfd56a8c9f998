"""`forge` where the system does not play along: closed and full streams, streams of ASCII, a home that is no folder or
cannot be written, a full disk.

Each time one line says what was refused, with an exit code, and nothing is left by halves. Real processes: what a
closed stream does is decided before Python runs.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests import known_walls
from tests.deadlines import PATIENCE

from golem_forge.cli.command import describe_os_error
from golem_forge.cli.main import main
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.usertools import create

from .conftest import FORGE
from .own_tools import Person


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "home/tools/x"
    folder.mkdir(parents=True)
    (folder / "tool.yaml").write_text("name: x\ndescription: d\nversion: 1.0.0\nentrypoint: x.sh\n")
    (folder / "x.sh").write_text("echo made\n")
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FORGE_HOME": str(tmp_path / "home")}


def shell(script: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", script, "sh", str(FORGE)]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=PATIENCE)


def test_nobody_reads_a_closed_stream_and_nothing_fails(environ: dict[str, str], tmp_path: Path) -> None:
    ran = shell('"$1" tools list --json <&- >&-', environ, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_file_never_gets_the_number_of_a_closed_stream(environ: dict[str, str], tmp_path: Path) -> None:
    program = "import os, sys; from golem_forge.cli.main import main; main(['--version']); sys.exit(os.open('/', 0))"
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(command, env=environ, cwd=tmp_path, timeout=PATIENCE).returncode > 2


@pytest.mark.parametrize("words", ["tools list", "--help", "--version"])
def test_a_full_device_is_one_line(words: str, environ: dict[str, str], tmp_path: Path) -> None:
    ran = shell(f'"$1" {words} >/dev/full', environ, tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "forge: No space left on device\n")


def test_nobody_reads_the_help_and_nothing_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    ran = shell('(sleep 0.1; "$1" --help; echo $? >&2) | true', {**environ, "PYTHONUNBUFFERED": "1"}, tmp_path)
    assert ran.stderr == "0\n"


@pytest.mark.parametrize("words", [("tools", "new", "made"), ("call", "read_file", "--path", "x")])
def test_a_home_that_is_a_file_is_said_to_be_one(
    words: tuple[str, ...], person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").write_text("mine")
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "no-folder"))
    said = person.forge(*words)
    assert said.code == 1 and said.err == "forge: 'no-folder': Not a directory\n"
    assert (tmp_path / "no-folder").read_text() == "mine"


EACH = """
import shlex, sys
from golem_forge.cli.main import main
for words in sys.argv[1:]:
    code = main(shlex.split(words))
    print(f"= {code}", "@@@", sep="\\n", flush=True)
"""


def each_said(words: tuple[str, ...], environ: dict[str, str], cwd: Path, before: tuple[str, ...] = ()) -> list[str]:
    """What each `forge …` says on both streams, and its exit code in a last line. One process for all: its streams are
    what each of them finds."""
    command = [*before, sys.executable, "-c", EACH, *words]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ran = subprocess.run(command, cwd=cwd, env=environ, text=True, timeout=PATIENCE, **streams)
    return ran.stdout.split("@@@\n")[:-1]


def read_only(home: Path) -> tuple[str, ...]:
    return ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(home), str(home), "--")


@pytest.mark.skipif(find_bwrap() is None, reason="a directory is made read-only with bubblewrap")
@pytest.mark.parametrize(
    ("used", "words"),
    [
        (False, ("call read_file --path x", "tools new made")),
        pytest.param(False, ("doctor",), marks=pytest.mark.long),
        (True, ("run -m scripted:w.yaml hi", "tools new made", "mcp token create t")),
    ],
)
def test_a_home_that_cannot_be_written_is_named_with_forge_home(
    used: bool, words: tuple[str, ...], tmp_path: Path, tried_walls: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "w.yaml").write_text("turns: [{say: hi}]\n")
    for folder in ("", "tools", "sessions", "state", "output") if used else ():
        (home / ".forge" / folder).mkdir(mode=0o700)
    if used:
        known_walls.put(tried_walls, home / ".forge")
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    *all_said, tools = each_said((*words, "tools doctor"), environ, project, read_only(home))
    assert len(all_said) == len(words)
    for said in all_said:
        assert "~/.forge" in said and "FORGE_HOME" in said and "Read-only file system" in said, said
        assert said.endswith("= 1\n") and "Traceback" not in said
    record, *told = tools.splitlines()
    assert told == ["0 tools are active, 0 folders are not; ~/.forge/tools", "= 0"], "that is no fault"
    assert "~/.forge/state/custom.db" in record and record.endswith("or set FORGE_HOME to another directory")


def test_a_tools_folder_that_is_none_is_named(person: Person) -> None:
    (person.forge_home / "tools").write_text("mine")
    said = person("doctor").out.splitlines()
    assert said[0] == "$FORGE_HOME/tools: unreadable: the tools folder: cannot be read (Not a directory)"


def test_only_what_keeps_forge_from_its_home_speaks_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home/.forge"))
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))
    assert describe_os_error(refused).endswith("or set FORGE_HOME to another directory.")
    (tmp_path / "home/.forge").mkdir(parents=True)
    assert describe_os_error(refused) == f"'{tmp_path.name}': Permission denied", (
        "the home is there: it was another use"
    )


HELP, READ, RUN = "--help", "call read_file --path note.txt", "run -m scripted:w.yaml hi"
LOCALES = ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        (LOCALES[0], (HELP, READ, "unknown…", RUN)),
        (LOCALES[1], (HELP, READ)),
        pytest.param(
            LOCALES[0],
            (RUN, "tools list", "rules explain -- git push", "sessions show last", "log --csv"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_no_verb_fails_for_a_character_that_a_stream_cannot_hold(
    locale: dict[str, str], words: tuple[str, ...], tmp_path: Path, tried_walls: Path
) -> None:
    known_walls.put(tried_walls, tmp_path / ".forge")
    project = tmp_path / "project"
    project.mkdir()
    (project / "note.txt").write_text("gr\u00fcn \U0001f35e\n", encoding="utf-8")
    (project / "w.yaml").write_text("turns: [{say: gr\u00fcn \U0001f35e}]\n", encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | locale
    said = dict(zip(words, each_said(words, environ, project), strict=True))
    assert "".join(said.values()).isascii() and "Traceback" not in "".join(said.values())
    for text in {HELP, "unknown…"} & said.keys():
        assert "\\u2026" in said[text] or "\\udce2" in said[text], "an escape stands for what cannot be written"
    for text in {READ, RUN} & said.keys():
        assert "gr\\xfcn \\U0001f35e" in said[text]


def test_json_for_a_stream_of_ascii_is_still_json(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/gr\u00fcn.txt").write_text("sch\u00f6n \U0001f35e\n", encoding="utf-8")
    script = """printf '{"path": "gr\\303\\274n.txt"}' | "$1" call read_file --args-json - --json"""
    ran = shell(script, environ | LOCALES[0], tmp_path / "p")
    assert ran.returncode == 0 and ran.stdout.isascii(), ran.stderr
    assert "sch\u00f6n \U0001f35e" in json.dumps(json.loads(ran.stdout), ensure_ascii=False)


@pytest.mark.long
def test_a_conversation_on_a_terminal_of_ascii_takes_every_character(tmp_path: Path, tried_walls: Path) -> None:
    known_walls.put(tried_walls, tmp_path / ".forge")
    (tmp_path / "w.yaml").write_text("turns: [{say: Sch\u00f6n \u2192 done}]\n", encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "PYTHONIOENCODING": "ascii"}
    child = pexpect.spawn(str(FORGE), ["-m", "scripted:w.yaml"], cwd=str(tmp_path), env=environ, timeout=PATIENCE)
    child.expect("walls: ")
    child.send("gr\u00fcn?\r".encode())
    child.expect("done")
    child.send(b"/exit\r")
    child.expect(pexpect.EOF)
    screen = child.before
    child.wait()
    child.close()
    assert child.exitstatus == 0 and b"Traceback" not in screen
    [journal] = (tmp_path / ".forge/sessions").glob("*.jsonl")
    assert "gr\u00fcn?" in journal.read_text(encoding="utf-8")


def test_a_library_that_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(name: str) -> int:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name, extra in (("httpx2", "models"), ("mcp.types", "mcp"), ("nh3", "web"), ("google.genai.types", "models")):
        monkeypatch.setattr("golem_forge.cli.log.run", lambda words, name=name: lacks(name))
        assert main(["log"]) == 1
        said = capsys.readouterr().err
        assert f"{name} is not installed" in said and f"pip install 'golem-forge[{extra}]'" in said
    monkeypatch.setattr("golem_forge.cli.log.run", lambda words: lacks("elsewhere"))
    with pytest.raises(ModuleNotFoundError):
        main(["log"])


def test_a_full_disk_leaves_no_half_of_a_new_tool(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(create.os, "fsync", full)
        said: Any = person("new", "made")
    assert said.code == 1 and said.err == "forge: No space left on device\n"
    assert os.listdir(person.home.ensure("tools")) == []
    assert person("new", "made").code == 0
