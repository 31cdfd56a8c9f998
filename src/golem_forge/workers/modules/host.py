"""ModuleHost: one child process inside the walls that has imported one module. It does one thing at a time.

`ModuleHost.start` gives a host that has loaded, or raises: ModuleRefused with the module's own failure, ToolFailed
or SandboxError where no host can be had. After a cancelled call, a crash or a broken protocol its whole process tree is
gone and it is not `alive`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.core.finished import Finished
from golem_forge.sandbox.processes.ending import Ending
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.walled_child import WalledChild
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.tools.context import ToolContext
from golem_forge.tools.mcp_results import from_mcp
from golem_forge.tools.results import to_result
from golem_forge.workers.modules.describing import Described
from golem_forge.workers.modules.wire import LONGEST, encoded, failed, outcome_to_wire

LOAD_WITHIN_S: Final = 20.0
_LAST_BREATH_S: Final = 0.3
_MOST_NESTED: Final = 64
"""Tools that one call may have under way at once; it waits before it can ask for more."""
_MOST_OUTPUT_SHOWN: Final = 2000
_LONGEST_ASIDE: Final = 64 << 10
"""Bytes of what a host says besides its answer and the calls it asks for. Reading it holds up everybody else."""
_SHARE_OF_LIMITS: Final = 2
"""A host whose calls used up this part of its CPU time or output is not given another: limits are meant per call."""


class ModuleRefused(Exception):
    """The module could not be loaded; the text says why, with the line."""

    def __init__(self, text: str, *, complete: bool = False) -> None:
        super().__init__(text)
        self.complete = complete
        """The text already names the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Everything a host needs to know to load one module or package."""

    order: Mapping[str, Any]
    """The `load` message but for its id."""
    job: Callable[[], Job]
    """The process to start, with the environment as it is resolved right then."""


class ModuleHost:
    def __init__(self, walls: Walls, walled: WalledChild, job: Job, wire: socket.socket) -> None:
        self._walls = walls
        self._walled = walled
        self._job = job
        self._wire = wire
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._number = 0
        self._cpu = 0.0
        self.served = 0
        """How often it was given to a call."""
        self.waiting = 0
        """Calls of other tools that its own call waits for."""
        self.tools: tuple[Described, ...] = ()

    @classmethod
    async def start(cls, walls: Walls, loading: Loading) -> ModuleHost:
        ours, theirs = socket.socketpair()
        try:
            job = loading.job()
            walled = await walls.start(replace(job, stdin=theirs.fileno()))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        host = cls(walls, walled, job, ours)
        try:
            await host._load(loading.order)
        except BaseException:
            await host.end()
            raise
        return host

    @property
    def pid(self) -> int:
        return self._walled.child.pid

    @property
    def alive(self) -> bool:
        return self._walled.child.ending is None and self._writer is not None

    @property
    def usable(self) -> bool:
        """Whether it may serve another call: it lives, has enough left of its limits, and its walls are the right
        ones still."""
        child = self._walled.child
        limits = self._job.limits
        if not self.alive:
            return False
        child.catch_up()  # what its last call printed may come after the answer
        if limits is not None and (
            self._cpu * _SHARE_OF_LIMITS > limits.cpu_s or child.output.size * _SHARE_OF_LIMITS > limits.output
        ):
            return False
        return self._walls.still_hold(self._walled, self._job)

    async def call(self, export: str, args: Mapping[str, Any], ctx: ToolContext) -> Any:
        """The tool's value, its ToolResult, or what the walls refused it. Raises what became of it otherwise."""
        try:
            self._walled.exchange()
            answer = await self._ask({"op": "call", "export": export, "args": args, "context": _context(ctx)}, ctx)
            self._walled.exchange()
        except ToolFailed as error:
            found = () if error.code else self._walled.refusals_in(error.message)
            if not found:
                raise
            text = f"{error.message}\n{blocked_line(found)}"
            return Finished(result=to_result(text), status=error.status, error=text, denials=found)
        if "result" in answer:
            return from_mcp(self._cleaned(answer["result"]))
        return self._cleaned(answer.get("value"))

    async def predicate(self, export: str, args: Mapping[str, Any], ctx: ToolContext) -> bool | str:
        """What the tool's own `needs_approval` says."""
        order = {"op": "predicate", "export": export, "args": args, "context": _context(ctx)}
        answer = (await self._ask(order, ctx)).get("value")
        if not isinstance(answer, (bool, str)):
            raise ToolFailed("the module host gave no verdict")
        return answer

    async def end(self) -> Ending:
        """The whole process tree is gone afterwards, within a second."""
        if self._writer is None:
            self._wire.close()
        else:
            self._writer.transport.abort()  # what was not sent yet is nobody's any more
            self._writer = None
        ending = await self._walled.child.end()
        self._walled.tell_unread()
        return ending

    async def _load(self, order: Mapping[str, Any]) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._wire, limit=LONGEST)
        try:
            async with asyncio.timeout(LOAD_WITHIN_S):
                answer = await self._ask({"op": "load", **order}, ToolContext())
        except TimeoutError:
            raise ModuleRefused(f"it did not finish importing within {LOAD_WITHIN_S:g} s") from None
        except ToolFailed as error:
            raise ModuleRefused(error.message) from None
        if "refused" in answer:
            text = self._walls.cleaned(str(answer["refused"]))
            raise ModuleRefused(text, complete=answer.get("complete") is True)
        try:
            self.tools = tuple(Described.read(each) for each in answer["value"])
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise ModuleRefused("its host described the tools in a way that cannot be read") from None
        if order["names"] and [tool.export for tool in self.tools] != order["names"]:
            raise ModuleRefused("its host described other tools than those that were named")

    async def _ask(self, order: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        self._number += 1
        nested: set[asyncio.Task[None]] = set()
        try:
            await self._send({"id": self._number, **order})
            while True:
                said, size = await self._hear()
                ours = said.get("id") == self._number  # else of a call that ended
                if not ours or "progress" in said:
                    if size > _LONGEST_ASIDE:
                        raise ValueError("too long for an aside")
                    if ours:
                        self._report(said["progress"], ctx)
                    await asyncio.sleep(0)  # lines that wait already never would: a flood must not shut others out
                elif "call" in said:
                    if order["op"] != "call":
                        raise ValueError("only a running tool calls others, no check and no import")
                    name, args, key = str(said["name"]), dict(said["args"]), int(said["call"])
                    if len(nested) >= _MOST_NESTED:
                        await asyncio.wait(nested, return_when=asyncio.FIRST_COMPLETED)
                    task = asyncio.create_task(self._nested(name, args, key, ctx))
                    nested.add(task)
                    task.add_done_callback(nested.discard)
                else:
                    self._cpu = float(said.get("cpu", 0.0))
                    if "error" in said:
                        raise self._failure(said["error"])
                    return said
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            await self.end()
            raise ToolFailed("the module host said something that is no answer; it was ended") from None
        finally:
            for task in tuple(nested):
                task.cancel()

    async def _nested(self, name: str, args: dict[str, Any], key: int, ctx: ToolContext) -> None:
        self.waiting += 1
        try:
            outcome = await ctx.call(name, args)
        finally:
            self.waiting -= 1
        with contextlib.suppress(ToolFailed):
            await self._send({"reply": key, "outcome": outcome_to_wire(outcome)})

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is None:
            raise await self._died()
        try:
            self._writer.write(encoded(message))
            await self._writer.drain()
        except OSError:
            raise await self._died() from None

    async def _hear(self) -> tuple[dict[str, Any], int]:
        """The next message and its length. ValueError, RecursionError: it is none."""
        assert self._reader is not None
        try:
            line = await self._reader.readline()
        except OSError:
            line = b""
        if not line:
            raise await self._died()
        said: dict[str, Any] = json.loads(line)
        return said, len(line)

    async def _died(self) -> ToolFailed:
        """The host is gone, in the middle of something."""
        ending = await self._walled.child.wait(_LAST_BREATH_S)  # its own end, which says more than one given to it
        ending = ending or await self.end()
        how = (
            ending.code
            or (f"signal {ending.signal}" if ending.signal else "")
            or (f"exit code {ending.exit_code}" if ending.exit_code is not None else "no exit code")
        )
        await self.end()
        text = self._walled.child.output.read().decode("utf-8", "replace")[-_MOST_OUTPUT_SHOWN:].strip()
        return ToolFailed(
            f"the process of this module ended ({how})" + (f":\n{text}" if text else ""), code="MODULE_HOST_ENDED"
        )

    def _report(self, said: Any, ctx: ToolContext) -> None:
        done, total, message = said
        ctx.report_progress(float(done), None if total is None else float(total), self._walls.cleaned(str(message)))

    def _failure(self, said: Mapping[str, Any]) -> ToolFailed | Exception:
        return failed({**said, "message": self._walls.cleaned(str(said.get("message", "")))})

    def _cleaned(self, value: Any) -> Any:
        """Values of a tool name zones by their addresses, like the output of every other child."""
        if isinstance(value, str):
            return self._walls.cleaned(value)
        if isinstance(value, dict):
            return {self._walls.cleaned(key): self._cleaned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return value


def _context(ctx: ToolContext) -> dict[str, str]:
    return {
        "call_id": ctx.call_id,
        "session_id": ctx.session_id,
        "worker": ctx.worker,
        "caller": ctx.caller.value,
    }
