"""The `hooks` block of config.yaml and forge.yaml: commands that Forge runs at fixed points.

    hooks:
      - {on: after_call, tools: [write_file], paths: ["**/*.py"], run: "ruff format {paths}", tell: model}
      - {on: before_call, tools: [exec_command], run: ./policy/check.py, timeout_s: 5}
      - {on: turn_end, run: /usr/bin/notify-send Forge done, walls: host}

Takes the checked layers; gives the `Hook`s that count, the person's first. Hooks of a program that is not trusted do
not count, and `--set` names none. Refuses what could not hold: keys that have no effect at a point, `walls: host` in a
program's file, and commands of a program that hide what they run (`cd`, `make`, `sh -c`): trust covers the files that a
command names, and the hook starts in a copy of them.

Threat: a file name is a stranger's word. `{paths}` becomes single-quoted words, so it must stand where quotes mean what
they say: as a word of its own, not inside other quotes, and not in a command that is read twice.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from golem_forge.config.sandbox_block import whole_number
from golem_forge.config.validation import (
    Check,
    ConfigLayer,
    ConfigProblems,
    MappingSchema,
    list_of,
    one_of,
    text,
    value_that,
)
from golem_forge.config.yaml_file import YamlPath, is_override
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex


class HookPoint(StrEnum):
    SESSION_START = "session_start"
    TURN_START = "turn_start"
    BEFORE_CALL = "before_call"
    AFTER_CALL = "after_call"
    QUESTION = "question"
    TURN_END = "turn_end"
    SESSION_END = "session_end"


class HookAudience(StrEnum):
    """Who reads what a hook prints."""

    MODEL = "model"
    PERSON = "person"
    BOTH = "both"


PATHS: Final = "{paths}"
ON_HOST: Final = "host"
MOST_HOOKS: Final = 50
_MOST_SECONDS: Final = 3600
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_ASSIGNMENT: Final = regex(r"[A-Za-z_][A-Za-z0-9_]*=")
_NOT_IN_A_NAME: Final = regex(r"[^A-Za-z0-9._-]+")
_PATHS_BY_ITSELF: Final = regex(r"(?<![^\s;&|(])\{paths\}(?![^\s;&|)])")
_READ_TWICE: Final = regex(r"`|<<|\(\(|\beval\b")
"""Syntax where a shell reads a quoted word a second time, or by other rules."""
_LEADS_INTO_A_ZONE: Final = regex(r"\b(?:FORGE_DIRECTORY|CLAUDE_PROJECT_DIR)\b")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_RUNNERS: Final = frozenset({"make", "gmake", "just", "npm", "pnpm", "yarn", "tox", "nox"})
"""Run what a file of the working directory says."""
_BEFORE_A_COMMAND: Final = frozenset({"!", "{", "if", "then", "else", "elif", "while", "do", "exec", "env", "time"})
_WORKS: Final = "name the file that runs, from the program's directory on, as in `sh policy/check.sh`"
_CALLS: Final = frozenset({HookPoint.BEFORE_CALL, HookPoint.AFTER_CALL})
_WITH_PATHS: Final = _CALLS | {HookPoint.TURN_END}
_TELL_MODEL: Final = frozenset(
    {HookPoint.SESSION_START, HookPoint.TURN_START, HookPoint.AFTER_CALL, HookPoint.TURN_END}
)

_seconds: Final = value_that(
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MOST_SECONDS,
    f"seconds, above 0 and at most {_MOST_SECONDS}",
)
_name: Final = value_that(
    lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
    "a name of at most 40 letters, digits, `.`, `_` and `-`",
)
_glob: Final = value_that(
    lambda value: isinstance(value, str) and {"", ".", ".."}.isdisjoint(value.removeprefix("/").split("/")),
    "a glob from the root of a zone on, like `migrations/**`, without an empty, `.` or `..` part",
)
HOOK_KEYS: Final[dict[str, Check]] = {
    "hooks": list_of(
        MappingSchema(
            {
                "on": one_of(*HookPoint),
                "run": text,
                "name": _name,
                "tools": list_of(text),
                "paths": list_of(_glob),
                "tell": one_of(*HookAudience),
                "timeout_s": _seconds,
                "walls": one_of("inside", ON_HOST),
                "max_rounds": whole_number,
            },
            required=("on", "run"),
        )
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    on: HookPoint
    run: str
    name: str
    tools: tuple[str, ...] = ()
    """Names or globs; empty means every tool."""
    paths: tuple[str, ...] = ()
    """Globs, from the root of a zone on or, with `/` first, with the zone's name; empty: whatever the paths are."""
    tell: HookAudience | None = None
    """None if its output goes to the journal only, unless it names an audience itself."""
    timeout_s: float = 10.0
    on_host: bool = False
    max_rounds: int = 3
    origin: str = ""
    """Where it is written, e.g. `forge.yaml:4`."""
    own: bool = True
    """Whether the person wrote it and not a program."""


