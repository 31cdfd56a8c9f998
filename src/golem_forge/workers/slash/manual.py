"""The tools a person may run, in the order UIs list them: their own first, native and MCP ones last.

`SessionActions` runs them for a session without a worker (`open_session`); a runtime has `SlashCommands`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.ids import is_id
from golem_forge.events.envelope import Event
from golem_forge.orchestrator import Orchestrator
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.fields import derive_fields
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.workers.concealing import concealed

if TYPE_CHECKING:
    from golem_forge.events.questions import RuntimeUI
    from golem_forge.workers.session import Session

NO_COMMANDS: Final = (
    "This session has no worker, so it takes no slash commands; `manualToolInvoke` with toolName and args runs a tool."
)

_PLACES: Final = {SourceKind.CUSTOM: 0, SourceKind.NATIVE: 1, SourceKind.MCP: 2}


def manual_tools(catalog: Catalog) -> list[Tool]:
    return sorted(catalog.offered(Caller.HUMAN), key=lambda tool: _PLACES[tool.source])


def manual_tools_event(catalog: Catalog) -> dict[str, Any]:
    """The data of `manualToolsAvailable`; `source` lets a UI fold away what is not the person's own."""
    return {"tools": [described_tool(tool) for tool in manual_tools(catalog)]}


def described_tool(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "label": tool.label or tool.name,
        "description": tool.description,
        "fields": derive_fields(tool.input_schema),
        "source": tool.source.value,
    }
    if tool.category:
        described["category"] = tool.category
    return described


class SessionActions:
    """Hears `manualToolInvoke` and `interrupt` on a session's bus, and says that it knows no `command`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        bus = session.bus
        bus.conceal = partial(concealed, self)
        bus.commands = self
        self._forget = [bus.on("interrupt", self._interrupt)]
        self._paused = [bus.on("manualToolInvoke", self._invoke), bus.on("command", self._refuse)]

    def pause(self) -> None:
        while self._paused:
            self._paused.pop()()

    def resume(self) -> None:
        """Commands had a host, which is gone: they are refused no more, by nobody."""
        if not self._closed:
            self._paused = [self._session.bus.on("manualToolInvoke", self._invoke)]

    @property
    def path(self) -> Orchestrator:
        return self._session.path

    @property
    def ui(self) -> RuntimeUI:
        return self._session.tree.ui

    async def aclose(self) -> None:
        self._closed = True
        self.pause()
        for forget in self._forget:
            forget()
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _interrupt(self, event: Event) -> None:
        self._session.interrupt(str(event.wire.get("reason") or "interrupted"))

    def _refuse(self, event: Event) -> None:
        self._session.bus.emit("status", {"type": "error", "message": NO_COMMANDS, "code": "command"})

    def _invoke(self, event: Event) -> None:
        wire, known = event.wire, self._session.tree.call_ids
        call = ToolCall(str(wire["toolName"]), wire["args"], Caller.HUMAN)
        if is_id(wished := wire.get("requestId")):
            if wished in known:  # sent twice, run once
                return
            known.add(wished)
            call.id = wished
        task = asyncio.get_running_loop().create_task(self._run(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, call: ToolCall) -> None:
        await self._session.look(call.name)
        await self.path.call(call)
