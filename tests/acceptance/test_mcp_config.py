"""Servers as a person configures them (mcp.md §17, cases 1–4, 11 and 12): files of other hosts, approvals, secrets,
walls. The servers are those that everybody uses."""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench, of_servers, offered, pool_of, settled, state
from tests.acceptance.user_tools import card_text
from tests.deadlines import PATIENCE
from tests.mcp import foreign
from tests.mcp.client.test_pool_http import Office
from tests.mcp.pools import until

CANARY = "canary-5b21e0f7c9d4"


def git(place: Path, *words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.test")
    ran = subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return ran.stdout


async def test_case_1_mcp_json_as_other_hosts_write_it(mcp_bench: McpBench) -> None:
    """Both servers are listed and wait; approved, their tools are callable. `autoApprove` is a warning and grants
    nothing."""
    foreign.path("mcp-server-filesystem")
    (mcp_bench.workspace / "a.txt").write_text("alpha\n")
    echo = mcp_bench.ours("echo.py")
    mcp_bench.mcp_json(
        filesystem={"command": "mcp-server-filesystem", "args": [str(mcp_bench.workspace)], "autoApprove": ["*"]},
        echo={"type": "stdio", "command": echo["command"], "args": ["-S", str(mcp_bench.workspace / "echo.py")]},
    )
    async with mcp_bench.session(person=False) as session:
        assert [state(session, name) for name in pool_of(session).names()] == ["pending", "pending"]
        assert offered(session) == []
        refused = await session.call("filesystem__list_allowed_directories", {})
        assert refused.status == "approval_denied"
        assert "waits for approval; run: forge mcp approve filesystem" in refused.text
        assert any(".mcp.json: mcpServers.filesystem.autoApprove: grants nothing" in text for text in session.notices)
    listed = mcp_bench.forge("mcp", "list", "--json")
    assert [(one["name"], one["state"]) for one in json.loads(listed.out)["servers"]] == [
        ("echo", "pending"),
        ("filesystem", "pending"),
    ]

    mcp_bench.cards.yes = False
    async with mcp_bench.session() as session:
        await until(lambda: len(of_servers(mcp_bench.cards)) == 2, "a card for each server")
        assert {state(session, name) for name in ("filesystem", "echo")} == {"pending"}, "nobody agreed"
    cards = {card.tool: card_text(card) for card in of_servers(mcp_bench.cards)}
    assert "runs: mcp-server-filesystem '${zone:workspace}'" in cards["filesystem"]
    assert "zone: /workspace (read-only)" in cards["filesystem"]

    mcp_bench.cards.clear()
    mcp_bench.cards.yes = True
    async with mcp_bench.session() as session:
        await until(lambda: len(of_servers(mcp_bench.cards)) == 2, "they ask again")
        await settled(session)
        named = {name: pool_of(session).status(name).info["name"] for name in ("filesystem", "echo")}
        assert named == {"filesystem": "secure-filesystem-server", "echo": "echo"}
        asked = len(mcp_bench.cards)
        by_address = await session.call("filesystem__read_text_file", {"path": "/workspace/a.txt"})
        assert (by_address.status, by_address.result.structured) == ("success", {"content": "alpha\n"}), by_address.text
        assert len(mcp_bench.cards) == asked + 1, "autoApprove grants nothing: the call asked"
        for path in (str(mcp_bench.workspace / "a.txt"), "a.txt"):
            assert (await session.call("filesystem__read_text_file", {"path": path})).ok, path
        assert (await session.call("echo__echo", {"text": "hi"})).text == "hi"
        written = await session.call("filesystem__write_file", {"path": "/workspace/b.txt", "content": "x"})
        assert written.status == "execution_failed" and not (mcp_bench.workspace / "b.txt").exists(), "given to read"
    alone = mcp_bench.forge("call", "echo__echo", "--text", "hi")
    assert alone.code == 3 and "approval_denied" in alone.err, "approved is the server, not its calls"
    assert ".mcp.json: mcpServers.filesystem.autoApprove: grants nothing" in alone.err
    assert mcp_bench.nobody_left()


async def test_case_1_zones_in_forge_yaml_give_more(mcp_bench: McpBench) -> None:
    """What `.mcp.json` alone gives to read, `zones` in forge.yaml gives to write, and that asks again with a diff. A
    key that nobody knows, added while a session runs, is told then."""
    ours = mcp_bench.ours("echo.py")
    words = [word.replace("${zone:workspace}", str(mcp_bench.workspace)) for word in ours["args"]]
    block = {"command": ours["command"], "args": words, "env": ours["env"]}
    mcp_bench.mcp_json(fs=block)
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session)
        told: list[Any] = []
        session.bus.on("status", lambda event: told.append(event.data.message))
        mcp_bench.mcp_json(fs={**block, "alwaysAllow": ["write_file"]})
        mcp_bench.yaml({"fs": {"zones": {"workspace": "rw"}}})
        await session.look()
        await until(lambda: of_servers(mcp_bench.cards), "it asks again")
        diff = of_servers(mcp_bench.cards)[-1].diff
        assert "-zone: /workspace (read-only)" in diff and "+zone: /workspace (" in diff
        assert any("mcpServers.fs.alwaysAllow: grants nothing" in text for text in told)
        await settled(session)
        written = await session.call("fs__append", {"path": "/workspace/b.txt", "text": "x"})
        assert written.ok and (mcp_bench.workspace / "b.txt").read_text() == "x\n"
        assert not of_servers(mcp_bench.cards[-1:]), "the call asked, too"


