"""The keys that belong to one kind of rule (token patterns, argument tests, path globs, MCP names, hosts), and the
scope.

`own_parts` gives the fields of a Rule for one kind; what did not pass is not there, and its problem is told.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Any, Final

from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.config.schema import (
    INVALID,
    Check,
    ConfigProblems,
    flag,
    is_whole,
    one_of,
    refuse,
    unknown_key_message,
    value_that,
)
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.globs import GROUPS
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.policy.rules.globs import host_pattern, places_of_group
from golem_forge.policy.rules.model import PATH_VERBS, ArgTest, RuleKind, RuleScope

_ARG_TESTS: Final = ("one_of", "glob", "min", "max", "absent")
_ZONE_PATH: Final = regex(r"/[a-z][a-z0-9_-]{0,31}(/.*)?", re.DOTALL)
_SCALARS: Final = (str, int, float, bool, type(None))


class RuleProblems(ConfigProblems):
    """Adds problems of one rule to those of its file, each with the rule's id."""

    def __init__(self, problems: ConfigProblems, path: YamlPath, id_: str) -> None:
        super().__init__(problems.file)
        self.found = problems.found
        self.path = path
        self.id = id_

    def add(self, path: YamlPath, problem: str) -> None:
        super().add(path, f"rule {self.id}: {problem}")

    def expected(self, path: YamlPath, value: Any, expected: str) -> None:
        self.add(path, f"expected {expected}")

    def add_at(self, key: str, problem: str) -> None:
        """`key`: of the rule; empty: the rule itself."""
        self.add((*self.path, key) if key else self.path, problem)


def own_parts(kind: RuleKind, written: dict[str, Any], problems: RuleProblems) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for key, check in _CHECKS[kind].items():
        if key in written:
            parts[key] = check(written[key], (*problems.path, key), problems)
    mcp = parts.pop("mcp", None)
    if isinstance(mcp, dict):
        parts |= {"servers": mcp["server"], "mcp_tools": mcp["tool"]}
    if parts.get("group") in GROUPS:
        parts["places"] = places_of_group(parts["group"])
    return parts


def _command(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, list) or not value:
        return refuse(problems, path, value, "a list of words, like [git, status]")
    pattern = tuple(tuple(token) if isinstance(token, list) else (token,) for token in value)
    if not all(token and all(isinstance(word, str) for word in token) for token in pattern):
        problems.add(path, "each word is a text, or a list of texts as alternatives; quote numbers")
    elif not all(pattern[0]):
        problems.add(path, "the program's name is empty")
    return pattern


def _args(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, dict):
        return refuse(problems, path, value, "a mapping of argument names, like {repo: {one_of: [a/b]}}")
    tests: list[ArgTest] = []
    for name, wanted in value.items():
        if isinstance(wanted, _SCALARS):
            tests.append(ArgTest(name=name, one_of=(wanted,)))
        elif problem := _arg_test_problem(wanted):
            problems.add(path, f"{name}: {problem}")
        else:
            choices = wanted.get("one_of")
            test = {"glob": wanted.get("glob"), "minimum": wanted.get("min"), "maximum": wanted.get("max")}
            test |= {"one_of": None if choices is None else tuple(choices), "absent": "absent" in wanted}
            tests.append(ArgTest(name=name, **test))
    return tuple(tests)


def _arg_test_problem(wanted: Any) -> str:
    if not isinstance(wanted, dict) or not wanted:
        return f"expected a plain value or a test ({', '.join(_ARG_TESTS)})"
    if "absent" in wanted and (wanted["absent"] is not True or len(wanted) > 1):
        return "absent is `true`, alone"
    if not all(_is_number(wanted[key]) for key in ("min", "max") if key in wanted):
        return "min and max are numbers"
    if "glob" in wanted and not isinstance(wanted["glob"], str):
        return "glob is a text"
    choices = wanted.get("one_of", [])
    if not isinstance(choices, list) or not all(isinstance(choice, _SCALARS) for choice in choices):
        return "one_of is a list of plain values"
    unknown = [key for key in wanted if key not in _ARG_TESTS]
    return unknown_key_message(unknown[-1], _ARG_TESTS) if unknown else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _path(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, str) or not _ZONE_PATH.fullmatch(value):
        problems.add(path, f"a path starts with its zone, like /workspace/docs/**; got {value!r}")
    elif any(part in ("", ".", "..") for part in value[1:].split("/")):
        rule = "for all below a directory write /zone/dir/**"
        problems.add(path, f"{value!r} has an empty, `.` or `..` part; {rule}")
    return value


