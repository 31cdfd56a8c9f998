"""`forge web --team`: the page and API for the people of a team, over the sessions of the store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golem_forge.cli.team import fail_with, own_store, store_settings
from golem_forge.core.signals import run_to_exit_code, stop_on_termination
from golem_forge.core.text import one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.database import TeamError
from golem_forge.team.schema import RUNNER, own_role
from golem_forge.team.store import Store
from golem_forge.ui.web.api.team import team_app
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import RequestGuard
from golem_forge.ui.web.team import TeamLogin, TeamRegistry


def serve_team(directory: Path, reach: ListenAddress) -> int:
    try:
        store = own_store(store_settings(directory=directory))
        remarks, now = list(_remarks(store)), store.now()
    except TeamError as error:
        return fail_with("web", error)
    return run_to_exit_code(_serve(store, directory, reach, remarks, now))


def _remarks(store: Store) -> Iterator[str]:
    role, kind = own_role(store.database)
    if kind == RUNNER:
        words = "which adds to journals. Make the page one of its own: `forge store init --page-role NAME`."
        yield f"Warning: {one_line(role)} is the runners' role, {words}"
    if not store.accounts.people():
        yield "Nobody can log in yet; `forge people add NAME --role admin` makes a token."


async def _serve(store: Store, directory: Path, reach: ListenAddress, remarks: list[str], now: float) -> int:
    login = TeamLogin()

    def app(*given: Any, **named: Any) -> RequestGuard:
        """Made when the port is ours, and before anybody is answered: another page at it holds its logins."""
        if reach.port:  # a cookie is for one port: with any free one, nobody's would be known again
            login.keep(forge_home(), reach.port, now)
        return team_app(*given, **named)

    registry = TeamRegistry(store, forge_home(), directory, login)
    server = WebServer(registry, reach, login, app)
    ended = asyncio.Event()
    try:
        await server.start()
        print("".join(f"{each}\n" for each in remarks), end="", file=sys.stderr, flush=True)
        with stop_on_termination(ended.set):
            registry.watch_people()
            print(f"Forge for your team: {server.address} (people log in with their tokens)", flush=True)
            await ended.wait()
    finally:
        await registry.close()
        await server.stop()
        login.close()  # not before: until then somebody may log out
    return 0
