"""write_stdin: types into a running session, signals it, or reads what it said since.

Judged is the whole line that is not yet submitted, not the characters of one call: a dangerous command sent in pieces
is found when it becomes one. Nothing is delivered before the call is approved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge._version import __version__
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.exec.exec_command import clamped

if TYPE_CHECKING:
    from pydantic import BaseModel

_DESCRIPTION: Final = (
    "Type into a running session of exec_command (one with `tty`), signal it, or, without either, read what it wrote "
    "since the last time. A newline submits the line; \\u0003 is Ctrl-C, \\u0004 Ctrl-D."
)
_LONGEST_POLL: Final = 300_000


def write_stdin_tool(needs_approval: NeedsApproval | None = None) -> Tool:
    return Tool(
        "write_stdin",
        _DESCRIPTION,
        input_schema=_arguments,
        planner=_plan,
        needs_approval=needs_approval,
        label="Write to session",
        category="Commands",
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


async def _plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.exec.input import plan_input

    return plan_input(args, ctx)


def _arguments() -> type[BaseModel]:
    from typing import Literal

    from pydantic import Field, create_model

    waits = "How long to wait for its end: default 250 with chars (at most 30000), else 5000 (at most 300000)."
    fields: dict[str, Any] = {
        "session_id": (int, Field(description="The number in `Running: session <n>`.")),
        "chars": (str, Field(default="", max_length=8192, description="What to type; empty: only read.")),
        "signal": (Literal["INT", "TERM", "KILL"] | None, Field(default=None, description="Signal its processes.")),
        "yield_time_ms": (clamped(0, _LONGEST_POLL) | None, Field(default=None, description=waits)),
        "max_output_tokens": (
            clamped(1, 50_000),
            Field(default=10_000, description="How much output to return, in tokens of 4 bytes (1-50000)."),
        ),
    }
    return create_model("write_stdin", **fields)
