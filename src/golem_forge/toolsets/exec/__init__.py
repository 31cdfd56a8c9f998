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

`publish_port` asks, and its card says who will reach the port; a person who calls it has agreed already. Forge listens
on a random address of 127/8 and passes connections on to the session's loopback. `unpublish_port` ends that again and
is for people. `PublishedPorts` is a part of the session: what it holds ends with the session. `port_rows` is what
`/ports` lists. Threats: a browser's cookies know no ports, so a server at 127.0.0.1 would receive the login of every
page there; never that address, and none of its neighbours. The words of a process are a stranger's: escaped,
shortened, without secrets.
"""

from __future__ import annotations

import posixpath
import secrets
import socket
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from golem_forge._version import __version__
from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.core.globs import GROUP_PREFIX
from golem_forge.core.json import sha256_hex
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.lazy_module import pydantic
from golem_forge.core.results import ToolResult
from golem_forge.core.text import local_minute, one_line, shorten_middle
from golem_forge.policy.rules.model import group_targets, normal_host
from golem_forge.sandbox.network import lazy_connection, lazy_loopback
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import Plan, SessionParts, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Mode, NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.edit.patch import rebase_patch, split_patch_command
from golem_forge.toolsets.git import git_tools, hand_over

if TYPE_CHECKING:
    from golem_forge.sandbox.network.connection import PortForward
    from golem_forge.sandbox.network.loopback import ListeningPort, SessionLoopback
    from golem_forge.sandbox.walls.environment import EnvBlock


PUBLISH_TOOL: Final = "publish_port"
UNPUBLISH_TOOL: Final = "unpublish_port"
MOST_PUBLISHED: Final = 20
_PUBLISH_DESCRIPTION: Final = (
    "Let the person open a port that a command of this session listens on, in their own browser: gives a link that "
    "programs of their computer reach until the session ends. Start the server first, with exec_command and without "
    "`network`. Your own later commands without `network` reach it at localhost without this."
)
_UNPUBLISH_DESCRIPTION: Final = "End what publish_port made: nobody outside the session reaches the port any more."
WHO_REACHES: Final = "Every program and every user of this computer reaches it; no other computer does."
_TRIES: Final = 20
_LONGEST_COMMAND: Final = 120
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


def create_publish_port_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """`sandbox`: of commands that were given one of their own."""
    return native_tool(
        PUBLISH_TOOL,
        _PUBLISH_DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan_publish, sandbox),
        needs_approval=needs_approval,
        label="Publish port",
        category="Commands",
    )


def create_unpublish_port_tool() -> Tool:
    return native_tool(
        UNPUBLISH_TOOL,
        _UNPUBLISH_DESCRIPTION,
        input_schema=_unpublish_arguments,
        planner=_plan_unpublish,
        mode=Mode.MANUAL,
        label="Unpublish port",
        category="Commands",
    )


def _arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        PUBLISH_TOOL, port=(int, pydantic.Field(ge=1, le=65535, description="The port a command listens on."))
    )


def _unpublish_arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        UNPUBLISH_TOOL, port=(int, pydantic.Field(ge=1, le=65535, description="The port that was published."))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    port: int
    """The port inside."""
    address: str
    outer_port: int
    loopback: SessionLoopback
    forward: PortForward

    @property
    def place(self) -> str:
        return f"{self.address}:{self.outer_port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/"


class PublishedPorts:
    """The published ports of a session."""

    def __init__(self) -> None:
        self._by_place: dict[Hashable, Publication] = {}

    @property
    def all(self) -> tuple[Publication, ...]:
        return tuple(self._by_place.values())

    @property
    def busy(self) -> bool:
        return bool(self._by_place)

    def find(self, loopback: SessionLoopback, port: int) -> Publication | None:
        return self._by_place.get((loopback.number, port))

    async def publish(self, loopback: SessionLoopback, port: int) -> Publication:
        """Publishes a port, or returns its existing publication. Raises ToolFailed."""
        if (known := self.find(loopback, port)) is not None:
            return known
        if len(self._by_place) >= MOST_PUBLISHED:
            raise ToolFailed(f"{MOST_PUBLISHED} ports are published already; end one with /unpublish first.")
        listener = _listen(port)
        address, outer_port = listener.getsockname()
        forward = lazy_connection.PortForward(partial(loopback.connect, port))
        made = Publication(port=port, address=address, outer_port=outer_port, loopback=loopback, forward=forward)
        self._by_place[loopback.number, port] = made
        await forward.serve(listener)
        return made

    def end(self, port: int) -> tuple[Publication, ...]:
        """Ends the publications of a port and returns them; a sub-worker may have published the same port of its own
        loopback.
        """
        ended = tuple(each for each in self._by_place.values() if each.port == port)
        for each in ended:
            each.forward.close()
            del self._by_place[each.loopback.number, port]
        return ended

    async def aclose(self) -> None:
        while self._by_place:
            self._by_place.popitem()[1].forward.close()


def _listen(port: int) -> socket.socket:
    """Listens on an address that nobody can guess, at the same port if it is free there. Raises ToolFailed."""
    for number in range(_TRIES):
        wanted = port if number < _TRIES // 2 else 0
        try:
            return socket.create_server((random_address(), wanted), backlog=64)
        except OSError:  # taken, or a port that only root opens
            continue
    raise ToolFailed("No address of this computer could be opened for it.", code="NOT_PUBLISHED")


def random_address() -> str:
    """Returns a random address of 127/8, outside 127.0/16 where the system's own servers are."""
    return f"127.{16 + secrets.randbelow(224)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"


