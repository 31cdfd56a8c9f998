"""The whole application: every operation that is declared can be reached, and each only through the door."""

from __future__ import annotations

import gc
import json
import pkgutil
import re
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.ui.web.front import HANDSHAKE
from tests.ui.web.stranger import request, sent

from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web import api
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.api.openapi import all_operations
from golem_forge.ui.web.api.operation import Operation
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import LoginStore
from golem_forge.ui.web.session_registry import SessionRegistry


def test_no_operation_is_left_out_and_none_is_there_twice() -> None:
    # a team's server has a set of its own (tests/acceptance/test_team.py)
    names = [each.name for each in pkgutil.iter_modules(api.__path__) if each.name not in ("team", "team_management")]
    modules = [import_module(f"{api.__name__}.{name}") for name in names]
    declared = {id(one): one for each in modules for one in vars(each).values() if isinstance(one, Operation)}.values()
    offered = all_operations()
    assert {(each.method, each.path) for each in declared} == {(each.method, each.path) for each in offered}
    assert len(declared) == len(offered) > 20
    names = [each.name for each in offered]
    assert len(names) == len(set(names))
    assert all(each.path.startswith("/api/") and each.description for each in offered)


async def test_every_one_is_behind_the_door(tmp_path: Path) -> None:
    login = LoginStore()
    server = WebServer(SessionRegistry(ForgeHome(tmp_path / "home"), tmp_path), ListenAddress(), login)
    await server.start()
    try:
        address = server.address.rstrip("/")
        name = f"forge_{address.rpartition(':')[2]}"
        for each in all_operations():
            path = re.sub(r"\{\w+\}", "x", each.path)
            foreign = {"Cookie": f"{name}={login.exchange(login.new_code())}", "Origin": "https://evil.test"}
            assert (await sent(address, request(address, path, method=each.method, **foreign))).status == 403
            if each.path != "/api/login":
                assert (await sent(address, request(address, path, method=each.method))).status == 401
        own = {"Cookie": f"{name}={login.exchange(login.new_code())}", "Origin": address}
        me = await sent(address, request(address, "/api/me", **own))
        assert me.status == 200 and json.loads(me.body)["mayStart"] is False
        for path, method, status in [("/api/x", "GET", 404), ("/api/x", "POST", 404), ("/api/me", "DELETE", 405)]:
            answer = await sent(address, request(address, path, method=method, **own))
            assert answer.status == status and json.loads(answer.body)["problem"]
        stream = "/api/sessions/none/stream"
        assert (await sent(address, request(address, stream, **HANDSHAKE))).status == 401
    finally:
        await server.stop()


async def test_a_refused_request_leaves_its_body_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threat: anybody on this machine sends large bodies that are refused, until the collector comes too late."""
    refusals, begin = [], ApiRefusal.__init__

    def noted(refusal: ApiRefusal, *said: Any, **more: Any) -> None:
        refusals.append(weakref.ref(refusal))
        begin(refusal, *said, **more)

    monkeypatch.setattr(ApiRefusal, "__init__", noted)
    server = WebServer(SessionRegistry(ForgeHome(tmp_path / "home"), tmp_path), ListenAddress(), LoginStore())
    await server.start()
    gc.disable()
    try:
        address = server.address.rstrip("/")
        body = json.dumps({"nope": "x" * 100_000})
        for _ in range(3):
            refused = await sent(address, request(address, "/api/login", method="POST", body=body, Origin=address))
            assert refused.status == 422
        assert len(refusals) >= 3 and not any(refusal() for refusal in refusals)
    finally:
        gc.enable()
        await server.stop()
