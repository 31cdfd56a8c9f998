"""`forge web --team`: the page and API for the people of a team, over the sessions of the store."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from golem_forge.cli.team import fail_with, own_store, store_settings
from golem_forge.core.signals import run_to_exit_code, stop_on_termination
from golem_forge.storage.home import forge_home
from golem_forge.team.database import TeamError
from golem_forge.team.store import Store
from golem_forge.ui.web.api.team import team_app
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.team import TeamLogin, TeamRegistry


def serve_team(directory: Path, reach: ListenAddress) -> int:
    login = TeamLogin()
    try:
        store = own_store(store_settings(directory=directory))
        if not store.accounts.people():
            print("Nobody can log in yet; `forge people add NAME --role admin` makes a token.", file=sys.stderr)
        if reach.port:  # a cookie is for one port: with any free one, nobody's would be known again
            login.keep(forge_home(), reach.port, store.now())
    except TeamError as error:
        return fail_with("web", error)
    return run_to_exit_code(_serve(store, login, directory, reach))


async def _serve(store: Store, login: TeamLogin, directory: Path, reach: ListenAddress) -> int:
    registry = TeamRegistry(store, forge_home(), directory, login)
    server = WebServer(registry, reach, login, team_app)
    await server.start()
    ended = asyncio.Event()
    with stop_on_termination(ended.set):
        try:
            registry.watch_people()
            print(f"Forge for your team: {server.address} (people log in with their tokens)", flush=True)
            await ended.wait()
        finally:
            await registry.close()
            await server.stop()
            login.close()  # not before: until then somebody may log out
    return 0
