"""The command line, pinned from outside: what each command prints on which stream, and how it ends.

`cli/usage/VERB.txt` has the help of a verb and of its sub-verbs, which are found in the help of the program itself, and
the usual mistakes: no argument, an unknown option, a name that does not exist. `cli/TOPIC.txt` is a session at a shell,
from top to bottom in a new project directory with an empty home:

    # a comment
    $ forge call read_file --path todo.txt      the command, run by bash; further lines of it begin with `> `
    | L1: buy milk                              a line of standard output
    ! forge: something is wrong                 a line of standard error
    = 2                                         the exit code, unless it is 0

`cli/real.txt` is run by the installed `forge`. Of the other topics, a command that is only `forge` and its words is run
in this process, as help and mistakes are; where it needs a shell, bash runs it, with a `forge` whose modules are
imported (see `tests/ready.py`). Times, durations, ids of sessions and calls, tokens, paths of this
machine and versions are replaced by `<names>`; everything else is compared to the letter, ids of rules and digests of
tools included.

To add a case, write its `$` line into a file. After a wanted change, one command writes the answers of all files:

    FORGE_UPDATE_PINNED=1 python -m pytest tests/compat/test_cli.py
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.deadlines import WHOLE
from tests.docs.transcripts import DURATION, ONLY_WORDS
from tests.ready import run_in_process

import golem_forge

PINNED = Path(__file__).parent / "cli"
TOPICS = sorted(path.stem for path in PINNED.glob("*.txt"))
BIN = Path(sys.executable).parent
UPDATE = os.environ.get("FORGE_UPDATE_PINNED") == "1"

SERVES = {("web",), ("acp",), ("mcp", "serve"), ("runner",)}
"""Without arguments these run until they are ended."""
MAKES = {("tools", "new"), ("mcp", "token", "create"), ("people", "add")}
"""With a name these make something."""
LOOKS_AT_THE_MACHINE = {("doctor",)}
"""Without arguments it tells what is installed; see `doctor.txt`."""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass
class Step:
    command: str
    comment: list[str] = field(default_factory=list)


# ---- the help of every verb, and the usual mistakes


def sub_verbs(path: tuple[str, ...], help_text: str) -> list[str]:
    """Named in the usage lines, or listed below them where these say `VERB`."""
    usage, _, rest = help_text.partition("\n\n")
    before = re.escape(" ".join(("forge", *path)))
    named = re.findall(rf"^(?:usage:|      ) {before} ([a-z][a-z-]*)(?= |$)", usage, re.MULTILINE)
    if "VERB …" in usage:
        named += re.findall(r"^  ([a-z][a-z-]*) ", rest.partition("\n\n")[0], re.MULTILINE)
    return list(dict.fromkeys(named))


def mistakes(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if path not in SERVES | LOOKS_AT_THE_MACHINE:
        yield path
    yield (*path, "--no-such-option")
    if path not in MAKES:
        yield (*path, "no-such-name")
    yield (*path, "no-such-name", "--no-such-option")


def usage_answers(shell: Shell, path: tuple[str, ...]) -> Iterator[tuple[Step, Answer]]:
    """The help of a verb and its usual mistakes; then those of each of its sub-verbs."""
    said = shell.forge(*path, "--help")
    yield Step(shlex.join(("forge", *path, "--help"))), said
    for words in mistakes(path):
        yield Step(shlex.join(("forge", *words))), shell.forge(*words)
    for verb in sub_verbs(path, said.out):
        yield from usage_answers(shell, (*path, verb))


def without_repeats(answers: list[tuple[Step, Answer]]) -> Iterator[tuple[Step, Answer]]:
    """A help text that was there before is only named."""
    helps: dict[str, str] = {}
    for step, said in answers:
        if step.command.endswith("--help"):
            helps.setdefault(said.out, step.command)
        first = helps.get(said.out, step.command)
        yield step, said if first == step.command else Answer(said.code, f"<as {first}>\n", said.err)


USAGES = sorted(path.stem for path in (PINNED / "usage").glob("*.txt"))


def test_the_verbs_of_forge(shell: Shell) -> None:
    answers = [
        (Step(shlex.join(["forge", *words])), shell.forge(*words))
        for words in (
            ["--help"],
            ["-h"],
            ["help"],
            ["--help", "tools"],
            ["--version"],
            ["-V"],
            [],
            [""],
            ["--no-such-option"],
            ["no-such-verb"],
            ["rnu"],
            ["exec"],
            ["explain"],
            ["tools\x1b[2J"],
        )
    ]
    assert_pinned("usage/forge", without_repeats(shell.normalised(answers)))
    assert sorted(["forge", *sub_verbs((), answers[0][1].out)]) == USAGES, "one file for each verb"


@pytest.mark.parametrize("verb", [verb for verb in USAGES if verb != "forge"])
def test_the_usage_of_a_verb(verb: str, shell: Shell) -> None:
    assert_pinned(f"usage/{verb}", without_repeats(shell.normalised(list(usage_answers(shell, (verb,))))))


def test_every_verb_is_used_in_a_topic() -> None:
    used = [step.command.split() for topic in TOPICS for step in steps_of(topic)]
    verbs = [
        step.command.split()[:-1]
        for usage in USAGES
        for step in steps_of(f"usage/{usage}")
        if step.command.endswith(" --help")
    ]
    assert len(verbs) > 60
    assert [verb for verb in verbs if not any(words[: len(verb)] == verb for words in used)] == []


# ---- sessions at a shell


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic(topic: str, shell: Shell) -> None:
    steps = steps_of(topic)
    answers = shell.run([step.command for step in steps], installed=topic == "real")
    assert_pinned(topic, shell.normalised(list(zip(steps, answers, strict=True))))


def test_python_dash_m(shell: Shell) -> None:
    for command in ([sys.executable, "-m", "golem_forge"], [str(BIN / "forge")]):
        done = subprocess.run([*command, "--version"], cwd=shell.project, env=shell.environ, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"forge {golem_forge.__version__}\n".encode(), b"")


@dataclass
class Shell:
    """A person's shell, in a project directory of a home that is empty."""

    folder: Path
    ready: Any
    """See the fixture `ready_forge`."""
    capture: Any

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.home / "notes"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}:{BIN}:/usr/bin:/bin",
            "HOME": str(self.home),
            "FORGE_HOME": str(self.home / ".forge"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def forge(self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Answer:
        done = run_in_process(self.capture, *words, cwd=cwd or self.project, env=env or self.environ)
        return Answer(done.returncode, done.stdout, done.stderr)

    def run(self, commands: list[str], *, installed: bool) -> list[Answer]:
        """As one shell does: a command begins in the directory and with the variables that the one before left. The
        journals are kept after each, so that the ids of a session that is deleted later are known."""
        (self.folder / "bin").mkdir()
        (self.folder / "bin/forge").symlink_to(BIN / "forge" if installed else self.ready.forge)
        journals = self.folder / "journals"
        journals.mkdir()
        cwd, env = self.project, self.environ
        answers = []
        for command in commands:
            if not installed and ONLY_WORDS.fullmatch(command):
                answers.append(self.forge(*shlex.split(command)[1:], cwd=cwd, env=env))
            else:
                said, cwd, env = self.bash(command, cwd, env)
                answers.append(said)
            for journal in (self.home / ".forge/sessions").glob("*.jsonl"):
                shutil.copy(journal, journals)
        return answers

    def bash(self, command: str, cwd: Path, env: dict[str, str]) -> tuple[Answer, Path, dict[str, str]]:
        """What the command says; the directory and the variables it leaves."""
        left = self.folder / "left"
        script = f"set -a\n{{ {command}\n}}\nended=$?\nenv --null > {left}\nexit $ended"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WHOLE,
        )
        variables = dict(each.split("=", 1) for each in left.read_text().split("\0") if each)
        return Answer(done.returncode, done.stdout, done.stderr), Path(variables["PWD"]), variables

    def normalised(self, answers: list[tuple[Step, Answer]]) -> list[tuple[Step, Answer]]:
        """Without what differs from run to run or from machine to machine. An id has the same number wherever it is."""
        texts = [text for _, said in answers for text in (said.out, said.err)]
        texts += [path.read_text() for path in self.folder.rglob("*.jsonl")]
        ids = {found[:length]: found for text in texts for found in ID.findall(text) for length in (12, 32)}
        numbers: dict[str, int] = {}

        def name(found: re.Match[str]) -> str:
            if found[0] not in ids:
                return found[0]
            return f"<id-{numbers.setdefault(ids[found[0]], len(numbers) + 1)}>"

        def normalise(text: str) -> str:
            for place, shown_as in (
                (self.project, "<project>"),
                (self.home, "<home>"),
                (self.folder / "bin", "<bin>"),
                (Path(self.ready.forge).parent, "<bin>"),
                (BIN, "<bin>"),
            ):
                text = text.replace(str(place), shown_as)
            text = ID_OR_BEGINNING.sub(name, text)
            for differs, same in REPLACEMENTS:
                text = differs.sub(same, text)
            return text

        return [(step, Answer(said.code, normalise(said.out), normalise(said.err))) for step, said in answers]


ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
ID_OR_BEGINNING = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{12})(?![0-9a-f])")

