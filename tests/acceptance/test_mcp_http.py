"""`forge mcp serve --http`: who is let in, and whose yes counts for whom. mcp.md §15 and §17, cases 40 and 43.

The real command; requests are written by hand where no client would send them. Case 44, more clients than there is room
for: tests/mcp/server/test_http.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.mcp_serving import (
    ERAS,
    LEGACY,
    YES,
    HttpServer,
    Person,
    http_server,
    notes,
    serving_bench,
)

YES_THIS_SESSION = {"action": "accept", "content": {"approve": True, "remember": "session"}}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, tried_walls: Path, ready_forge: Any) -> Iterator[McpBench]:
    with serving_bench(tmp_path_factory.mktemp("http"), tried_walls, ready_forge) as made:
        yield made


@pytest.fixture(scope="module")
def server(bench: McpBench) -> Iterator[HttpServer]:
    with http_server(bench, "--allow-host", "forge.test", "--allow-origin", "https://app.test") as running:
        yield running


# ---- 40


def test_case_40_without_a_token_nobody_is_let_in(server: HttpServer) -> None:
    """No token 401, a wrong one 401, one in the URL 401; the right one in the header is let in."""
    wire = server.wire()
    for given in (None, "Bearer wrong", f"Basic {wire.token}", "Bearer "):
        refused = wire.send(body=None, Authorization=given)
        assert refused.status == 401 and "forge mcp token create" in refused.body
        assert refused.headers["www-authenticate"] == "Bearer"
    for name in ("token", "access_token", "authorization"):
        assert wire.send(path=f"/mcp?{name}={wire.token}", Authorization=None).status == 401
    assert wire.initialize().status == 200


def test_case_40_only_our_own_host_and_allowed_origins_are_answered(server: HttpServer) -> None:
    """`Host: evil.test` 421, `Origin: https://evil.test` 403, whatever token comes with them."""
    wire = server.wire()
    strange = (
        f"evil.test:{server.port}",
        "evil.test",
        "127.0.0.1:1",
        "127.0.0.1",
        f"localhost.evil.test:{server.port}",
    )
    assert [wire.send(Host=host).status for host in strange] == [421] * len(strange)
    assert wire.send(Host=None).status in (400, 421)
    assert "www-authenticate" not in wire.send(Host="evil.test", Authorization=None).headers
    for origin in ("https://evil.test", "null", "http://app.test", f"http://127.0.0.1:{server.port}"):
        assert wire.send(Origin=origin).status == 403, origin
    assert wire.send(Authorization=None, Host="evil.test").status == 421, "a stranger learns no more than that"
    assert wire.send(Origin="https://app.test", Authorization=None).status == 401
    for host in (f"localhost:{server.port}", f"[::1]:{server.port}", "forge.test", "forge.test:443"):
        assert wire.send({}, Host=host).status not in (401, 403, 421), host


def test_case_40_a_server_for_other_machines_must_be_named(bench: McpBench) -> None:
    """`--http 0.0.0.0:8765` without `--allow-host` exits 2."""
    said = bench.forge("mcp", "serve", "--http", "0.0.0.0:8765")
    assert said.code == 2 and "--allow-host" in said.err and said.out == ""


# ---- 43


@pytest.mark.parametrize("era", ERAS)
async def test_case_43_what_one_client_remembers_counts_for_nobody_else(
    server: HttpServer, bench: McpBench, era: str
) -> None:
    """A answers `remember: session` → A's identical call runs unasked, B's asks."""
    before, again, other = len(notes(bench)), f"again {era}", f"other {era}"

    async def asked(token: str, answer: dict[str, Any], *texts: str) -> int:
        """How many times, for these calls on one connection."""
        person = Person(answer)
        async with server.client(era, token, elicitation_callback=person) as client:
            for text in texts:
                assert not (await client.call_tool("note", {"text": text})).is_error
        return len(person.asked)

    first, second = f"anna-{era}", f"bert-{era}"
    assert await asked(first, YES_THIS_SESSION, again, again, other) == 2, "the same was not asked about, another was"
    assert await asked(second, YES, again, again) == 2, "asked although A had agreed; and `once` is once"
    assert notes(bench)[before:] == [f"note {text}" for text in (again, again, other, again, again)]
    assert {f"mcp:{first}", f"mcp:{second}"} <= set(callers(bench))


async def test_case_43_a_session_is_a_connection_in_the_handshake_era(server: HttpServer) -> None:
    """ "session" means this connection: A's next connection asks again."""
    person = Person(YES_THIS_SESSION)
    for _ in range(2):
        async with server.client(LEGACY, "carl", elicitation_callback=person) as client:
            await client.call_tool("note", {"text": "anew"})

    assert len(person.asked) == 2
    assert set(person.asked[0].requested_schema["properties"]) == {"approve", "remember"}


def callers(bench: McpBench) -> list[str]:
    """Who made each call, as the journals have it."""
    lines = [line for file in (bench.home.path / "sessions").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [str(record["caller"]) for record in records if record["type"] == "proposed"]