async def test_host_paths_of_zones_are_addresses_in_what_a_server_says(mcp_bench: McpBench) -> None:
    """Invariant 9, of results, of errors and of stderr; the server itself sees the path it was given."""
    mcp_bench.yaml(
        {
            "fs": mcp_bench.theirs(foreign.filesystem("${zone:workspace}"), zones={"workspace": "ro"}),
            "echo": mcp_bench.ours("echo.py", zones={"workspace": "ro"}),
        }
    )
    mcp_bench.approve()
    (mcp_bench.workspace / "sub").mkdir()
    host = str(mcp_bench.workspace)
    async with mcp_bench.session() as session:
        await settled(session)
        roots = await session.call("fs__list_allowed_directories", {})
        assert roots.text == "Allowed directories:\n/workspace"
        assert roots.result.structured == {"content": "Allowed directories:\n/workspace"}
        found = await session.call("fs__search_files", {"path": "/workspace", "pattern": "sub"})
        assert found.text == "/workspace/sub"
        outside = await session.call("fs__read_text_file", {"path": "/etc/passwd"})
        assert outside.status == "execution_failed"
        assert "Access denied - path outside allowed directories: /etc/passwd not in /workspace" in outside.text
        said = await session.call("echo__echo", {"text": f"see {host}/x, file://{host}/y"})
        assert said.text == "see /workspace/x, file:///workspace/y"
        assert (await session.call("echo__echo", {"text": "/workspace/x\n/workspace/y"})).text == (
            "/workspace/x\n/workspace/y"
        )
        for outcome in (roots, found, outside, said):
            assert host not in repr(outcome.result)


async def test_case_2_the_same_name_in_forge_yaml_overlays_it_key_by_key(mcp_bench: McpBench) -> None:
    """The command from `.mcp.json`, the trust from forge.yaml; `type: sse` is refused with its text."""
    block = mcp_bench.ours("echo.py", zones={})
    del block["zones"]
    mcp_bench.mcp_json(echo=block, old={"type": "sse", "url": "https://h.test/sse"})
    mcp_bench.yaml({"echo": {"trust": "trusted", "zones": {"workspace": "ro"}}})
    mcp_bench.trust()
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session, "echo")
        assert pool_of(session).specs["echo"].trust == "trusted"
        assert (await session.call("echo__echo", {"text": "hi"})).text == "hi"
        assert not mcp_bench.cards, "a trusted server's word that it only reads counts"
        status = pool_of(session).status("old")
        assert (status.state, status.error) == ("failed", "SSE is not supported; use streamable HTTP")
        assert "SSE is not supported; use streamable HTTP" in (await session.call("old__x", {})).text


