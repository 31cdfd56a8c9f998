"""The keys that belong to one kind of rule, validated: token patterns, argument tests, path globs, MCP names, hosts;
and the scope.

`own_parts` gives the fields of a Rule for one kind, or None after reporting every problem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from golem_forge.config.schema import unknown_key_message
from golem_forge.core.text import closest_match
from golem_forge.policy.rules.globs import host_pattern
from golem_forge.policy.rules.model import HTTPS, PATH_VERBS, ArgTest, RuleKind, RuleScope

ReportProblem = Callable[[str, str], None]
"""(key of the rule, problem)"""

OWN_KEYS: Final[dict[RuleKind, tuple[str, ...]]] = {
    RuleKind.COMMAND: ("exact",),
    RuleKind.TOOL: ("args",),
    RuleKind.PATH: ("access",),
    RuleKind.MCP: (),
    RuleKind.HOST: ("ports", "private"),
}
_ARG_TESTS: Final = ("one_of", "glob", "min", "max", "absent")
_ZONE_PATH: Final = re.compile(r"/[a-z][a-z0-9_-]{0,31}(/.*)?", re.DOTALL)
_SCALARS: Final = (str, int, float, bool)


class _Invalid(Exception):
    """(key of the rule, problem): the first one found ends the reading of the rule's own keys."""


def own_parts(kind: RuleKind, written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    try:
        return _READERS[kind](written)
    except _Invalid as error:
        for key, problem in error.args:
            report(key, problem)
        return None


def _require(holds: bool, key: str, problem: str) -> None:
    if not holds:
        raise _Invalid((key, problem))


def _command_parts(written: dict[str, Any]) -> dict[str, Any]:
    tokens = written["command"]
    exact = written.get("exact", False)
    _require(isinstance(exact, bool), "exact", "expected true or false")
    _require(isinstance(tokens, list) and bool(tokens), "command", "expected a list of words, like [git, status]")
    pattern = tuple(tuple(token) if isinstance(token, list) else (token,) for token in tokens)
    texts = all(token and all(isinstance(word, str) for word in token) for token in pattern)
    _require(texts, "command", "each word is a text, or a list of texts as alternatives; quote numbers")
    _require(all(pattern[0]), "command", "the program's name is empty")
    return {"command": pattern, "exact": exact}


def _tool_parts(written: dict[str, Any]) -> dict[str, Any]:
    name, args = written["tool"], written.get("args", {})
    _require(isinstance(name, str) and bool(name), "tool", "expected the name of a tool")
    problem = "expected a mapping of argument names, like {repo: {one_of: [a/b]}}"
    _require(isinstance(args, dict), "args", problem)
    tests: list[ArgTest] = []
    problems: list[tuple[str, str]] = []
    for argument, wanted in args.items():
        try:
            tests.append(_arg_test(argument, wanted))
        except _Invalid as error:
            problems += error.args
    if problems:
        raise _Invalid(*problems)
    return {"tool": name, "args": tuple(tests)}


def _arg_test(name: str, wanted: Any) -> ArgTest:
    if wanted is None or isinstance(wanted, _SCALARS):
        return ArgTest(name=name, one_of=(wanted,))
    is_test = isinstance(wanted, dict) and bool(wanted)
    _require(is_test, "args", f"{name}: expected a plain value or a test ({', '.join(_ARG_TESTS)})")
    choices, glob, absent = wanted.get("one_of"), wanted.get("glob"), wanted.get("absent")
    low, high = wanted.get("min"), wanted.get("max")
    problem = ""
    for key in wanted:
        if key not in _ARG_TESTS:
            problem = unknown_key_message(key, _ARG_TESTS)
    if "one_of" in wanted and not (
        isinstance(choices, list) and all(c is None or isinstance(c, _SCALARS) for c in choices)
    ):
        problem = "one_of is a list of plain values"
    if "glob" in wanted and not isinstance(glob, str):
        problem = "glob is a text"
    if ("min" in wanted and not _is_number(low)) or ("max" in wanted and not _is_number(high)):
        problem = "min and max are numbers"
    if "absent" in wanted and (absent is not True or len(wanted) > 1):
        problem = "absent is `true`, alone"
    _require(not problem, "args", f"{name}: {problem}")
    return ArgTest(
        name=name,
        one_of=None if choices is None else tuple(choices),
        glob=glob,
        minimum=low,
        maximum=high,
        absent=bool(absent),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _path_parts(written: dict[str, Any]) -> dict[str, Any]:
    glob = written["path"]
    in_zone = isinstance(glob, str) and _ZONE_PATH.fullmatch(glob) is not None
    _require(in_zone, "path", f"a path starts with its zone, like /workspace/docs/**; got {glob!r}")
    named = not any(part in ("", ".", "..") for part in glob[1:].split("/"))
    problem = f"{glob!r} has an empty, `.` or `..` part; for all below a directory write /zone/dir/**"
    _require(named, "path", problem)
    known = [verb.value for verb in PATH_VERBS]
    access = written.get("access", known)
    _require(isinstance(access, list) and bool(access), "access", "expected a list of read, write, delete")
    for word in access:
        close = closest_match(word, known) if isinstance(word, str) else None
        hint = f"; did you mean {close!r}?" if close else ""
        _require(word in known, "access", f"unknown access {word!r}{hint}")
    return {"path": glob, "access": tuple(verb for verb in PATH_VERBS if verb.value in access)}


def _mcp_parts(written: dict[str, Any]) -> dict[str, Any]:
    block, known = written["mcp"], ("server", "tool")
    _require(isinstance(block, dict), "mcp", "expected {server: name, tool: [names]}")
    for key in block:
        if key not in known:
            raise _Invalid(("mcp", unknown_key_message(key, known)))
    names = {key: value if isinstance(value := block.get(key), list) else [value] for key in known}
    for key, found in names.items():
        valid = bool(found) and all(isinstance(name, str) and name for name in found)
        _require(valid, "mcp", f"{key!r} is a name or a list of names; `*` stands for any")
    return {"servers": tuple(names["server"]), "mcp_tools": tuple(names["tool"])}


def _host_parts(written: dict[str, Any]) -> dict[str, Any]:
    host, ports, private = written["host"], written.get("ports", list(HTTPS)), written.get("private", False)
    _require(isinstance(host, str), "host", "expected a host name, like api.example.com")
    valid_ports = isinstance(ports, list) and bool(ports) and all(_is_port(port) for port in ports)
    _require(valid_ports, "ports", "expected a list of ports from 1 to 65535")
    _require(isinstance(private, bool), "private", "expected true or false")
    try:
        pattern = host_pattern(host)
    except ValueError as error:
        raise _Invalid(("host", f"{host!r}: {error}")) from None
    return {"host": pattern, "ports": frozenset(ports) if "ports" in written else HTTPS, "private": private}


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def read_scope(written: Any, report: ReportProblem) -> RuleScope:
    """An unusable scope is reported and comes back empty; the rule is refused with it."""
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
        report("scope", problem)
        return RuleScope()
    return RuleScope(worker=written.get("worker", ""), project=project, until=until, until_time=until_time)


_READERS: Final[dict[RuleKind, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    RuleKind.COMMAND: _command_parts,
    RuleKind.TOOL: _tool_parts,
    RuleKind.PATH: _path_parts,
    RuleKind.MCP: _mcp_parts,
    RuleKind.HOST: _host_parts,
}
