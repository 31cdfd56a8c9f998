"""Rules read from YAML: checked Rules, or every problem with file, line, rule id and example.

`parse_rules` takes a file's text and its origin (which decides what it may contain). Refused besides unknown keys: a
preApproved rule for the shell tools, `accept` where it could loosen too much, `blocked` without a reason, a path that
names no zone, a host that is not one, and any rule that its own examples contradict.

`own_parts` reads the keys that belong to one kind of rule (token patterns, argument tests, path globs, MCP names,
hosts); what did not pass is not there, and its problem is told. `read_scope` reads the scope. In a rule's examples each
`match` must match the rule alone, each `not_match` must not. Commands are given as text or as a list of words, tools as
an object of arguments, MCP tools as `server/tool`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import product
from math import prod
from typing import Any, Final

from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.validation import (
    INVALID,
    Check,
    ConfigProblems,
    check_keys,
    flag,
    is_whole,
    one_of,
    refuse,
    unknown_key_message,
    value_that,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, parse_yaml
from golem_forge.core.decisions import Verdict
from golem_forge.core.globs import GROUPS
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.policy.facts import McpName, SandboxWorld
from golem_forge.policy.rules.match import arguments_match, mcp_matches, place_matches, segment_matches, text_matches
from golem_forge.policy.rules.model import (
    ANYWHERE,
    BUILTIN_IDS,
    NO_IDS,
    PATH_FLOORS,
    PATH_VERBS,
    ArgTest,
    Rule,
    RuleFile,
    RuleKind,
    RuleOrigin,
    RuleScope,
    host_and_port,
    host_matches,
    host_pattern,
    normal_host,
    path_matches_glob,
    places_of_group,
    rule_id,
)
from golem_forge.policy.shell.dangers import DANGER_IDS
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import is_banned_prefix, runs_what_it_is_given
from golem_forge.policy.shell.prover import segment_places
from golem_forge.policy.shell.strict import Parsed, parse_strict, quote
from golem_forge.sandbox.sandbox import Sandbox

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
        """Adds a problem at a key of the rule; an empty `key` means the rule itself."""
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
"""Keys that only rules of one kind have."""


SHELL_TOOLS: Final = frozenset({"exec_command", "shell", "write_stdin"})
_SIGNING: Final = "git:sign"
_COMMON_KEYS: Final = ("verdict", "id", "reason", "scope", "match", "not_match", "accept")
_KINDS: Final = tuple(kind.value for kind in RuleKind)
_WRITTEN_BY_HAND: Final = tuple(word for word in _KINDS if word != RuleKind.MODE)
_ALL_KEYS: Final = (*_KINDS, *_COMMON_KEYS, *(key for keys in OWN_KEYS.values() for key in keys))
_MAX_RULES: Final = 5000
_MAX_ALTERNATIVES: Final = 1000
_AS_PREFIX: Final = "as a prefix this allows nearly anything; add words or `exact: true`"


def parse_rules(text: bytes | str, name: str, origin: RuleOrigin) -> RuleFile:
    """The rules of one file; raises ConfigError with every problem found."""
    return checked_rules(parse_yaml(text, name), origin)


def checked_rules(file: YamlFile, origin: RuleOrigin) -> RuleFile:
    """Validates the parsed values of a rule file. Raises ConfigError."""
    problems = ConfigProblems(file)
    warnings: list[str] = []
    check_keys(file.value, (), problems, ("version", "rules", "builtin_off"), ())
    if file.value.get("version", 1) != 1 or file.value.get("version") is True:
        problems.add(("version",), "this Forge reads version 1")
    written = file.value.get("rules")
    if written is not None and not isinstance(written, list):
        refuse(problems, ("rules",), written, "a list of rules")
        written = None
    written = written or []
    if len(written) > _MAX_RULES:
        problems.add(("rules",), f"more than {_MAX_RULES} rules")
        written = []
    rules = [_read_rule(item, ("rules", index), origin, problems, warnings) for index, item in enumerate(written)]
    off = _builtin_off(file, origin, problems)
    problems.raise_if_any()
    return RuleFile(tuple(rule for rule in rules if rule is not None), off, tuple(warnings))


def make_rule(written: dict[str, Any], origin: RuleOrigin, *, file: str = "rule") -> Rule:
    """Builds a rule that is not in a file (a choice, or its edited form). Raises ConfigError."""
    problems = ConfigProblems(YamlFile(file, {}, {(): 1}))
    rule = _read_rule(written, (), origin, problems, [])
    problems.raise_if_any()
    assert rule is not None  # every way to None has added a problem
    return rule


def _builtin_off(file: YamlFile, origin: RuleOrigin, problems: ConfigProblems) -> frozenset[str]:
    path: YamlPath = ("builtin_off",)
    if "builtin_off" not in file.value:
        return frozenset()
    if origin is not RuleOrigin.USER:
        problems.add(path, "only your own rules.yaml may switch builtin rules off")
        return frozenset()
    off = file.value["builtin_off"]
    if not isinstance(off, list):
        refuse(problems, path, off, "a list of builtin rule ids")
        return frozenset()
    for index, word in enumerate(off):
        if word not in BUILTIN_IDS:
            known = ", ".join(sorted(BUILTIN_IDS))
            problems.add((*path, index), f"{word!r} is not a builtin rule; they are {known}")
    return frozenset(word for word in off if isinstance(word, str))


def _read_rule(
    written: Any, path: YamlPath, origin: RuleOrigin, problems: ConfigProblems, warnings: list[str]
) -> Rule | None:
    """Reads one rule; returns None after it added the problems. Problems name the rule by its id, if it has one."""
    if not isinstance(written, dict):
        refuse(problems, path, written, "a rule (a mapping)")
        return None
    named = RuleProblems(problems, path, _id_of(written, path, problems))
    before = len(problems.found)
    kind = _kind_of(written, named)
    _check_keys(written, kind, named)
    verdict = _verdict_of(written, named)
    reason = written.get("reason", "")
    if not isinstance(reason, str):
        named.add_at("reason", "expected a text")
        reason = ""
    scope = read_scope(written["scope"], named) if "scope" in written else ANYWHERE
    own = own_parts(kind, written, named) if kind is not None else {}
    if kind is None or verdict is None or len(problems.found) > before:
        return None
    rule = Rule(
        kind=kind,
        verdict=verdict,
        id=named.id,
        origin=origin,
        written=written,
        reason=reason,
        file=problems.file.name,
        line=problems.file.line(path),
        scope=scope,
        accept=_accept_of(written, kind, verdict, named),
        **own,
    )
    counts = _check_meaning(rule, named, warnings)
    if not counts or len(problems.found) > before:
        return None
    for key, index, problem in example_problems(rule):
        named.add((*path, key, index), problem)
    return rule if len(problems.found) == before else None


def _id_of(written: dict[str, Any], path: YamlPath, problems: ConfigProblems) -> str:
    given = written.get("id")
    if given is None:
        try:
            return rule_id(written)
        except ValueError:
            return "?"
    if isinstance(given, str) and 0 < len(given) <= 64 and given.isprintable() and " " not in given:
        return given
    problems.add((*path, "id"), f"an id is a text of 1 to 64 characters without blanks, got {given!r}")
    return "?"


def _kind_of(written: dict[str, Any], named: RuleProblems) -> RuleKind | None:
    kinds = [word for word in _KINDS if word in written]
    if len(kinds) == 1:
        return RuleKind(kinds[0])
    found = f"; it has {' and '.join(kinds)}" if kinds else ""
    named.add_at("", f"a rule has exactly one of {', '.join(_WRITTEN_BY_HAND)}{found}")
    return None


def _check_keys(written: dict[str, Any], kind: RuleKind | None, named: RuleProblems) -> None:
    for key in written:
        if key not in _ALL_KEYS:
            named.add_at(key, unknown_key_message(key, _ALL_KEYS))
        elif kind is not None and key not in (*_KINDS, *_COMMON_KEYS, *OWN_KEYS[kind]):
            named.add_at(key, f"{key!r} has no effect in a {kind.value} rule")


def _verdict_of(written: dict[str, Any], named: RuleProblems) -> Verdict | None:
    given = written.get("verdict")
    values = [verdict.value for verdict in Verdict]
    if isinstance(given, str) and given in values:
        return Verdict(given)
    if "verdict" not in written:
        named.add_at("", f"'verdict' is missing; it is one of {', '.join(values)}")
    else:
        named.add_at("verdict", f"expected one of {', '.join(values)}, got {given!r}{nearest_hint(given, values)}")
    return None


def _accept_of(written: dict[str, Any], kind: RuleKind, verdict: Verdict, named: RuleProblems) -> frozenset[str]:
    if "accept" not in written:
        return NO_IDS
    ids = written["accept"]
    if not isinstance(ids, list) or not ids or not all(isinstance(word, str) for word in ids):
        named.add_at("accept", "expected a list of ids, like [rm_force]")
        return frozenset()
    if verdict is not Verdict.PRE_APPROVED:
        named.add_at("accept", f"only a preApproved rule can accept something, this one says {verdict.value}")
    known = {RuleKind.COMMAND: frozenset(DANGER_IDS), RuleKind.PATH: PATH_FLOORS}.get(kind, frozenset())
    for word in ids:
        if word in known:
            continue
        if word in DANGER_IDS or word in PATH_FLOORS:
            named.add_at("accept", f"{word!r} has no effect in a {kind.value} rule")
        else:
            named.add_at("accept", f"unknown id {word!r}{nearest_hint(word, {*DANGER_IDS, *PATH_FLOORS})}")
    return frozenset(ids)


def _check_meaning(rule: Rule, named: RuleProblems, warnings: list[str]) -> bool:
    """Refuses what is well formed but not allowed, or not in this file. False: the rule is left out, with a warning."""
    allows = rule.verdict is Verdict.PRE_APPROVED
    if rule.verdict is Verdict.BLOCKED and not rule.reason:
        named.add_at("verdict", "a blocked rule needs a 'reason'; it is what the caller reads")
    if rule.kind is RuleKind.TOOL and allows and rule.tool in SHELL_TOOLS:
        named.add_at(
            "tool",
            f"{rule.tool!r} cannot be preApproved as a whole; write `command` rules, "
            "or set `walled: preApproved` in the exec toolset",
        )
    if rule.kind is RuleKind.TOOL and allows and rule.tool == _SIGNING:
        named.add_at("tool", f"{rule.tool!r} cannot be preApproved by a rule; a person may allow it for a session")
    if rule.origin in (RuleOrigin.PROJECT, RuleOrigin.REMEMBERED, RuleOrigin.SESSION):
        for key in ("accept", "private"):
            if key in rule.written:
                named.add_at(key, f"{key!r} is allowed only in your own rules.yaml")
    if rule.kind is RuleKind.MODE:
        if rule.origin is not RuleOrigin.REMEMBERED or not rule.scope.project:
            named.add_at("mode", "an answer that Forge keeps for a directory; write `approval.mode` in a config file")
    elif rule.origin in (RuleOrigin.REMEMBERED, RuleOrigin.SESSION) and not allows:
        named.add_at("verdict", f"a {rule.origin.value} rule can only be preApproved")
    if rule.kind is RuleKind.COMMAND and allows and _is_too_wide(rule):
        how = "it runs whatever is piped into it; add words" if rule.exact else _AS_PREFIX
        problem = f"{rule.describe()}: {how}"
        warning = f"{rule.file}:{rule.line}: rule {rule.id}: {problem}"
        if rule.origin is RuleOrigin.USER:
            warnings.append(warning)
        elif rule.origin is RuleOrigin.REMEMBERED and named.path and not rule.exact:  # an older Forge offered it
            warnings.append(f"{warning}; Forge ignores it now")
            return False
        else:
            named.add_at("command", problem)
    return True


def _is_too_wide(rule: Rule) -> bool:
    if prod(map(len, rule.command)) > _MAX_ALTERNATIVES:
        return True
    return any(map(runs_what_it_is_given if rule.exact else is_banned_prefix, product(*rule.command)))


class _InvalidExample(Exception):
    """The example is not of the form its kind needs."""


def example_problems(rule: Rule) -> Iterator[tuple[str, int, str]]:
    for key, wanted in (("match", True), ("not_match", False)):
        examples = rule.written.get(key, [])
        if not isinstance(examples, list):
            yield key, 0, f"{key} is a list of examples"
            continue
        for index, example in enumerate(examples):
            try:
                matches = _example_matches(rule, example)
            except _InvalidExample as error:
                yield key, index, f"{key} example {example!r}: {error}"
                continue
            if matches is not wanted:
                does = "matches" if matches else "does not match"
                yield key, index, f"{key} example {example!r} {does} this rule"


def _example_matches(rule: Rule, example: Any) -> bool:
    if rule.kind is RuleKind.TOOL:
        if not isinstance(example, dict):
            raise _InvalidExample("expected an object of arguments")
        return arguments_match(rule.args, example)
    if rule.kind is RuleKind.COMMAND:
        if isinstance(example, list) and example and all(isinstance(word, str) for word in example):
            example = " ".join(map(quote, example))
        if not isinstance(example, str):
            raise _InvalidExample("expected a command's text or its list of words")
        return _command_matches(rule, example)
    if not isinstance(example, str):
        raise _InvalidExample("expected a text")
    if rule.kind is RuleKind.PATH:
        return path_matches_glob(rule.path, example)
    if rule.kind is RuleKind.MCP:
        server, slash, tool = example.partition("/")
        if not slash:
            raise _InvalidExample("expected server/tool")
        return mcp_matches(rule, McpName(server=server, tool=tool, pinned=True))
    place = host_and_port(example)
    if place is not None:  # with a port (`host:8443`) the rule's ports count too
        return place_matches(rule, *place)
    try:
        if rule.kind is RuleKind.GROUP:
            return any(host == normal_host(example) for host, _ in rule.places)
        return host_matches(rule.host, normal_host(example))
    except ValueError as error:
        raise _InvalidExample(str(error)) from None


def _command_matches(rule: Rule, text: str) -> bool:
    if rule.verdict is not Verdict.PRE_APPROVED:
        return text_matches(rule, find_commands(text))
    parsed = parse_strict(text)
    if not isinstance(parsed, Parsed):
        return False
    world = SandboxWorld(Sandbox())  # no zones: an example is about the rule, not about a place
    places = segment_places(parsed, world, "/")
    return all(
        segment_matches(rule, segment, world, where) for segment, where in zip(parsed.segments, places, strict=True)
    )
