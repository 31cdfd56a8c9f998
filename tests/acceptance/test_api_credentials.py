"""A token for an HTTP API that a command uses and never sees: real walls, curl, a real TLS server that echoes it."""

from __future__ import annotations

import json
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge import open_session
from golem_forge.agent.session import Session
from golem_forge.agent.session_plan import SessionRequest, plan_session
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox.network import proxy
from golem_forge.sandbox.walls import walls
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import forge_home

pytestmark = pytest.mark.skipif(
    find_bwrap() is None or shutil.which("curl", path="/usr/bin:/bin") is None or shutil.which("openssl") is None,
    reason="needs bubblewrap, curl and openssl",
)
CANARY = "canary" + "-4711-sesame-token"
CONFIG = """
sandbox:
  credentials:
    - {host: localhost, header: Authorization, value: env:GH_TOKEN, methods: [GET, POST], paths: [/repos/me/**]}
"""


class Api:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        key, self.certificate = folder / "key.pem", folder / "ca.pem"
        request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(["openssl", *request.split(), *names], check=True, capture_output=True)
        self.seen: list[tuple[str, str, str]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                sent = self.headers.get("Authorization", "")
                seen.append((self.command, self.path, sent))
                body = json.dumps({"you": sent, "hex": sent.encode().hex()}).encode()
                self.send_response(200)
                self.send_header("X-Echo", sent)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path / "api")
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path, own_home: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person has the token, and a rule that lets commands reach this machine's own server."""
    monkeypatch.setenv("GH_TOKEN", CANARY)
    monkeypatch.setenv("SSL_CERT_FILE", str(api.certificate))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    for module in (proxy, walls):
        monkeypatch.setattr(module, "TLS_PORT", api.port)
    forge_home().ensure()
    forge_home().config.write_text(CONFIG)
    rule = f"{{host: localhost, ports: [{api.port}], private: true, verdict: ask}}"
    forge_home().rules.write_text(f"rules: [{rule}]\n")
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


async def run(session: Session, cmd: str, *network: str) -> Outcome:
    return await session.call("exec_command", {"cmd": cmd, "network": list(network), "yield_time_ms": 30_000})


