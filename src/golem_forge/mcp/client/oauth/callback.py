"""CallbackListener: a port on this machine that waits for the browser to bring the authorization code. Used once.

Only `GET /callback` with the state of the login at hand counts; everything else gets an error page and changes nothing.
Threat: any page in the browser, and any program here, can knock on a loopback port. Nothing of a request is ever
repeated in an answer.
"""

from __future__ import annotations

import asyncio
import re
from secrets import compare_digest
from types import TracebackType
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from golem_forge.core.errors import ForgeError

PATH: Final = "/callback"
_HOST: Final = "127.0.0.1"
_LONGEST: Final = 16 * 1024
_READ_S: Final = 10.0
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Golem Forge</title>"
    "<body style='font-family:system-ui;margin:4em auto;max-width:30em'><p>{words}</p>"
)


class Brought(NamedTuple):
    code: str
    state: str
    iss: str | None


class CallbackListener:
    def __init__(self, port: int = 0) -> None:
        """`port`: the one that was registered before, if it is free; else any."""
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._state = ""
        self._brought: asyncio.Future[Brought]
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}{PATH}"

    async def __aenter__(self) -> CallbackListener:
        self._brought = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._take, _HOST, self._wanted, limit=_LONGEST)
        except OSError:
            self._server = await asyncio.start_server(self._take, _HOST, 0, limit=_LONGEST)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()

    async def brought(self, state: str) -> Brought:
        """What the browser brings for the login with this state. Raises ForgeError where the person was refused."""
        self._state = state
        return await self._brought

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, words = self._judge(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
                body = _PAGE.format(words=words).encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _judge(self, request_line: str) -> tuple[str, str]:
        method, _, rest = request_line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", "There is nothing here."
        given = {name: values[0] for name, values in parse_qs(target.query, max_num_fields=20).items()}
        state = given.get("state", "")
        ours = bool(self._state) and compare_digest(state.encode(), self._state.encode())
        if not ours or self._brought.done():
            return "400 Bad Request", "This is not the login that is being waited for."
        if code := given.get("code"):
            self._brought.set_result(Brought(code, state, given.get("iss")))
            return "200 OK", "You are logged in. You can close this page and go back to Forge."
        found = _ERROR_CODE.fullmatch(given.get("error", ""))
        reason = found[0] if found else "no code was sent"
        self._brought.set_exception(ForgeError(f"the login was refused: {reason}", code="LOGIN_REFUSED"))
        return "200 OK", "The login was refused. You can close this page."
