"""The `exec` toolset: exec_command runs a shell script inside walls, write_stdin types into, signals or reads the
session it goes on as, publish_port makes a port that it listens on reachable for the person.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
Building the tools imports nothing heavy; planning and running (`command_plan`, `sessions`) are loaded with the first
call. The YAML block is checked here, with the `env` part that `shell` has too.

Where the person's own config says `sandbox.outside: ask` (`offer_outside`), exec_command has two more parameters:
`outside` asks for one exact command without walls, and `reason` says why. Elsewhere they do not exist.

A script that is nothing but one call of apply_patch becomes that call before it is judged, and one that is nothing but
`git push`, `fetch`, `pull` or `ls-remote` a call of git_push or git_fetch; what does not fit the schema is left for
validation to refuse.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from golem_forge._version import __version__
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.globs import GROUP_PREFIX
from golem_forge.core.json import sha256_hex
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.lazy_module import pydantic
from golem_forge.policy.rules.model import group_targets, normal_host
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.edit.patch import rebase_patch, split_patch_command
from golem_forge.toolsets.exec.ports import create_publish_port_tool
from golem_forge.toolsets.git import git_tools, hand_over

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.environment import EnvBlock


MAX_HOSTS: Final = 20
Redirect = Callable[[dict[str, Any]], tuple[str | Tool, dict[str, Any]] | None]
_BEGINS_WITHIN: Final = 40
_EXEC_DESCRIPTION: Final = (
    "Run a shell script inside walls: it may change the rw zones, reads the ro ones and system directories, and has no "
    "network but the hosts in `network`. Returns when it ends or after `yield_time_ms`; then it goes on as a session "
    "that write_stdin reads, types into (with `tty`) and signals. Long output is cut in the middle and kept whole for "
    "read_output."
)


_OUTSIDE_DESCRIPTION: Final = (
    " With `outside` it runs on the person's machine without walls: for one exact command that cannot work inside. "
    "`reason` says why. The person reads and answers each such call."
)


class ExecToolset:
    name = "exec"

    @cached_property
    def config(self) -> type[pydantic.BaseModel]:
        return exec_model()

    def get_tools(self, ctx: ToolsetContext) -> list[Tool]:
        block: Any = ctx.config
        settings = ExecSettings()
        if block is not None:
            walled = Verdict(block.walled)
            asks = walled is Verdict.ASK and "walled" in block.model_fields_set
            settings = ExecSettings(walled=walled, asks=asks, env=block.env)
        git = git_tools(settings, ctx.sandbox)
        redirect = partial(redirect_command, {tool.name: tool for tool in git})
        command = exec_command_tool(settings, ctx.sandbox, redirect=redirect)
        return [command, write_stdin_tool(), create_publish_port_tool(ctx.sandbox), *git]


def create_exec_command_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return exec_command_tool(ExecSettings(), sandbox, needs_approval)


def create_write_stdin_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """`sandbox` is not asked: a session runs where it was started."""
    return write_stdin_tool(needs_approval)


def exec_command_tool(
    settings: ExecSettings,
    sandbox: Sandbox | None = None,
    needs_approval: NeedsApproval | None = None,
    *,
    redirect: Redirect | None = None,
) -> Tool:
    # Variables of the block decide what a command does: with others it is not the call that was approved.
    variables = "" if settings.env is None else f" {sha256_hex(repr(settings.env))}"
    make = native_tool if not settings.outside else partial(Tool, source=SourceKind.NATIVE)  # its schema is not shipped
    return make(
        "exec_command",
        _EXEC_DESCRIPTION + (_OUTSIDE_DESCRIPTION if settings.outside else ""),
        input_schema=_exec_arguments_with_outside if settings.outside else _exec_arguments,
        planner=partial(_plan_exec, settings, sandbox),
        needs_approval=needs_approval,
        label="Run command",
        category="Commands",
        argument_aliases=ARGUMENT_ALIASES,
        code_digest=__version__ + variables,
        redirect=redirect or redirect_patch,
    )


def offer_outside(catalog: Catalog) -> None:
    """Puts the exec_command that may ask to run outside the walls in the place of the plain one, if there is one."""
    tool = catalog.get("exec_command")
    if tool is not None and tool.source is SourceKind.NATIVE and isinstance(tool.planner, partial):
        settings, sandbox = tool.planner.args[:2]
        changed = replace(settings, outside=True)
        catalog.add(exec_command_tool(changed, sandbox, tool.needs_approval), replace=True)


async def _plan_exec(settings: ExecSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.exec.command_plan import plan_command

    return await plan_command(settings, sandbox, args, ctx)


def _exec_arguments() -> type[pydantic.BaseModel]:
    host = Annotated[str, pydantic.AfterValidator(_usable_host)]
    words = Annotated[str, pydantic.Field(max_length=1000)]
    fields: dict[str, Any] = {
        "cmd": (str, pydantic.Field(min_length=1, max_length=65536, description="The script, as a shell reads it.")),
        "workdir": (
            str,
            pydantic.Field(default="", description="Where to start: /<zone>/…, or relative to the default zone."),
        ),
        "shell": (
            Literal["bash", "sh", "zsh"],
            pydantic.Field(default="bash", description="Which shell reads the script."),
        ),
        "login": (bool, pydantic.Field(default=False, description="Start it as a login shell.")),
        "tty": (
            bool,
            pydantic.Field(default=False, description="In a real terminal (40 rows, 120 columns) with open input."),
        ),
        "yield_time_ms": (
            clamped(0, 30_000),
            pydantic.Field(
                default=10_000, description="How long to wait for the end before it goes on as a session (0-30000)."
            ),
        ),
        "timeout_ms": (
            clamped(1, 3_600_000),
            pydantic.Field(default=1_800_000, description="Hard end of the process (1-3600000)."),
        ),
        "max_output_tokens": (
            clamped(1, 50_000),
            pydantic.Field(default=10_000, description="How much output to return, in tokens of 4 bytes (1-50000)."),
        ),
        "network": (
            list[host],
            pydantic.Field(
                default_factory=list, max_length=MAX_HOSTS, description="Hosts it needs: host or host:port (443)."
            ),
        ),
        "justification": (
            words,
            pydantic.Field(default="", description="Why, in one sentence, for the person who is asked."),
        ),
        "prefix_rule": (
            list[words],
            pydantic.Field(
                default_factory=list, max_length=100, description="Leading words of a rule that you suggest."
            ),
        ),
    }
    return pydantic.create_model("exec_command", **fields)


def _exec_arguments_with_outside() -> type[pydantic.BaseModel]:
    asks = "Run exactly this command outside the walls; the person must agree to it. Not with `tty` or `network`."
    why = "With `outside`: why it cannot run inside, for the person who decides."
    fields: dict[str, Any] = {
        "outside": (bool, pydantic.Field(default=False, description=asks)),
        "reason": (str, pydantic.Field(default="", max_length=1000, description=why)),
    }
    return pydantic.create_model("exec_command", __base__=_exec_arguments(), **fields)


def clamped(low: int, high: int) -> Any:
    return Annotated[int, pydantic.AfterValidator(lambda value: min(max(value, low), high))]


def _usable_host(text: str) -> str:
    """`host:port` in its one spelling, or `group:name`."""
    if text.strip().startswith(GROUP_PREFIX):
        group_targets(text.strip())
        return text.strip()
    if "://" in text:
        raise ValueError("write the host alone, without a scheme")
    name, port = _split_port(text.strip())
    if not port.isascii() or not port.isdigit() or len(port) > 5 or not 0 < int(port) < 65536:
        raise ValueError("is not a port")  # the text may be a secret
    host = normal_host(name)
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


def _split_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        return name + bracket, rest[1:] if rest.startswith(":") else rest or "443"
    if text.count(":") == 1:
        name, _, port = text.partition(":")
        return name, port
    return text, "443"


_STDIN_DESCRIPTION: Final = (
    "Type into a running session of exec_command (one with `tty`), signal it, or, without either, read what it wrote "
    "since the last time. A newline submits the line; \\u0003 is Ctrl-C, \\u0004 Ctrl-D."
)
_MAX_POLL_MS: Final = 300_000


def write_stdin_tool(needs_approval: NeedsApproval | None = None) -> Tool:
    return native_tool(
        "write_stdin",
        _STDIN_DESCRIPTION,
        input_schema=_stdin_arguments,
        planner=_plan_stdin,
        needs_approval=needs_approval,
        label="Write to session",
        category="Commands",
    )


async def _plan_stdin(args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.exec.sessions import plan_input

    return plan_input(args, ctx)


def _stdin_arguments() -> type[pydantic.BaseModel]:
    waits = "How long to wait for its end: default 250 with chars (at most 30000), else 5000 (at most 300000)."
    fields: dict[str, Any] = {
        "session_id": (int, pydantic.Field(description="The number in `Running: session <n>`.")),
        "chars": (str, pydantic.Field(default="", max_length=8192, description="What to type; empty: only read.")),
        "signal": (
            Literal["INT", "TERM", "KILL"] | None,
            pydantic.Field(default=None, description="Signal its processes."),
        ),
        "yield_time_ms": (clamped(0, _MAX_POLL_MS) | None, pydantic.Field(default=None, description=waits)),
        "max_output_tokens": (
            clamped(1, 50_000),
            pydantic.Field(default=10_000, description="How much output to return, in tokens of 4 bytes (1-50000)."),
        ),
    }
    return pydantic.create_model("write_stdin", **fields)


ARGUMENT_ALIASES: Final = {"command": "cmd", "working_dir": "workdir"}
"""Other names of arguments of exec_command that models know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    walled: Verdict = Verdict.ASK
    """`preApproved`: what full walls contain and carries no mark runs unasked."""
    asks: bool = False
    """Somebody wrote `walled: ask`, which holds in the mode `contained`, too."""
    env: EnvBlock | None = None
    outside: bool = False
    """The person's own config lets a command ask to run outside the walls."""