async def test_case_3_an_unset_variable_fails_that_server_and_a_set_one_is_seen_nowhere(
    mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`${NOPE}`: failed, naming it, nothing sent. A set variable's value: in no event, log, card or journal row."""
    office = Office()
    url = f"http://127.0.0.1:{office.port}/mcp"
    monkeypatch.setenv("PLAIN_NAME", CANARY)
    monkeypatch.delenv("NOPE", raising=False)
    mcp_bench.yaml(
        {
            "nope": {"url": url, "headers": {"X": "${NOPE}"}},
            "web": {"url": url, "headers": {"X-Key": "${PLAIN_NAME}"}},
            "echo": mcp_bench.ours("echo.py", "${PLAIN_NAME}", env={"GIVEN": "${PLAIN_NAME}"}),
        }
    )
    events: list[str] = []
    with caplog.at_level(logging.DEBUG):
        async with office.open(), mcp_bench.session() as session:
            session.bus.on("*", lambda event: events.append(repr(event.wire)))
            await until(lambda: len(of_servers(mcp_bench.cards)) == 3, "a card for each")
            await settled(session, "web", "echo")
            await until(lambda: state(session, "nope") == "failed", "it fails")
            status = pool_of(session).status("nope")
            assert status.error == "environment variable NOPE is not set"
            assert (await session.call("web__act", {})).ok
            assert {headers.get("x-key") for headers in office.headers} == {CANARY}, "sent where it belongs"
            assert all("x" not in headers for headers in office.headers), "the other one sent nothing"
            told = await session.call("echo__env", {"name": "GIVEN"})
            assert told.ok and told.text in ("[secret echo]", "[secret web]"), "it is both's"
            await session.call("echo__stderr", {"text": CANARY})
    assert events and mcp_bench.cards
    assert CANARY not in "\n".join(events)
    assert CANARY not in "\n".join(map(card_text, mcp_bench.cards)) + repr(mcp_bench.cards)
    assert CANARY not in caplog.text
    assert CANARY.encode() not in mcp_bench.kept_bytes()


async def test_case_4_one_changed_argument_asks_again_with_a_diff(mcp_bench: McpBench) -> None:
    """The old process is gone at once, the new one starts after a yes."""
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py", "--one")})
    async with mcp_bench.session() as session:
        await settled(session)
        first = (await session.call("echo__pid", {})).text
        [card] = of_servers(mcp_bench.cards)
        assert not card.diff
        assert len(mcp_bench.left()) >= 1

        mcp_bench.cards.yes = False
        mcp_bench.yaml({"echo": mcp_bench.ours("echo.py", "--two")})
        gone = await session.call("echo__pid", {})
        assert gone.status == "approval_denied" and "waits for approval" in gone.text
        assert mcp_bench.nobody_left(), "the old process"
        await until(lambda: len(of_servers(mcp_bench.cards)) == 2, "it asks again")
        changed = of_servers(mcp_bench.cards)[-1]
        assert "-argument: --one" in changed.diff and "+argument: --two" in changed.diff, changed.diff
        assert "its configuration changed" in changed.why

        mcp_bench.cards.yes = True
        pool_of(session).approve("echo")
        await settled(session)
        assert (await session.call("echo__pid", {})).ok
        assert first


async def test_case_11_a_server_gets_no_variable_that_was_not_declared(
    mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`get-env` of server-everything: a secret of Forge's environment is absent. With `pass_env` a server has it, and
    it is redacted in what is shown."""
    monkeypatch.setenv("CANARY_TOKEN", CANARY)
    monkeypatch.setenv("PLAIN_NAME", CANARY[::-1])
    names = ["CANARY_TOKEN", "PLAIN_NAME"]
    mcp_bench.yaml(
        {
            "without": mcp_bench.theirs(foreign.everything()),
            "given": mcp_bench.ours("echo.py", pass_env=names),
        }
    )
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session)
        without = await session.call("without__get-env", {})
        assert "CANARY_TOKEN" not in without.text and "PLAIN_NAME" not in without.text
        assert CANARY not in repr(without) and '"HOME"' in without.text
        for name in names:
            given = await session.call("given__env", {"name": name})
            assert given.text.startswith("[secret ")
            assert CANARY not in repr(given) and CANARY[::-1] not in repr(given)
    assert CANARY.encode() not in mcp_bench.kept_bytes()


@pytest.mark.long
async def test_case_12_git_writes_where_its_zone_may_be_written(mcp_bench: McpBench) -> None:
    """`git_status` and `git_commit` work, and mcp-server-time converts a time. (That a server writes nothing where its
    zone is read-only is seen in cases 1 and 20.)"""
    repo = mcp_bench.workspace
    server = foreign.mcp_server_git("--repository", "${zone:workspace}")
    clock = mcp_bench.theirs([foreign.path("mcp-server-time"), "--local-timezone", "UTC"])
    mcp_bench.yaml({"git": mcp_bench.theirs(server, zones={"workspace": "rw"}), "time": clock})
    git(repo, "init", "-q", "-b", "main")
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.test")
    (repo / "a.txt").write_text("alpha\n")
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session)
        assert pool_of(session).status("git").info["name"] == "mcp-git"
        place = {"repo_path": "/workspace"}
        status = await session.call("git__git_status", place)
        assert status.ok and "a.txt" in status.text, status.text
        git(repo, "add", "a.txt")
        commit = await session.call("git__git_commit", {**place, "message": "one"})
        assert commit.ok, commit.text
        times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in (await session.call("time__convert_time", times)).text
        assert git(repo, "log", "--format=%s") == "one\n"


@pytest.mark.long
async def test_case_12_what_a_server_keeps_survives_its_end(mcp_bench: McpBench) -> None:
    """server-memory: an entity is there after `close_after` ended the process, and in the next session."""
    graph = {"MEMORY_FILE_PATH": "/workspace/memory.jsonl"}
    mcp_bench.yaml(
        {"memory": mcp_bench.theirs(foreign.memory(), zones={"workspace": "rw"}, env=graph, close_after=0.5)}
    )
    mcp_bench.approve()
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    async with mcp_bench.session() as session:
        await settled(session)
        assert pool_of(session).status("memory").info["name"] == "memory-server"
        assert (await session.call("memory__create_entities", {"entities": [ada]})).ok
        await until(lambda: not mcp_bench.left(), "close_after ends it")
        assert state(session, "memory") == "known"
    async with mcp_bench.session() as session:
        assert "likes engines" in (await session.call("memory__read_graph", {})).text
