"""A rule's own examples: each `match` must match the rule alone, each `not_match` must not.

Takes a checked Rule, gives (key, index, problem) for every example that contradicts it or cannot be read. Commands
are examples as text or as a list of words, tools as an object of arguments, MCP tools as `server/tool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import McpName
from golem_forge.policy.rules.globs import path_fits
from golem_forge.policy.rules.hosts import host_and_port, host_matches, normal_host
from golem_forge.policy.rules.match import arguments_match, mcp_matches, segment_matches, text_matches
from golem_forge.policy.rules.model import Kind, Rule
from golem_forge.policy.shell import Parsed, find_commands, parse_strict, quote, segment_places
from golem_forge.policy.world import SandboxWorld
from golem_forge.sandbox.sandbox import Sandbox


class _Unreadable(Exception):
    """The example is not of the form its kind needs."""


def example_problems(rule: Rule) -> Iterator[tuple[str, int, str]]:
    for key, wanted in (("match", True), ("not_match", False)):
        examples = rule.written.get(key, [])
        if not isinstance(examples, list):
            yield key, 0, f"{key} is a list of examples"
            continue
        for index, example in enumerate(examples):
            try:
                matches = _matches(rule, example)
            except _Unreadable as error:
                yield key, index, f"{key} example {example!r}: {error}"
                continue
            if matches is not wanted:
                does = "matches" if matches else "does not match"
                yield key, index, f"{key} example {example!r} {does} this rule"


def _matches(rule: Rule, example: Any) -> bool:
    if rule.kind is Kind.TOOL:
        if not isinstance(example, dict):
            raise _Unreadable("expected an object of arguments")
        return arguments_match(rule.args, example)
    if rule.kind is Kind.COMMAND:
        return _command_matches(rule, _command_text(example))
    if not isinstance(example, str):
        raise _Unreadable("expected a text")
    if rule.kind is Kind.PATH:
        return path_fits(rule.path, example)
    if rule.kind is Kind.MCP:
        server, slash, tool = example.partition("/")
        if not slash:
            raise _Unreadable("expected server/tool")
        return mcp_matches(rule, McpName(server=server, tool=tool, pinned=True))
    return _host_matches(rule, example)


def _command_text(example: Any) -> str:
    if isinstance(example, str):
        return example
    if isinstance(example, list) and example and all(isinstance(word, str) for word in example):
        return " ".join(quote(word) for word in example)
    raise _Unreadable("expected a command's text or its list of words")


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


def _host_matches(rule: Rule, example: str) -> bool:
    """With a port (`host:8443`) the rule's ports count too."""
    place = host_and_port(example)
    if place is not None:
        return place[1] in rule.ports and host_matches(rule.host, place[0])
    try:
        return host_matches(rule.host, normal_host(example))
    except ValueError as error:
        raise _Unreadable(str(error)) from None
