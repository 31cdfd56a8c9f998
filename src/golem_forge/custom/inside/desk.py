"""Desk: the socket through which one running tool speaks with Forge, for as long as it runs.

An async context manager around one run. What it gives (`shown`, `env`, `path`) goes into the tool's Job; what is
answered is its children's business. Threats: a tool that floods it (one request a connection, a bounded number of
those, eight at a time, each small and soon), and somebody else who finds the socket (a token, which dies with the run).
Leaving ends the calls that are under way. Only the tool that misbehaves waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from abc import ABC, abstractmethod
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.custom.inside.call_request import LONGEST, Request, read_request, refusal, written
from golem_forge.custom.inside.client_folder import client_folder
from golem_forge.custom.inside.interpreters import CALL_DIRECTORY
from golem_forge.custom.rooms import private_directory
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.levels import Level

AT_ONCE: Final = 8
MOST_CONNECTIONS: Final = 256
"""Whatever they bring. After that nobody listens: a tool that goes on is not worth Forge's time."""
ASK_WITHIN_S: Final = 5.0
_SOCKET: Final = "socket"


class Desk(ABC):
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
    async def answer(self, request: Request, number: int) -> dict[str, Any]:
        """What the tool is told; `number`: which of its requests this is, from 1."""

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        """The socket, the command and what it runs on."""
        return self._folders

    @property
    def env(self) -> dict[str, str]:
        return {"FORGE_SOCKET": f"{self._at(self._folders[0])}/{_SOCKET}", "FORGE_CALL_TOKEN": self._token}

    @property
    def path(self) -> tuple[str, ...]:
        """Comes first on the tool's PATH, and last on the search path of a Python tool."""
        return (self._at(self._folders[1]),)

    async def __aenter__(self) -> Desk:
        try:
            client = client_folder(self._home)
            directory = str(self._stack.enter_context(private_directory(self._home, "calls")).resolve())
            self._folders = (HostDirectory(directory, CALL_DIRECTORY), *client)
            listener = self._stack.enter_context(_listener(directory))
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
            reader, writer = await asyncio.open_connection(sock=wire, limit=LONGEST)
        except BaseException:
            wire.close()
            raise
        try:
            told = await self._heard(reader)
            if told is not None:
                writer.write(written(told))
                await writer.drain()
        except OSError:
            return  # it hung up
        finally:
            writer.close()

    async def _heard(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                line = await reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, TimeoutError):
            return None
        except asyncio.LimitOverrunError:
            return refusal(Status.INPUT_INVALID, f"a request has at most {LONGEST >> 20} MiB")
        request = read_request(line, self._token)
        if request is None:
            return refusal(Status.POLICY_DENIED, "this is no request of a running tool")
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
            return refusal(error.status, error.message)
        except Exception:  # its text may carry what a tool must not read
            return refusal(Status.EXECUTION_FAILED, "the call could not be made")
        finally:
            for task in (call, leaving):
                task.cancel()
            await asyncio.gather(call, leaving, return_exceptions=True)


def _listener(directory: str) -> socket.socket:
    """Bound through the directory's handle: the path itself may be longer than a socket's address can be."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)
        made.bind(f"/proc/self/fd/{handle}/{_SOCKET}")
        made.listen(MOST_CONNECTIONS)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(handle)
    return made
