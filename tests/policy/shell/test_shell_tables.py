"""The tables of options against the programs themselves: each row says of its options what the program's own help says,
where the program is installed and prints such a text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.policy.shell.arguments import names
from golem_forge.policy.shell.readonly_table import READ_ONLY_TABLE, ReadOnlyRow
from golem_forge.policy.shell.wrapper_table import COVERED_FORMS, CoveredForm

TERM = re.compile(
    r"(?:\A\s*|,\s*|\s/\s|\s+)(?P<name>--?[A-Za-z0-9@][\w-]*|--\[no-\][\w-]+)(?=[\s,=\[]|\Z)"
    r"(?:(?P<glued>\[=?[^\]\s]+\])|(?P<value>=[^\s,]+|\s(?:<[^>]*>|\[[^\]]*\]|[A-Za-z][\w.:|/=-]*)(?:\.\.\.)?(?=,|\s\s|\s*\Z)))?"
)
"""One name of an option and its value: `-w[BYTES]`, `--width[=BYTES]`, `--lines=[-]NUM`, `--filter filter`.
What follows one space is a value only if the description follows two."""
VALUE = re.compile(r"\s|=\[?[A-Z<+-]")
"""A value of a long option that its letter takes, too; `-p, --indicator-style=slash` takes none."""
NO_BEGINNINGS = ("ruff",)
"""Programs that take an option by its whole name only, although their tables share options of others."""
SLOW = ("mvn", "npm")
"""Programs that take half a second to print their help."""
SYSTEM = [name for name, row in READ_ONLY_TABLE.items() if row.switches | row.valued | row.optional]
PLACES = f"{Path(sys.executable).parent}:/usr/bin:/bin:{os.environ.get('PATH', '')}"


def options_in(text: str) -> dict[str, str]:
    """Option → `none`, `optional` (only glued to it) or `required`, as a text of help says."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        terms, at = [], 0
        while (match := TERM.match(line[at:])) is not None:
            terms.append(match)
            at += match.end()
        valued = any(VALUE.match(term["value"] or "") for term in terms if term["name"].startswith("--"))
        for term in terms:
            takes = "required" if term["value"] or (len(term["name"]) == 2 and valued) else "none"
            takes = "optional" if term["glued"] else takes
            for name in {term["name"].replace("[no-]", ""), term["name"].replace("[no-]", "no-")}:
                found.setdefault(name, takes)
    return found


WITHOUT_HEAVY_PLUGINS = "-p no:schemathesis -p no:anyio -p no:hypothesispytest"
"""The tables have no option of theirs, and importing them takes most of the time of `pytest --help`."""


@cache
def help_of(command: tuple[str, ...], directory: Path) -> str:
    said = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env={**os.environ, "PYTEST_ADDOPTS": WITHOUT_HEAVY_PLUGINS},
    )
    return said.stdout + said.stderr


def told_options(words: Iterable[str], directory: Path) -> dict[str, str]:
    """Nothing where the program is not installed, or lists no options."""
    program, *subcommands = (word for word in words if not word.startswith("-"))
    path = shutil.which(program, path=PLACES)
    if path is None:
        return {}
    asked = {"git": [*subcommands, "-h"], "go": ["help", *subcommands]}.get(program, [*subcommands, "--help"])
    if path.endswith("/py.test"):  # the same start script
        assert Path(path).read_bytes() == Path(path).with_name("pytest").read_bytes()
        path = str(Path(path).with_name("pytest"))
    found = options_in(help_of((path, *asked), directory))
    return found if len(found) >= 3 else {}


def differences(row: ReadOnlyRow, told: dict[str, str]) -> list[str]:
    """A long option without a value in the table may take one glued to it: the table reads `--color=auto` whole."""
    said = dict.fromkeys(row.switches, "none") | dict.fromkeys(row.valued, "required")
    said |= dict.fromkeys(row.optional, "optional")
    return [
        f"{name}: the table says {takes}, the program {told[name]}"
        for name, takes in sorted(said.items())
        if name in told and told[name] != takes and not (name.startswith("--") and {takes, told[name]} <= GLUED)
    ]


