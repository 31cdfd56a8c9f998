"""shell: runs one program, without a shell, as the rules of its block allow.

Takes a command text, gives its exit code and both streams apart. What would need a shell is refused with its position;
what no rule speaks of is refused without a prompt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from golem_forge._version import __version__
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.shell.settings import LONGEST_S, SHORTEST_S, ShellSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

_DESCRIPTION: Final = (
    "Run one program with its arguments, without a shell: no pipes, redirections, substitutions or wildcards; quotes "
    "work as usual. Which programs may run is set by rules. For scripts use exec_command."
)


def shell_tool(
    settings: ShellSettings, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> Tool:
    return Tool(
        "shell",
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, settings, sandbox),
        needs_approval=needs_approval,
        label="Run program",
        category="Commands",
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


async def _plan(settings: ShellSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.shell.planning import plan_program

    return await plan_program(settings, sandbox, args, ctx)


def _arguments() -> type[BaseModel]:
    from pydantic import AfterValidator, Field, create_model

    seconds = Annotated[
        float, Field(allow_inf_nan=False), AfterValidator(lambda given: min(max(given, SHORTEST_S), LONGEST_S))
    ]
    return create_model(
        "shell",
        command=(str, Field(min_length=1, max_length=8192, description="The program and its arguments.")),
        timeout_s=(seconds | None, Field(default=None, description="Seconds until it is ended (0.1-300).")),
    )
