"""CallServer: the socket through which one running tool calls other tools, for as long as it runs.

An async context manager around one run; `shown`, `env` and `path` go into the tool's Job. A request is one line of
JSON, `{token, name, words | args, json}`; the answer has the words and exit codes of `forge call`. Each call re-enters
the one path as the tool's own: it is judged, approved and recorded by itself. A name that is not under `calls` and
more than 64 calls are refused, which is recorded too. `RefusingCallServer` denies everything: a tool finds it while
its tests run.

The client (`client/`: the command `forge` and the module `forge_tool`) is written once below
FORGE_HOME/cache/inside/<digest>, for the Python that Forge runs on, and shown at `/forge/bin`; safe to delete. Refuses
(ToolFailed) a Python whose own directory must stay hidden.

Threats: a tool that floods the server (one request a connection, a bounded number of them, eight at a time, each small
and with a timeout), and somebody else who finds the socket (a token, which expires with the run). Leaving ends the
calls that are under way.
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
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import EXIT_CODES, Caller, Outcome, ToolCall, outcome_json
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.model import HostDirectory, Level
from golem_forge.sandbox.walls.socket_child import listen_in
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.cli_args import bind_options, words_as_tokens
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.usertools.run.interpreter import CALL_DIRECTORY
from golem_forge.usertools.scratch import private_directory, remove_tree

AT_ONCE: Final = 8
MOST_CONNECTIONS: Final = 256
"""Whatever they bring. After that nobody listens: a tool that goes on is not worth Forge's time."""
REQUEST_TIMEOUT_S: Final = 5.0
_SOCKET_NAME: Final = "socket"


class CallServer(ABC):
    def __init__(self, home: ForgeHome, root: str, level: Level) -> None:
        """`root`: the part of the token that is kept out of all output, which makes the rest of it worthless; `level`:
        of the walls that the tool runs in."""
        self._home = home
        self._token = f"{root}-{secrets.token_hex(16)}"
        self._level = level
        self._folders: tuple[HostDirectory, ...] = ()
        self._stack = contextlib.ExitStack()
        self._listening: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._calls = 0

    @abstractmethod
    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        """What the tool is told; `number`: which of its requests this is, from 1."""

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        """The socket, the command and what it runs on."""
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
            listener = self._stack.enter_context(listen_in(directory, _SOCKET_NAME, MOST_CONNECTIONS))
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
        """Who comes while eight are served waits with the kernel."""
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(AT_ONCE)
        with listener:
            for _ in range(MOST_CONNECTIONS):
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
        self._calls += 1
        return await self._while_wanted(self.answer(request, self._calls), reader)

    async def _while_wanted(self, answering: Any, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """None: whoever asked is gone, and with it the call that nobody waits for any more."""
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


MOST_CALLS: Final = 64
FROM_A_TEST: Final = "tools cannot be called from a test"
ToolLookup = Callable[[str], Awaitable["Tool | None"]]
"""A tool by the name that a tool calls it by, for its parameters; None or a ForgeError: there is none."""


@dataclass(slots=True)
class _SessionSecret:
    """One secret for a session, so that the Redactor need not learn one for every run; each run's token adds to it."""

    secret: str = field(default_factory=lambda: secrets.token_hex(16))


class ToolCallServer(CallServer):
    def __init__(
        self, ctx: ToolContext, lookup: ToolLookup, calls: tuple[str, ...], deadline: float, level: Level = Level.FULL
    ) -> None:
        """For one run that ends at `deadline` (Unix seconds), in walls of this level. Its token is a secret from now
        on."""
        root = ctx.parts.get(_SessionSecret).secret
        if ctx.redactor is not None and root not in ctx.redactor.secrets:
            ctx.redactor.add_secret("FORGE_CALL_TOKEN", root)
        super().__init__(ForgeHome(ctx.home) if ctx.home is not None else forge_home(), root, level)
        self._ctx = ctx
        self._lookup = lookup
        self._names = frozenset(calls)
        self._deadline = time.monotonic() + deadline - time.time()

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        ctx, why = self._ctx, ""
        if number > MOST_CALLS:
            why = f"a tool may call others at most {MOST_CALLS} times in one run"
        elif request.name not in self._names:
            why = f"this tool does not list '{request.name}' under `calls` in its tool.yaml"
        if why:
            given = {} if request.args is None else request.args
            return outcome_answer(await ctx.call(request.name, given, refuse=why), request, ctx.session_id)
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                try:
                    args = await self._arguments(request)
                except ValueError as error:
                    return refusal_answer(Status.INPUT_INVALID, f"{request.name}: {error}")
                outcome = await ctx.call(request.name, args)
        except TimeoutError:
            return refusal_answer(Status.TIMEOUT, "the calling tool has reached its time limit")
        return outcome_answer(outcome, request, ctx.session_id)

    async def _arguments(self, request: CallRequest) -> Any:
        """Raises ValueError, in words for whoever wrote the call."""
        if request.words is None:
            return request.args  # a text is read, and refused, by the path
        try:
            tool = await self._lookup(request.name)
        except ForgeError:
            tool = None
        return {} if tool is None else bind_options(tool.input_schema, words_as_tokens(request.words))


class RefusingCallServer(CallServer):
    def __init__(self, home: ForgeHome) -> None:
        super().__init__(home, secrets.token_hex(16), Level.FULL)

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        call = ToolCall(request.name, request.args, Caller.TOOL)
        refused = Outcome(call, request.name, Status.POLICY_DENIED, error=FROM_A_TEST)
        return outcome_answer(refused, request, session_id="")


LONGEST_REQUEST: Final = 1 << 20
"""Bytes of a request."""
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    name: str
    words: tuple[str, ...] | None
    """Options still to be bound to the tool's parameters; None: `args` has them."""
    args: Any
    """A mapping, or the raw JSON text of one."""
    wants_outcome: bool


def parse_request(line: bytes, token: str) -> CallRequest | None:
    """None: no request, or not of the tool that this token was given to."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    given, name, words, args = said.get("token"), said.get("name"), said.get("words"), said.get("args")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or (words is None) == (args is None):
        return None
    wants_outcome = said.get("json") is True
    if isinstance(args, dict | str):
        return CallRequest(name=name, words=None, args=args, wants_outcome=wants_outcome)
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return CallRequest(name=name, words=tuple(words), args=None, wants_outcome=wants_outcome)
    return None


def outcome_answer(outcome: Outcome, request: CallRequest, session_id: str) -> dict[str, Any]:
    """What `forge call` prints and exits with, and the whole Outcome for whoever asked for it."""
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
    """Where there is no Outcome to tell of."""
    return {"status": status.value, "exit": EXIT_CODES[status], "stdout": "", "stderr": _error_line(status, why)}


def _error_line(status: Status, why: str) -> str:
    return f"forge: {status.value}: {escape_control_chars(why)}\n"


CLIENT_DIR: Final = "/forge/bin"
_COMMAND: Final = "forge"
_LIBRARY: Final = "forge_tool.py"


def client_folder(home: ForgeHome) -> tuple[HostDirectory, ...]:
    """What to show: the folder with the command, at `/forge/bin`, and the interpreter that it needs."""
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
        _LIBRARY: (source / _LIBRARY).read_bytes(),
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
