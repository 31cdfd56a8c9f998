"""A session on pages: what an event costs on its way to one page and to fifty, how soon it is seen, what a page keeps.

The pages of the first rows are sockets in another process, so that reading is not part of the figure. Beside them: a
bare `websockets` server that sends the same number of bytes to the same sockets, and knows nothing of sessions,
questions, histories or slow readers.

From the event to the pixel: Chromium draws the page; the clock stops in the frame after the one in which the text of a
message stands in the document.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.harness import Block, Pace, chromium_path, race_blocks
from benchmarks.rows import Row, at_most, below, row
from golem_forge.events.bus import EventBus
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import LoginStore
from golem_forge.ui.web.session_registry import SessionRegistry
from golem_forge.ui.web.stream.watched_session import LiveSession

BATCH: Final = 500
"""Events that are under way at once; a page may have 1,024 waiting."""
BATCHES: Final = 4
PAGES: Final = (1, 50)
IDLE_PAGES: Final = 100
SEEN: Final = 30
LONG: Final = 10_000
OPENED: Final = 5
IDLE_KIB: Final = 256.0
OURS, BARE = "ours", "a bare websockets server"
STATUS: Final = {"type": "info", "message": "compiling number one of the modules that this project has"}


async def rows(pace: Pace) -> list[Row]:
    found = [*[await _to_pages(pages, pace) for pages in PAGES], await _idle()]
    browser = chromium_path()
    if browser is None:
        print("no Chromium here: the time to the pixel is not measured", file=sys.stderr)
        return found
    return [*found, await _to_the_pixel(browser, pace.amount(SEEN)), await _long_history(browser, pace.amount(LONG))]


# ---- to sockets


async def _to_pages(pages: int, pace: Pace) -> Row:
    batches = pace.amount(BATCHES)
    async with (
        _session() as session,
        _bare_server() as bare,
        _readers(session.socket, session.origin, session.cookie, pages) as ours,
        _readers(bare.address, "", "", pages) as theirs,
    ):

        async def emit(_: Any) -> None:
            for _batch in range(batches):
                ours.expect(BATCH)
                for _each in range(BATCH):
                    session.bus.emit("status", STATUS)
                await ours.done()

        async def broadcast(_: Any) -> None:
            for _batch in range(batches):
                theirs.expect(BATCH)
                for _each in range(BATCH):
                    bare.send()
                await theirs.done()

        blocks = {OURS: Block(run=emit), BARE: Block(run=broadcast)}
        seconds = await race_blocks(blocks, rounds=max(pace.rounds // 3, 2))
    each = {name: value * 1e6 / (batches * BATCH) for name, value in seconds.items()}
    what = "1 page" if pages == 1 else f"{pages} pages"
    goal = at_most(4) if pages > 1 else None
    return row(f"an event to {what} (µs)", each[OURS], peer=each[BARE], peer_name=BARE, goal=goal)


async def _idle() -> Row:
    """What this process keeps for a page that looks and does nothing."""
    async with _session() as session, _readers(session.socket, session.origin, session.cookie, 10):
        before = _resident()
        async with _readers(session.socket, session.origin, session.cookie, IDLE_PAGES):
            kept = _resident() - before
    return row("memory of an idle page (KiB)", kept / IDLE_PAGES / 1024, goal=below(IDLE_KIB))


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- to the pixel


_WATCH: Final = """mark => new Promise(seen => {
  const look = () => document.querySelector('main')?.textContent.includes(mark)
    ? requestAnimationFrame(() => setTimeout(() => seen(performance.timeOrigin + performance.now()), 0))
    : requestAnimationFrame(look);
  look();
})"""


@asynccontextmanager
async def _page(browser: str, session: _Session) -> AsyncIterator[Any]:
    """Signed in, and ready to be written into."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = await playwright.chromium.launch(executable_path=browser, args=arguments)
        page = await chromium.new_page()
        await page.goto(session.link)
        await page.wait_for_selector("textarea")
        yield page
        await chromium.close()


