"""One name for a file on both sides of a server's walls: invariant 9 for what servers say, and the way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.tables import table

from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.call import Rewriter
from golem_forge.mcp.client.model import ServerManifest

HOST = "/home/ada/app"


@pytest.fixture
def rewriter() -> Rewriter:
    redactor = Redactor()
    redactor.add_path(HOST, "/workspace")
    redactor.add_secret("key", "canary-7f3a91c25d")
    made = Rewriter()
    made.clean_text, made.zone_paths = redactor.text, {"/workspace": HOST}
    return made


def test_every_text_of_a_result_at_any_depth(rewriter: Rewriter) -> None:
    raw = {
        "content": [
            {"type": "text", "text": f"in {HOST}/a, canary-7f3a91c25d"},
            {"type": "image", "data": f"{HOST}/x", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": f"file://{HOST}/r", "blob": f"{HOST}/x"}},
        ],
        "structuredContent": {f"{HOST}/k": [{"data": f"{HOST}/d", "n": 1, "nothing": None}]},
        "_meta": {"x": HOST},
        "isError": False,
    }
    before = json.dumps(raw)
    assert rewriter.result(raw) == {
        "content": [
            {"type": "text", "text": "in /workspace/a, [secret key]"},
            {"type": "image", "data": f"{HOST}/x", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///workspace/r", "blob": f"{HOST}/x"}},
        ],
        "structuredContent": {"/workspace/k": [{"data": "/workspace/d", "n": 1, "nothing": None}]},
        "_meta": {"x": "/workspace"},
        "isError": False,
    }
    assert json.dumps(raw) == before, "what came is not changed"


def test_a_cursor_goes_back_as_it_came_and_a_uri_too(rewriter: Rewriter) -> None:
    odd = f"note://{HOST}/n?x=%2Fhome"
    answer = rewriter.answer({"resources": [{"uri": odd, "name": HOST}], "nextCursor": f"{HOST}/2"})
    assert answer == {
        "resources": [{"uri": "note:///workspace/n?x=%2Fhome", "name": "/workspace"}],
        "nextCursor": f"{HOST}/2",
    }
    assert rewriter.request({"uri": "note:///workspace/n?x=%2Fhome"}) == {"uri": odd}
    assert rewriter.request({"uri": "file:///workspace/other"}) == {"uri": f"file://{HOST}/other"}
    assert rewriter.request({"cursor": "/workspace/2"}) == {"cursor": "/workspace/2"}


@table(
    ("said", "sent"),
    [
        ("/workspace", HOST),
        ("/workspace/a b", f"{HOST}/a b"),
        (["/workspace/a", {"deep": "/workspace/b"}], [f"{HOST}/a", {"deep": f"{HOST}/b"}]),
        ("file:///workspace/a", f"file://{HOST}/a"),
        ("/workspaces/a", "/workspaces/a"),
        ("see /workspace/a", "see /workspace/a"),
        (f"{HOST}/a", f"{HOST}/a"),
        ("a", "a"),
        (5, 5),
        (None, None),
    ],
)
def test_an_argument_that_is_an_address_names_the_place(rewriter: Rewriter, said: Any, sent: Any) -> None:
    assert rewriter.request({"name": "/workspace", "arguments": {"x": said}}) == {
        "name": "/workspace",
        "arguments": {"x": sent},
    }


def test_without_walls_nothing_is_rewritten() -> None:
    plain = Rewriter()
    raw = {"content": [{"type": "text", "text": HOST}]}
    assert plain.result(raw) is raw and plain.answer(raw) is raw and plain.text(HOST) == HOST
    assert plain.request({"arguments": {"x": "/workspace"}}) == {"arguments": {"x": "/workspace"}}


def test_what_a_model_reads_of_a_definition_and_nothing_that_goes_back(rewriter: Rewriter) -> None:
    deep: Any = "end"
    for _ in range(3000):
        deep = [deep]
    schema = {"properties": {"p": {"description": f"in {HOST}", "default": HOST, "enum": [HOST]}}}
    listed = ServerManifest(
        server="s",
        scope="",
        config_digest="",
        fetched_at=0,
        protocol="",
        instructions=f"Look at {HOST}.",
        tools=({"name": HOST, "title": HOST, "description": HOST, "inputSchema": schema}, {"deep": deep}, None),
        prompts=({"name": "p", "description": HOST},),
    )
    seen = rewriter.manifest(listed)
    assert seen.instructions == "Look at /workspace."
    told = {"properties": {"p": {"description": "in /workspace", "default": HOST, "enum": [HOST]}}}
    assert seen.tools[0] == {"name": HOST, "title": "/workspace", "description": "/workspace", "inputSchema": told}
    assert seen.tools[1]["deep"] is deep and seen.tools[2] is None
    assert seen.prompts == ({"name": "p", "description": "/workspace"},)
