"""ToolRouter: the tools of a session as one list, and one way to call them. A face on the catalog and the one path.

Takes a Session, a WorkerRuntime, an Orchestrator, or tools alone; then it makes an Orchestrator for them, which denies
what asks unless it is given an ApprovalController. There is no second way in: `dispatch` is a call of that path.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.call import Caller, Outcome, ToolCall, call_of
from golem_forge.core.nearest import nearest
from golem_forge.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalController
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog, CatalogError
from golem_forge.tools.decorator import as_tool
from golem_forge.tools.definitions import Shape
from golem_forge.tools.tool import Mode, SourceKind, Tool
from golem_forge.workers.session import Session, hint_at_manual

if TYPE_CHECKING:
    from golem_forge.workers.runtime import WorkerRuntime


class ToolRouter:
    def __init__(
        self,
        tools: Session | WorkerRuntime | Orchestrator | Catalog | Iterable[Tool | Callable[..., Any]],
        *,
        approval: ApprovalController | ApprovalMode | str | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`approval` (or a mode that asks nobody) and `sandbox`: for tools alone; a session has its own. Raises
        TypeError where both are given."""
        self._session = tools if isinstance(tools, Session) else None
        path = tools if isinstance(tools, Orchestrator) else getattr(tools, "path", None)
        if path is not None:
            if approval is not None or sandbox is not None:
                raise TypeError("ToolRouter: approval= and sandbox= are for tools alone; a session has its own")
            self._path: Orchestrator = path
        else:
            given: Any = tools
            asks = approval if isinstance(approval, ApprovalController) else ApprovalController(approval or "auto_deny")
            self._path = Orchestrator(given, approval=asks, sandbox=sandbox)

    @property
    def catalog(self) -> Catalog:
        if self._session is not None:
            self._session.refresh()
        return self._path.catalog

    def list(
        self,
        source: SourceKind | str | None = None,
        mode: Mode | str | None = None,
        category: str | None = None,
        query: str | None = None,
    ) -> builtins.list[Tool]:
        """The tools that fit everything given; `query` is part of a name or description. ValueError: no such source."""
        if source is not None and source not in tuple(SourceKind):
            close = nearest(str(source), [each.value for each in SourceKind])
            hint = f"; did you mean {close!r}?" if close else f"; there are {', '.join(SourceKind)}"
            raise ValueError(f"no source {source!r}{hint}")
        return self.catalog.list(source, mode, category, query)

    def query(self, name: str) -> Tool | None:
        """The tool of this name, whoever may call it; None: there is none."""
        catalog = self.catalog
        return catalog.get(name) or catalog.get(catalog.aliases().get(name, ""))

    def tool_definitions(
        self, shape: Shape | str = Shape.MCP, caller: Caller | str = Caller.LLM
    ) -> builtins.list[dict[str, Any]]:
        """What this caller is offered: `name`, `description` and schema as MCP, `anthropic` or `openai` spell them."""
        return builtins.list(self.catalog.definitions(shape, Caller(caller)))

    def register(self, tool: Tool | Callable[..., Any]) -> None:
        """Adds a tool. Raises CatalogError for a name that is taken or a definition that cannot be offered."""
        added = as_tool(tool)
        if (bad := self._path.catalog.add_checked(added)) is not None:
            raise CatalogError(f"tool {added.name!r} cannot be offered: {bad.reason}")

    async def dispatch(
        self, name: ToolCall | str, args: dict[str, Any] | None = None, *, caller: Caller | str | None = None
    ) -> Outcome:
        """One call, judged, asked and recorded like every other: `dispatch("read_file", {"path": "a.txt"})`."""
        call = call_of(name, args, caller, "dispatch")
        if self._session is not None:
            await self._session.look(call.name)
        outcome = await self._path.call(call)
        if caller is None and isinstance(name, str):
            hint_at_manual(outcome, self._path.catalog)
        return outcome
