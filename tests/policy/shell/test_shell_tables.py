"""The tables of options against the programs themselves: each row says of its letters what `--help` says, where the
program is installed and prints such a text."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from golem_forge.policy.shell.arguments import names
from golem_forge.policy.shell.readonly_table import READ_ONLY_TABLE, ReadOnlyRow
from golem_forge.policy.shell.wrapper_table import COVERED_FORMS

OPTION = re.compile(
    r"\s*(?P<letter>-[A-Za-z0-9])(?P<glued>\[[A-Z]+\])?(?P<value>[ =][A-Z<][\w<>]*)?"
    r"(?:,?\s+--[\w-]+(?:\[=\w+\]|(?P<long_value>=\[?[A-Z+-]| <\w))?)?"
)
"""`-w[BYTES], --width[=BYTES]`, `-n, --lines=[-]NUM`, `-s, --separator <string>`, `-F, --classify[=WHEN]`: of the last
one only the long form takes a value."""
SYSTEM = [name for name, row in READ_ONLY_TABLE.items() if row.switches | row.valued | row.optional]


def told_options(program: str) -> dict[str, str]:
    """Letter → `none`, `optional` or `required`, as the program's own help says."""
    path = shutil.which(program, path="/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{program} is not installed")
    said = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    text = said.stdout + said.stderr
    found: dict[str, str] = {}
    for line in text.splitlines():
        if (match := OPTION.match(line)) is not None:
            takes = match["value"] or match["long_value"]
            found[match["letter"]] = "optional" if match["glued"] else "required" if takes else "none"
    if len(found) < 3:
        pytest.skip(f"{program} --help lists no options")
    return found


def differences(row: ReadOnlyRow, told: dict[str, str]) -> list[str]:
    said = dict.fromkeys(row.switches, "none") | dict.fromkeys(row.valued, "required")
    said |= dict.fromkeys(row.optional, "optional")
    return [
        f"{letter}: the table says {takes}, the program {told[letter]}"
        for letter, takes in sorted(said.items())
        if letter in told and told[letter] != takes
    ]


@pytest.mark.parametrize("program", SYSTEM)
def test_a_row_says_what_the_program_says(program: str) -> None:
    told = told_options(program)
    assert differences(READ_ONLY_TABLE[program], told) == []


@pytest.mark.parametrize("program", ["tree", "file", "uniq", "mkdir", "touch"])
def test_a_form_says_what_the_program_says(program: str) -> None:
    told = told_options(program)
    form = COVERED_FORMS[(program,)]
    for option in sorted(form.options):
        letter, takes = option.rstrip(":"), "required" if option.endswith(":") else "none"
        if letter in told and len(letter) == 2:
            assert told[letter] == takes, f"{program} {letter}"


def test_the_comparison_finds_what_was_wrong() -> None:
    """`od -w` once took the next word for its value."""
    wrong = ReadOnlyRow("paths", valued=names("-w"))
    assert differences(wrong, {"-w": "optional"}) == ["-w: the table says required, the program optional"]