def kept(home: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


async def test_a_command_uses_the_token_and_nobody_finds_it(project: Path, api: Api) -> None:
    """In its environment, its own memory, its files, its output, the journal, the events, all that Forge keeps. The
    word is looked for in two halves, so that the search does not find itself."""
    search = f"""
import os, re
head, tail = b"{CANARY[:6]}", b"{CANARY[6:]}"

def found(data):
    return sum(data[one.start() - len(head) : one.start()] == head for one in re.finditer(re.escape(tail), data))

count = read = 0
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        for file in ("environ", "cmdline"):
            count += found(open(f"/proc/{{name}}/{{file}}", "rb").read())
        memory = open(f"/proc/{{name}}/mem", "rb")
        for line in open(f"/proc/{{name}}/maps").readlines():
            low, high = (int(each, 16) for each in line.split()[0].split("-"))
            try:
                memory.seek(low)
                data = memory.read(min(high - low, 1 << 26))
            except (OSError, ValueError, OverflowError):
                continue
            count, read = count + found(data), read + len(data)
    except OSError:
        continue
for top in ("/workspace", os.environ["HOME"], "/tmp"):
    for folder, _, files in os.walk(top):
        for file in files:
            count += found(open(os.path.join(folder, file), "rb").read())
print("FOUND", count, "READ", read > 1000000)
"""
    (project / "search.py").write_text(search)
    events: list[str] = []
    async with open_session(project, approval="approve_all") as session:
        session.state.bus.on("*", lambda event: events.append(json.dumps(event.wire)))
        script = (
            'curl -sS -i -H "Authorization: Bearer $GH_TOKEN" http://localhost/repos/me/app?x=1 > answer;'
            " sleep 600 & cat answer; echo; echo $GH_TOKEN; python3 search.py; kill %1"
        )
        outcome = await run(session, script, f"localhost:{api.port}")
        session_id = session.state.id
    assert api.seen == [("GET", "/repos/me/app?x=1", f"Bearer {CANARY}")]
    assert "HTTP/1.1 200 OK" in outcome.text and "forge-credential-GH_TOKEN" in outcome.text
    assert outcome.text.count("[secret GH_TOKEN]") == 3, outcome.text  # header, body, hex
    assert "FOUND 0 READ True" in outcome.text
    spellings = (CANARY, CANARY.encode().hex())
    written = (project / "answer").read_bytes() + kept(forge_home().path) + "".join(events).encode()
    assert not any(each.encode() in written for each in spellings)
    assert not any(each in outcome.text for each in spellings)
    journal = [json.loads(line) for line in (forge_home().path / "sessions" / f"{session_id}.jsonl").open()]
    uses = [record["data"] for record in journal if record.get("event") == "credentialUsed"]
    assert [(use["variable"], use["host"], use["method"], use["path"]) for use in uses] == [
        ("GH_TOKEN", "localhost", "GET", "/repos/me/app")
    ]
    assert uses[0]["toolCallId"] == outcome.call.id


async def test_it_is_refused_elsewhere_and_says_what_is_allowed(project: Path, api: Api) -> None:
    async with open_session(project, approval="approve_all") as session:
        header = '-H "Authorization: Bearer $GH_TOKEN"'
        for words in (f"-X DELETE {header} http://localhost/repos/me/app", f"{header} http://localhost/repos/you"):
            outcome = await run(session, f"curl -sSf {words}", f"localhost:{api.port}")
            assert outcome.status is Status.SANDBOX_DENIED
            assert "sandbox.credentials allows GET, POST /repos/me/**" in outcome.text
        without = await run(session, "echo ${GH_TOKEN:-none}")
        assert without.text.rstrip().endswith("none")  # a call without that host has no placeholder either
        assert api.seen == []


async def test_a_command_that_misses_its_token_is_told_the_way(project: Path, api: Api) -> None:
    """Without the host, and by https, where the server gets the placeholder and answers that it is no token."""
    way = "ask http://localhost/… with $GH_TOKEN in Authorization"
    async with open_session(project, approval="approve_all") as session:
        curl = 'curl -sS -H "Authorization: Bearer $GH_TOKEN"'
        offline = await run(session, f"{curl} http://localhost/repos/me/app")
        assert offline.status is Status.EXECUTION_FAILED
        assert way in offline.text and "'network'" in offline.text and way in str(offline.result.value["ways"])
        tunnel = await run(session, f"{curl} https://localhost:{api.port}/repos/me/app", f"localhost:{api.port}")
        assert "forge-credential-GH_TOKEN" in tunnel.text, tunnel.text
        assert way in tunnel.text
        plain = await run(session, f"curl -sS https://localhost:{api.port}/public", f"localhost:{api.port}")
        assert way not in plain.text  # it went well, and never meant the token
        used = await run(session, f"{curl} http://localhost/repos/me/app", f"localhost:{api.port}")
        assert way not in used.text


async def test_its_card_says_so_and_the_mode_contained_asks(project: Path, api: Api, asked: Any) -> None:
    ask = asked({"approved": False})
    async with open_session(project, approval="contained", approval_callback=ask) as session:
        await run(session, "curl http://localhost/repos/me/app", f"localhost:{api.port}")
    [request] = ask
    assert request.warnings == ("it can use your GH_TOKEN at localhost (GET, POST /repos/me/**)",)
    assert api.seen == []


class Upstream:
    """The HTTP proxy of the runner's machine: it leads every host to the API."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()
                with socket.create_connection(("127.0.0.1", port), PATIENCE) as far:
                    ends = (self.connection, far)
                    while True:
                        for end in select.select(ends, (), ())[0]:
                            if not (data := end.recv(1 << 16)):
                                return
                            ends[end is self.connection].sendall(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_on_a_runner_the_value_is_the_runners(desk: Callable[..., Any], api: Api) -> None:
    """Whoever starts the session has another value in a variable of that name: nobody sends it."""
    place = desk({})
    place.know_walls()
    place.home.mkdir(exist_ok=True)
    (place.home / "config.yaml").write_text(CONFIG)
    curl = 'curl -sS -H "Authorization: Bearer $GH_TOKEN" http://localhost/repos/me/app'
    call = {"tool": "exec_command", "args": {"cmd": curl, "network": ["localhost:443"]}}
    place.write(**{"words.json": json.dumps({"turns": [{"calls": [call]}, {"say": "done"}]})})
    (place.home / "rules.yaml").write_text("rules: [{host: localhost, ports: [443], private: true, verdict: ask}]\n")
    options = ("--no-runner", "--approval", "approve_all", "--model", "scripted:words.json")
    started = place.forge("run", "--background", *options, "go", GH_TOKEN="canary-of-the-starter")
    assert started.code == 0, started.err
    beyond = Upstream(api.port)
    try:
        environ = {"GH_TOKEN": CANARY, "HTTPS_PROXY": beyond.url, "SSL_CERT_FILE": str(api.certificate)}
        assert place.forge("runner", "--idle", "1", **environ).code == 0
    finally:
        beyond.close()
    assert api.seen == [("GET", "/repos/me/app", f"Bearer {CANARY}")]
    assert beyond.asked == ["localhost:443"]
    kept_there = place.kept_bytes()
    assert CANARY.encode() not in kept_there and b"canary-of-the-starter" not in kept_there
    assert b"[secret GH_TOKEN]" in kept_there


def test_a_program_cannot_hand_out_credentials(project: Path, api: Api) -> None:
    forge_home().config.unlink()
    (project / "forge.yaml").write_text(CONFIG)
    plan = plan_session(project, SessionRequest(home=forge_home(), answers=True))
    assert plan.program.walls.credentials == ()
    assert any("sandbox.credentials is ignored" in notice for notice in (*plan.notices, *plan.program.remarks))


@table(
    ("changed", "problem"),
    [
        ('host: "*.a.test"', "name one host"),
        ('host: "a.test:8443"', "without a port"),
        ("header: Host", "expected the name of a header"),
        ('header: "A b"', "expected the name of a header"),
        (f"value: {CANARY}", "never the secret itself"),
        ("value: file:/x", "env:NAME"),
        ("methods: [TRACE]", "expected one of GET"),
        ("methods: []", "a list of methods"),
        ("methods", "'methods' is missing"),
        ("paths", "'paths' is missing"),
        ("paths: [a]", "a path as the server knows it"),
        ("paths: [/a/../b]", "a path as the server knows it"),
        ("paths: [/a%2fb]", "a path as the server knows it"),
    ],
)
def test_what_is_written_wrong_is_told_without_the_secret(tmp_path: Path, changed: str, problem: str) -> None:
    name = changed.partition(":")[0]
    right = ("host: a.test", "header: Authorization", "value: env:X", "methods: [GET]", "paths: [/a]")
    entry = [part for part in right if not part.startswith(f"{name}:")] + ([changed] if ":" in changed else [])
    forge_home().ensure()
    forge_home().config.write_text(f"sandbox: {{credentials: [{{{', '.join(entry)}}}]}}\n")
    with pytest.raises(ConfigError) as caught:
        plan_session(tmp_path, SessionRequest(home=forge_home(), answers=True))
    told = "\n".join(caught.value.problems)
    assert problem in told and "config.yaml" in told and CANARY not in told
