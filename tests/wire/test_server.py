"""The wire server itself, read by hand: what it says is what the formats' documents show."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlparse

import pytest
from tests.deadlines import PATIENCE

from .server import WireCall, WireServer, WireTurn

TURN = WireTurn(say="Hello there", calls=(WireCall(name="add", args={"a": 1}, id="c1"),), output=7)


def post(server: WireServer, path: str, body: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlparse(server.url).netloc, timeout=PATIENCE)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/messages?beta=true", 'data: {"type": "message_stop"}\n\n'),
        ("/v1/chat/completions", "data: [DONE]\n\n"),
        ("/v1/responses", "}\n\n"),
    ],
)
def test_each_path_streams_its_format_and_the_request_is_kept(path: str, end: str) -> None:
    with WireServer([TURN]) as server:
        status, text = post(server, path, {"stream": True, "model": "m"})
    assert status == 200 and text.endswith(end)
    assert "Hello th" in text and '"c1"' in text
    assert server.requests[0].path == path.partition("?")[0] and server.requests[0].body["model"] == "m"


def test_failures_and_a_script_that_ran_out() -> None:
    with WireServer([WireTurn(status=429, headers={"Retry-After": "3"}, error="slow down")]) as server:
        assert post(server, "/v1/messages", {"stream": True})[0] == 429
        status, text = post(server, "/v1/messages", {"stream": True})
    assert status == 400 and "has only 1 turns" in text


def test_a_cut_stream_lacks_its_end() -> None:
    with WireServer([WireTurn(say="x", cut="clean"), WireTurn(say="x", cut="abrupt")]) as server:
        assert "message_delta" not in post(server, "/v1/messages", {"stream": True})[1]
        with pytest.raises(http.client.IncompleteRead):
            post(server, "/v1/messages", {"stream": True})


def test_a_function_may_answer() -> None:
    with WireServer(lambda request: WireTurn(say=request.body["model"])) as server:
        assert "gpt-x" in post(server, "/v1/chat/completions", {"stream": True, "model": "gpt-x"})[1]