def check_hooks(values: dict[str, Any], problems: ConfigProblems, *, own: bool) -> None:
    """Checks the keys of each hook and all hooks of one file together. `own`: the file is the person's."""
    hooks = values.get("hooks")
    if not isinstance(hooks, list):
        return
    if len(hooks) > MOST_HOOKS:
        problems.add(("hooks",), f"at most {MOST_HOOKS} hooks")
    named: set[str] = set()
    for number, said in enumerate(hooks):
        if "on" not in said or "run" not in said:
            continue  # said already
        path: YamlPath = ("hooks", number)
        if is_override(problems.file.at(path)):
            problems.add(path, "a hook is written in a file: in your own config.yaml, or in forge.yaml")
            return
        for key, problem in _problems(said, own=own):
            problems.add((*path, key), problem)
        if (name := said.get("name")) in named:
            problems.add((*path, "name"), f"{name!r} is the name of another hook")
        elif name:
            named.add(name)


def _problems(said: dict[str, Any], *, own: bool) -> Iterator[tuple[str, str]]:
    on, run = HookPoint(said["on"]), with_own_home(said["run"]) if own else said["run"]
    for key, points in (("tools", _CALLS), ("paths", _WITH_PATHS), ("max_rounds", {HookPoint.TURN_END})):
        if key in said and on not in points:
            yield key, f"has no effect at {on}; it belongs to {', '.join(sorted(points))}"
    if said.get("tell") in (HookAudience.MODEL, HookAudience.BOTH) and on not in _TELL_MODEL:
        yield "tell", f"a hook at {on} has nothing to tell the model; write `person`, or leave it out"
    words = command_words(run)
    if words is None:
        yield "run", "is no command of a shell: a quote is not closed"
        return
    hidden = "" if own else _hidden_program(run)
    if not words:
        yield "run", hidden or "names no program"
        return
    found = list(_paths_problems(on, run)) if PATHS in run else []
    yield from (("run", problem) for problem in found or [hidden] if problem)
    if said.get("walls") == ON_HOST:
        if not own:
            yield "walls", "only your own config.yaml may run a hook outside the walls"
        elif PATHS in run:
            yield "run", "a hook outside the walls takes no {paths}; it reads them as JSON on standard input"
        elif not os.path.isabs(words[0]):
            yield "run", "a hook outside the walls begins with the absolute path of its program"
    elif own and "/" in words[0] and not os.path.isabs(words[0]):
        yield "run", f"{words[0]!r} would be looked for in each project; write its absolute path"


def _hidden_program(run: str) -> str:
    """Why a program's command is refused: it runs files that trust cannot find in it. Empty: nothing is known against
    it. What is not known here is not found when it runs: no hook starts in a zone."""
    if found := _LEADS_INTO_A_ZONE.search(run):
        return f"${found[0]} leads into a zone, where a model could change what runs; use it in a file, and {_WORKS}"
    for name, rest in _simple_commands(run):
        if name in ("cd", "pushd") and not (rest and os.path.isabs(rest[0])):
            return f"a program's hook starts in a copy of the files that it names, without {name!r}; {_WORKS}"
        if name in _RUNNERS:
            return f"{name!r} runs files that no word of the command names, which trust does not cover; {_WORKS}"
        if name in _SHELLS and any(each[0] == "-" and each[:2] != "--" and "c" in each for each in rest if each):
            return f"'{name} -c' hides files from trust, and a shell reads the command anyway; {_WORKS}"
    return ""


