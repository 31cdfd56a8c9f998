"""A server in one call, its client in the next; the person's browser, a database of the host, and who gets there."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.acceptance.test_session_commands import Typing
from tests.agent.conftest import calls
from tests.deadlines import PATIENCE
from tests.machine import free_port

from golem_forge import open_session
from golem_forge.agent.session import entry_session
from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Risk, Status
from golem_forge.sandbox.network import loopback
from golem_forge.sandbox.network.proxy import PROXY_PORT
from golem_forge.storage.home import forge_home
from golem_forge.toolsets.exec.ports import port_rows

SERVER = """\
import http.server, sys

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = sys.argv[2].encode() + b" " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("listening", flush=True)
server.serve_forever()
"""
PYTHON = "python3 -IS"
"""Which takes the compiled library as it lies: `python3` alone would compile it for this project first."""
CLIENT = f"import urllib.request as r, sys; print(r.urlopen(sys.argv[1], timeout={PATIENCE}).read().decode())"


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "server.py").write_text(SERVER)
    (root / "client.py").write_text(CLIENT)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
async def session(project: Path) -> AsyncIterator[Any]:
    async with entry_session(project, approval="approve_all") as opened:
        yield opened


async def serve(session: Any, port: int, says: str = "hello", **more: Any) -> str:
    """Returns what the call said; the server listens then."""
    outcome = await session.call(
        "exec_command", {"cmd": f"{PYTHON} server.py {port} {says}", "yield_time_ms": 0, **more}
    )
    assert outcome.status is Status.SUCCESS, outcome.error
    text = first = outcome.result.text
    number = outcome.result.value["session_id"]
    while "listening" not in text:
        read = await session.call("write_stdin", {"session_id": number, "yield_time_ms": 50})
        text = read.result.text
        assert "Running" in text, text
    return first


async def fetch(session: Any, url: str, **more: Any) -> str:
    command = {"cmd": f"{PYTHON} client.py {url}", "yield_time_ms": 30_000, **more}
    outcome = await session.call("exec_command", command)
    return outcome.result.value["output"]


async def test_a_server_of_one_call_answers_the_next_command_and_no_program(session: Any) -> None:
    await serve(session, 3000)
    assert await fetch(session, "http://127.0.0.1:3000/a") == "hello /a\n"
    assert await fetch(session, "http://localhost:3000/b") == "hello /b\n"
    by_program = await session.call("shell", {"command": f"{PYTHON} client.py http://127.0.0.1:3000/c"})
    assert by_program.result.value["stdout"] == "hello /c\n"
    # A program has a loopback of its own, as user tools, tool modules, servers, hooks and builds have: only the plans
    # of commands hand the session's on.
    code = "import socket\nprint(socket.socket().connect_ex(('127.0.0.1', 3000)) == 0)"
    outcome = await session.call("run_code", {"code": code})
    assert outcome.status is Status.SUCCESS, outcome.error
    assert "False" in outcome.result.text.splitlines(), outcome.result.text
    source = Path(__file__).parents[2] / "src" / "golem_forge"
    givers = [
        path for path in source.rglob("*.py") if re.search(r"loopback=.*environment\.loopback\(", path.read_text())
    ]
    assert {path.name for path in givers} == {"command_plan.py"}


async def test_nobody_on_the_host_reaches_it(session: Any) -> None:
    port = free_port()
    await serve(session, port)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
        pass


async def test_two_sessions_have_the_same_port_each(session: Any, project: Path) -> None:
    await serve(session, 3000, "first")
    async with entry_session(project, approval="approve_all") as other:
        assert "refused" in await fetch(other, "http://127.0.0.1:3000/")
        await serve(other, 3000, "second")
        assert await fetch(other, "http://127.0.0.1:3000/") == "second /\n"
        assert await fetch(session, "http://127.0.0.1:3000/") == "first /\n"


async def listed(session: Any) -> list[dict[str, Any]]:
    return await asyncio.to_thread(port_rows, session.path.parts, session.path.walls.redact)


async def get(url: str) -> str:
    def ask() -> str:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(ask)


async def test_the_person_opens_a_published_port_in_a_browser(session: Any) -> None:
    missing = await session.call("publish_port", {"port": 3000})
    assert missing.status is Status.EXECUTION_FAILED and "listens on port 3000" in missing.error
    assert await listed(session) == []
    await serve(session, 3000)
    published = await session.call("publish_port", {"port": 3000})
    assert published.status is Status.SUCCESS, published.error
    url = published.result.value["url"]
    address = ip_address(urlsplit(url).hostname)
    assert address in ip_network("127.0.0.0/8") and address not in ip_network("127.0.0.0/16")
    assert url in published.result.text and "no other computer" in published.result.text
    pages = await asyncio.gather(*(get(f"{url}{number}") for number in range(20)))
    assert pages == [f"hello /{number}" for number in range(20)]
    again = await session.call("publish_port", {"port": 3000})
    assert again.result.value["url"] == url
    (row,) = await listed(session)
    assert (row["port"], row["url"]) == (3000, url) and row["command"].endswith("python3 -IS server.py 3000 hello")
    began = datetime.fromisoformat(row["since"])
    assert abs((datetime.now(UTC) - began).total_seconds()) < PATIENCE
    ended = await session.call("unpublish_port", {"port": 3000}, caller=Caller.HUMAN)
    assert ended.status is Status.SUCCESS
    with pytest.raises(urllib.error.URLError):
        await get(url)


async def test_a_link_ends_with_the_session(project: Path) -> None:
    async with entry_session(project, approval="approve_all") as session:
        await serve(session, 3000)
        url = (await session.call("publish_port", {"port": 3000})).result.value["url"]
        assert await get(url) == "hello /"
    with pytest.raises(urllib.error.URLError):
        await get(url)


async def test_publishing_asks_and_says_who_reaches_it(project: Path) -> None:
    async with entry_session(project, approval="contained") as session:
        await serve(session, 3000)
        asked = await session.call("publish_port", {"port": 3000})
        assert asked.status is Status.APPROVAL_DENIED
        assert asked.decision.not_contained == ("port 3000 becomes reachable from outside the walls",)
        assert asked.decision.risk is Risk.HIGH
        by_the_person = await session.call("publish_port", {"port": 3000}, caller=Caller.HUMAN)
        assert by_the_person.status is Status.SUCCESS
        model = await session.call("unpublish_port", {"port": 3000})
        assert model.status is Status.TOOL_NOT_FOUND


class HostService:
    """A service of the host's own loopback: says who it is and what it was told."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.said.append(await reader.readline())
        writer.write(b"the host's database\n")
        await writer.drain()
        writer.close()


