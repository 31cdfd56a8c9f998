"""A team's server that lies: what `RemoteStore` and the commands make of its answers."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.store_block import StoreSettings
from golem_forge.core.errors import ConfigError
from golem_forge.team import remote
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.people import Role
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import NewSession, StoredSession, to_session
from golem_forge.team.session_workspace import SessionWorkspace, session_clone
from golem_forge.team.workspace import WorkspaceError

Answer = tuple[int, dict[str, str], bytes]


class Liar:
    """Answers every request with the same."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = (200, {}, b"{}")
        self.asked: list[tuple[str, str]] = []
        self.drip_s = 0.0
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                liar.asked.append((self.path, self.headers.get("Authorization", "")))
                status, headers, body = liar.answer
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                for byte in body if liar.drip_s else ():
                    time.sleep(liar.drip_s)
                    self.wfile.write(bytes([byte]))
                if not liar.drip_s:
                    self.wfile.write(body)

            do_GET = do_POST = do_DELETE = _any

            def log_message(self, *words: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *words: None  # type: ignore[method-assign]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def says(self, value: Any, status: int = 200) -> None:
        self.answer = (status, {}, json.dumps(value).encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    made = Liar()
    yield made
    made.close()


@pytest.fixture
def store(liar: Liar) -> RemoteStore:
    liar.drip_s, liar.asked = 0.0, []
    return RemoteStore(liar.url, "forge_token")


GOOD: dict[str, Any] = {
    name: {"str": "x", "int": 1, "float": 1.5}[kind] for name, kind in StoredSession.__annotations__.items()
}
WAYS: list[Callable[[RemoteStore], Any]] = [
    lambda store: store.sessions(),
    lambda store: store.find("x"),
    lambda store: store.now(),
    lambda store: store.questions(),
    lambda store: store.find_question("x"),
    lambda store: store.question("x"),
    lambda store: store.lines("x"),
    lambda store: store.facts("x"),
    lambda store: store.runners(),
    lambda store: store.people(),
    lambda store: store.refusals(),
    lambda store: store.rules(),
    lambda store: store.schedules(),
    lambda store: store.person,
    lambda store: store.queue(NewSession(facts={}, input="x")),
    lambda store: store.stop("x"),
    lambda store: store.send("x", "message", {"text": "x"}),
    lambda store: store.answer("x", {"approved": True}),
    lambda store: store.new_person("x", Role.VIEWER),
]
LIES: list[Any] = [
    [], 7, "text", None, {}, {"rows": None}, {"rows": 5}, {"rows": [5]}, {"rows": [{}]}, {"rows": [None]},
    {"rows": [{"id": {}, "name": 1}], "lines": [[1]], "now": "x", "id": ["x"], "state": 1, "number": "x", "token": 5},
    {"rows": {}, "lines": [["x", "y"]], "now": None, "person": 1, "role": "god", "token": "a\u001b[2Jb", "id": "../x"},
    {"lines": [[1, "%%%"]], "now": 1e308, "number": 10**30, "person": "x", "role": "god"},
    {"rows": [GOOD | {"id": "../../x"}]}, {"rows": [GOOD | {"created": 10**400}]}, {"rows": [GOOD | {"title": {}}]},
    {"rows": [GOOD | {"state": "\u001b[2J"}]}, {"rows": [GOOD | {"epoch": "1"}]},
]  # fmt: skip


@pytest.mark.parametrize("lie", range(len(LIES)))
def test_an_answer_of_another_shape_is_one_sentence(liar: Liar, store: RemoteStore, lie: int) -> None:
    liar.says(LIES[lie])
    told = []
    for ask in WAYS:
        try:
            ask(store)
        except TeamError as error:
            told.append(error.message)
    assert len(told) >= len(WAYS) - 6  # some lies fit some questions
    assert "\x1b" not in "".join(told)
    liar.says({"rows": [GOOD], "now": 1.5})
    assert store.sessions() == [to_session(list(GOOD.values()))] == [store.find("x")]
    assert asdict(store.sessions()[0]) == GOOD


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>\x1b[2J", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b'{"rows": [NaN]}', b'{"now": 1e999}'],
    ids=["nothing", "html", "arrays", "objects", "no text", "no number", "infinite"],
)
def test_an_answer_that_is_not_json_is_one_sentence(liar: Liar, store: RemoteStore, body: bytes) -> None:
    for status in (200, 204, 302, 400, 403, 500):
        liar.answer = (status, {"Location": "http://127.0.0.1:1/elsewhere"}, b"" if status == 204 else body)
        for ask in (lambda: store.now(), lambda: store.sessions()):
            with pytest.raises(TeamError) as told:
                ask()
            assert "\x1b" not in told.value.message
            assert "forge_token" not in told.value.message


def test_a_redirect_takes_the_token_nowhere(liar: Liar, store: RemoteStore) -> None:
    other = Liar()
    for status in (301, 302, 303, 307, 308):
        liar.answer = (status, {"Location": other.url}, b"")
        with pytest.raises(TeamError):
            store.now()
    assert other.asked == []
    other.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_of_a_private_ca_is_refused_with_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=team"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure, plain = Liar(context), Liar()
    try:
        secure.says({"rows": [], "now": 1.5})
        with pytest.raises(StoreUnavailable, match="certificate is not trusted here") as told:
            RemoteStore(secure.url, "forge_token").sessions()
        assert "Set SSL_CERT_FILE to the file of a private CA" in told.value.message
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert RemoteStore(secure.url, "forge_token").sessions() == []
        with pytest.raises(StoreUnavailable, match="is for another host"):
            RemoteStore(secure.url.replace("127.0.0.1", "localhost"), "forge_token").sessions()
        with pytest.raises(StoreUnavailable, match="there is no TLS there"):
            RemoteStore(plain.url.replace("http:", "https:"), "forge_token").sessions()
    finally:
        secure.close()
        plain.close()


def test_an_answer_that_comes_a_byte_at_a_time_ends(
    liar: Liar, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_WHOLE_S", 0.5)
    liar.answer, liar.drip_s = (200, {}, b" " * 1000), 0.05
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.now()
    assert time.monotonic() - began < 20  # of 50


def test_an_answer_that_is_too_long_is_not_kept(
    liar: Liar, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MAX_ANSWER", 1000)
    liar.says({"now": 1, "more": "x" * 2000})
    with pytest.raises(TeamError, match="gave no answer of a team's page"):
        store.now()


def test_lines_that_do_not_advance_are_refused(liar: Liar, store: RemoteStore) -> None:
    """Whoever reads on after the last number would read for ever."""
    for numbers in ([3], [5, 5], [6, 5], [-1]):
        liar.says({"lines": [[number, "eA=="] for number in numbers]})
        with pytest.raises(TeamError):
            store.lines("x", 4)


@pytest.mark.parametrize("token", ["a b", "a\nb", "ü", "x" * 201, ""])
def test_a_token_that_cannot_be_one_is_not_sent(liar: Liar, token: str) -> None:
    with pytest.raises(TeamError, match="token is not valid"):
        RemoteStore(liar.url, token)


def test_an_address_in_a_variable_is_held_to_the_same_rules() -> None:
    settings = StoreSettings(url="env:STORE")
    for address in ("http://team.example", "ftp://x", "http://127.0.0.1.evil.example:80/"):
        with pytest.raises(ConfigError):
            settings.address({"STORE": address})
    for address in ("https://team.example", "http://127.0.0.1:8000", "postgresql://me:secret@db/x", "sqlite"):
        assert settings.address({"STORE": address}) == address
    for address in ("https://team.example:99999", "https:///x"):
        with pytest.raises(TeamError, match=r"store\.url"):
            RemoteStore(address, "t")
    assert "secret" not in RemoteStore("https://me:secret@team.example", "t").shown


@pytest.mark.parametrize(
    "facts",
    [
        {"git": "ext::sh -c true"}, {"git": "--upload-pack=true"}, {"git": "-oProxyCommand=true:x"}, {"git": 5}, {},
        {"git": "/srv/x", "ref": "--exec=true"}, {"git": "/srv/x", "zone": "a.path=/etc"},
    ],
)  # fmt: skip
def test_a_workspace_that_a_row_names_is_checked_again(facts: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        SessionWorkspace(facts, tmp_path, "0" * 32)
    if "zone" not in facts:
        with pytest.raises(WorkspaceError):
            session_clone(facts, tmp_path, "0" * 32, tmp_path / "clone")