def exec_settings(tool: Tool) -> ExecSettings:
    """Returns the settings with which this exec_command was made."""
    given = tool.planner.args[:1] if isinstance(tool.planner, partial) else ()
    return next((each for each in given if isinstance(each, ExecSettings)), ExecSettings())


def exec_model() -> type[pydantic.BaseModel]:
    walled = "What holds for commands that full walls contain."
    fields: dict[str, Any] = {
        "walled": (Literal["ask", "preApproved"], pydantic.Field(default="ask", description=walled)),
        "env": env_field(),
    }
    return pydantic.create_model("exec", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def env_field() -> tuple[Any, Any]:
    """`env: {pass, set, secrets}`, as the EnvBlock it stands for."""
    return Annotated[Any, pydantic.BeforeValidator(_checked_env)], pydantic.Field(
        default=None, description="Variables for commands."
    )


def _checked_env(value: Any) -> Any:
    from golem_forge.sandbox.walls.environment import EnvBlock, make_env_block

    if value is None or isinstance(value, EnvBlock):
        return value
    try:
        return make_env_block(value)
    except ConfigError as error:
        raise ValueError("; ".join(error.problems)) from None


def redirect_command(git: Mapping[str, Tool], args: dict[str, Any]) -> tuple[str | Tool, dict[str, Any]] | None:
    """Beside a patch: what git_push and git_fetch do. A call that names hosts wants to reach them itself. `git`: these
    tools; a program may have others of the same names."""
    if (patch := redirect_patch(args)) is not None or args.get("network"):
        return patch
    text, workdir = args.get("cmd", args.get("command")), args.get("workdir", args.get("working_dir", ""))
    if not isinstance(text, str) or not isinstance(workdir, str) or "git" not in text[:_BEGINS_WITHIN]:
        return None
    found = hand_over(text, workdir)
    return None if found is None else (git[found[0]], found[1])


def redirect_patch(args: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    if any(alias in args and real in args for alias, real in ARGUMENT_ALIASES.items()):
        return None
    given = {ARGUMENT_ALIASES.get(name, name): value for name, value in args.items()}
    text, workdir = given.get("cmd"), given.get("workdir", "")
    if not isinstance(text, str) or not isinstance(workdir, str):
        return None
    found = split_patch_command(text)
    if found is None:
        return None
    return "apply_patch", {"input": rebase_patch(found.patch, posixpath.join(workdir, found.directory))}