@pytest.fixture
async def service() -> AsyncIterator[tuple[HostService, int]]:
    made = HostService()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as listening:
        yield made, listening.sockets[0].getsockname()[1]


QUERY = f"""\
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout={PATIENCE}) as line:
    line.sendall(b"select 1\\n")
    print(line.makefile().read().strip())
"""


async def query(session: Any, host: str, port: int, **more: Any) -> Any:
    command = {"cmd": f"{PYTHON} query.py {host} {port}", "yield_time_ms": 30_000, **more}
    return await session.call("exec_command", command)


def reached(session: Any) -> list[str]:
    """From the journal."""
    lines = (forge_home().path / "sessions" / f"{session.state.id}.jsonl").read_bytes().splitlines()
    records = [record for record in map(json.loads, lines) if record.get("event") == "serviceReached"]
    return [record["data"]["target"] for record in records]


async def test_a_service_of_the_host_is_reached_by_the_call_that_names_it(
    session: Any, project: Path, service: tuple[HostService, int]
) -> None:
    database, port = service
    (project / "query.py").write_text(QUERY)
    without = await query(session, "localhost", port)
    assert without.status is Status.EXECUTION_FAILED and not database.said
    by_curl = await session.call("exec_command", {"cmd": f"echo 'localhost port {port}: Connection refused'; exit 7"})
    assert f"a call with localhost:{port} in 'network'." in by_curl.result.text
    for host in ("localhost", "127.0.0.1"):
        answered = await query(session, host, port, network=[f"{host}:{port}"])
        assert answered.result.value["output"] == "the host's database\n", answered.result.text
    assert database.said == [b"select 1\n"] * 2
    other = await query(session, "127.0.0.1", port + 1 if port < 65535 else port - 1, network=[f"localhost:{port}"])
    assert other.status is Status.EXECUTION_FAILED
    again = await query(session, "localhost", port)
    assert again.status is Status.EXECUTION_FAILED and len(database.said) == 2
    assert reached(session) == [f"localhost:{port}", f"127.0.0.1:{port}"]


