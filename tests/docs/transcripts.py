"""Transcripts in documentation, run for real.

A ```console block holds commands (`$ forge …`, further lines of one `> …`) and what they print. All blocks of a page
run in one shell, in order, in a new project directory with an empty home; stderr is printed like stdout. In what is
expected, `…` stands for any text within a line, and a line that is only `…` for any number of lines. Times, ids and
how long something took are never compared, nor is the width of a table's columns.

    python tests/docs/transcripts.py docs/start.md       prints the page's commands with what they really print
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<'?(\w+)")
_READY = Path(__file__).with_name("ready_forge.py")
_CALL = Path(__file__).with_name("ready_call.py")
_END = "\x1eend of command\x1e"

_DIFFERS = (
    (
        re.compile(r"(\(|answers after |success in |Wall time: |\btook +)(?:(?:…|\d+(?:\.\d+)?) m?s|\d+ min \d+ s)\b"),
        r"\1<took>",
    ),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+Z)?"), "<time>"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{12})\b"), "<id>"),
    (re.compile(r"(?<=\s)\d+\.\d(?= |$)"), "<ms>"),
    (re.compile(r"(?<=\S)  +"), "  "),
)


@dataclass(frozen=True)
class Step:
    line: int
    command: str
    expected: tuple[str, ...]


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for block in _BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1)) + 1
        command: list[str] = []
        expected: list[str] = []
        start = first
        for offset, text in enumerate(block.group(1).splitlines()):
            if text.startswith("$ "):
                if command:
                    steps.append(Step(start, "\n".join(command), tuple(expected)))
                command, expected, start = [text[2:]], [], first + offset
            elif _goes_on(command) and (text.startswith("> ") or text == ">"):
                command.append(text[2:])
            else:
                expected.append(text)
        if command:
            steps.append(Step(start, "\n".join(command), tuple(expected)))
    return steps


def _goes_on(command: list[str]) -> bool:
    """Whether a shell would ask for another line: what a command prints may begin with `> ` too."""
    if not command:
        return False
    here = _HERE.search(command[0])
    return command[-1].endswith("\\") or (here is not None and here[1] not in command[1:])


def run_steps(steps: list[Step], folder: Path, forge: Path, place: str = "") -> list[str]:
    """What each command printed. `place`: of a forge that is ready, see ready_forge; without, one is started."""
    home, project = folder / "home", folder / "home" / "notes"
    project.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORGE_", "PYTHON"))}
    environ = kept | {
        "HOME": str(home),
        "FORGE_HOME": str(home / ".forge"),
        "PATH": f"{folder / 'bin'}:{forge.parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",  # so that both streams come in the order a terminal would show
        "TZ": "UTC",
    }
    python = forge.with_name("python")
    with nullcontext(place) if place else _ready(python, project, environ) as place:
        function = _at_once(python, place, folder / "bin")
        script = f"{function}\nexec 2>&1\n" + "".join(
            f"{step.command}\nforge_status=$?; printf '%s' '{_END}'; (exit $forge_status)\n" for step in steps
        )
        done = subprocess.run(
            ["bash", "-c", script], cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=250
        )
    printed = done.stdout.decode().split(_END)
    return printed[: len(steps)]


def _at_once(python: Path, place: str, folder: Path) -> str:
    """A command `forge` that starts at once, also for the programs of a page; a shell function does that for these."""
    called = f"{quote(str(python))} -IS {quote(str(_CALL))} {quote(place)}"
    folder.mkdir()
    (folder / "forge").write_text(f'#!/bin/sh\nexec {called} forge "$@"\n')
    (folder / "forge").chmod(0o755)
    return f'python3() {{ case "$1" in *.py) {called} python "$@";; *) command python3 "$@";; esac; }}'


@contextmanager
def _ready(python: Path, project: Path, environ: dict[str, str]) -> Iterator[str]:
    """Where the forge that is ready listens; see ready_forge."""
    with tempfile.TemporaryDirectory(prefix="forge-") as short:  # the address of a socket has little room
        place = os.path.join(short, "ready")
        command = [python, _READY, place]
        server = subprocess.Popen(command, cwd=project, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield place
        finally:
            server.kill()
            server.communicate()


def matches(expected: tuple[str, ...], printed: str) -> bool:
    pattern = "".join(r"(?:[^\n]*\n)*?" if line == "…" else _line(_settled(line)) + "\n" for line in expected)
    text = "\n".join(_settled(line) for line in printed.rstrip("\n").splitlines())
    return re.fullmatch(pattern, text + "\n" if text else "") is not None


def _settled(line: str) -> str:
    """The line without what differs from run to run."""
    for different, same in _DIFFERS:
        line = different.sub(same, line)
    return line


def _line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def main(page: Path) -> int:
    steps = steps_of(page.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for step, printed in zip(
            steps, run_steps(steps, Path(folder), Path(sys.executable).with_name("forge")), strict=True
        ):
            first, *rest = step.command.split("\n")
            print("\n".join([f"$ {first}", *(f"> {line}" for line in rest)]))
            print(printed.rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
