"""Many requests of one browser at the moment when the provider no longer knows the person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.team.openid_issuer import CLIENT, SECRET, Issuer

from golem_forge.config.store_block import SignInSettings
from golem_forge.team.openid import OpenIdClient
from golem_forge.team.store import Store
from golem_forge.ui.web.sign_in import BEGIN, CALLBACK, SignIn
from golem_forge.ui.web.team import TeamLogin


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def request(path: str, query: str = "", cookie: str = "") -> Request:
    headers = [(b"host", b"127.0.0.1:8100"), (b"cookie", cookie.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
    return Request({**scope, "scheme": "http", "server": ("127.0.0.1", 8100)})


def cookies_of(answer: Response) -> list[str]:
    return [value.partition(";")[0] for name, value in answer.headers.items() if name == "set-cookie"]


async def test_every_request_of_a_login_that_ends_is_told_so(tmp_path: Path, issuer: Issuer) -> None:
    now = 0.0
    settings = SignInSettings(client_id=CLIENT, roles={"operator": ("dev",)}, recheck=60.0)
    client = OpenIdClient(issuer.url, settings, SECRET)
    sign_in = SignIn(client, Store.open("sqlite", tmp_path, create=True), TeamLogin(), clock=lambda: now)
    begun = await sign_in.begin(request(BEGIN))
    back = urlencode(issuer.sign_in(begun.headers["location"]))
    answer = await sign_in.complete(request(CALLBACK, back, cookies_of(begun)[0]))
    [cookie] = [each.partition("=")[2] for each in cookies_of(answer) if "_oidc=" not in each]
    assert await sign_in.confirm(cookie)
    del issuer.people["1"]
    now += 61.0
    assert await asyncio.gather(*(sign_in.confirm(cookie) for _ in range(6))) == [False] * 6
    assert issuer.asked["/token"] == 2, "the provider is asked once for all of them"
    await client.close()