RULES = """\
version: 1
rules:
  - {{command: [python3, -IS, query.py], verdict: preApproved}}
  - {{host: localhost, ports: [{port}], {private}verdict: preApproved}}
"""


@pytest.mark.parametrize(("private", "status"), [("private: true, ", "success"), ("", "approval_denied")])
async def test_a_rule_for_a_service_must_say_that_it_is_private(
    project: Path, service: tuple[HostService, int], private: str, status: str
) -> None:
    database, port = service
    (project / "query.py").write_text(QUERY)
    forge_home().ensure()
    (forge_home().path / "rules.yaml").write_text(RULES.format(port=port, private=private))
    async with entry_session(project, approval="auto_deny") as session:
        outcome = await query(session, "localhost", port, network=[f"localhost:{port}"])
        assert outcome.status.value == status, outcome.error
    assert len(database.said) == (status == "success")


async def test_a_service_asks_with_what_it_is(project: Path, service: tuple[HostService, int], asked: Any) -> None:
    database, port = service
    (project / "query.py").write_text(QUERY)
    cards = asked({"approved": True}, {"approved": False})
    async with open_session(project, approval="interactive", approval_callback=cards) as session:
        outcome = await query(session, "localhost", port, network=[f"localhost:{port}"])
        assert outcome.status is Status.SUCCESS, outcome.error
        again = await query(session, "localhost", port, network=[f"localhost:{port}"])
        assert again.status is Status.APPROVAL_DENIED
    assert "a service of this computer" in str(cards[0].warnings)
    assert len(database.said) == 1


async def test_webfetch_reads_a_page_of_the_session_and_asks_first(project: Path) -> None:
    cards: list[Any] = []

    def answer(request: Any) -> Any:
        cards.append(request)
        if request.tool == "webfetch":
            choice = next(each.id for each in request.choices if "session.localhost" in each.label)
            return {"approved": True, "choice": choice}
        return {"approved": True}

    async with open_session(project, approval="interactive", approval_callback=answer) as session:
        early = await session.call("webfetch", {"url": "http://localhost:3000/"})
        assert early.status is Status.POLICY_DENIED and "3000" in early.error
        await serve(session, 3000)
        page = await session.call("webfetch", {"url": "http://localhost:3000/page"})
        assert page.status is Status.SUCCESS, page.error
        assert page.result.value["text"] == "hello /page"
        asked = len(cards)
        again = await session.call("webfetch", {"url": "http://127.0.0.1:3000/more"})
        named = await session.call("webfetch", {"url": "http://session.localhost:3000/named"})
        assert (again.result.value["text"], named.result.value["text"]) == ("hello /more", "hello /named")
        assert len(cards) == asked
        silent = await session.call("webfetch", {"url": "http://session.localhost:3001/"})
        assert silent.status is Status.EXECUTION_FAILED and "listens on port 3001" in silent.error