async def _plan_publish(sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    port = args["port"]
    loopback = await _loopback_with(port, sandbox, ctx)
    by_hand = ctx.caller is Caller.HUMAN
    effect = Effect(
        verb=Verb.NET,
        target=f"listen for port {port} of this session",
        said=Verdict.PRE_APPROVED if by_hand else None,
        said_by="you asked for it yourself" if by_hand else "",
        leaves=(f"port {port} becomes reachable from outside the walls",),
    )
    return Plan(
        run=partial(_publish, loopback, port, ctx),
        effects=(effect,),
        warnings=(WHO_REACHES,),
        read_only=True,
    )


async def _loopback_with(port: int, sandbox: Sandbox | None, ctx: ToolContext) -> SessionLoopback:
    """Returns the loopback where the port listens: that of the asking worker; for a person that of any worker. Raises
    ToolFailed.
    """
    from golem_forge.toolsets.exec.environment import environment_of

    loopbacks = ctx.parts.get(lazy_loopback.SessionLoopbacks)
    own = loopbacks.find(lazy_loopback.loopback_key(environment_of(sandbox, ctx).walls, ctx.guest))
    found = [each for each in (own, *(loopbacks.made if ctx.caller is Caller.HUMAN else ())) if each is not None]
    for loopback in found:
        if any(each.port == port for each in await run_in_thread(loopback.listening)):
            return loopback
    why = f" ({loopbacks.problem})" if loopbacks.problem else ""
    raise ToolFailed(
        f"No command of this session listens on port {port}{why}. Start the server with exec_command, without "
        "`network`, and wait until it listens; /ports lists what does.",
        code="NOT_LISTENING",
    )


async def _publish(loopback: SessionLoopback, port: int, ctx: ToolContext) -> ToolResult:
    made = await ctx.parts.get(PublishedPorts).publish(loopback, port)
    value = {
        "kind": "port.published",
        "summary": f"port {port} is at {made.url}",
        "port": port,
        "address": made.place,
        "url": made.url,
        "reached_by": WHO_REACHES,
    }
    text = f"Port {port} is at {made.url} until the session ends. {WHO_REACHES}"
    return ToolResult(value=value, text=text)


def _plan_unpublish(args: dict[str, Any], ctx: ToolContext) -> Plan:
    return Plan(run=partial(_unpublish, args["port"], ctx), effects=(), read_only=True)


async def _unpublish(port: int, ctx: ToolContext) -> ToolResult:
    if not ctx.parts.get(PublishedPorts).end(port):
        raise ToolFailed(f"Port {port} is not published; /ports lists what is.", code="NOT_PUBLISHED")
    return ToolResult({"kind": "text", "content": f"Port {port} is not published any more."})


def port_rows(parts: SessionParts, redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """`{port, command, since, url}` for each port that listens or is published. `redact`: a text without secrets and
    host paths. Reads /proc: call it in a thread."""
    published = parts.get(PublishedPorts)
    rows = []
    for loopback in parts.get(lazy_loopback.SessionLoopbacks).made:
        listening = loopback.listening()
        rows += [_row(each, published.find(loopback, each.port), redact) for each in listening]
        silent = {each.port for each in listening}
        rows += [
            {"port": each.port, "command": "", "since": "", "url": each.url}
            for each in published.all
            if each.loopback is loopback and each.port not in silent
        ]
    return rows


def _row(each: ListeningPort, published: Publication | None, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "port": each.port,
        "command": shorten_middle(one_line(redact(each.command)), _LONGEST_COMMAND, " … "),
        "since": datetime.fromtimestamp(each.since, UTC).isoformat(timespec="seconds") if each.since else "",
        "url": published.url if published else "",
    }


def port_lines(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns the rows of a table for people, with its header."""
    published = any(row["url"] for row in rows)
    return [
        ("PORT", "SINCE", *(("PUBLISHED AT",) if published else ()), "COMMAND"),
        *(
            (
                str(row["port"]),
                local_minute(row["since"]) if row["since"] else "",
                *((row["url"],) if published else ()),
                row["command"] or "nothing listens now",
            )
            for row in rows
        ),
    ]
