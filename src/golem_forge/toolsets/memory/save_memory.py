"""save_memory: writes or extends one memory. The diff is made when planning, from the bytes that the run will write.

Refuses before anyone is asked: a content with a known secret value, one too long, one memory too many. What is
remembered is read by later sessions, and by whatever model they use: a secret must never get there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge._version import __version__
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.diffs import unified_diff
from golem_forge.toolsets.memory.get_memory import scope_field
from golem_forge.toolsets.memory.shelf import ID_PATTERN, LARGEST, Scope, Shelf, open_shelf

if TYPE_CHECKING:
    from pydantic import BaseModel

_DESCRIPTION: Final = (
    "Remember a short text (at most 64 KiB) for later sessions, under an id. `mode: append` adds to the end of what is "
    "there, `replace` writes it anew."
)


def save_memory_tool(sandbox: Sandbox | None, needs_approval: NeedsApproval | None = None) -> Tool:
    return Tool(
        "save_memory",
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, sandbox),
        needs_approval=needs_approval,
        label="Save memory",
        category="Memory",
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


def _arguments() -> type[BaseModel]:
    from typing import Annotated, Literal

    from pydantic import AfterValidator, Field, create_model
    from pydantic_core import PydanticCustomError

    def short_enough(content: str) -> str:
        if (size := len(content.encode())) > LARGEST:
            problem = f"{size} bytes; the limit is {LARGEST}"
            raise PydanticCustomError("size", "{problem}", {"problem": problem})
        return content

    modes: Any = Literal["replace", "append"]
    memory_id = Field(pattern=f"^{ID_PATTERN}$", description="Its name: small letters, digits, `_` and `-`.")
    return create_model(
        "save_memory",
        memory_id=(str, memory_id),
        content=(Annotated[str, AfterValidator(short_enough)], Field(description="The text, as it is to be kept.")),
        mode=(modes, Field(default="replace", description="`replace` what is there, or `append` to it.")),
        scope=scope_field(),
    )


def _plan(own: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    shelf = open_shelf(Scope(args.get("scope", Scope.PROJECT)), own, ctx)
    memory_id: str = args["memory_id"]
    old = shelf.read(memory_id)
    appends = args.get("mode", "replace") == "append"
    new = (old or b"" if appends else b"") + args["content"].encode()
    _must_hold_no_secret(f"{memory_id}\n{new.decode('utf-8', 'replace')}", ctx)
    if len(new) > LARGEST:
        text = f"Memory '{memory_id}' would be {len(new)} bytes; the limit is {LARGEST}. Replace it by a shorter text."
        raise ToolFailed(text, code="TOO_LARGE")
    shelf.must_have_room(memory_id)
    target = f"memory:{shelf.scope}/{memory_id}"
    return Plan(
        run=partial(_save, shelf, memory_id, old, new),
        effects=(Effect(verb=Verb.WRITE, target=target, real=shelf.place(memory_id)),),
        diff=unified_diff(f"/memory/{shelf.scope}/{memory_id}", old, new),
    )


def _must_hold_no_secret(text: str, ctx: ToolContext) -> None:
    if ctx.redactor is not None and ctx.redactor.secrets_out(text) != text:
        raise ForgeError(
            "The content holds a known secret value, and memory keeps no secrets; leave it out.",
            status=Status.POLICY_DENIED,
            code="SECRET_IN_MEMORY",
        )


def _save(shelf: Shelf, memory_id: str, old: bytes | None, new: bytes) -> ToolResult:
    shelf.write(memory_id, new, instead_of=old)
    value = {
        "kind": "memory.entry",
        "scope": shelf.scope.value,
        "id": memory_id,
        "content": new.decode("utf-8", "replace"),
        "size": len(new),
    }
    return ToolResult(value=value, text=f"Saved memory '{memory_id}' ({len(new)} bytes).")