async def test_a_server_does_not_collect_the_hosts_of_a_later_call(session: Any) -> None:
    """Threat: whoever listens first on the proxy's port would be what the next call takes for its proxy."""
    await serve(session, PROXY_PORT, "rogue")
    through_proxy = {"network": ["nobody.invalid:80"], "yield_time_ms": 30_000}
    said = await session.call("exec_command", {"cmd": f"{PYTHON} client.py http://nobody.invalid/", **through_proxy})
    assert "rogue" not in said.result.text and "502" in said.result.text
    direct = f"{PYTHON} client.py http://127.0.0.1:{PROXY_PORT}/"
    found = await session.call("exec_command", {"cmd": f"unset http_proxy HTTP_PROXY; {direct}", **through_proxy})
    assert "rogue" not in found.result.text and "400" in found.result.text


async def test_a_call_with_hosts_serves_nobody_else(
    session: Any, project: Path, service: tuple[HostService, int]
) -> None:
    """Threat: a server with a grant would lend it to every command of the session."""
    database, port = service
    (project / "query.py").write_text(QUERY)
    said = await serve(session, 4000, "granted", network=[f"localhost:{port}"])
    assert "its ports are its own" in said
    assert "refused" in await fetch(session, "http://127.0.0.1:4000/")
    stolen = await query(session, "127.0.0.1", port)
    assert stolen.status is Status.EXECUTION_FAILED and not database.said
    published = await session.call("publish_port", {"port": 4000})
    assert published.status is Status.EXECUTION_FAILED


ABSTRACT = """\
import socket, sys
ours = socket.socket(socket.AF_UNIX)
if sys.argv[1] == "serve":
    ours.bind("\\0forge-test")
    ours.listen()
    print("listening", flush=True)
    while True:
        ours.accept()[0].sendall(b"abstract hello")
ours.connect("\\0forge-test")
print(ours.recv(100).decode())
"""


async def test_abstract_sockets_are_shared_by_the_session_alone(session: Any, project: Path) -> None:
    (project / "server.py").write_text(ABSTRACT)
    await serve(session, 0, cmd=f"{PYTHON} server.py serve")
    ask = {"cmd": f"{PYTHON} server.py ask", "yield_time_ms": 30_000}
    assert (await session.call("exec_command", ask)).result.value["output"] == "abstract hello\n"
    granted = await session.call("exec_command", {**ask, "network": ["nobody.invalid:80"]})
    assert granted.status is Status.EXECUTION_FAILED
    with socket.socket(socket.AF_UNIX) as ours, pytest.raises(ConnectionRefusedError):
        ours.connect("\0forge-test")
    async with entry_session(project, approval="approve_all") as other:
        assert (await other.call("exec_command", ask)).status is Status.EXECUTION_FAILED


async def test_where_it_cannot_be_shared_the_result_says_so(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "find_system_program", lambda name: None)
    said = await serve(session, 3000)
    assert "each command has a loopback of its own" in said and "nsenter of util-linux is not installed" in said
    assert "refused" in await fetch(session, "http://127.0.0.1:3000/")


async def test_a_person_types_the_commands(project: Path) -> None:
    async with Typing(project, approval_mode="contained") as person:
        assert await person.type("/ports") == "No command of this session listens on a port."
        assert "No command of this session listens on port 3000" in await person.type("/publish 3000")
        assert "/publish PORT" in await person.type("/publish three")
        server = {"cmd": f"{PYTHON} server.py 3000 hello", "yield_time_ms": 0}
        person.turns = [calls(("exec_command", server))]
        await person.runtime.turn("Start the server")
        async with asyncio.timeout(PATIENCE):
            while len(listening := (await person.type("/ports")).splitlines()) == 1:
                pass
        head, row, more = listening
        assert head.split() == ["PORT", "SINCE", "COMMAND"] and "/publish" in more
        assert row.startswith("3000") and "server.py 3000 hello" in row
        results: list[Any] = []
        person.runtime.bus.on("toolResult", lambda event: results.append(event.wire))
        assert await person.type("/publish 3000") == ""
        url = results[-1]["value"]["url"]
        assert await get(url) == "hello /"
        assert url in await person.type("/ports")
        assert await person.type("/unpublish 3000") == ""
        assert url not in await person.type("/ports")
        assert "is not published" in await person.type("/unpublish 3000")