REPLACEMENTS = tuple(
    (re.compile(pattern, re.MULTILINE), same)
    for pattern, same in (
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+Z)?", "<time>"),
        (re.escape(golem_forge.__version__), "<version>"),
        (re.escape(platform.python_version()), "<python>"),
        # a column of times or milliseconds is as wide as its widest
        (r"^(<id-\d+>  <time>  )(?:\d\d:\d\d|<time>) +", r"\1<time>  "),
        (r"\bLAST +STATE\b", "LAST  STATE"),
        (rf"^(<time>  <id-\d+>  .*  )(?:\d+\.\d|{DURATION})  +", r"\1<ms>  "),
        (r"\bMS +DECISION\b", "MS  DECISION"),
        (r"\bMEDIAN +TOTAL +LAST", "MEDIAN  TOTAL  LAST"),
        (rf"\b{DURATION}  +{DURATION}  +(?=<time>)", "<ms>  <ms>  "),
        (rf"\bmedian {DURATION}, total {DURATION}", "median <ms>, total <ms>"),
        # on a busy machine the same takes more than a second
        (rf"(\(|success in |answers after ){DURATION}", r"\1<ms> ms"),
        (r"\b\d+(?:\.\d+)? ms\b", "<ms> ms"),
        (r"\bms of \d+$", "ms of <count>"),
        (r"\bWall time: [\d.]+ s", "Wall time: <seconds> s"),
        (r'("(?:ms|\w+_ms|\w+Ms|milliseconds)": ?)[\d.]+', r"\1<ms>"),
        (r'("count": )\d+(?=,\n *"p50_ms")', r"\1<count>"),
        # it covers the directory of a zone
        (r'(fingerprint(?: |": ?"))[0-9a-f]{64}', r"\1<fingerprint>"),
        # walls are reported as soon as they are known, at any place
        (r'^(?:walls: \w+|(?:event )?\{"type":"wallsReport".*)\n', ""),
        (r'("seq": ?)\d+', r"\1<number>"),
        # a choice is told as this version of Python tells it
        (r"\(choose from [^)]*\)", lambda found: re.sub(r"<[\w.]+: |>|'", "", found[0])),
    )
)


