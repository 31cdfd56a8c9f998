"""Inside a module host: loads one module or package, then answers calls and predicates, one at a time.

A thread reads the wire, so that a tool can call other tools while it runs; everything of the module itself runs on the
main thread, async tools in one event loop that lives as long as the host. Ends when the wire does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from golem_forge.agent.modules import exports, protocol
from golem_forge.core.errors import ToolFailed
from golem_forge.core.json import NotJson, as_json
from golem_forge.core.lazy_module import LazyModule
from golem_forge.core.results import ToolResult, convert_call_result, to_mcp
from golem_forge.tools.call_signature import predicate_wants_context
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from asyncio import Runner
    from concurrent import futures
    from concurrent.futures import Future

    from golem_forge.sandbox.sandbox import Sandbox
else:
    futures = LazyModule("concurrent.futures")


class HostLoop:
    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._writing = threading.Lock()
        self._orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self._tools: dict[str, Tool] = {}
        self._zones: Mapping[str, Any] = {}
        self._sandbox: Sandbox | None = None
        self._runner: Runner | None = None

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        work: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]
        work = {"load": self._load, "call": self._call, "predicate": self._predicate, "plan": self._plan}
        while True:
            order = self._orders.get()
            try:
                answer = work[order["op"]](order)
            except BaseException as error:  # a module may raise anything, SystemExit included
                answer = {"error": protocol.error_to_wire(error)}
            sys.stdout.flush()
            sys.stderr.flush()
            self._answer(order["id"], answer)

    def _read(self) -> None:
        with os.fdopen(os.dup(self._wire), "rb") as lines:
            for line in lines:
                said = json.loads(line)
                if "reply" in said:
                    self._asked.pop(said["reply"]).set_result(said["outcome"])
                else:
                    self._orders.put(said)
        os._exit(0)  # Forge is gone, or wants no more

    def ask(self, number: int, name: str, args: Any) -> Future[dict[str, Any]]:
        """Asks Forge for a call that belongs to the call `number`."""
        key = next(self._numbers)
        future = self._asked[key] = futures.Future()
        self.send({"id": number, "call": key, "name": name, "args": args})
        return future

    def send(self, message: Mapping[str, Any]) -> None:
        data = memoryview(protocol.encode_message(message))
        if len(data) > protocol.MAX_MESSAGE_BYTES:
            raise ToolFailed(
                f"more than {protocol.MAX_MESSAGE_BYTES >> 20} MiB; write it to a file and return its path"
            )
        with self._writing:
            while data:
                data = data[os.write(self._wire, data) :]

    def _answer(self, number: int, answer: Mapping[str, Any]) -> None:
        try:
            self.send({"id": number, "cpu": time.process_time(), **answer})
        except Exception as error:  # what cannot be written down at all
            self.send({"id": number, "cpu": time.process_time(), "error": protocol.error_to_wire(error)})

    # The orders

    def _load(self, order: dict[str, Any]) -> dict[str, Any]:
        self._zones = order["zones"]
        file = order.get("file", "")
        exports.refuse_below(order["refused"], order["roots"])
        try:
            if file:
                sys.path[:0] = order["folders"]
                module = exports.import_file(file, exports.module_name(file))
                self._tools = exports.exported_tools(module, order["names"], order["shown"])
                self._tools |= exports.exported_offers(module, order["offers"], order["shown"])
            else:
                found = exports.import_attribute(order["import"])
                self._tools = exports.toolset_tools(found, order["names"], order["shown"], order["config"])
            return {"value": [exports.describe_tool(export, tool) for export, tool in self._tools.items()]}
        except exports.ExportError as error:
            return {"refused": str(error), "complete": True, "problems": error.problems}
        except BaseException as error:
            return {"refused": exports.load_failure(error, file)}

    def _call(self, order: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools[order["export"]]
        values = tool.validate(order["args"]).values
        if tool.planner is not None:
            value = self._run_planned(tool, values, order)
        else:
            value = self._finished(tool.invoke(values, self._context(order) if tool.context_name else None))
        if tool.output is not None:
            value = tool.output.check(tool.name, value)
        value = convert_call_result(value)
        try:
            if isinstance(value, ToolResult):
                return {"result": as_json(to_mcp(value))}
            dump = getattr(tool.output, "dump", None)
            return {"value": as_json(_require_json(value if dump is None else dump(value)))}
        except NotJson as error:
            text = f"tool {tool.name!r} returned an invalid value at $: {error}"
            raise ToolFailed(text, code="OUTPUT_INVALID") from None

    def _plan(self, order: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools[order["export"]]
        plan = self._planned(tool, tool.validate(order["args"]).values, self._context(order, _no_calls))
        try:
            return {"value": protocol.plan_to_wire(plan)}
        finally:
            plan.release()

    def _planned(self, tool: Tool, values: dict[str, Any], ctx: ToolContext) -> Plan:
        assert tool.planner is not None
        plan = self._finished(tool.planner(values, ctx))
        if not isinstance(plan, Plan):
            raise ToolFailed(f"the planner of '{tool.name}' gave {type(plan).__name__}, not a Plan")
        return plan

    def _run_planned(self, tool: Tool, values: dict[str, Any], order: dict[str, Any]) -> Any:
        """Plans anew and runs that, if it is what was judged: a host keeps nothing from one order to the next."""
        plan = self._planned(tool, values, self._context(order))
        try:
            if protocol.plan_to_wire(plan) != order["planned"]:
                raise ToolFailed("what this call would do changed since it was judged; call it again", code="STALE")
            return self._finished(plan.run())
        finally:
            plan.release()

    def _predicate(self, order: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools[order["export"]]
        values = tool.validate(order["args"]).values
        predicate: Any = tool.needs_approval
        arguments = (values, self._context(order, _no_calls)) if predicate_wants_context(predicate) else (values,)
        answer = self._finished(predicate(*arguments))
        if isinstance(answer, (bool, str)):
            return {"value": answer}
        return {"error": {"kind": f"answered {type(answer).__name__}", "message": ""}}

    def _finished(self, value: Any) -> Any:
        import inspect

        if not inspect.isawaitable(value):
            return value
        import asyncio

        async def awaited() -> Any:
            return await value

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(awaited())

    # What a tool is given

    def _context(self, order: dict[str, Any], ask: protocol.CallTool | None = None) -> protocol.HostContext:
        if self._sandbox is None:
            self._sandbox = protocol.sandbox_from_wire(self._zones)
        running = _RunningCall(self, order["id"])
        return protocol.HostContext(order["context"], self._sandbox, ask or running.ask, running.progress)


class _RunningCall:
    """What a tool can tell Forge while its call runs."""

    def __init__(self, loop: HostLoop, number: int) -> None:
        self._loop = loop
        self._number = number

    def ask(self, name: str, args: dict[str, Any]) -> Future[dict[str, Any]]:
        if not isinstance(args, dict):
            raise TypeError(f"a tool is called with a mapping of arguments, not {type(args).__name__}")
        return self._loop.ask(self._number, name, as_json(args))

    def progress(self, progress: float, total: float | None, message: str) -> None:
        numbers = [float(progress), None if total is None else float(total), str(message)]
        self._loop.send({"id": self._number, "progress": numbers})


def _no_calls(name: str, args: dict[str, Any]) -> Future[dict[str, Any]]:
    raise RuntimeError("an approval check cannot call other tools")


def _require_json(value: Any) -> Any:
    """The value, unless something in it would only be written down as its `str`. What the standard library writes down
    holds nothing of that kind, and most values are so; pydantic, which is slow to load, knows further types."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        json.dumps(value)
        return value
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        if _holds_iterator(value):  # pydantic would read it, to an end that it may not have
            raise NotJson("an iterator; return a list")
        to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise NotJson(str(error).splitlines()[0]) from None
    return value


def _holds_iterator(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_iterator, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_iterator, value))
    return isinstance(value, (Iterator, AsyncIterator))
