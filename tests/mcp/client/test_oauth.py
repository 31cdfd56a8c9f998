"""Logging in at a real authorization server on loopback, and using the login without anybody being asked again."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import sys
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from tests.deadlines import PATIENCE
from tests.mcp.programs.oauth_server import World, authorization

from golem_forge.config.mcp_spec import AuthKind, ServerAuth, ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client import oauth
from golem_forge.mcp.client.oauth import CredentialStore, resource_of
from golem_forge.mcp.client.oauth_flow import CallbackListener, InteractiveAuth
from golem_forge.storage.home import ForgeHome


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with authorization() as made:
        yield made


def spec_of(world: World) -> ServerSpec:
    return ServerSpec(name="docs", scope="", origin="forge.yaml:1", url=world.url, auth=ServerAuth(AuthKind.OAUTH))


def plain_client(**how: Any) -> httpx2.AsyncClient:
    """Without the certificates, which take longer to read than all that a test asks for."""
    return httpx2.AsyncClient(verify=False, timeout=PATIENCE, **how)


async def browse(url: str) -> None:
    """What the person's browser does with the page: it follows where it is sent."""
    async with plain_client(follow_redirects=True) as browser:
        await browser.get(url)


def browser(opened: list[str]) -> Any:
    async def show(url: str) -> None:
        opened.append(url)
        asyncio.get_running_loop().create_task(browse(url))

    return show


async def logged_in(world: World, home: ForgeHome, **more: Any) -> list[str]:
    opened: list[str] = []
    await oauth.login(spec_of(world), home, show_url=browser(opened), **more)
    return opened


async def asked(world: World, home: ForgeHome, **more: Any) -> int:
    auth = oauth.provider(spec_of(world), home, **more)
    async with plain_client(auth=auth) as client:
        return (await client.post(world.url, json={})).status_code


def age(world: World, home: ForgeHome, expires_at: float) -> None:
    """Makes the stored token as old as this."""
    vault, resource = CredentialStore(home), resource_of(world.url)
    record = vault.load(resource)
    assert record is not None
    vault.save(resource, record["issuer"], {**record, "expiresAt": expires_at})


async def test_a_login_by_the_browser_is_used_from_then_on(world: World, home: ForgeHome) -> None:
    opened = await logged_in(world, home)
    assert len(opened) == 1 and opened[0].startswith(f"{world.issuer}/authorize?")
    assert "code_challenge_method=S256" in opened[0] and "resource=" in opened[0]
    assert await asked(world, home) == 200
    assert len(world.clients) == 1


async def test_without_a_login_nobody_is_asked_and_nothing_is_registered(world: World, home: ForgeHome) -> None:
    assert await asked(world, home) == 401
    assert world.clients == {} and len(world.seen) == 1
    assert not (home.path / "state" / "oauth").exists()


