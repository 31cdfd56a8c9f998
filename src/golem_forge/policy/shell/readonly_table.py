"""The programs whose listed flags only read, as data: one row a program, to be read beside the specification.

Flags are written as there: a letter followed by `:` takes a value and so ends a cluster; a long flag followed
by `:` takes one as `--flag value` or `--flag=value`. What is not listed is not proven. Adding a flag here means
having looked for every way in which it can write, run a program or follow a file forever. Programs that start others
(`egrep` and `fgrep` start whatever `grep` is first on PATH) have no row, and a program that is a script on this machine
is not proven whatever its name, unless it is in `HARMLESS_SCRIPTS`. Git has a table of its own (`git_table`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .names import names

Operands = Literal["paths", "text", "pattern", "find", "sed", "date", "printf"]

COLOR_VALUES = frozenset({"auto", "always", "never"})


@dataclass(frozen=True, slots=True)
class Row:
    operands: Operands
    switches: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    at_most: int | None = None
    counted: bool = False  # `-N` for a number N
    pattern_flags: frozenset[str] = frozenset()  # given one of these, no operand is a pattern
    lists_cwd: bool = False  # without a path it reads the working directory


def _row(
    operands: Operands,
    short: str = "",
    long: str = "",
    *,
    at_most: int | None = None,
    counted: bool = False,
    pattern_flags: str = "",
    lists_cwd: bool = False,
) -> Row:
    switches: set[str] = set()
    valued: set[str] = set()
    for index, letter in enumerate(short):
        if letter != ":":
            (valued if short[index + 1 : index + 2] == ":" else switches).add("-" + letter)
    for flag in long.split():
        (valued if flag.endswith(":") else switches).add(flag.rstrip(":"))
    return Row(
        operands,
        frozenset(switches),
        frozenset(valued),
        at_most,
        counted,
        names(pattern_flags),
        lists_cwd,
    )


_SUM = _row("paths", "btz")

TABLE: dict[str, Row] = {
    "ls": _row(
        "paths",
        "1AaBCcdFGghiklmnopRrSstuXx",
        "--all --almost-all --color --human-readable --recursive --reverse --directory --full-time",
        lists_cwd=True,
    ),
    "cat": _row("paths", "AbEensTtuv"),
    "tac": _row("paths", "br"),
    "rev": _row("paths"),
    "nl": _row("paths", "b:n:s:v:w:"),
    "paste": _row("paths", "d:sz"),
    "head": _row("paths", "n:c:qv", "--lines: --bytes:", counted=True),
    "tail": _row("paths", "n:c:qv", "--lines: --bytes:", counted=True),
    "wc": _row("paths", "cLlmw"),
    "cut": _row("paths", "b:c:d:f:sz", "--complement"),
    "tr": _row("text", "Ccdst"),
    "grep": _row(
        "pattern",
        "abcEFGHhiLlnoPqRrsvwxzA:B:C:e:m:",
        "--include: --exclude: --exclude-dir: --color",
        pattern_flags="-e",
    ),
    "rg": _row(
        "pattern",
        "cFHilnoqSsUuvwxA:B:C:e:g:m:T:t:",
        "--files --glob: --hidden --no-ignore --type: --max-count: --line-number --json",
        pattern_flags="-e --files",
        lists_cwd=True,
    ),
    "find": _row("find", lists_cwd=True),
    "sed": _row("sed"),
    "sort": _row("paths", "bCcdfghiMmnRruVzk:t:"),
    "uniq": _row("paths", "cDdiuzf:s:w:", at_most=1),
    "stat": _row("paths", "c:fLt", "--format:"),
    "file": _row("paths", "bi", "--mime-type"),
    "du": _row("paths", "achkmsxd:", "--max-depth:", lists_cwd=True),
    "df": _row("paths", "hikT"),
    "basename": _row("paths", "as:z"),
    "dirname": _row("paths", "z"),
    "realpath": _row("paths", "emqsz"),
    "readlink": _row("paths", "efmnqz"),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "cksum": _SUM,
    "cmp": _row("paths", "bls"),
    "comm": _row("paths", "123"),
    "diff": _row("paths", "abBcdiNqrstuwyU:"),
    "echo": _row("text", "neE"),
    "printf": _row("printf"),
    "date": _row("date", "u", at_most=1),
    "pwd": _row("text", "LP"),
    "true": _row("text"),
    "false": _row("text"),
    "whoami": _row("text"),
    "id": _row("text", "Ggnru"),
    "uname": _row("text", "amnrsv"),
    "which": _row("text", "a"),
    "seq": _row("text", "f:s:w"),
    "expr": _row("text"),
}

HARMLESS_SCRIPTS = names("which")
"""A shell script on Debian that uses nothing but the shell's own commands."""

FIND_TESTS = names("-empty -prune -print -print0 -a -o -not")
FIND_VALUED = names("-name -iname -path -ipath -type -size -mtime -mmin -newer -maxdepth -mindepth -perm -user -group")
