"""`forge mcp serve` and `token` from a shell: the real command, its streams and its exit codes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx2
import pytest
from tests.deadlines import PATIENCE
from tests.mcp.programs.oauth_server import authorization

from .conftest import Servers

FORGE = Path(sys.executable).with_name("forge")
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--http", "x:y"], "is not a listen address"),
        (["--allow-host", "x"], "need --http"),
        (["--worker", "nobody"], "nobody"),
        (["-p", "/no/such/place"], "no such directory"),
    ],
)
def test_what_cannot_be_served(servers, words, said):
    ended = servers("serve", *words)
    assert ended.code == 2 and said in ended.err and ended.out == ""


def test_a_program_with_code_of_its_own_must_be_trusted(servers):
    assert servers.shell("init").code == 0
    ended = servers("serve")
    assert ended.code == 3 and "forge trust" in ended.err and ended.out == ""


def test_tokens_are_shown_once(servers):
    assert "no token" in servers("token", "list").err
    made = servers("token", "create", "laptop")
    secret = made.out.strip()
    assert made.code == 0 and secret.startswith("forge_mcp_") and secret not in made.err
    assert [each["name"] for each in servers("token", "list", "--json").json["tokens"]] == ["laptop"]
    assert servers("token", "create", "laptop").code == 1
    assert secret not in "".join(content.decode(errors="replace") for content in servers.shell.everything().values())
    gone = servers("token", "revoke", "laptpo")
    assert gone.code == 4 and "did you mean 'laptop'?" in gone.err
    assert servers("token", "revoke", "laptop").code == 0
    assert servers("token", "list", "--json").json == {"tokens": []}
    for words in (["create"], ["list", "x"], ["create", "x", "--json"], []):
        assert servers("token", *words).code == 2


async def test_logging_in_and_out(shell):
    servers = Servers(shell)
    async with authorization() as world:
        added = await asyncio.to_thread(servers, "add", "docs", world.url, "--auth", "oauth", "--yes")
        assert added.code == 1 and "forge mcp login docs" in added.err
        child = shell.forge.start(["forge", "mcp", "login", "docs"], cwd=servers.project, env=shell.environ)
        try:
            async with asyncio.timeout(PATIENCE):
                while not (line := (await asyncio.to_thread(child.stdout.readline)).strip()).startswith("http"):
                    pass
                async with httpx2.AsyncClient(follow_redirects=True, verify=False, timeout=PATIENCE) as browser:
                    await browser.get(line)
                rest, _ = await asyncio.to_thread(child.communicate)
        finally:
            child.kill()
        assert child.returncode == 0
        assert "logged in at docs" in rest
        assert not [token for token in world.tokens if token in line + rest]
        assert (await asyncio.to_thread(servers, "logout", "docs")).code == 0
        assert (await asyncio.to_thread(servers, "logout", "docs")).code == 4


def test_what_has_no_login(servers):
    servers("add", "web", "https://x.test/mcp")
    servers("add", "prog", "--", "ls")
    for name, said in (("web", "write `auth: oauth`"), ("prog", "starts it as a program")):
        ended = servers("login", name)
        assert ended.code == 2 and said in ended.err
    assert servers("login", "none").code == 4 and servers("logout", "prog").code == 4
    servers("add", "docs", "https://x.test/mcp", "--auth", "oauth")
    ended = servers("login", "docs")
    assert ended.code == 3 and "forge mcp login docs --yes" in ended.err