async def _to_the_pixel(browser: str, count: int) -> Row:
    times: list[float] = []
    async with _session() as session, _page(browser, session) as page:
        for number in range(count):
            mark = f"mark-{number}-ends"
            watching = asyncio.ensure_future(page.evaluate(_WATCH, mark))
            await asyncio.sleep(0.1)
            began = time.time()
            session.bus.emit("message", {"message": {"role": "assistant", "content": f"Look: **{mark}**"}})
            times.append(await watching / 1e3 - began)
    return row("an event to the pixel (ms)", median(times) * 1e3)


async def _long_history(browser: str, count: int) -> Row:
    """From the address to a page that shows the last words of a long session and takes what is typed."""
    times: list[float] = []
    async with _session() as session, _page(browser, session) as page:
        for number in range(1, count + 1):
            role = "user" if number % 2 else "assistant"
            session.bus.emit(
                "message", {"message": {"role": role, "content": f"**message** {number}, which ends here"}}
            )
        for _ in range(OPENED):
            await page.goto("about:blank")
            began = time.time()
            await page.goto(session.origin, wait_until="commit")
            await page.evaluate(_WATCH, f"message {count}, which ends here")
            await page.fill("textarea", "typed")
            times.append(time.time() - began)
    name = f"a page of {count:,} events, opened until it can be used (ms)"
    return row(name, median(times) * 1e3)


# ---- what they run against


class _Session:
    def __init__(self, bus: EventBus, server: WebServer) -> None:
        self.bus = bus
        self.origin = server.address.rstrip("/")
        self.link = server.url
        self.socket = f"{self.origin.replace('http', 'ws', 1)}/api/sessions/{bus.session_id}/stream"
        self.cookie = ""

    async def enter(self) -> None:
        """As a page does: the code of a link for a cookie."""
        host, _, port = self.origin.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"code": self.link.partition("#code=")[2]})
        writer.write(
            (
                f"POST /api/login HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {self.origin}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            ).encode()
        )
        answer = (await reader.read()).decode()
        writer.close()
        given = next(line for line in answer.split("\r\n") if line.lower().startswith("set-cookie:"))
        name, morsel = next(iter(SimpleCookie(given.partition(":")[2]).items()))
        self.cookie = f"{name}={morsel.value}"


@asynccontextmanager
async def _session() -> AsyncIterator[_Session]:
    with tempfile.TemporaryDirectory(prefix="bench-web-") as folder:
        bus = EventBus("bench")
        house = SessionRegistry(ForgeHome(Path(folder) / "home"), Path(folder))
        server = WebServer(house, ListenAddress(), LoginStore())
        await server.start()
        live = LiveSession(None, bus, house.home.path, Path(folder))
        await live.open()
        await house.add(live)
        session = _Session(bus, server)
        await session.enter()
        session.link = server.url
        try:
            yield session
        finally:
            await house.close()
            await server.stop()


class _Bare:
    def __init__(self) -> None:
        self.address = ""
        self.connections: set[Any] = set()
        event = {"type": "status", "seq": 1, "ts": "2026-01-01T00:00:00.000Z", "sessionId": "bench", "workerId": ""}
        self._text = json.dumps({"kind": "event", "event": {**event, "data": STATUS}}, separators=(",", ":"))

    def send(self) -> None:
        from websockets.asyncio.server import broadcast

        broadcast(self.connections, self._text)


@asynccontextmanager
async def _bare_server() -> AsyncIterator[_Bare]:
    from websockets.asyncio.server import serve

    bare = _Bare()

    async def stay(connection: Any) -> None:
        bare.connections.add(connection)
        await connection.wait_closed()

    async with serve(stay, "127.0.0.1", 0, compression=None) as server:
        bare.address = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        yield bare


class _Readers:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def expect(self, events: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{events}\n".encode())

    async def done(self) -> None:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line.strip() in (b"done", b"ready"), line


@asynccontextmanager
async def _readers(address: str, origin: str, cookie: str, count: int) -> AsyncIterator[_Readers]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.web_readers", address, origin, cookie, str(count)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    readers = _Readers(process)
    try:
        await readers.done()
        yield readers
    finally:
        process.kill()
        await process.wait()
