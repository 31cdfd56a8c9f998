"""What is sent to a server over HTTP is what httpx would have sent, made with less work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from golem_forge.mcp import sdk
from golem_forge.mcp.client.http_transport import RequestBuilder

MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"arguments": {"text": 'ä "b" \n 漢'}, "n": 1.5},
}
OWN = {"user-agent": "golem-forge", "Accept-Encoding": "identity", "X-Key": "k", "accept": "text/plain"}


def both(url: str, own: dict[str, str], message: Any, headers: dict[str, str]) -> list[Any]:
    client = sdk.httpx2.AsyncClient(headers=own, timeout=sdk.httpx2.Timeout(1.0, read=7.0))
    made = RequestBuilder(url, client.headers, client.timeout).request(message, headers)
    known = client.build_request("POST", url, json=message, headers=headers)
    return [_facts(each) for each in (made, known)]


def _facts(request: sdk.httpx2.Request) -> tuple[Any, ...]:
    headers = {name.lower(): value for name, value in request.headers.raw}
    return request.method, str(request.url), headers, request.read(), request.extensions["timeout"]


@table("url", ["http://127.0.0.1:8000/mcp", "https://docs.example/mcp/?key=a%20b", "http://[::1]/m"])
def test_it_is_what_httpx_makes_of_the_same(url: str) -> None:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", "Mcp-Name": "add"}
    made, known = both(url, OWN, MESSAGE, headers)
    assert made == known


def test_a_host_that_the_person_names_is_kept() -> None:
    made, known = both("http://127.0.0.1/mcp", {"Host": "docs.example"}, MESSAGE, {"content-type": "application/json"})
    assert made == known
    assert made[2][b"host"] == b"docs.example"


@table(("message", "why"), [({"x": float("nan")}, "JSON"), ({"x": "\ud800"}, "surrogates")])
def test_what_is_no_json_is_refused_by_both(message: Any, why: str) -> None:
    client = sdk.httpx2.AsyncClient()
    with pytest.raises(ValueError, match=why):
        RequestBuilder("http://127.0.0.1/mcp", client.headers, client.timeout).request(message, {})
    with pytest.raises(ValueError, match=why):
        client.build_request("POST", "http://127.0.0.1/mcp", json=message)
