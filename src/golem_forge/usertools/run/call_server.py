"""CallServer: the socket through which one running tool calls other tools, for as long as it runs.

An async context manager around one run; `shown`, `env` and `path` go into the tool's Job. A request is one line of
JSON, `{token, name, words | args, json | value}`; the answer has the words and exit codes of `forge call`. Each call
re-enters the one path as the tool's own: it is judged, approved and recorded by itself. A name that is not under
`calls` and more than 200 calls are refused, which is recorded too. `{token, op, …}` asks what there is to call
(`tools`, `describe`, `search`); of a program (`usertools.program`) it also gives its answer and reads long results.
`ReplayingCallServer` makes no call at all: a tool finds it while its tests run, and is answered what was recorded, if
anything was.

The client (`client/`: the command `forge`, the modules `forge_tool` and `forge_tools`, and `tools`, another name of the
latter) is written once below FORGE_HOME/cache/inside/<digest>, for the Python that Forge runs on, and shown at
`/forge/bin`; safe to delete. Refuses (ToolFailed) a Python whose own directory must stay hidden.

Threats: a tool that floods the server (one request a connection, a bounded number of them, sixteen at a time, each
small and with a timeout), and somebody else who finds the socket (a token, which expires with the run). Leaving ends
the calls that are under way. Who calls, and for which call, is known from the run that the server belongs to; nothing
in a request can say it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shlex
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import EXIT_CODES, Caller, Outcome, ToolCall, outcome_json
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.process.child import listen_in
from golem_forge.sandbox.walls.model import HostDirectory, Level
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.cli_args import bind_options, words_as_tokens
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.usertools.folder import private_directory, remove_tree
from golem_forge.usertools.run.interpreter import CALL_DIRECTORY
from golem_forge.usertools.run.tool_values import (
    KeptHandles,
    Recording,
    Replay,
    describe_tool,
    list_tools,
    replayed_answer,
    value_answer,
)

AT_ONCE: Final = 16
MOST_CALLS: Final = 200
MOST_LOOKUPS: Final = 200
"""Requests that are no calls: what there is to call, parts of long results."""
MOST_MORE: Final = 56
"""Requests over those limits that are answered, in so many words. After that nobody listens: a tool that goes on is not
worth Forge's time."""
REQUEST_TIMEOUT_S: Final = 5.0
_SOCKET_NAME: Final = "socket"
_BACKLOG: Final = 256


