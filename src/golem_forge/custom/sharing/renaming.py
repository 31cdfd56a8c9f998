"""Renaming: the one change an import may make to a tool, the value of `name` in its `tool.yaml`.

Takes the manifest's bytes; gives them with another name and every other byte as it was: comments, order and line
endings stay. Refuses (SharingError) if the result would not read as the same tool under the new name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.manifest import MANIFEST
from golem_forge.custom.manifest.nodes import Fault, Node, Scalar
from golem_forge.custom.manifest.yaml_nodes import yaml_nodes
from golem_forge.custom.sharing.refusal import SharingError

_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Plain, some YAML readers would take these for something else than text."""


def name_in(data: bytes) -> str:
    """The name a manifest gives itself, valid or not; empty if it has none."""
    try:
        found = yaml_nodes(data).nodes.get("name")
    except Fault:  # `read_manifest` says what is wrong
        return ""
    return found.text if isinstance(found, Scalar) else ""


def renamed(data: bytes, name: str) -> bytes:
    """The present name may be one that no tool can have: that is what renaming is for."""
    try:
        before = yaml_nodes(data).nodes
        text = data.decode("utf-8")
        start, end = _place(text)
        made = (text[:start] + plain_or_quoted(name) + text[end:]).encode()
        after = yaml_nodes(made).nodes
    except Fault as fault:
        raise Unusable(fault.code, f"{MANIFEST}: {fault}", line=fault.line) from None
    if name_in(made) != name or _rest(after) != _rest(before):
        raise SharingError(f"{MANIFEST}: put `name` on a line of its own, so that it can be changed.")
    return made


def _rest(nodes: dict[str, Node]) -> dict[str, Node]:
    return {key: node for key, node in nodes.items() if key != "name"}


def plain_or_quoted(name: str) -> str:
    return f'"{name}"' if name.lower() in _WORDS else name


def _place(text: str) -> tuple[int, int]:
    """Where the value of the top-level `name` stands."""
    from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

    depth, is_key = 0, True
    events = _events(text)
    for event in events:
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            is_key = True
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1
            is_key = True
        elif isinstance(event, ScalarEvent) and depth == 1:
            if is_key and event.value == "name":
                value = next(events)
                return value.start_mark.index, value.end_mark.index
            is_key = not is_key
    raise SharingError(f"{MANIFEST}: has no `name`.")


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)
