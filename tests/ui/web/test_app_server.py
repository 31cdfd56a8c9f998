"""The server itself: where it listens, what it holds out against, and that nothing of it is left when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer, within
from tests.ui.web.bench import until
from tests.ui.web.front import LARGE, SOCKET, Front, front
from tests.ui.web.stranger import request
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from golem_forge.core.errors import ForgeError
from golem_forge.net import server
from golem_forge.ui.web import app, need_web, security
from golem_forge.ui.web.listen import ListenAddress, check_address


@contextlib.asynccontextmanager
async def socket_of(served: Front, cookie: str = "", **more: Any) -> AsyncIterator[ClientConnection]:
    headers = {"Cookie": cookie or served.cookie}
    url = f"ws://127.0.0.1:{served.port}{SOCKET}"
    how: Any = {"origin": served.address, "additional_headers": headers, "proxy": None, "open_timeout": PATIENCE}
    async with connect(url, **how | more) as page:
        yield page


@contextlib.asynccontextmanager
async def deaf(served: Front, cookie: str = "") -> AsyncIterator[None]:
    """A page that is sent more than fits on the way, and reads none of it."""
    async with socket_of(served, cookie, max_size=None) as page:
        page.transport.pause_reading()
        filling = asyncio.create_task(_fill(page))
        await asyncio.wait({filling}, timeout=0.3)
        try:
            yield
        finally:
            filling.cancel()
            page.transport.abort()
            await asyncio.wait({filling})


async def _fill(page: ClientConnection) -> None:
    for _ in range(40):
        await page.send("x" * (1 << 20))


@contextlib.asynccontextmanager
async def asking_for(served: Front, path: str) -> AsyncIterator[None]:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request(served.address, path, Cookie=served.cookie).encode())
    try:
        yield
    finally:
        writer.close()


class TestReach:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.test", ""])
    async def test_what_others_reach_needs_a_name(self, host: str) -> None:
        with pytest.raises(ForgeError, match="--allow-host") as caught:
            check_address(ListenAddress(host=host))
        assert caught.value.code == "BIND_REFUSED"
        check_address(ListenAddress(host=host, allow_hosts=("forge.test",)))

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
    def test_loopback_needs_none(self, host: str) -> None:
        check_address(ListenAddress(host=host))

    @pytest.mark.parametrize(
        "name", ["*", "", "http://forge.test", "a/b", "a b", "a\r\nb", "x" * 300, "::1", "a:b", "*.test"]
    )
    def test_what_is_no_name(self, name: str) -> None:
        with pytest.raises(ForgeError, match="NAME:PORT"):
            check_address(ListenAddress(allow_hosts=(name,)))

    @pytest.mark.parametrize(
        ("reach", "address"),
        [
            (ListenAddress(), "http://127.0.0.1:80/"),
            (ListenAddress(host="::1"), "http://[::1]:80/"),
            (ListenAddress(host="localhost", allow_hosts=("forge.test",)), "http://localhost:80/"),
            (ListenAddress(host="0.0.0.0", allow_hosts=("forge.test", "b.test")), "http://forge.test:80/"),
            (ListenAddress(host="0.0.0.0", allow_hosts=("forge.test:99",)), "http://forge.test:99/"),
        ],
    )
    def test_what_a_person_opens(self, reach: ListenAddress, address: str) -> None:
        assert reach.address(80) == address

    async def test_another_loopback_address(self) -> None:
        async with front(ListenAddress(host="127.0.0.2")) as served:
            assert served.server.address == f"http://127.0.0.2:{served.port}/"
            reader, writer = await asyncio.open_connection("127.0.0.2", served.port)
            writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.2:{served.port}\r\n\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()

    async def test_loopback_alone_is_listened_on(self, served: Front) -> None:
        assert served.server._server is not None
        names = [each.getsockname() for server in served.server._server.servers for each in server.sockets]
        assert names == [("127.0.0.1", served.port)]

    async def test_a_taken_port_is_said(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ForgeError, match=r"cannot listen at 127\.0\.0\.1:\d+: .*ui\.web\.port"):
                async with front(ListenAddress(port=taken.getsockname()[1])):
                    raise AssertionError("it listens")

    async def test_the_same_port_at_once_again(self) -> None:
        async with front() as served, socket_of(served):
            port = served.port
        async with front(ListenAddress(port=port)) as served:
            assert (await served.ask("/")).status == 200

    def test_what_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        need_web()
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in {"nh3", "markdown_it"} else name)
        with pytest.raises(ForgeError, match=r"nh3, markdown-it-py: pip install 'golem-forge\[web\]'"):
            need_web()


class TestConnections:
    @pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"GET / HTTP/1.1\r\nHost: evil\r\n\r\nG"])
    async def test_one_that_asks_for_nothing_is_closed(self, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "CHECK_SECONDS", 0.1)
        async with front() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said)
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            assert reader.at_eof() or reader.exception() is not None, "the server ended the connection"
            writer.close()

    async def test_one_that_drips_its_head_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "CHECK_SECONDS", 0.1)
        async with front() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET / HTTP/1.1\r\n")
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    while not reader.at_eof():
                        writer.write(b"X: y\r\n")
                        await asyncio.sleep(0.02)
                        await writer.drain()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(reader.read(1), 0.01)
            assert reader.at_eof() or reader.exception() is not None, "the server ended the connection"
            writer.close()

    async def test_one_that_has_its_answer_may_rest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A client that asks again after a pause does not meet a connection that is just being closed."""
        checks: list[object] = []
        check = server.TimedHttpConnection._check
        monkeypatch.setattr(server.TimedHttpConnection, "_check", lambda self: (checks.append(self), check(self)))
        async with front() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            for is_first in (True, False):
                writer.write(request(served.address, "/", Cookie=served.cookie, Connection="").encode())
                async with asyncio.timeout(PATIENCE):
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", head)
                    assert head.startswith(b"HTTP/1.1 200 ") and length is not None
                    await reader.readexactly(int(length[1]))
                if is_first:  # until here it had time to ask at all
                    monkeypatch.setattr(server, "CHECK_SECONDS", 0.02)
                    [connection] = served.connections
                    connection._check()
                before = len(checks)
                await until(lambda before=before: len(checks) > before + 3)
            writer.close()

    async def test_a_rest_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0)
        async with front() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request(served.address, "/", Cookie=served.cookie, Connection="").encode())
            async with asyncio.timeout(PATIENCE):
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()

    async def test_a_socket_that_says_nothing_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        checks: list[object] = []
        check = app.TimedSocketConnection._check
        monkeypatch.setattr(app.TimedSocketConnection, "_check", lambda self: (checks.append(self), check(self)))
        async with front() as served, socket_of(served) as page:
            monkeypatch.setattr(server, "CHECK_SECONDS", 0.02)  # until here it had time to ask at all
            [connection] = served.connections
            connection._check()
            await until(lambda: len(checks) > 3)
            await page.send("still here")
            assert await asyncio.wait_for(page.recv(), PATIENCE) == "still here"

    async def test_who_does_not_take_the_answer_is_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with front() as served:
            asking = socket.create_connection(("127.0.0.1", served.port))
            asking.sendall(request(served.address, "/api/large", Cookie=served.cookie, Connection="").encode())
            there = served.connections
            await until(lambda: len(there) == 1)
            [connection] = there
            monkeypatch.setattr(server, "CHECK_SECONDS", 0.1)
            connection._check()
            await until(lambda: len(there) == 0)
            asking.close()

    async def test_who_takes_it_slowly_gets_it_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for seconds in ever_longer(0.2):
            monkeypatch.setattr(server, "CHECK_SECONDS", seconds)
            async with front() as served:
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1 << 20)
                writer.write(request(served.address, "/api/large", Cookie=served.cookie).encode())
                read, began = 0, time.monotonic()
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readuntil(b"\r\n\r\n")
                    while piece := await reader.read(1 << 20):
                        read += len(piece)
                        await asyncio.sleep(seconds / 10)
                writer.close()
            if read == LARGE:
                break  # else this process had no time for longer than that
        assert read == LARGE
        assert time.monotonic() - began > 2.5 * seconds  # or nobody looked while it was being taken

    async def test_idle_ones_however_many_keep_nobody_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "MAX_CONNECTIONS", 32)
        async with front() as served, socket_of(served) as page:
            held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(250)]
            there = served.connections
            await until(lambda: len(there) <= 32)
            for _ in range(3):
                assert (await served.ask("/api/thing", cookie=True)).status == 200
            await page.send("still here")
            assert await asyncio.wait_for(page.recv(), PATIENCE) == "still here"
            for _, writer in held:
                writer.close()

    async def test_bodies_that_never_come_keep_nobody_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Logging in takes no cookie, so anybody can begin to."""
        monkeypatch.setattr(app, "MAX_CONNECTIONS", 8)
        async with front() as served:
            half = request(
                served.address, "/api/login", method="POST", Content_Type="application/json", Content_Length="9"
            )
            held = []
            for _ in range(20):
                held.append(await asyncio.open_connection("127.0.0.1", served.port))
                held[-1][1].write(half.encode())
            assert (await served.log_in(served.login.new_code())).status == 204
            for _, writer in held:
                writer.close()


class TestSockets:
    async def test_one_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(security, "MAX_SOCKETS", 2)
        async with front() as served:
            async with socket_of(served), socket_of(served), socket_of(served) as late:
                assert "Too many pages are open here" in str(await late.recv())
                with pytest.raises(ConnectionClosed):
                    await late.recv()
                assert late.close_code == 4429
            await until(lambda: served.done.count("closed") == 2)
            async with socket_of(served) as page:
                await page.send("x")
                assert await page.recv() == "x"

    async def test_a_frame_over_the_limit(self) -> None:
        async with front() as served, socket_of(served, max_size=None) as page:
            await page.send("x" * (1 << 20))
            assert len(await page.recv()) == 1 << 20
            with contextlib.suppress(ConnectionClosed):
                await page.send("x" * ((1 << 20) + 1))
            with pytest.raises(ConnectionClosed):
                await page.recv()
            assert page.close_code == 1009

    async def test_pings_whose_answers_nobody_reads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "MAX_UNREAD_BYTES", 1 << 18)
        async with front() as served, socket_of(served) as page:
            page.transport.pause_reading()
            ping = b"\x89\xfd\0\0\0\0" + bytes(125)
            with contextlib.suppress(ConnectionError):
                for _ in range(400):
                    page.transport.write(ping * 500)
                    await asyncio.sleep(0)
            await until(lambda: "closed" in served.done)
            page.transport.abort()

    async def test_no_compression_is_agreed_to(self) -> None:
        async with front() as served, socket_of(served, compression="deflate") as page:
            assert page.response is not None
            assert "Sec-WebSocket-Extensions" not in page.response.headers

    async def test_frames_that_are_none(self, caplog: pytest.LogCaptureFixture) -> None:
        async with front() as served:
            for nonsense in (b"\xff\xff\xff\xff", b"\x81\x05hello", b"\x81\x82\0\0\0\0\xff\xfe", b"\x83\x80\0\0\0\0"):
                async with socket_of(served) as page:
                    page.transport.write(nonsense)
                    with pytest.raises(ConnectionClosed):
                        await asyncio.wait_for(page.recv(), PATIENCE)
            await until(lambda: served.done.count("closed") == 4)
        assert caplog.records == []

    async def test_logging_out_closes_the_pages_of_that_browser(self, served: Front) -> None:
        mine, others = served.cookie, served.cookie
        async with (
            socket_of(served, mine) as page,
            socket_of(served, mine) as tab,
            socket_of(served, others) as other,
        ):
            await served.ask("/api/logout", method="POST", Cookie=mine, Origin=served.address)
            for each in (page, tab):
                assert await asyncio.wait_for(each.recv(), PATIENCE) == '{"kind": "bye", "reason": "Logged out."}'
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(each.recv(), PATIENCE)
                assert each.close_code == 4401
            await other.send("still here")
            assert await other.recv() == "still here"

    async def test_one_that_reads_nothing_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with front() as served:
            cookie = served.cookie
            async with deaf(served, cookie):
                there = served.connections
                [connection] = there
                monkeypatch.setattr(server, "CHECK_SECONDS", 0.1)  # until here it had time to ask at all
                connection._check()
                await served.ask("/api/logout", method="POST", Cookie=cookie, Origin=served.address)
                await until(lambda: len(there) == 0)

    async def test_a_cookie_that_gets_too_old_closes_them_too(self, served: Front) -> None:
        cookie = served.cookie
        served.clock.now += 43_200 - 0.2
        async with socket_of(served, cookie) as page:
            assert "Logged out" in str(await asyncio.wait_for(page.recv(), PATIENCE))


class TestStopping:
    async def test_every_page_hears_it_and_nothing_is_left(self) -> None:
        before = asyncio.all_tasks()
        async with front() as served, socket_of(served) as page, deaf(served), asking_for(served, "/api/stuck"):
            await until(lambda: served.done.count("opened") == 2 and "stuck" in served.done)
            assert served.server._server is not None
            there = served.server._server.server_state
            with within(0.5):
                await served.server.stop()
            assert await page.recv() == '{"kind": "bye", "reason": "The session that serves this page ended."}'
            with pytest.raises(ConnectionClosed):
                await page.recv()
            assert page.close_code == 1001
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", served.port)
            assert served.done.count("closed") == 2 and "freed" in served.done
            assert not there.tasks and not there.connections
            await served.server.stop()
        await until(lambda: asyncio.all_tasks() <= before)

    async def test_an_idle_server_stops_at_once(self, served: Front) -> None:
        await served.ask("/")
        with within(0.5):
            await served.server.stop()

    async def test_signals_and_the_terminal_stay_as_they_were(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        logging.getLogger().addHandler(handler)
        try:
            async with front() as served:
                assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
                await served.ask("/?canary=1")
                async with socket_of(served) as page:
                    await page.send("x")
        finally:
            logging.getLogger().removeHandler(handler)
        assert said.getvalue() == ""
        assert capfd.readouterr() == ("", "")

    async def test_a_start_that_fails_leaves_the_port_free(self, tmp_path: Path) -> None:
        from unittest import mock

        from golem_forge.ui.web import app

        with mock.patch.object(app, "make_app", side_effect=RuntimeError("broken")):
            server = app.WebServer(None, ListenAddress(), None)  # type: ignore[arg-type]
            with pytest.raises(RuntimeError):
                await server.start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", server._port))
