"""XmlReader: a model's streamed text, parted into what may be shown and the calls in it.

`feed` takes a piece of any size and gives the text that can be shown now; `finish` gives everything: the text around
the calls and the calls, in order. Never raises: what cannot be a call is a RequestedCall with a `problem`. A possible
`<tool>` at the end of a piece is held back until it is clear what it is; in a fenced code block it is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.ids import new_id
from golem_forge.workers.messages import RequestedCall
from golem_forge.workers.xml_calls.elements import TOOL_NAME, CallScanner, Element, shortened
from golem_forge.workers.xml_calls.fences import FenceTracker
from golem_forge.workers.xml_calls.typed import Mismatch, arguments_of

_TAG: Final = "<tool>"
_TAG_OR_PREFIX: Final = re.compile(r"<tool>|<(?:t(?:o(?:ol?)?)?)?\Z")
_PARTS: Final = ("server_name", TOOL_NAME, "arguments")
LOCAL: Final = "local"
BETWEEN: Final = "__"
"""Stands between server and tool in the name of an MCP tool, and in no other name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    text: str
    """Everything but the calls."""
    calls: tuple[RequestedCall, ...]
    rest: str
    """The part of `text` that no `feed` has given yet."""
    written: str
    """The whole as the model wrote it; a call over the size limit only by its beginning."""


class XmlReader:
    def __init__(
        self,
        schemas: Mapping[str, Mapping[str, Any]],
        elsewhere: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> None:
        """`schemas`: input schema by tool name; `elsewhere`: of a name that is not among them, {} for none."""
        self._schemas = schemas
        self._elsewhere = elsewhere or (lambda name: {})
        self._fences = FenceTracker()
        self._call: CallScanner | None = None
        self._held = ""
        self._text: list[str] = []
        self._written: list[str] = []
        self._calls: list[RequestedCall] = []

    def feed(self, chunk: str) -> str:
        shown = len(self._text)
        data = self._held + chunk
        at = 0
        while at < len(data):
            after = self._call_from(self._call, data, at) if self._call else self._text_from(data, at)
            if after == at:
                break
            at = after
        self._held = data[at:]
        return "".join(self._text[shown:])

    def finish(self) -> Read:
        rest = ""
        if self._call is not None:
            self._call.close(self._held)
            self._end_call(self._call)
        else:
            rest = self._held
            self._show(rest)
        self._held = ""
        return Read(text="".join(self._text), calls=tuple(self._calls), rest=rest, written="".join(self._written))

    def _text_from(self, data: str, at: int) -> int:
        candidate = _TAG_OR_PREFIX.search(data, at)
        start = candidate.start() if candidate else len(data)
        if start > at:
            self._show(data[at:start])
        elif self._fences.quoted:
            self._show("<")
            start += 1
        elif data.startswith(_TAG, at):
            self._call = CallScanner()
            start += len(_TAG)
        return start

    def _show(self, text: str) -> None:
        self._fences.advance(text)
        self._text.append(text)
        self._written.append(text)

    def _call_from(self, call: CallScanner, data: str, at: int) -> int:
        after = call.feed(data, at)
        if call.done:
            self._end_call(call)
        return after

    def _end_call(self, call: CallScanner) -> None:
        self._call = None
        self._fences.interrupt_line()
        self._written.append(call.written())
        self._calls.append(self._requested(call))

    def _requested(self, call: CallScanner) -> RequestedCall:
        parts = {child.name: child for child in reversed(call.root.children)}
        server = parts["server_name"].text() if "server_name" in parts else LOCAL
        name = parts[TOOL_NAME].text() if TOOL_NAME in parts else ""
        problem = call.problem or _shape_problem(call.root, name)
        if problem:
            return RequestedCall(id=new_id(), name=shortened(name), args={}, problem=problem)
        if server != LOCAL and not name.startswith(f"{server}{BETWEEN}"):
            name = f"{server}{BETWEEN}{name}"  # a server's tool is never taken for a local one of the same name
        args: dict[str, Any] = {}
        try:
            args = arguments_of(parts.get("arguments"), self._schema(name))
        except Mismatch as mismatch:
            problem = shortened(f"{name}: {mismatch}")
            args = _as_written(parts["arguments"])
        return RequestedCall(
            id=new_id(), name=name, args=args, problem=problem, server="" if server == LOCAL else server
        )

    def _schema(self, name: str) -> Mapping[str, Any]:
        return self._schemas[name] if name in self._schemas else self._elsewhere(name)


def _as_written(arguments: Element) -> dict[str, Any]:
    """Of a call that will not run: what the log should show, without types."""
    try:
        return arguments_of(arguments, {})
    except Mismatch:
        return {}


def _shape_problem(root: Element, name: str) -> str:
    """What makes well-formed XML no call."""
    names = [child.name for child in root.children]
    if not name:
        return "tool call without tool_name"
    for part in names:
        if part not in _PARTS:
            return shortened(f"<{part}> in a tool call; arguments go inside <arguments>")
        if names.count(part) > 1:
            return f"tool call with more than one {part}"
    if not root.is_blank():
        return "text between the elements of a tool call"
    nested = next((child for child in root.children[:3] if child.name != "arguments" and child.children), None)
    return f"elements inside {nested.name}" if nested else ""
