"""The first wait of a command, and what its caller reads: that it goes on as a session or how it ended, and its output,
head and tail with the whole kept on disk by handle.

`first_wait` is the first wait of exec_command; `report` says what is new of a session from then on. A call that is
cancelled while it first waits takes its whole process tree with it, and still says what came out of it. A session that
outlived its call is ended by its own time limit, by a signal, or with the Forge session.

Bounding reads only what it shows; the middle streams through once, to be kept and counted. Threat: a limit or a refusal
of the walls that read like an ordinary failure would be repeated by a model for ever, so each says what it is. A hint
about the network is no denial: the text of an output proves nothing.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.globs import GROUP_PREFIX, GROUPS
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.core.text import TextSource, head_and_tail
from golem_forge.policy.containment import registry_groups
from golem_forge.policy.rules.model import places_of_group
from golem_forge.sandbox.network.loopback import OWN_LOOPBACK, SessionLoopbacks
from golem_forge.sandbox.process.monitor import ENDED, REASONS, TIMEOUT, WALLS_CHANGED, ExitStatus
from golem_forge.sandbox.walls.denials import blocked_line, host_advice, way_line
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import show_live_output
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.git import OF_A_SUBMODULE, REACHING_REMOTES, UNREACHED

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import WalledChild
    from golem_forge.toolsets.exec.sessions import CommandSpec, ExecSessions, RunningCommand

BYTES_PER_TOKEN: Final = 4


async def first_wait(
    sessions: ExecSessions,
    start: Callable[[], Awaitable[WalledChild]],
    kind: CommandSpec,
    args: dict[str, Any],
    ctx: ToolContext,
) -> ToolCompletion:
    running = await sessions.start(start, kind)
    if ctx.recording is not None:
        ctx.recording.processes.append(running.child)
    running.contained = ctx.contained
    try:
        async with show_live_output(ctx, {"stdout": running.child.output}):
            await running.wait(args["yield_time_ms"] / 1000)
            while running.ending is None and running.signing is not None and running.signing.waiting:
                await running.wait(_SIGNING_WAIT_S)  # its call must not end while a person reads what it wants signed
    except asyncio.CancelledError:
        await running.end()
        if not ctx.cancel:  # the caller itself is gone: nobody is left to read it
            running.walled.report_unread()
            raise
    return await report(sessions, running, args["max_output_tokens"], ctx)


async def report(
    sessions: ExecSessions, running: RunningCommand, tokens: int, ctx: ToolContext, notes: Iterable[str] = ()
) -> ToolCompletion:
    """Returns the new output since the last report, and the state of the process."""
    ending = running.ending
    first = not running.number
    if ending is None:
        sessions.assign_number(running)
        if ctx.recording is not None:
            ctx.recording.ends = running.ended()
    output = running.child.output
    new = TextSlice(output, running.delivered, output.size)
    lines = list(notes)
    if ending is not None and ending.code == WALLS_CHANGED:
        new = TextSlice(output, output.size, output.size)
        lines.append("Its output is withheld: for a moment it could read what was to stay hidden.")
    shown = await bound_off_loop(new, tokens * BYTES_PER_TOKEN, output_keeper(ctx))
    running.delivered = new.end
    state = command_status(ending, session=running.number, timeout_s=running.timeout_s)
    value: dict[str, Any] = {"kind": "exec.result"}
    finished = ToolCompletion(result=ToolResult(value, ""), status=state.status, code=state.code, bounded=True)
    if ending is None:
        value["session_id"] = running.number
        lines += own_loopback_hint(running, ctx) if first else ()
    else:
        value |= {"signal": ending.signal} if ending.signal else {"exit_code": ending.exit_code}
        after = running.walled.aftermath()
        ways = [*(credential_hint(running, after.passed_by) or network_hint(running)), *signing_hint(running)]
        if after.unreached and ending.exit_code:
            places = ", ".join(after.unreached[:_MOST_UNREACHED])
            ways.append(f"This computer does not reach it either, with or without walls: {places}.")
        finished.denials = after.denials
        finished.protected_created, finished.leftovers = after.protected_created, after.leftovers
        if after.denials:
            value["denials"] = list(after.denials)
            ways += host_advice(after.denials)
            if state.status is Status.EXECUTION_FAILED and not ended_well(ending) and not state.code:
                finished.status = Status.SANDBOX_DENIED
                ways += filter(None, (blocked_line(after.denials), way_line(after.denials)))
        lines += ways
        if ways:
            value["ways"] = ways  # the person reads them, too
    if finished.status is Status.SANDBOX_DENIED:
        finished.error = blocked_line(finished.denials)
    elif finished.status is not Status.SUCCESS:
        finished.error = state.line
    if running.outside:
        value["outside"] = True
        lines.append("It ran outside the walls.")
    value |= {"wall_s": round(running.seconds, 3), "bytes": new.size, "output": shown.text}
    if shown.handle:
        value["handle"] = finished.output_handle = shown.handle
    finished.result.text = result_text(running.seconds, state, new.size, shown.text, *lines)
    return finished


def output_keeper(ctx: ToolContext) -> KeepOutput:
    """Stores whole outputs; does nothing for an embedder without an output store."""
    outputs = ctx.outputs
    return (lambda pieces: outputs.keep_pieces(pieces, ctx.worker)) if outputs is not None else lambda _: ""


async def bound_off_loop(text: TextSlice, limit: int, keep: KeepOutput) -> BoundedText:
    """Shortens a text; a long one is stored in a thread, because it may have 64 MiB."""
    if text.size <= limit:
        return bound_output(text, limit, keep)
    return await run_in_thread(lambda: bound_output(text, limit, keep))


LIMIT_REASONS: Final = REASONS | {WALLS_CHANGED: "a guarded file was replaced from outside while the command ran"}
"""Code of an ending by limits or walls → why, in words."""


@dataclass(frozen=True, slots=True)
class CommandStatus:
    line: str
    status: Status = Status.SUCCESS
    code: str = ""


def command_status(ending: ExitStatus | None, *, session: int, timeout_s: float) -> CommandStatus:
    if ending is None:
        return CommandStatus(f"Running: session {session}")
    if ending.code == TIMEOUT:
        return CommandStatus(f"Timed out {after_seconds(ending, timeout_s)}", Status.TIMEOUT, TIMEOUT)
    if ending.code in LIMIT_REASONS:
        return CommandStatus(limit_line(ending.code), Status.EXECUTION_FAILED, ending.code)
    line = f"Ended by signal: {signal_name(ending.signal)}" if ending.signal else f"Exited: code {ending.exit_code}"
    if ending.signal is None and ending.exit_code is None:
        line = "Ended: how is not known"
    if ending.code == ENDED:
        return CommandStatus(line, Status.INTERRUPTED)
    return CommandStatus(line, Status.SUCCESS if ended_well(ending) else Status.EXECUTION_FAILED)


def ended_well(ending: ExitStatus) -> bool:
    return ending.exit_code == 0 and not ending.code


def after_seconds(ending: ExitStatus, timeout_s: float) -> str:
    """`after 1 s`: the call's own limit, or what a shorter one in the settings left it."""
    return f"after {timeout_s if ending.seconds >= timeout_s else round(ending.seconds, 1):g} s"


