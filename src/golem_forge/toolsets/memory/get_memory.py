"""get_memory: one memory by its id, or the list of them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge._version import __version__
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.result import ToolResult
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.memory.shelf import ID_PATTERN, Scope, Shelf, open_shelf

if TYPE_CHECKING:
    from pydantic import BaseModel

_DATE: Final = "%Y-%m-%dT%H:%M:%SZ"
_DESCRIPTION: Final = "Read what was remembered in earlier sessions: one memory by its id, or without an id their list."


def get_memory_tool(sandbox: Sandbox | None, needs_approval: NeedsApproval | None = None) -> Tool:
    return Tool(
        "get_memory",
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, sandbox),
        needs_approval=needs_approval,
        label="Get memory",
        category="Memory",
        read_only=True,
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


def scope_field() -> tuple[Any, Any]:
    from typing import Literal

    from pydantic import Field

    text = "Whose memory: of this `project`, or of the `user` in every project."
    return Literal["project", "user"], Field(default="project", description=text)


def _arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    memory_id = Field(default="", pattern=f"^({ID_PATTERN})?$", description="Which memory; without it, the list.")
    return create_model("get_memory", memory_id=(str, memory_id), scope=scope_field())


def _plan(own: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    shelf = open_shelf(Scope(args.get("scope", Scope.PROJECT)), own, ctx)
    memory_id = args.get("memory_id", "")
    target = f"memory:{shelf.scope}/{memory_id}" if memory_id else f"memory:{shelf.scope}"
    effect = Effect(verb=Verb.READ, target=target, real=shelf.place(memory_id))
    return Plan(run=partial(_one, shelf, memory_id) if memory_id else partial(_all, shelf), effects=(effect,))


def _one(shelf: Shelf, memory_id: str) -> ToolResult:
    data = shelf.read(memory_id)
    if data is None:
        known = ", ".join(entry.id for entry in shelf.entries()) or "none"
        raise ToolFailed(f"No memory '{memory_id}'. Known: {known}", code="NO_MEMORY")
    content = data.decode("utf-8", "replace")
    value = {"kind": "memory.entry", "scope": shelf.scope.value, "id": memory_id, "content": content, "size": len(data)}
    return ToolResult(value=value, text=content or "(empty)")


def _all(shelf: Shelf) -> ToolResult:
    entries = [
        {
            "id": entry.id,
            "size": entry.size,
            "modified": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.modified)),
        }
        for entry in shelf.entries()
    ]
    lines = [f"{entry['id']} ({entry['size']} bytes, {entry['modified']})" for entry in entries]
    value = {"kind": "memory.entry", "scope": shelf.scope.value, "entries": entries}
    return ToolResult(value=value, text="\n".join(lines) or f"No memories in scope '{shelf.scope}'.")