def _access(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    known = [verb.value for verb in PATH_VERBS]
    if not isinstance(value, list) or not value:
        return refuse(problems, path, value, "a list of read, write, delete")
    for word in value:
        if word not in known:
            problems.add(path, f"unknown access {word!r}{nearest_hint(word, known)}")
    return tuple(verb for verb in PATH_VERBS if verb.value in value)


def _mcp(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    known = ("server", "tool")
    if not isinstance(value, dict):
        return refuse(problems, path, value, "{server: name, tool: [names]}")
    for key in value:
        if key not in known:
            problems.add(path, unknown_key_message(key, known))
            return INVALID
    names = {key: said if isinstance(said := value.get(key), list) else [said] for key in known}
    for key, found in names.items():
        if not found or not all(isinstance(name, str) and name for name in found):
            problems.add(path, f"{key!r} is a name or a list of names; `*` stands for any")
    return {key: tuple(found) for key, found in names.items()}


def _host(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, str):
        return refuse(problems, path, value, "a host name, like api.example.com")
    try:
        return host_pattern(value)
    except ValueError as error:
        problems.add(path, f"{value!r}: {error}")
        return INVALID


def _group(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, str) or value not in GROUPS:
        problems.add(path, f"expected one of {', '.join(GROUPS)}, got {value!r}{nearest_hint(value, GROUPS)}")
        return INVALID
    return value


def _ports(value: Any, path: YamlPath, problems: RuleProblems) -> Any:
    if not isinstance(value, list) or not value or not all(is_whole(port) and 0 < port < 65536 for port in value):
        return refuse(problems, path, value, "a list of ports from 1 to 65535")
    return frozenset(value)


def read_scope(written: Any, problems: RuleProblems) -> RuleScope:
    """An unusable scope is told and comes back empty; the rule is refused with it."""
    known = ("worker", "project", "until")
    problem = ""
    project, until, until_time = "", "", None
    if not isinstance(written, dict):
        problem, written = "expected {worker: glob, project: directory, until: time}", {}
    for key, value in written.items():
        if key not in known:
            problem = problem or unknown_key_message(key, known)
        elif not isinstance(value, str) or not value:
            problem = problem or f"{key}: expected a text"
    if not problem and "project" in written:
        project = os.path.expanduser(written["project"])
        if not os.path.isabs(project):
            problem = "project: write the directory in full, or from ~/"
        project = os.path.realpath(project)
    if not problem and "until" in written:
        until = written["until"]
        try:  # without an offset the time is the person's own
            until_time = datetime.fromisoformat(until).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            problem = f"until: {until!r} is not an ISO time, like 2030-01-31T18:00:00+01:00"
    if problem:
        problems.add_at("scope", problem)
        return RuleScope()
    return RuleScope(worker=written.get("worker", ""), project=project, until=until, until_time=until_time)


_TOOL: Final = value_that(lambda value: isinstance(value, str) and bool(value), "the name of a tool")
_CHECKS: Final[dict[RuleKind, dict[str, Check]]] = {
    RuleKind.COMMAND: {"exact": flag, "command": _command},
    RuleKind.TOOL: {"tool": _TOOL, "args": _args},
    RuleKind.PATH: {"path": _path, "access": _access},
    RuleKind.MCP: {"mcp": _mcp},
    RuleKind.HOST: {"host": _host, "ports": _ports, "private": flag},
    RuleKind.GROUP: {"group": _group},
    RuleKind.MODE: {"mode": one_of(ApprovalMode.INTERACTIVE.value, ApprovalMode.CONTAINED.value)},
}
OWN_KEYS: Final = {kind: tuple(key for key in checks if key != kind.value) for kind, checks in _CHECKS.items()}
"""Keys that only a rule of this kind has."""