GLUED = {"none", "optional"}


def form_differences(form: CoveredForm, told: dict[str, str], *, beginnings: bool = True) -> list[str]:
    """A letter with `:` takes the rest of its cluster, whatever that is, so it must take a value; one without takes
    none. A long option is no `beginning` of another one with a value, which the program would take it for."""
    found = []
    for option in sorted(form.options):
        name = option.rstrip(":")
        if len(name) == 2 and name in told:
            if (told[name] == "none") == option.endswith(":"):
                found.append(f"{option}: the program says {told[name]}")
        elif beginnings and name not in told and len(name) > 2:
            others = [other for other in sorted(told) if other.startswith(name) and told[other] != "none"]
            found += [f"{name}: would be {other}" for other in others]
    return found


@table("program", SYSTEM)
def test_a_row_says_what_the_program_says(program: str, tmp_path: Path) -> None:
    assert differences(READ_ONLY_TABLE[program], told_options([program], tmp_path)) == []


@table("words", [words for words in sorted(COVERED_FORMS) if words[0] not in SLOW])
def test_a_form_says_what_the_program_says(words: tuple[str, ...], tmp_path: Path) -> None:
    told = told_options(words, tmp_path)
    assert form_differences(COVERED_FORMS[words], told, beginnings=words[0] not in NO_BEGINNINGS) == []


@pytest.mark.long
@table("words", [words for words in sorted(COVERED_FORMS) if words[0] in SLOW])
def test_a_form_says_what_a_slow_program_says(words: tuple[str, ...], tmp_path: Path) -> None:
    assert form_differences(COVERED_FORMS[words], told_options(words, tmp_path)) == []


def test_programs_that_are_on_every_machine_list_their_options(tmp_path: Path) -> None:
    assert all(told_options([program], tmp_path) for program in ("ls", "sort", "grep"))


def test_the_comparison_finds_what_was_wrong() -> None:
    """`od -w` once took the next word for its value."""
    wrong = ReadOnlyRow("paths", valued=names("-w --width --all"))
    assert differences(wrong, {"-w": "optional", "--width": "optional", "--all": "none"}) == [
        "--all: the table says required, the program none",
        "--width: the table says required, the program optional",
        "-w: the table says required, the program optional",
    ]
    form = CoveredForm(names("-x: -n --ext --log --"))
    assert form_differences(form, {"-x": "none", "-n": "required", "--ext": "none", "--log-file": "required"}) == [
        "--log: would be --log-file",
        "-n: the program says required",
        "-x:: the program says none",
    ]


@table(
    ("line", "told"),
    [
        ("  -w[BYTES], --width[=BYTES]  output BYTES", {"-w": "optional", "--width": "optional"}),
        ("  -n, --lines=[-]NUM       print", {"-n": "required", "--lines": "required"}),
        ("  -F, --classify[=WHEN]    append", {"-F": "none", "--classify": "optional"}),
        ("  -p, --indicator-style=slash", {"-p": "none", "--indicator-style": "required"}),
        ("  -u, -U NUM, --unified[=NUM]  lines", {"-u": "none", "-U": "required", "--unified": "optional"}),
        (" -s, --separator <string>         text", {"-s": "required", "--separator": "required"}),
        ("  -f, --filter filter   Filter output", {"-f": "required", "--filter": "required"}),
        ("  -v, --verbose         be more verbose", {"-v": "none", "--verbose": "none"}),
        ("      --[no-]quiet      say less", {"--quiet": "none", "--no-quiet": "none"}),
        ("    -W / --warn [LINT]       Set", {"-W": "required", "--warn": "required"}),
        ("    -C/--context flag.", {}),
        ("  words - and more", {}),
    ],
)
def test_a_line_of_help_is_read_as_it_is_meant(line: str, told: dict[str, str]) -> None:
    assert options_in(line) == told