def _simple_commands(run: str) -> Iterator[tuple[str, list[str]]]:
    """(name of the program, its words) of each command of a shell's text, as far as words mean what they say."""
    words: list[str] = []
    for word in (*_tokens(run), ";"):
        if word.strip(";&|()"):
            if words or not (word in _BEFORE_A_COMMAND or _ASSIGNMENT.match(word)):
                words.append(word)
        elif words:
            yield os.path.basename(words[0]), words[1:]
            words = []


def _paths_problems(on: HookPoint, run: str) -> Iterator[str]:
    if on not in _WITH_PATHS:
        yield f"{PATHS} has no meaning at {on}"
    if found := _READ_TWICE.search(run):
        yield f"{PATHS} cannot stand in a command with {found[0]!r}, which reads its words a second time"
    elif len(_PATHS_BY_ITSELF.findall(_without_quoted(run))) != run.count(PATHS):
        yield f"{PATHS} must stand as a word of its own, outside of quotes; Forge quotes each path"


def _without_quoted(run: str) -> str:
    """The text with everything that stands in quotes or behind a backslash taken out."""
    kept, place, quote = [], 0, ""
    while place < len(run):
        char = run[place]
        if not quote and char == "\\":
            kept.append("x")
            place += 1
        elif not quote and char in "'\"":
            quote = char
            kept.append("x")
        elif quote == '"' and char == "\\":
            place += 1
        elif char == quote:
            quote = ""
        elif not quote:
            kept.append(char)
        place += 1
    return "".join(kept)


def command_words(run: str) -> list[str] | None:
    """The words of a command that mean what they say; those that a shell computes are left out. None: a quote is not
    closed."""
    try:
        words = _tokens(run)
    except ValueError:
        return None
    return [word for word in words if not set(word) & set("$`") and word.strip(";&|()<>")]


def _tokens(run: str) -> list[str]:
    """Splits a command into words. Raises ValueError for an unclosed quote."""
    lexer = shlex.shlex(run, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    return list(lexer)


def with_own_home(run: str) -> str:
    """`~/` of the person's own hooks is their home; inside the walls another one stands there."""
    home = os.path.expanduser("~")
    return regex(r"(?<![^\s=])~/").sub(lambda _: f"{shlex.quote(home)}/", run)


def effective_hooks(project: ConfigLayer, person: ConfigLayer) -> tuple[Hook, ...]:
    """The person's first. Each has a name that no other has."""
    found: list[Hook] = []
    for layer, own in ((person, True), (project, False)):
        for number, said in enumerate(layer.values.get("hooks") or ()):
            name = said.get("name") or _usual_name(said["run"])
            run = with_own_home(said["run"]) if own else said["run"]
            found.append(
                Hook(
                    on=HookPoint(said["on"]),
                    run=run,
                    name=_unused(name, {each.name for each in found}),
                    tools=tuple(said.get("tools", ())),
                    paths=tuple(said.get("paths", ())),
                    tell=HookAudience(said["tell"]) if "tell" in said else None,
                    timeout_s=float(said.get("timeout_s", 10.0)),
                    on_host=said.get("walls") == ON_HOST,
                    max_rounds=said.get("max_rounds", 3),
                    origin=layer.at("hooks", number),
                    own=own,
                )
            )
    return tuple(found)


def restrict_untrusted_hooks(project: ConfigLayer, unused: list[str]) -> list[Any]:
    """Removes all hooks of an untrusted program and adds them to `unused`."""
    said: list[Any] = project.values.get("hooks") or []
    unused += [f"{project.at('hooks', number)}: hooks: {each['run'][:80]!r}" for number, each in enumerate(said)]
    return []


def _usual_name(run: str) -> str:
    first = (command_words(run) or ["hook"])[0]
    return _NOT_IN_A_NAME.sub("-", os.path.basename(first)).strip("-._")[:36] or "hook"


def _unused(name: str, taken: set[str]) -> str:
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}-{number}"
    return unused