class CallServer(ABC):
    def __init__(self, home: ForgeHome, root: str, level: Level, most_calls: int = MOST_CALLS) -> None:
        """`root`: the part of the token that is kept out of all output, which makes the rest of it worthless; `level`:
        of the walls that the tool runs in."""
        self.most_calls = most_calls
        self._home = home
        self._token = f"{root}-{secrets.token_hex(16)}"
        self._level = level
        self._folders: tuple[HostDirectory, ...] = ()
        self._stack = contextlib.ExitStack()
        self._listening: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._lookups = 0

    @abstractmethod
    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        """Answers a call of the tool; `number` counts its calls from 1."""

    @abstractmethod
    async def look_up(self, request: LookupRequest) -> dict[str, Any]:
        """Answers a question about callable tools. Raises ForgeError."""

    def prepare(self, directory: Path) -> None:  # noqa: B027 - most have none
        """Puts further files beside the socket, where the tool may read them."""

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        """Directories for the walls: the socket, the command and its interpreter."""
        return self._folders

    @property
    def env(self) -> dict[str, str]:
        return {"FORGE_SOCKET": f"{self._at(self._folders[0])}/{_SOCKET_NAME}", "FORGE_CALL_TOKEN": self._token}

    @property
    def path(self) -> tuple[str, ...]:
        """Comes first on the tool's PATH, and last on the search path of a Python tool."""
        return (self._at(self._folders[1]),)

    async def __aenter__(self) -> CallServer:
        try:
            client = client_folder(self._home)
            directory = str(self._stack.enter_context(private_directory(self._home, "calls")).resolve())
            self._folders = (HostDirectory(directory, CALL_DIRECTORY), *client)
            self.prepare(Path(directory))
            listener = self._stack.enter_context(listen_in(directory, _SOCKET_NAME, _BACKLOG))
        except BaseException:
            self._stack.close()
            raise
        self._listening = asyncio.get_running_loop().create_task(self._listen(listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        ended = (self._listening, *self._serving)
        for task in ended:
            task.cancel()
        try:
            await asyncio.gather(*ended, return_exceptions=True)
        finally:
            self._stack.close()

    def _at(self, folder: HostDirectory) -> str:
        return folder.inner if self._level is Level.FULL else folder.host

    async def _listen(self, listener: socket.socket) -> None:
        """Accepts connections; while sixteen are served, others wait in the kernel."""
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(AT_ONCE)
        with listener:
            for _ in range(self.most_calls + MOST_LOOKUPS + MOST_MORE):
                await free.acquire()
                try:
                    wire, _address = await loop.sock_accept(listener)
                except OSError:  # no descriptor is left, or whoever came is gone
                    free.release()
                    await asyncio.sleep(0.05)
                    continue
                task = loop.create_task(self._serve(wire))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
                task.add_done_callback(lambda _: free.release())

    async def _serve(self, wire: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=wire, limit=LONGEST_REQUEST)
        except BaseException:
            wire.close()
            raise
        try:
            answer = await self._read_and_answer(reader)
            if answer is not None:
                writer.write(json.dumps(answer, default=str).encode() + b"\n")
                await writer.drain()
        except OSError:
            return  # it hung up
        finally:
            writer.close()

    async def _read_and_answer(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                line = await reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, TimeoutError):
            return None
        except asyncio.LimitOverrunError:
            return refusal_answer(Status.INPUT_INVALID, f"a request has at most {LONGEST_REQUEST >> 20} MiB")
        request = parse_request(line, self._token)
        if request is None:
            return refusal_answer(Status.POLICY_DENIED, "this request does not come from a running tool")
        if isinstance(request, LookupRequest):
            self._lookups += request.op != "answer"  # which gives something, and is bounded by the connections
            if self._lookups > MOST_LOOKUPS:
                why = f"one run may ask at most {MOST_LOOKUPS} times what there is to call"
                return refusal_answer(Status.POLICY_DENIED, why)
            return await self._while_wanted(self.look_up(request), reader)
        self._calls += 1
        return await self._while_wanted(self.answer(request, self._calls), reader)

    async def _while_wanted(self, answering: Any, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """Awaits an answer; None if the client has gone, which also ends the call."""
        call: asyncio.Task[dict[str, Any]] = asyncio.ensure_future(answering)
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((call, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and leaving.exception() is None and leaving.result():
                await asyncio.wait((call,))  # it said more than it was asked for, and is still there
            return call.result() if call.done() else None
        except ForgeError as error:
            return refusal_answer(error.status, error.message)
        except Exception:  # its text may carry what a tool must not read
            return refusal_answer(Status.EXECUTION_FAILED, "the call could not be made")
        finally:
            for task in (call, leaving):
                task.cancel()
            await asyncio.gather(call, leaving, return_exceptions=True)


FROM_A_TEST: Final = "tools cannot be called from a test"
ToolLookup = Callable[[str], Awaitable["Tool | None"]]
"""A tool by the name that a tool calls it by, for its parameters; None or a ForgeError: there is none."""


@dataclass(slots=True)
class _SessionSecret:
    """One secret for a session, so that the Redactor need not learn one for every run; each run's token adds to it."""

    secret: str = field(default_factory=lambda: secrets.token_hex(16))


class SessionCallServer(CallServer):
    """Serves the calls of one run in a session; they go through the stages as calls of `ctx`."""

    def __init__(self, ctx: ToolContext, level: Level, most_calls: int = MOST_CALLS) -> None:
        """Adds its token to the redactor."""
        root = ctx.parts.get(_SessionSecret).secret
        if ctx.redactor is not None and root not in ctx.redactor.secrets:
            ctx.redactor.add_secret("FORGE_CALL_TOKEN", root)
        home = ForgeHome(ctx.home) if ctx.home is not None else forge_home()
        super().__init__(home, root, level, most_calls)
        self.ctx = ctx
        self.handles = KeptHandles()

    def visible_tools(self) -> Mapping[str, Tool]:
        """Returns the tools that the run may call and see."""
        return self.ctx.offered.usable_tools() if self.ctx.offered is not None else {}

    async def find_tool(self, name: str) -> Tool | None:
        """The tool that a call by this name would reach, for its parameters; None: there is none."""
        return self.visible_tools().get(name)

    def search_tools(self, query: str, limit: int) -> Sequence[Tool]:
        return ()

    async def look_up(self, request: LookupRequest) -> dict[str, Any]:
        redactor, said = self.ctx.redactor, request.said
        if request.op == "tools":
            return {"status": Status.SUCCESS.value, **list_tools(self.visible_tools().values())}
        if request.op == "describe":
            name = said.get("name")
            tool = await self.find_tool(name) if isinstance(name, str) else None
            if tool is None:
                shown = escape_control_chars(str(name)[:LONGEST_NAME])
                return refusal_answer(Status.TOOL_NOT_FOUND, f"there is no tool '{shown}' here")
            return {"status": Status.SUCCESS.value, "tool": describe_tool(tool, redactor)}
        if request.op == "search":
            query, limit = str(said.get("query", ""))[:_LONGEST_QUERY], said.get("limit")
            found = self.search_tools(query, min(max(limit, 1), _MOST_FOUND) if isinstance(limit, int) else 5)
            return {"status": Status.SUCCESS.value, "tools": [describe_tool(tool, redactor) for tool in found]}
        if request.op == "read":
            return await self.handles.read(said)
        return refusal_answer(Status.INPUT_INVALID, f"there is no request '{escape_control_chars(request.op[:80])}'")

    async def arguments(self, request: CallRequest) -> Any:
        """Raises ValueError, in words for whoever wrote the call."""
        if request.words is None:
            return request.args  # a text is read, and refused, by the path
        try:
            tool = await self.find_tool(request.name)
        except ForgeError:
            tool = None
        return {} if tool is None else bind_options(tool.input_schema, words_as_tokens(request.words))

    async def answer_of(self, outcome: Outcome, request: CallRequest) -> dict[str, Any]:
        if not request.wants_value:
            return outcome_answer(outcome, request, self.ctx.session_id)
        return await value_answer(outcome, self.ctx, self.handles)


class ToolCallServer(SessionCallServer):
    def __init__(
        self, ctx: ToolContext, lookup: ToolLookup, calls: tuple[str, ...], deadline: float, level: Level = Level.FULL
    ) -> None:
        """Serves one run that ends at `deadline` (Unix seconds), in walls of this level."""
        super().__init__(ctx, level)
        self._lookup = lookup
        self._names = frozenset(calls)
        self._deadline = time.monotonic() + deadline - time.time()

    def visible_tools(self) -> Mapping[str, Tool]:
        return {name: tool for name, tool in super().visible_tools().items() if name in self._names}

    async def find_tool(self, name: str) -> Tool | None:
        return await self._lookup(name) if name in self._names else None

    def search_tools(self, query: str, limit: int) -> Sequence[Tool]:
        offered = self.ctx.offered
        found = offered.search_tools(query, _MOST_SEARCHED) if offered is not None else ()
        return [tool for tool in found if tool.name in self._names][:limit]

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        ctx, why = self.ctx, ""
        if number > self.most_calls:
            why = f"a tool may call others at most {self.most_calls} times in one run"
        elif request.name not in self._names:
            why = f"this tool does not list '{request.name}' under `calls` in its tool.yaml"
        if why:
            given = {} if request.args is None else request.args
            return await self.answer_of(await ctx.call(request.name, given, refuse=why), request)
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                try:
                    args = await self.arguments(request)
                except ValueError as error:
                    return refusal_answer(Status.INPUT_INVALID, f"{request.name}: {error}")
                if request.wants_value:
                    outcome = await ctx.call(request.name, args, whole=True)
                else:
                    outcome = await ctx.call(request.name, args)
        except TimeoutError:
            return refusal_answer(Status.TIMEOUT, "the calling tool has reached its time limit")
        return await self.answer_of(outcome, request)


class ReplayingCallServer(CallServer):
    """Serves a tool under test: makes no call, answers recorded ones, and denies all others."""

    def __init__(self, home: ForgeHome, recording: Recording | None = None) -> None:
        super().__init__(home, secrets.token_hex(16), Level.FULL)
        self._replay = Replay(recording or Recording())

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        found = self._replay.answer(request.name, {} if request.words is not None else request.args)
        if found is not None:
            return replayed_answer(found, request.wants_value)
        call = ToolCall(request.name, request.args, Caller.TOOL)
        refused = Outcome(call, request.name, Status.POLICY_DENIED, error=FROM_A_TEST)
        return outcome_answer(refused, request, session_id="")

    async def look_up(self, request: LookupRequest) -> dict[str, Any]:
        recording = self._replay.recording
        if request.op == "tools":
            names = list(dict.fromkeys(each.name for each in recording.calls))
            return {"status": Status.SUCCESS.value, "names": names, "servers": _by_server(names)}
        described = recording.describe(str(request.said.get("name"))) if request.op == "describe" else None
        if described is None:
            return refusal_answer(Status.POLICY_DENIED, FROM_A_TEST)
        return {"status": Status.SUCCESS.value, "tool": described}


def _by_server(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Names of tools of servers, `git__log`, as the server calls them."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        server, separator, tool = name.partition("__")
        if separator:
            found.setdefault(server, {})[tool] = name
    return found


LONGEST_REQUEST: Final = 1 << 20
"""Maximum bytes of a request."""
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    name: str
    words: tuple[str, ...] | None
    """Options still to be bound to the tool's parameters; None: `args` has them."""
    args: Any
    """A mapping, or the raw JSON text of one."""
    wants_outcome: bool
    wants_value: bool = False
    """Whether it asks for a function's value instead of text."""


@dataclass(frozen=True, slots=True)
class LookupRequest:
    op: str
    said: Mapping[str, Any]
    size: int
    """Size of the request in bytes."""


_LONGEST_QUERY: Final = 500
_MOST_FOUND: Final = 20
_MOST_SEARCHED: Final = 1000


def parse_request(line: bytes, token: str) -> CallRequest | LookupRequest | None:
    """Parses a request; None if it is malformed or has another token."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    given, name, words, args = said.get("token"), said.get("name"), said.get("words"), said.get("args")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return None
    if isinstance(op := said.get("op"), str):
        return LookupRequest(op, said, len(line))
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or (words is None) == (args is None):
        return None
    wants_outcome = said.get("json") is True
    if isinstance(args, dict | str):
        wants_value = said.get("value") is True
        return CallRequest(name=name, words=None, args=args, wants_outcome=wants_outcome, wants_value=wants_value)
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return CallRequest(name=name, words=tuple(words), args=None, wants_outcome=wants_outcome)
    return None


def outcome_answer(outcome: Outcome, request: CallRequest, session_id: str) -> dict[str, Any]:
    """Returns the output and exit code of `forge call`, and the whole Outcome if it was requested."""
    text = outcome.text_without_leftovers if outcome.ok else (outcome.result.text if outcome.result else "")
    left = "".join(f"forge: {escape_control_chars(line)}\n" for line in outcome.leftover_texts)
    answer: dict[str, Any] = {
        "status": outcome.status.value,
        "exit": EXIT_CODES[outcome.status],
        "stdout": text if text.endswith("\n") or not text else text + "\n",
        "stderr": left if outcome.ok else left + _error_line(outcome.status, outcome.error),
    }
    return answer | {"outcome": outcome_json(outcome, session_id)} if request.wants_outcome else answer


def refusal_answer(status: Status, why: str) -> dict[str, Any]:
    """Returns the answer to a request that has no Outcome."""
    return {"status": status.value, "exit": EXIT_CODES[status], "stdout": "", "stderr": _error_line(status, why)}


def _error_line(status: Status, why: str) -> str:
    return f"forge: {status.value}: {escape_control_chars(why)}\n"


CLIENT_DIR: Final = "/forge/bin"
_COMMAND: Final = "forge"
_LIBRARIES: Final = ("forge_tool.py", "forge_tools.py")
_OTHER_NAME: Final = b"import sys\n\nimport forge_tools\n\nsys.modules[__name__] = forge_tools\n"
"""`tools` is another name of `forge_tools`."""


def client_folder(home: ForgeHome) -> tuple[HostDirectory, ...]:
    """Returns the directories to show: the command at `/forge/bin`, and the interpreter that it needs."""
    python, why = own_python_directory(home.path)
    if why:
        raise ToolFailed(f"Tools cannot call others: the directory of this Python {why}. Install Forge elsewhere.")
    further = (HostDirectory(python, python),) if python else ()
    source = Path(__file__).parent / "client"
    # For a shell the lines that start Python, for Python a text: the kernel's own `#!` takes neither a long path nor
    # one with a space.
    header = f"#!/bin/sh\n''':'\nexec {shlex.quote(base_python())} -E -s -S -B \"$0\" \"$@\"\n'''\n"
    files = {
        _COMMAND: header.encode() + (source / "forge_command.py").read_bytes(),
        **{name: (source / name).read_bytes() for name in _LIBRARIES},
        "tools.py": _OTHER_NAME,
    }
    return (HostDirectory(os.path.realpath(_write_client(home, files)), CLIENT_DIR), *further)


def _write_client(home: ForgeHome, files: dict[str, bytes]) -> Path:
    content = hashlib.sha256()
    for name, data in files.items():
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    parent = home.ensure("cache", "inside")
    place = parent / content.hexdigest()[:32]
    if _has_files(place, files):
        return place
    made = Path(tempfile.mkdtemp(dir=parent))
    try:
        for name, data in files.items():
            (made / name).write_bytes(data)
            (made / name).chmod(0o500 if name == _COMMAND else 0o400)
        made.chmod(0o700)
        if os.path.lexists(place):
            place.rename(Path(tempfile.mkdtemp(dir=parent)) / "old")  # something else, or damaged
        made.rename(place)
    except OSError:
        remove_tree(made)
        if not _has_files(place, files):  # else another Forge was quicker
            raise
    return place


def _has_files(place: Path, files: dict[str, bytes]) -> bool:
    try:
        return sorted(os.listdir(place)) == sorted(files) and all(
            (place / name).read_bytes() == data for name, data in files.items()
        )
    except OSError:
        return False
