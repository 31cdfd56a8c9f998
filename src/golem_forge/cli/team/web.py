"""`forge web --team`: the page and API for the people of a team, over the sessions of the store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from golem_forge.cli.team import fail_with, own_store, store_settings
from golem_forge.config.store_block import StoreSettings
from golem_forge.core.errors import EXTRAS, ConfigError, install_command
from golem_forge.core.signals import run_to_exit_code, stop_on_termination
from golem_forge.core.text import one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.database import TeamError
from golem_forge.team.openid import OpenIdClient, issuer_problem
from golem_forge.team.schema import RUNNER, own_role
from golem_forge.team.store import Store
from golem_forge.ui.web.api.team import team_app
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import RequestGuard
from golem_forge.ui.web.sign_in import SignIn
from golem_forge.ui.web.team import TeamLogin, TeamRegistry


def serve_team(directory: Path, reach: ListenAddress, issuer: str = "") -> int:
    """`issuer`: of the provider where people sign in; empty: with their tokens alone."""
    try:
        settings = store_settings(directory=directory)
        client = _client(issuer, settings) if issuer else None
        store = own_store(settings)
        remarks, now = list(_remarks(store)) if client is None else [], store.now()
    except TeamError as error:
        return fail_with("web", error)
    login = TeamLogin()
    sign_in = SignIn(client, store, login, settings.page) if client is not None else None
    return run_to_exit_code(_serve(TeamRegistry(store, forge_home(), directory, login), reach, remarks, now, sign_in))


def _client(issuer: str, settings: StoreSettings) -> OpenIdClient:
    """Makes the OpenID client. Raises ConfigError and TeamError."""
    about = settings.sign_in
    if problem := issuer_problem(issuer):
        raise ConfigError(f"--oidc {one_line(issuer)[:200]}: {problem}")
    if not about.client_id or not about.roles:
        raise ConfigError(
            "config.yaml: --oidc needs `oidc: {client_id: …, roles: {admin: […], operator: […], viewer: […]}}`"
        )
    if not all(find_spec(name) for name in sorted(EXTRAS["oidc"])):
        raise TeamError(f"Sign-in with OpenID Connect needs the extra `oidc`: {install_command('oidc')}", "STORE_EXTRA")
    return OpenIdClient(issuer, about, about.secret())


def _remarks(store: Store) -> Iterator[str]:
    role, kind = own_role(store.database)
    if kind == RUNNER:
        words = "which adds to journals. Make the page one of its own: `forge store init --page-role NAME`."
        yield f"Warning: {one_line(role)} is the runners' role, {words}"
    if not store.accounts.people():
        yield "Nobody can log in yet; `forge people add NAME --role admin` makes a token."


async def _serve(
    registry: TeamRegistry, reach: ListenAddress, remarks: list[str], now: float, sign_in: SignIn | None
) -> int:
    login = registry.login

    def app(*given: Any, **named: Any) -> RequestGuard:
        """Makes the app once the port is bound and before any request, because another server at that port would hold
        its logins.
        """
        if reach.port:  # a cookie is for one port: with any free one, nobody's would be known again
            login.keep(forge_home(), reach.port, now)
        return team_app(*given, **named, sign_in=sign_in)

    server = WebServer(registry, reach, login, app)
    ended = asyncio.Event()
    watching: asyncio.Task[None] | None = None
    try:
        await server.start()
        print("".join(f"{each}\n" for each in remarks), end="", file=sys.stderr, flush=True)
        with stop_on_termination(ended.set):
            registry.watch_people()
            how = f"sign in at {sign_in.shown}, or log in with" if sign_in is not None else "log in with"
            print(f"Forge for your team: {server.address} (people {how} their tokens)", flush=True)
            if sign_in is not None:
                watching = asyncio.get_running_loop().create_task(_watch(sign_in))
            await ended.wait()
    finally:
        if watching is not None:
            watching.cancel()
        await registry.close()
        await server.stop()
        login.close()  # not before: until then somebody may log out
        if sign_in is not None:
            await sign_in.client.close()
    return 0


async def _watch(sign_in: SignIn) -> None:
    """Says at the start whether the provider can be used."""
    try:
        await sign_in.client.metadata()
    except TeamError as error:
        print(f"Warning: nobody can sign in now. {error.message}", file=sys.stderr, flush=True)
    await sign_in.watch()