def steps_of(topic: str) -> list[Step]:
    steps: list[Step] = []
    comment: list[str] = []
    for line in (PINNED / f"{topic}.txt").read_text().splitlines():
        if line.startswith("#"):
            comment.append(line)
        elif line.startswith("$ "):
            steps.append(Step(line[2:], comment))
            comment = []
        elif line.startswith(">"):
            steps[-1].command += "\n" + line[2:]
    assert not comment, "a comment belongs to the command that follows it"
    return steps


def rendered(step: Step, ended: Answer) -> list[str]:
    first, *more = step.command.split("\n")
    lines = ["", *step.comment] if step.comment else []
    lines += [f"$ {shown(first)}", *(f"> {line}".rstrip() for line in more)]
    lines += [*stream("|", ended.out), *stream("!", ended.err)]
    return [*lines, f"= {ended.code}"] if ended.code else lines


def stream(mark: str, text: str) -> Iterator[str]:
    *lines, last = text.split("\n")
    for line in lines:
        yield f"{mark} {shown(line)}" if line else mark
    if last:
        yield f"{mark} {shown(last)}<no end of line>"


def shown(text: str) -> str:
    """No golden file has a character that steers a terminal, or blanks at an end of a line."""
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if text == text.rstrip() else f"{text}<end>"


def assert_pinned(name: str, answers: Iterable[tuple[Step, Answer]]) -> None:
    file = PINNED / f"{name}.txt"
    lines = [line for step, said in answers for line in rendered(step, said)]
    if UPDATE:
        file.write_text("\n".join(lines) + "\n")
    pinned = file.read_text().splitlines()
    assert lines == pinned, "\n".join(difflib.unified_diff(pinned, lines, str(file), "now", lineterm="", n=1))


@pytest.fixture
def shell(tmp_path: Path, ready_forge: Any, tried_walls: Path, capfd: pytest.CaptureFixture[str]) -> Shell:
    shell = Shell(tmp_path, ready_forge, capfd)
    shell.project.mkdir(parents=True)
    known_walls.put(tried_walls, shell.home / ".forge")
    return shell
