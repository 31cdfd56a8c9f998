"""resolve and validate: does this tool exist for this caller, and do the arguments fit it?

`resolve` takes the call and gives the Tool and its raw arguments. The execution mode is enforced here, not by hiding: a
model that names a `manual` tool gets `tool_not_found`. A tool may hand the call over to another before anything is
judged. Refuses with `tool_not_found`.

`validate` takes raw arguments and gives coerced ones. Refuses with `input_invalid`. Before the schema is asked, it
refuses what no schema can be trusted with: NaN and infinities, lone surrogates, nesting beyond 64 levels, more bytes
than the tool takes.

`ResolveStage` does both for a call. A tool may be made from files that an earlier call of its batch is about to write:
then it waits for that call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Status, VerdictSource
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.core.signals import InterruptSignal
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.gate import Gate, OpenCalls
from golem_forge.orchestrator.limits import CallAborted, wait_with_signal
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool, may_call
from golem_forge.tools.validation import InputInvalid, ToolDefinitionError

HandoverPolicy = Callable[[Tool, dict[str, Any]], tuple[VerdictSource, ...]]
"""Returns the policy verdicts on a tool that hands its call over; raises ForgeError if it may not be called at all."""

_MAX_HANDOVERS: Final = 3
_MAX_JSON_CHARS: Final = 16 << 20

Resolved = tuple[Tool, dict[str, Any], tuple[VerdictSource, ...]]
"""The tool, its raw arguments, and the verdicts of the tools that handed the call over; those can only make it
stricter.
"""


class ResolveStage:
    def __init__(self, catalog: Catalog, policy_of: HandoverPolicy, gate: Gate, open_calls: OpenCalls) -> None:
        self._catalog = catalog
        self._policy_of = policy_of
        self._gate = gate
        self._open_calls = open_calls
        self.on_unknown_tool: Callable[[str, Caller], Coroutine[Any, Any, bool]] = _never_found
        """Waits for the server that an unknown name belongs to. True: the catalog may have changed, look the name up
        again. Raises ForgeError where the server cannot be had."""
        self.refresh_tools: Callable[[], Coroutine[Any, Any, None]] = _no_refresh
        """Puts tools that changed on disk in force, when a call of a batch may have changed them for one after it."""

    async def resolve(self, state: CallState) -> None:
        """Gives the call its tool and its arguments."""
        try:
            if state.place.alone:
                self.look_up(state)
            else:
                await self._look_up_in_order(state)
        except ToolNotFound:
            name, caller = state.call.name, state.call.caller
            if not isinstance(name, str):
                raise
            if not await self._open_calls.wait(state, self.on_unknown_tool(name, caller)):
                raise
            self.look_up(state)

    def look_up(self, state: CallState) -> None:
        tool, args, handed = resolve(state.call, self._catalog, self._policy_of)
        state.tool = tool
        if handed:
            state.handover_sources = handed
        if tool.made_from:
            state.found_at = self._gate.generation
        if state.edited:  # what a person wrote on the card stays, whatever the call said
            args = state.arguments.given or state.arguments.plain
        state.arguments = validate(tool, args)

    def found_another_tool(self, state: CallState) -> bool:
        """Looks up again a tool that is made from files, after a writer has passed. True: it has another definition
        now, and the call is to be judged anew.
        """
        tool, generation = state.tool, self._gate.generation
        if not tool.made_from or state.found_at == generation:
            return False
        now, _, handed = resolve(state.call, self._catalog, self._policy_of)
        state.found_at = generation
        if now.definition_digest == tool.definition_digest:
            return False
        state.tool, state.handover_sources = now, handed
        state.arguments = validate(now, state.arguments.given or state.arguments.plain)
        return True

    async def wait_for_tool(self, name: str, caller: Caller, signal: InterruptSignal) -> None:
        try:
            await wait_with_signal(self.on_unknown_tool(name, caller), signal)
        except CallAborted:
            text = f"'{name[:200]}' was interrupted before it ran."
            raise ForgeError(text, status=Status.INTERRUPTED) from None

    async def _look_up_in_order(self, state: CallState) -> None:
        """A tool may be made from what a call before it in the batch is about to write: it is looked up after that."""
        place = state.place
        first = place.is_next
        try:
            self.look_up(state)
        except ForgeError as error:
            if first or state.call.problem or not _may_exist_later(state, error) or not place.writer_before():
                raise
            place.wait_for_undeclared()
            await self._open_calls.wait(state, place.wait_turn(False))
        else:
            if first or not state.tool.made_from:
                return
            place.wait_for_undeclared()
            waited = await self._open_calls.wait(state, place.wait_for_writers(state))
            if not waited and state.found_at == self._gate.generation:
                return
        await wait_with_signal(self.refresh_tools(), state.waiting)
        self.look_up(state)


def _may_exist_later(state: CallState, error: ForgeError) -> bool:
    """Whether a lookup that failed may succeed once the calls before it have ended: there was no such tool, or the
    arguments do not fit the files it is made from."""
    if state.tool:
        return bool(state.tool.made_from)
    return error.status is Status.TOOL_NOT_FOUND


async def _never_found(name: str, caller: Caller) -> bool:
    return False


async def _no_refresh() -> None:
    return None


def resolve(call: ToolCall, catalog: Catalog, policy_of: HandoverPolicy) -> Resolved:
    if call.problem:
        raise InputInvalid(call.problem)
    if not isinstance(call.name, str):
        raise ToolNotFound(str(call.name)[:200])
    tool = catalog.resolve(call.name, call.caller)
    args = {} if call.args is None else call.args
    if isinstance(args, (str, bytes)):
        args = _parse_arguments(tool.name, args)
    if not isinstance(args, dict):
        raise InputInvalid(f"{tool.name}: arguments must be an object, got {type(args).__name__}")
    sources: tuple[VerdictSource, ...] = ()
    for _ in range(_MAX_HANDOVERS):
        handed = None if tool.redirect is None else tool.redirect(args)
        if handed is None:
            return tool, args, sources
        # A rule names an argument by its own name; an alias must not get past it.
        aliases = tool.argument_aliases or {}
        try:
            sources += policy_of(tool, {aliases.get(name, name): value for name, value in args.items()})
        except ForgeError as error:
            if error.status is not Status.POLICY_DENIED:
                raise
            return tool, args, sources  # what may not be called hands nothing over: it is judged, and refused, as it is
        target, args = handed
        if not isinstance(target, Tool):
            tool = catalog.resolve(target, call.caller)
        elif may_call(call.caller, target.mode):
            tool = target
        else:
            raise ToolNotFound(target.name)
    raise InputInvalid(f"{call.name}: handed on more than {_MAX_HANDOVERS} times")


def _parse_arguments(tool: str, text: str | bytes) -> Any:
    """Parses JSON text. Refuses duplicate keys, NaN and broken text, with their position."""
    if len(text) > _MAX_JSON_CHARS:
        raise InputInvalid(f"{tool}: arguments are {len(text)} characters of JSON; the limit is {_MAX_JSON_CHARS}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputInvalid(f"{tool}: duplicate key {twice!r} in the arguments")
        return found

    def refuse(constant: str) -> Any:
        raise InputInvalid(f"{tool}: {constant} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InputInvalid(f"{tool}: arguments are not valid JSON: {error.msg} at position {error.pos}") from None
    except RecursionError:
        raise InputInvalid(f"{tool}: arguments are nested too deeply") from None
    except ValueError as error:
        raise InputInvalid(f"{tool}: arguments are not valid JSON: {type(error).__name__}") from None


MAX_ARGUMENT_DEPTH: Final = 64
_SHORT_TEXT_CHARS: Final = 256
_FEW_ARGUMENTS: Final = 64
_SMALL_INTEGER: Final = 1 << 63


def validate(tool: Tool, args: dict[str, Any]) -> Arguments:
    try:
        # Few, short and scalar: most calls. Names need no look where unknown ones are refused by name.
        names_are_known = tool.argument_names is not None
        plain = len(args) <= _FEW_ARGUMENTS and all(
            _is_plain(value) and (names_are_known or _is_short_text(name)) for name, value in args.items()
        )
        if not plain:
            size = _measure(tool.name, args, "", 1)
            if size > tool.max_argument_bytes:
                raise InputInvalid(f"{tool.name}: arguments are {size} bytes; the limit is {tool.max_argument_bytes}")
            args = copy_json(args)  # what is judged must be what runs, whatever the caller does to its own objects
        return tool.validate(args)
    except ToolDefinitionError as error:
        raise InputInvalid(f"{tool.name} cannot be called: {error}") from None


def _is_short_text(value: Any) -> bool:
    return type(value) is str and len(value) < _SHORT_TEXT_CHARS and value.isascii()


def _is_plain(value: Any) -> bool:
    kind = type(value)
    small = kind is int and -_SMALL_INTEGER < value < _SMALL_INTEGER
    return small or kind is bool or value is None or _is_short_text(value)


def _measure(tool: str, value: Any, path: str, depth: int) -> int:
    """Returns the rough size of a value in bytes of JSON; refuses values that JSON or a hash cannot hold."""
    if depth > MAX_ARGUMENT_DEPTH:
        raise InputInvalid(f"{tool}: {path[:100]}: nested more than {MAX_ARGUMENT_DEPTH} levels deep")
    if isinstance(value, str):
        try:
            return len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise InputInvalid(f"{tool}: {path[:100]}: contains a lone surrogate, which is not text") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise InputInvalid(f"{tool}: {path[:100]}: {value} is not JSON")
    if isinstance(value, dict):
        size = 2
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputInvalid(f"{tool}: {path[:100]}: keys must be strings, got {type(key).__name__}")
            size += _measure(tool, key, path, depth) + 4
            size += _measure(tool, item, f"{path}.{key}" if path else key, depth + 1)
        return size
    if isinstance(value, (list, tuple)):
        return 2 + sum(1 + _measure(tool, item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4096:
        raise InputInvalid(f"{tool}: {path[:100]}: a number of {value.bit_length()} bits is too large")
    return 8
