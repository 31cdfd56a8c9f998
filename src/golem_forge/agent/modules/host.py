"""ModuleHost: one child process inside the walls that has imported one module. It does one thing at a time.

`ModuleHost.start` returns a host that has loaded, or raises: ModuleRefused with the module's own failure, ToolFailed or
SandboxError where no host can be started. After a cancelled call, a crash or a broken protocol its whole process tree
is gone and it is not `alive`.

HostPool holds the hosts of one module version in one session, at most four, started when they are needed. `use` gives
a host to one call and takes it back; more than four parallel calls wait. It raises ToolFailed for a call that could
only wait for itself: every host busy with a call that waits for another tool. Whatever ends a call from outside
(cancel, timeout) ends its host and no other.

`hosted_tool` is a Tool of Forge whose code is in a host: its schema is checked here, its function is called there. Its
source is `custom` and its definition is the digest of all the code it was loaded from, whatever the module says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from golem_forge.agent.modules.exports import COMPLETER, PREDICATE, ToolDescription
from golem_forge.agent.modules.protocol import (
    MAX_MESSAGE_BYTES,
    encode_message,
    error_from_wire,
    outcome_to_wire,
    plan_from_wire,
)
from golem_forge.core.calls import ToolCompletion
from golem_forge.core.errors import BlockedError, ForgeError, ToolFailed, error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.results import from_mcp
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import IDLE_SECONDS, IdleChildren, start_on_socket
from golem_forge.sandbox.process.monitor import REASONS, ExitStatus
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.inputs import Defaults, SchemaInput
from golem_forge.tools.results import to_result
from golem_forge.tools.tool import SourceKind, Tool

LOAD_WITHIN_S: Final = 60.0
"""Large libraries, a cold disk, a busy machine: what ends an import that hangs may be late."""
_EXIT_WAIT_S: Final = 0.3
_MOST_PROBLEMS: Final = 50
_MAX_NESTED: Final = 64
"""Tools that one call may have under way at once; it waits before it can ask for more."""
_MOST_OUTPUT_SHOWN: Final = 2000
_MAX_ASIDE_BYTES: Final = 64 << 10
"""Bytes of what a host says besides its answer and the calls it asks for. Reading it holds up everybody else."""
_SHARE_OF_LIMITS: Final = 2
"""A host whose calls used up this part of its CPU time or output is not given another: limits are meant per call."""


ConfigKeyProblem = tuple[tuple[str | int, ...], str]
"""A place in a block's `config`, and the problem there."""