async def test_what_is_stored_is_the_persons_alone(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    folder = home.path / "state" / "oauth"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    index = json.loads((folder / "index.json").read_text())
    assert list(index) == [world.url] and "canary" not in (folder / "index.json").read_text()


async def test_an_old_token_is_refreshed_at_the_right_server_before_it_is_sent(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    age(world, home, time.time() - 5)
    world.tokens.clear()
    world.seen.clear()
    assert await asked(world, home) == 200
    assert world.refreshed == 1 and len(world.seen) == 1
    assert await asked(world, home) == 200
    assert world.refreshed == 1, "the refreshed token was stored"


async def test_a_revoked_token_is_refreshed_after_the_401(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    world.tokens.clear()
    assert await asked(world, home) == 200
    assert world.refreshed == 1


async def test_nothing_left_to_refresh_with_leaves_the_401(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    world.tokens.clear()
    world.refreshes.clear()
    assert await asked(world, home) == 401
    assert len(world.clients) == 1, "nobody registers without a person"


async def test_a_token_that_another_session_renewed_is_taken_from_the_vault(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    late = oauth.provider(spec_of(world), home)
    async with plain_client(auth=late) as client:
        assert (await client.post(world.url, json={})).status_code == 200
        world.tokens.clear()
        assert await asked(world, home) == 200  # the other session: it spends the refresh token
        assert (await client.post(world.url, json={})).status_code == 200
    assert world.refreshed == 1


async def test_calls_go_on_side_by_side(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    waiting = asyncio.Event()
    together = 0

    class Slow(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            nonlocal together
            together += 1
            if together == 3:
                waiting.set()
            await waiting.wait()
            return httpx2.Response(200)

    async with httpx2.AsyncClient(auth=oauth.provider(spec_of(world), home), transport=Slow()) as client:
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(client.post(world.url, json={}) for _ in range(3)))
    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_logout_forgets_all_of_it(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    assert await oauth.logout(spec_of(world), home)
    assert await asked(world, home) == 401
    left = "".join(file.read_text() for file in (home.path / "state" / "oauth").iterdir())
    assert "canary" not in left and "client_id" not in left
    assert not await oauth.logout(spec_of(world), home)


async def test_a_second_login_keeps_the_registration(world: World, home: ForgeHome) -> None:
    first = await logged_in(world, home)
    second = await logged_in(world, home)
    port = [part for part in first[0].split("&") if part.startswith("redirect_uri")]
    assert port == [part for part in second[0].split("&") if part.startswith("redirect_uri")]
    assert len(world.clients) == 1


async def test_a_refused_login_says_so_and_stores_no_token(world: World, home: ForgeHome) -> None:
    world.refuse = True
    with pytest.raises(ForgeError, match="the login was refused: access_denied"):
        await logged_in(world, home)
    assert await asked(world, home) == 401


async def test_a_login_that_nobody_finishes_ends(world: World, home: ForgeHome) -> None:
    with pytest.raises(ForgeError, match=r"within 0\.3 seconds"):
        await oauth.login(spec_of(world), home, show_url=lambda url: None, seconds=0.3)


async def test_only_the_login_at_hand_is_taken_and_only_once(world: World, home: ForgeHome) -> None:
    answers: list[int] = []

    async def meddle(url: str) -> None:
        callback = httpx2.URL(url).params["redirect_uri"]
        async with plain_client() as client:
            queries = ("code=stolen&state=guessed", "code=stolen", "error=access_denied")
            answers.extend([(await client.get(f"{callback}?{query}")).status_code for query in queries])
            answers.append((await client.get(callback.replace("/callback", "/other"))).status_code)
            answers.append((await client.post(callback)).status_code)
        await browse(url)

    def show(url: str) -> None:
        tasks.append(asyncio.get_running_loop().create_task(meddle(url)))

    tasks: list[asyncio.Task[None]] = []
    await oauth.login(spec_of(world), home, show_url=show)
    assert answers == [400, 400, 400, 404, 404]
    assert await asked(world, home) == 200


async def test_a_server_that_wants_no_login_is_told_apart(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    token = next(iter(world.tokens))
    world.tokens[""] = world.tokens[token]  # everybody may
    with pytest.raises(ForgeError, match="docs did not ask for a login"):
        await logged_in(world, home)


async def test_more_scope_is_asked_for_at_the_next_login(world: World, home: ForgeHome) -> None:
    await logged_in(world, home)
    world.wanted_scope = "write"
    for client in world.clients.values():
        client.scope = "read write"
    assert await asked(world, home) == 403
    opened = await logged_in(world, home)
    assert "scope=read+write" in opened[0]
    assert await asked(world, home) == 200


@pytest.mark.parametrize("then", ["login", "logout", "refresh"])
async def test_a_session_that_lacks_a_scope_leaves_what_others_did_with_the_login(
    world: World, home: ForgeHome, then: str
) -> None:
    await logged_in(world, home)
    async with plain_client(auth=oauth.provider(spec_of(world), home)) as running:
        assert (await running.post(world.url, json={})).status_code == 200
        world.wanted_scope = "write"
        for client in world.clients.values():
            client.scope = "read write"
        if then == "login":
            assert (await running.post(world.url, json={})).status_code == 403
            await logged_in(world, home)
        elif then == "logout":
            await oauth.logout(spec_of(world), home)
        else:
            age(world, home, time.time() - 5)
            assert await asked(world, home) == 403
        kept = CredentialStore(home).load(resource_of(world.url))
        status = (await running.post(world.url, json={})).status_code
        assert CredentialStore(home).load(resource_of(world.url)) == kept
    assert status == (200 if then == "login" else 403)


async def test_tokens_are_in_no_log_and_the_redactor_knows_them(
    world: World, home: ForgeHome, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await logged_in(world, home)
    age(world, home, time.time() - 5)
    redactor = Redactor()
    assert await asked(world, home, redactor=redactor) == 200
    world.refuse = True
    with pytest.raises(ForgeError) as refused:
        await logged_in(world, home)
    assert "canary" not in caplog.text and "canary" not in str(refused.value)
    access = next(reversed(world.tokens))
    assert access not in redactor.redact_secrets(f"Bearer {access}")


async def refused_login(home: ForgeHome, remote: httpx2.AsyncBaseTransport) -> str:
    """With which words logging in at such a server ends."""
    asking = InteractiveAuth("https://evil.test/mcp", CredentialStore(home), lambda url: None)
    async with CallbackListener() as listener:
        asking.listen_with(listener)
        async with httpx2.AsyncClient(auth=asking, transport=remote) as client:
            with pytest.raises(ForgeError) as refused:
                await client.post("https://evil.test/mcp")
    return refused.value.message


async def test_a_remote_server_cannot_send_us_to_this_machine(home: ForgeHome) -> None:
    asked_for: list[str] = []

    class Remote(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            asked_for.append(str(request.url))
            place = "http://127.0.0.1:9/secret"
            return httpx2.Response(401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{place}"'})

    assert "without TLS" in await refused_login(home, Remote())
    assert asked_for == ["https://evil.test/mcp"]


async def test_an_endless_metadata_document_ends_the_login(home: ForgeHome) -> None:
    class Endless(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                return httpx2.Response(401)

            async def body() -> AsyncIterator[bytes]:
                for _ in range(10_000):
                    yield b" " * 65536

            return httpx2.Response(200, content=body())

    assert "sends too much data" in await refused_login(home, Endless())


# ---- the vault


class _Ring:
    """A keyring as the package of that name offers one."""

    def __init__(self, priority: float) -> None:
        self.priority = priority
        self.kept: dict[tuple[str, str], str] = {}

    def module(self) -> Any:
        return SimpleNamespace(
            get_keyring=lambda: self,
            get_password=lambda service, key: self.kept.get((service, key)),
            set_password=lambda service, key, text: self.kept.update({(service, key): text}),
            delete_password=lambda service, key: self.kept.pop((service, key)),
        )


def test_a_usable_keyring_holds_the_secrets_and_no_file_does(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = _Ring(5)
    monkeypatch.setitem(sys.modules, "keyring", ring.module())
    vault = CredentialStore(home)
    vault.save("https://x.test/mcp", "https://issuer.test", {"tokens": {"access_token": "canary-1"}})
    assert vault.load("https://x.test/mcp") is not None and len(ring.kept) == 1
    assert all("canary" not in file.read_text() for file in (home.path / "state" / "oauth").iterdir())
    assert vault.remove("https://x.test/mcp") and ring.kept == {}


def test_a_keyring_without_a_back_end_is_passed_over(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = _Ring(0)
    monkeypatch.setitem(sys.modules, "keyring", ring.module())
    CredentialStore(home).save("https://x.test/mcp", "https://issuer.test", {"tokens": {"access_token": "canary-1"}})
    assert ring.kept == {} and CredentialStore(home).load("https://x.test/mcp") is not None


def test_logins_are_kept_apart_by_issuer_and_resource(home: ForgeHome) -> None:
    vault = CredentialStore(home)
    vault.save("https://x.test/a", "https://one.test", {"tokens": {"access_token": "a"}})
    vault.save("https://x.test/b", "https://one.test", {"tokens": {"access_token": "b"}})
    vault.save("https://x.test/a", "https://two.test", {"tokens": {"access_token": "c"}})
    found = vault.load("https://x.test/a")
    assert found is not None and (found["issuer"], found["tokens"]) == ("https://two.test", {"access_token": "c"})
    records = [file for file in (home.path / "state" / "oauth").glob("*.json") if file.name != "index.json"]
    assert len(records) == 2, "the old issuer's record is gone"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_record_is_none(home: ForgeHome, damage: bytes) -> None:
    vault = CredentialStore(home)
    vault.save("https://x.test/a", "https://one.test", {"tokens": {"access_token": "a"}})
    for file in (home.path / "state" / "oauth").glob("*.json"):
        file.write_bytes(damage)
    assert vault.load("https://x.test/a") is None


def test_one_resource_has_one_name() -> None:
    assert resource_of("HTTPS://X.test/mcp/#part") == resource_of("https://x.test/mcp")
    assert resource_of("https://x.test/mcp") != resource_of("https://x.test/mcp2")
