"""Transcripts in documentation, run for real.

A ```console block holds commands (`$ forge …`, further lines of one `> …`) and what they print. All blocks of a page
run in one shell, in order, in a new project directory with an empty home; stderr is printed like stdout. In what is
expected, `…` stands for any text within a line, and a line that is only `…` for any number of lines. Times, ids and
how long something took are never compared, nor is the width of a table's columns.

    python tests/docs/transcripts.py docs/start.md       prints the page's commands with what they really print
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Self
from unittest import mock

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<'?(\w+)")
_CALL = Path(__file__).with_name("ready_call.py")
_END = "\x1eend of command\x1e"
ONLY_WORDS = re.compile(r"""forge(?! doctor)(?: +(?:[\w./:,=@%+-]|'[^']*'|"[^"$`\\]*")+)*""")
"""A command in which a shell finds nothing to do but to take the words apart. `forge doctor` tries the walls each time;
the one that is ready is told of them."""
_UNSEEN = re.compile(rf"(?P<words>{ONLY_WORDS.pattern}) (?P<errors>2?)> /dev/null")

DURATION = r"(?:\d+ min \d+ s|\d+ h \d+ min|\d+(?:\.\d+)? (?:ms|s|min|h))\b"
"""However long it took: `6.3 ms`, `850 ms`, `1.5 s`, `4 min 5 s`, `2.5 h`."""

_NEVER_S = 3600.0
"""A command shows what a child writes once that runs for a moment. On a busy machine every child does."""
_DIFFERS = (
    (re.compile(rf"(\(|answers after |success in |Wall time: |\btook +)(?:… m?s\b|{DURATION})"), r"\1<took>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+Z)?"), "<time>"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{12})\b"), "<id>"),
    (re.compile(rf"(?<=  ){DURATION}(?=  )|(?<=\s)\d+\.\d(?= |$)"), "<ms>"),
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
    """What each command printed. One that is only `forge` and its words, and perhaps shows only one of its streams, is
    run in this process, the others by bash, with the `forge` that is ready at `place` (see ready_forge) or else the
    real one."""
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
    (folder / "bin").mkdir()
    function = _at_once(forge.with_name("python"), place, folder / "bin") if place else ""
    printed = []
    with Shell(project, environ, folder / "left", function) as shell:
        for step in steps:
            half = _UNSEEN.fullmatch(step.command)
            if half or ONLY_WORDS.fullmatch(step.command):
                words = shlex.split(half["words"] if half else step.command)[1:]
                unseen = (2 if half["errors"] else 1) if half else 0
                said, code = _run_here(words, shell.cwd, shell.environ, unseen)
                shell.end_as(code)
            else:
                said = shell.run(step.command)
            printed.append(said)
    return printed


class Shell:
    """One bash for a page. `cwd` and `environ` are its directory and the variables that a command would have."""

    def __init__(self, cwd: Path, environ: dict[str, str], left: Path, function: str) -> None:
        self.cwd, self.environ, self._left = cwd, environ, left
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(["bash"], cwd=cwd, env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        self._tell(function)

    def run(self, command: str) -> str:
        """What it printed, if bash did not end with it."""
        then = f"ended=$?; env --null > {quote(str(self._left))}; printf '%s' '{_END}'; (exit $ended)"
        self._tell(f"{{ {command}\n}} < /dev/null\n{then}")
        assert self._bash.stdout is not None
        said = b""
        while not said.endswith(_END.encode()) and (more := os.read(self._bash.stdout.fileno(), 65536)):
            said += more
        variables = dict(each.split("=", 1) for each in self._left.read_text().split("\0") if each)
        self.cwd, self.environ = Path(variables["PWD"]), variables
        return said.decode().removesuffix(_END)

    def end_as(self, code: int) -> None:
        """The next command finds this in `$?`."""
        self._tell(f"(exit {code})")

    def _tell(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n".encode())
        self._bash.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bash.kill()
        self._bash.communicate()


def _run_here(words: list[str], cwd: Path, environ: dict[str, str], unseen: int) -> tuple[str, int]:
    """What `forge WORD…` prints on both streams, in this order, and its exit code. `unseen`: 1 or 2, the stream that is
    not shown."""
    from golem_forge.cli.main import main
    from golem_forge.tools import live_output

    before = [os.dup(number) for number in (1, 2)]
    with (
        tempfile.TemporaryFile() as said,
        open(os.devnull, "r+") as nothing,
        io.TextIOWrapper(os.fdopen(os.dup(said.fileno()), "wb"), encoding="utf-8", write_through=True) as stream,
        mock.patch.multiple(
            sys,
            stdin=nothing,
            stdout=nothing if unseen == 1 else stream,
            stderr=nothing if unseen == 2 else stream,
        ),
        mock.patch.object(live_output, "_DELAY_S", _NEVER_S),
        mock.patch.dict(os.environ, environ, clear=True),
        chdir(cwd),
    ):
        for number in (1, 2):
            os.dup2((nothing if number == unseen else said).fileno(), number)
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            stream.flush()
            for number, was in enumerate(before, 1):
                os.dup2(was, number)
                os.close(was)
        said.seek(0)
        return said.read().decode(), code


def _at_once(python: Path, place: str, folder: Path) -> str:
    """A command `forge` that starts at once, also for the programs of a page; a shell function does that for these."""
    called = f"{quote(str(python))} -IS {quote(str(_CALL))} {quote(place)}"
    (folder / "forge").write_text(f'#!/bin/sh\nexec {called} forge "$@"\n')
    (folder / "forge").chmod(0o755)
    return f'python3() {{ case "$1" in *.py) {called} python "$@";; *) command python3 "$@";; esac; }}'


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
