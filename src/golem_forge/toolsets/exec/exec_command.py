"""exec_command: runs a shell script inside walls, in a terminal or without one, and hands on what is a patch.

Building the tool imports nothing heavy; planning and running are loaded with the first call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from golem_forge._version import __version__
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.exec.settings import ALIASES, ExecSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST_HOSTS: Final = 20
_DESCRIPTION: Final = (
    "Run a shell script inside walls: it may change the rw zones, reads the ro ones and system directories, and has no "
    "network but the hosts in `network`. Returns when it ends or after `yield_time_ms`; then it goes on as a session "
    "that write_stdin reads, types into (with `tty`) and signals. Long output is cut in the middle and kept whole for "
    "read_output."
)


def exec_command_tool(
    settings: ExecSettings, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> Tool:
    return Tool(
        "exec_command",
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, settings, sandbox),
        needs_approval=needs_approval,
        label="Run command",
        category="Commands",
        source=SourceKind.NATIVE,
        argument_aliases=ALIASES,
        code_digest=_digest(settings),
        redirect=_redirect,
    )


def _digest(settings: ExecSettings) -> str:
    """Variables of the block decide what a command does: with others it is not the call that was approved."""
    if settings.env is None:
        return __version__
    from golem_forge.core.canonical import sha256_hex

    return f"{__version__} {sha256_hex(repr(settings.env))}"


async def _plan(settings: ExecSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.exec.planning import plan_command

    return await plan_command(settings, sandbox, args, ctx)


def _redirect(args: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    from golem_forge.toolsets.exec.handover import handed_on

    return handed_on(args)


def _arguments() -> type[BaseModel]:
    from typing import Literal

    from pydantic import AfterValidator, Field, create_model

    host = Annotated[str, AfterValidator(_usable_host)]
    words = Annotated[str, Field(max_length=1000)]
    fields: dict[str, Any] = {
        "cmd": (str, Field(min_length=1, max_length=65536, description="The script, as a shell reads it.")),
        "workdir": (str, Field(default="", description="Where to start: /<zone>/…, or relative to the default zone.")),
        "shell": (Literal["bash", "sh", "zsh"], Field(default="bash", description="Which shell reads the script.")),
        "login": (bool, Field(default=False, description="Start it as a login shell.")),
        "tty": (bool, Field(default=False, description="In a real terminal (40 rows, 120 columns) with open input.")),
        "yield_time_ms": (
            clamped(0, 30_000),
            Field(default=10_000, description="How long to wait for the end before it goes on as a session (0-30000)."),
        ),
        "timeout_ms": (
            clamped(1, 3_600_000),
            Field(default=1_800_000, description="Hard end of the process (1-3600000)."),
        ),
        "max_output_tokens": (
            clamped(1, 50_000),
            Field(default=10_000, description="How much output to return, in tokens of 4 bytes (1-50000)."),
        ),
        "network": (
            list[host],
            Field(default_factory=list, max_length=MOST_HOSTS, description="Hosts it needs: host or host:port (443)."),
        ),
        "justification": (words, Field(default="", description="Why, in one sentence, for the person who is asked.")),
        "prefix_rule": (
            list[words],
            Field(default_factory=list, max_length=100, description="Leading words of a rule that you suggest."),
        ),
    }
    return create_model("exec_command", **fields)


def clamped(low: int, high: int) -> Any:
    """An integer that is moved into its range."""
    from pydantic import AfterValidator

    return Annotated[int, AfterValidator(lambda value: min(max(value, low), high))]


def _usable_host(text: str) -> str:
    """`host:port` in its one spelling."""
    from golem_forge.policy.rules.hosts import normal_host

    if "://" in text:
        raise ValueError("write the host alone, without a scheme")
    name, port = _apart(text.strip())
    if not port.isascii() or not port.isdigit() or len(port) > 5 or not 0 < int(port) < 65536:
        raise ValueError("is not a port")  # the text may be a secret
    host = normal_host(name)
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


def _apart(text: str) -> tuple[str, str]:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        return name + bracket, rest[1:] if rest.startswith(":") else rest or "443"
    if text.count(":") == 1:
        name, _, port = text.partition(":")
        return name, port
    return text, "443"
