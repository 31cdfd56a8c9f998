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


def own_parts(kind: RuleKind, written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    return _READERS[kind](written, report)


def _command_parts(written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    tokens = written["command"]
    exact = written.get("exact", False)
    if not isinstance(exact, bool):
        report("exact", "expected true or false")
        return None
    if not isinstance(tokens, list) or not tokens:
        report("command", "expected a list of words, like [git, status]")
        return None
    pattern = tuple(tuple(token) if isinstance(token, list) else (token,) for token in tokens)
    for token in pattern:
        if not token or not all(isinstance(word, str) for word in token):
            report("command", "each word is a text, or a list of texts as alternatives; quote numbers")
            return None
    if not all(pattern[0]):
        report("command", "the program's name is empty")
        return None
    return {"command": pattern, "exact": exact}


def _tool_parts(written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    name, args = written["tool"], written.get("args", {})
    if not isinstance(name, str) or not name:
        report("tool", "expected the name of a tool")
        return None
    if not isinstance(args, dict):
        report("args", "expected a mapping of argument names, like {repo: {one_of: [a/b]}}")
        return None
    tests = [_arg_test(name, wanted, report) for name, wanted in args.items()]
    checked = tuple(test for test in tests if test is not None)
    return {"tool": name, "args": checked} if len(checked) == len(tests) else None


def _arg_test(name: str, wanted: Any, report: ReportProblem) -> ArgTest | None:
    if wanted is None or isinstance(wanted, _SCALARS):
        return ArgTest(name=name, one_of=(wanted,))
    if not isinstance(wanted, dict) or not wanted:
        report("args", f"{name}: expected a plain value or a test ({', '.join(_ARG_TESTS)})")
        return None
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
    if problem:
        report("args", f"{name}: {problem}")
        return None
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


def _path_parts(written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    glob = written["path"]
    if not isinstance(glob, str) or not _ZONE_PATH.fullmatch(glob):
        report("path", f"a path starts with its zone, like /workspace/docs/**; got {glob!r}")
        return None
    if any(part in ("", ".", "..") for part in glob[1:].split("/")):
        report("path", f"{glob!r} has an empty, `.` or `..` part; for all below a directory write /zone/dir/**")
        return None
    access = written.get("access", [verb.value for verb in PATH_VERBS])
    known = {verb.value: verb for verb in PATH_VERBS}
    if not isinstance(access, list) or not access:
        report("access", "expected a list of read, write, delete")
        return None
    for word in access:
        if not isinstance(word, str) or word not in known:
            close = closest_match(word, known) if isinstance(word, str) else None
            report("access", f"unknown access {word!r}" + (f"; did you mean {close!r}?" if close else ""))
            return None
    return {"path": glob, "access": tuple(verb for verb in PATH_VERBS if verb.value in access)}


def _mcp_parts(written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    block = written["mcp"]
    if not isinstance(block, dict):
        report("mcp", "expected {server: name, tool: [names]}")
        return None
    for key in block:
        if key not in ("server", "tool"):
            report("mcp", unknown_key_message(key, ("server", "tool")))
            return None
    names = {key: _names(block.get(key)) for key in ("server", "tool")}
    for key, found in names.items():
        if found is None:
            report("mcp", f"{key!r} is a name or a list of names; `*` stands for any")
            return None
    return {"servers": names["server"], "mcp_tools": names["tool"]}


def _names(value: Any) -> tuple[str, ...] | None:
    names = value if isinstance(value, list) else [value]
    return tuple(names) if names and all(isinstance(name, str) and name for name in names) else None


def _host_parts(written: dict[str, Any], report: ReportProblem) -> dict[str, Any] | None:
    host, ports, private = written["host"], written.get("ports", list(HTTPS)), written.get("private", False)
    if not isinstance(host, str):
        report("host", "expected a host name, like api.example.com")
        return None
    if not isinstance(ports, list) or not ports or not all(_is_port(port) for port in ports):
        report("ports", "expected a list of ports from 1 to 65535")
        return None
    if not isinstance(private, bool):
        report("private", "expected true or false")
        return None
    try:
        return {
            "host": host_pattern(host),
            "ports": frozenset(ports) if "ports" in written else HTTPS,
            "private": private,
        }
    except ValueError as error:
        report("host", f"{host!r}: {error}")
        return None


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def read_scope(written: Any, report: ReportProblem) -> RuleScope:
    """An unusable scope is reported and comes back empty; the rule is refused with it."""
    known = ("worker", "project", "until")
    if not isinstance(written, dict):
        report("scope", "expected {worker: glob, project: directory, until: time}")
        return RuleScope()
    for key, value in written.items():
        if key not in known:
            report("scope", unknown_key_message(key, known))
            return RuleScope()
        if not isinstance(value, str) or not value:
            report("scope", f"{key}: expected a text")
            return RuleScope()
    project, until = written.get("project", ""), written.get("until", "")
    if project:
        project = os.path.expanduser(project)
        if not os.path.isabs(project):
            report("scope", "project: write the directory in full, or from ~/")
            return RuleScope()
        project = os.path.realpath(project)
    return RuleScope(
        worker=written.get("worker", ""),
        project=project,
        until=until,
        until_time=_timestamp(until, report) if until else None,
    )


def _timestamp(text: str, report: ReportProblem) -> float | None:
    """Without an offset the time is the person's own."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        report("scope", f"until: {text!r} is not an ISO time, like 2030-01-31T18:00:00+01:00")
        return None


_READERS: Final[dict[RuleKind, Callable[[dict[str, Any], ReportProblem], dict[str, Any] | None]]] = {
    RuleKind.COMMAND: _command_parts,
    RuleKind.TOOL: _tool_parts,
    RuleKind.PATH: _path_parts,
    RuleKind.MCP: _mcp_parts,
    RuleKind.HOST: _host_parts,
}