def limit_line(code: str) -> str:
    return f"Ended: {LIMIT_REASONS[code]}"


def signal_name(number: int) -> str:
    """`SIGKILL (9)`; a real-time signal has only its number."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


def result_text(seconds: float, state: CommandStatus, size: int, output: str, *more: str) -> str:
    """`more`: lines for the caller between how it stands and its output."""
    lines = [f"Wall time: {seconds:.3f} s", state.line, *more, f"Output ({size} bytes):"]
    return "\n".join([*lines, output] if output else lines)


KeepOutput = Callable[[Iterable[bytes]], str]
"""Stores a whole text and returns its handle; empty if there is no store."""


@dataclass(frozen=True, slots=True)
class TextSlice:
    """A fixed range of a text that may still grow."""

    whole: TextSource
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return self.whole.read(self.start + start, self.start + (self.size if end is None else min(end, self.size)))

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        return self.whole.pieces(self.start + start, self.start + (self.size if end is None else min(end, self.size)))


@dataclass(frozen=True, slots=True)
class JoinedText:
    parts: Sequence[TextSource]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return b"".join(self.pieces(start, end))

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = self.size if end is None else end
        for part in self.parts:
            if start < part.size and end > 0:
                yield from part.pieces(max(0, start), min(end, part.size))
            start, end = start - part.size, end - part.size


@dataclass(frozen=True, slots=True)
class BoundedText:
    text: str
    handle: str = ""
    """The handle of the whole text, if it was shortened."""
    cut: bool = False


def bound_output(whole: TextSource, limit: int, keep: KeepOutput) -> BoundedText:
    """Returns at most `limit` bytes, half head and half tail."""
    return bound_with_handle(whole, limit, keep(whole.pieces()) if whole.size > limit else "")


def bound_with_handle(whole: TextSource, limit: int, handle: str) -> BoundedText:
    """The same for a text that is already stored, alone or as part of another."""
    cut = whole.size > limit
    return BoundedText(head_and_tail(whole, limit, handle), handle if cut else "", cut)


_HAS_HOSTS: Final = "It has hosts, so its ports are its own: start a server that other calls reach without `network`."


def own_loopback_hint(running: RunningCommand, ctx: ToolContext) -> tuple[str, ...]:
    """Returns a hint for a running command that no other command can reach, although it may be a server."""
    if running.no_walls or running.walled.loopback is not None:
        return ()
    if not running.offline:
        return (_HAS_HOSTS,)
    problem = ctx.parts.get(SessionLoopbacks).problem
    return (f"Here {OWN_LOOPBACK}: {problem}.",) if problem else ()


NETWORK_IS_OFF: Final = "The network is off inside; name hosts in 'network'."
_INSPECTED_BYTES: Final = 64 * 1024
_NO_NETWORK: Final = regex(
    r"could not resolve|temporary failure in name resolution|name or service not known|failed to lookup address"
    r"|unable to resolve host|getaddrinfo|network is unreachable|no such host|ENOTFOUND|EAI_AGAIN|ENETUNREACH"
    r"|no suitable address found",
    re.IGNORECASE,
)
_FETCHED_BY_GIT: Final = regex(r"unable to access 'https?://(?:[^/@']*@)?([A-Za-z0-9.-]+)")
"""The host of a dependency that comes from a repository."""
_MOST_UNREACHED: Final = 5
_SSH_ALONE: Final = regex(r"^(?:ssh|kex_exchange_identification): .*(?:not resolve hostname|not known)", re.MULTILINE)
SSH_STAYS_OUTSIDE: Final = (
    "ssh, scp and rsync have neither a network nor the user's keys inside: ask the user to run this one. Git reaches "
    "remotes by ssh with git_push and git_fetch."
)


_REFUSED: Final = regex(
    r"connection refused|ECONNREFUSED|couldn't connect to server|could not connect to", re.IGNORECASE
)
_OWN_PORT: Final = regex(
    r"(?:localhost|127\.0\.0\.1|::1)(?:\]?:|', |[^\n]{0,40}?\bport:? )([0-9]{2,5})\b", re.IGNORECASE
)
_NO_REGISTRY: Final = regex(
    r"connection refused|ECONNREFUSED|ECONNRESET|max retries exceeded|failed to fetch|META_FETCH_FAIL|no matching distr"
    r"|couldn't connect|could not connect|tunnel|error sending request|fetch failed|network error",
    re.IGNORECASE,
)
"""Failures of the network (as `_NO_NETWORK`) in the words of programs that install packages."""
NOT_SIGNED: Final = (
    "Signing is not set up for commands: once user.signingKey (and gpg.format, ssh or openpgp) stand in the user's own "
    "git settings, Forge signs what commands commit, after asking."
)
_SIGNING_WAIT_S: Final = 0.5
_SIGNING_FAILED: Final = regex(r"gpg failed to sign|failed to write commit object|unable to sign|signingkey needs")


def signing_hint(running: RunningCommand) -> tuple[str, ...]:
    """Returns a hint for a command that failed because something was not signed."""
    ending, signing = running.ending, running.signing
    if ending is None or not ending.exit_code or signing is None:
        return ()
    if signing.refused:
        return (f"Forge did not sign it: {signing.refused}",)
    output = running.child.output
    text = output.read(max(0, output.size - _INSPECTED_BYTES)).decode("utf-8", "replace")
    return (NOT_SIGNED,) if not signing.is_offered and _SIGNING_FAILED.search(text) else ()


def credential_hint(running: RunningCommand, passed_by: Sequence[str]) -> tuple[str, ...]:
    """Returns a hint for a command that meant a host with a credential and did not use it: it had no hosts, or spoke
    TLS by itself (`passed_by`), where a server answers the placeholder with its own text, often without a bad exit
    code.
    """
    failed = running.ending is not None and bool(running.ending.exit_code)
    for each in running.credentials:
        missed = failed and running.offline and each.host in running.text
        if missed or (each.host in passed_by and (failed or each.variable in running.text)):
            return (
                f"Forge puts {each.variable} in itself: name {each.host} in 'network' and ask http://{each.host}/… "
                f"with ${each.variable} in {each.header}; Forge goes out by HTTPS.",
            )
    return ()


def network_hint(running: RunningCommand) -> tuple[str, ...]:
    """Returns a hint for a failed command without hosts, if the end of its output is about reaching one."""
    ending = running.ending
    if ending is None or not ending.exit_code or not running.offline:
        return ()
    return offline_hint(running.text, running.child.output)


def offline_hint(command: str, output: TextSource) -> tuple[str, ...]:
    """Returns what a failed command without hosts should have named: the group of its package registry, if the
    command's words or a host in its output tell it, or a service of this computer.
    """
    text = output.read(max(0, output.size - _INSPECTED_BYTES)).decode("utf-8", "replace")
    groups = registry_groups(command)
    if UNREACHED.search(text) and not groups:
        return (OF_A_SUBMODULE if "submodule path '" in text else REACHING_REMOTES,)
    if _SSH_ALONE.search(text) and not groups:
        return (SSH_STAYS_OUTSIDE,)
    if _NO_NETWORK.search(text) or (groups and (_NO_REGISTRY.search(text) or UNREACHED.search(text))):
        groups = groups or tuple(group for group in GROUPS if any(host in text for host, _ in places_of_group(group)))
        if not groups:
            return (NETWORK_IS_OFF,)
        wanted = [f"{GROUP_PREFIX}{group}" for group in groups] + _FETCHED_BY_GIT.findall(text)
        named = ", ".join(f'"{one}"' for one in dict.fromkeys(wanted))
        return (f"The network is off inside; to install packages, name {named} in 'network' of exec_command.",)
    port = _OWN_PORT.search(text) if _REFUSED.search(text) else None
    if port is None:
        return ()
    return (
        f"Nothing inside listens at port {port[1]}: a server runs only as long as the call that started it; a service "
        f"of this computer is reached by a call with localhost:{port[1]} in 'network'.",
    )