class ModuleRefused(Exception):
    """The module could not be loaded; the text says why, with the line."""

    def __init__(self, text: str, *, complete: bool = False, problems: Sequence[ConfigKeyProblem] = ()) -> None:
        super().__init__(text)
        self.complete = complete
        """The text already names the module."""
        self.problems = tuple(problems)
        """Of single keys of the block's `config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStart:
    """Everything that a host needs to load one module or package."""

    digest: str
    """The digest of all code that will be loaded."""
    order: Mapping[str, Any]
    """The `load` message without its id."""
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
        self.waiting = 0
        """Calls of other tools that its own call waits for."""
        self.tools: tuple[ToolDescription, ...] = ()

    @classmethod
    async def start(cls, walls: Walls, loading: HostStart) -> ModuleHost:
        job = loading.job()
        walled, wire = await start_on_socket(walls, job)
        host = cls(walls, walled, job, wire)
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
        child.read_pending()  # what its last call printed may come after the answer
        if limits is not None and (
            self._cpu * _SHARE_OF_LIMITS > limits.cpu_s or child.output.size * _SHARE_OF_LIMITS > limits.output
        ):
            return False
        return self._walls.still_valid(self._walled, self._job)

    async def call(self, export: str, args: Mapping[str, Any], ctx: ToolContext, planned: Any = None) -> Any:
        """The tool's value, its ToolResult, or what the walls refused it. Raises what became of it otherwise.
        `planned`: what `plan` gave, where the tool plans."""
        order = {"op": "call", "export": export, "args": args, "context": _context_to_wire(ctx), "planned": planned}
        try:
            await self._walled.exchange()
            answer = await self._ask(order, ctx)
            await self._walled.exchange()
        except ToolFailed as error:
            found = () if error.code else self._walled.denials_in(error.message)
            if not found:
                raise
            text = f"{error.message}\n{blocked_line(found)}"
            return ToolCompletion(result=to_result(text), status=error.status, error=text, denials=found)
        if "result" in answer:
            return from_mcp(self._cleaned(answer["result"]))
        return self._cleaned(answer.get("value"))

    async def predicate(self, export: str, args: Mapping[str, Any], ctx: ToolContext) -> bool | str:
        """Returns the answer of the tool's own `needs_approval`."""
        order = {"op": "predicate", "export": export, "args": args, "context": _context_to_wire(ctx)}
        answer = (await self._ask(order, ctx)).get("value")
        if not isinstance(answer, (bool, str)):
            raise ToolFailed("the module host gave no verdict")
        return answer

    async def plan(self, export: str, args: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Returns the plan of the tool's planner for this call, as data."""
        order = {"op": "plan", "export": export, "args": args, "context": _context_to_wire(ctx)}
        answer = (await self._ask(order, ctx)).get("value")
        if not isinstance(answer, dict):
            raise ToolFailed("the module host gave no plan")
        return answer

    async def end(self) -> ExitStatus:
        """The whole process tree is gone afterwards, within a second."""
        if self._writer is None:
            self._wire.close()
        else:
            self._writer.transport.abort()  # what was not sent yet is nobody's any more
            self._writer = None
        ending = await self._walled.child.end()
        self._walled.report_unread()
        return ending

    async def _load(self, order: Mapping[str, Any]) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._wire, limit=MAX_MESSAGE_BYTES)
        try:
            async with asyncio.timeout(LOAD_WITHIN_S):
                answer = await self._ask({"op": "load", **order}, ToolContext())
        except TimeoutError:
            raise ModuleRefused(f"it did not finish importing within {LOAD_WITHIN_S:g} s") from None
        except ToolFailed as error:
            raise ModuleRefused(error.message) from None
        if "refused" in answer:
            text = self._walls.redact(str(answer["refused"]))
            raise ModuleRefused(text, complete=answer.get("complete") is True, problems=self._problems(answer))
        try:
            self.tools = tuple(ToolDescription.read(each) for each in answer["value"])
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise ModuleRefused("its host described the tools in a way that cannot be read") from None
        named = [*order["names"], *(name for listed in order.get("offers", {}).values() for name in listed)]
        if named and [tool.export for tool in self.tools if not tool.export.endswith(COMPLETER)] != named:
            raise ModuleRefused("its host described other tools than those that were named")

    def _problems(self, answer: Mapping[str, Any]) -> list[ConfigKeyProblem]:
        said = answer.get("problems")
        found: list[ConfigKeyProblem] = []
        for each in said[:_MOST_PROBLEMS] if isinstance(said, list) else ():
            place, text = each if isinstance(each, list) and len(each) == 2 else ([], "")
            if isinstance(place, list) and all(isinstance(part, (str, int)) for part in place):
                found.append((tuple(place), self._walls.redact(str(text)[:_MOST_OUTPUT_SHOWN])))
        return found

    async def _ask(self, order: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        self._number += 1
        nested: set[asyncio.Task[None]] = set()
        try:
            await self._send({"id": self._number, **order})
            while True:
                said, size = await self._hear()
                ours = said.get("id") == self._number  # else of a call that ended
                if not ours or "progress" in said:
                    if size > _MAX_ASIDE_BYTES:
                        raise ValueError("too long for an aside")
                    if ours:
                        done, total, message = said["progress"]
                        ctx.report_progress(
                            float(done), None if total is None else float(total), self._walls.redact(str(message))
                        )
                    await asyncio.sleep(0)  # lines that wait already never would: a flood must not shut others out
                elif "call" in said:
                    if order["op"] != "call":
                        raise ValueError(
                            "only a running tool can call other tools; an approval check or an import cannot"
                        )
                    name, args, key = str(said["name"]), dict(said["args"]), int(said["call"])
                    if len(nested) >= _MAX_NESTED:
                        await asyncio.wait(nested, return_when=asyncio.FIRST_COMPLETED)
                    task = asyncio.create_task(self._nested(name, args, key, ctx))
                    nested.add(task)
                    task.add_done_callback(nested.discard)
                else:
                    self._cpu = float(said.get("cpu", 0.0))
                    if "error" in said:
                        error = said["error"]
                        raise error_from_wire({**error, "message": self._walls.redact(str(error.get("message", "")))})
                    return said
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            await self.end()
            raise ToolFailed("the module host sent an invalid answer; Forge ended it") from None
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
            self._writer.write(encode_message(message))
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
        ending = await self._walled.child.wait(_EXIT_WAIT_S)  # its own end, which says more than one given to it
        ending = ending or await self.end()
        how = (
            REASONS.get(ending.code, ending.code)
            or (f"signal {ending.signal}" if ending.signal else "")
            or (f"exit code {ending.exit_code}" if ending.exit_code is not None else "no exit code")
        )
        await self.end()
        text = self._walled.child.output.read().decode("utf-8", "replace")[-_MOST_OUTPUT_SHOWN:].strip()
        return ToolFailed(
            f"the process of this module ended ({how})" + (f":\n{text}" if text else ""), code="MODULE_HOST_ENDED"
        )

    def _cleaned(self, value: Any) -> Any:
        """Values of a tool name zones by their addresses, like the output of every other child."""
        if isinstance(value, str):
            return self._walls.redact(value)
        if isinstance(value, dict):
            return {self._walls.redact(key): self._cleaned(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return value


def _context_to_wire(ctx: ToolContext) -> dict[str, str]:
    return {
        "call_id": ctx.call_id,
        "session_id": ctx.session_id,
        "worker": ctx.worker,
        "caller": ctx.caller.value,
    }


MAX_HOSTS: Final = 4


class HostPool:
    def __init__(self, walls: Walls, loading: HostStart) -> None:
        self._walls = walls
        self._loading = loading
        self._idle: IdleChildren[ModuleHost] = IdleChildren(IDLE_SECONDS)
        self._busy: set[ModuleHost] = set()
        self._slots = asyncio.Semaphore(MAX_HOSTS)
        self._retired = False

    @property
    def hosts(self) -> tuple[ModuleHost, ...]:
        return (*self._busy, *self._idle)

    async def load(self) -> tuple[ToolDescription, ...]:
        """Loads the module and returns its tools. The host that did so serves the first call."""
        async with self.use() as host:
            return host.tools

    @asynccontextmanager
    async def use(self) -> AsyncIterator[ModuleHost]:
        self._must_be_in_force()
        if len(self._busy) >= MAX_HOSTS and all(host.waiting for host in self._busy):
            raise ToolFailed(
                f"all {MAX_HOSTS} hosts of this module wait for tools they called; this call could never start"
            )
        async with self._slots:
            host = await self._host()
            try:
                self._must_be_in_force()
                self._busy.add(host)
                yield host
            except ForgeError:
                raise  # the tool's own failure, or a host that is gone already
            except BaseException:
                await asyncio.shield(host.end())
                raise
            finally:
                self._busy.discard(host)
                if self._retired:
                    await host.end()
                elif host.alive:
                    self._idle.add(host)

    def withdraw(self) -> None:
        """Refuses calls from now on, also approved ones: the approval was for this code."""
        self._retired = True

    async def retire(self) -> None:
        """Idle hosts end now, busy ones after their call."""
        self.withdraw()
        await self._idle.aclose()

    async def aclose(self) -> None:
        """Ends every host, also busy ones."""
        await self.retire()
        await asyncio.gather(*(host.end() for host in tuple(self._busy)))

    async def _host(self) -> ModuleHost:
        """The idle host that was used last, or a new one."""
        while self._idle:
            host = self._idle.take(tuple(self._idle)[-1])
            try:
                if host.usable:
                    return host
            except BaseException:  # rules that cannot be read, a zone that is gone
                await host.end()
                raise
            await host.end()
        return await ModuleHost.start(self._walls, self._loading)

    def _must_be_in_force(self) -> None:
        if self._retired:
            raise ToolFailed("the code of this tool was changed or withdrawn; look which tools there are now")


def hosted_tool(described: ToolDescription, pool: HostPool, digest: str) -> Tool:
    export = described.export

    async def execute(args: dict[str, Any], ctx: ToolContext) -> Any:
        async with pool.use() as host:
            return await host.call(export, args, ctx)

    async def predicate(args: dict[str, Any], ctx: ToolContext, /) -> bool | str:
        try:
            async with pool.use() as host:
                return await host.predicate(export, args, ctx)
        except (BlockedError, SandboxError):  # no host could be started: Forge's own words, not the module's
            raise
        except ForgeError as error:  # policy names a failed check by its exception's type: the module's own
            kind = error.message.partition(":")[0] if not error.code else error_name(error)
            raise type(kind[:80], (Exception,), {})(error.message) from None

    async def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        async with pool.use() as host:
            said = await host.plan(export, args, ctx)

        async def run() -> Any:
            async with pool.use() as host:
                return await host.call(export, args, ctx, said)

        try:
            return plan_from_wire(said, ctx.sandbox, run)
        except (KeyError, TypeError, ValueError):
            raise ToolFailed("the module host gave a plan that cannot be read") from None

    defaults = Defaults.BY_RUNNER if described.fills_defaults else Defaults.LEFT_OUT
    return Tool(
        **described.options,
        input_schema=lambda: SchemaInput(described.input_schema, defaults=defaults),
        execute=None if described.plans else execute,
        planner=plan if described.plans else None,
        takes_mapping=True,
        needs_approval=predicate if described.approval == PREDICATE else described.approval,
        source=SourceKind.CUSTOM,
        code_digest=f"{digest}:{export}",
    )
