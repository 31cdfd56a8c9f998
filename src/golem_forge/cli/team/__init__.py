"""The verbs for sessions that outlive a terminal: `forge run --background`, `runner`, `ps`, `inbox`, `stop`, `send` …

Every verb opens the store that the configuration names (`open_store`). What a person does here is recorded with the
name of the account, or of the person behind a token, and the door `cli`.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.config.program import Program
from golem_forge.config.store_block import TOKEN_VARIABLE, StoreSettings
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import escape_control_chars, one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.database import SQLITE, TeamError
from golem_forge.team.people import OwnerStore, PersonStore, TeamStore, find_person, token_hash
from golem_forge.team.remote import RemoteStore
from golem_forge.team.store import Store
from golem_forge.ui.session_ui import exit_code_for

DOOR: Final = "cli"
ID_SHOWN: Final = 12
VERBS: Final = {
    "runner": "runner",
    "ps": "sessions",
    "stop": "sessions",
    "send": "sessions",
    "inbox": "sessions",
    "attach": "attach",
    "batch": "batch",
    "schedule": "batch",
    "diff": "changes",
    "apply": "changes",
    "store": "store",
    "people": "people",
    "projects": "people",
    "secrets": "people",
    "audit": "store",
}
"""Verb → the module that has `run_<verb>`."""


def run(verb: str, words: list[str]) -> int:
    module = import_module(f"{__name__}.{VERBS[verb]}")
    try:
        return int(getattr(module, f"run_{verb}")(words))
    except TeamError as error:
        return fail_with(verb, error)


def store_settings(overrides: Sequence[str] = (), directory: Path | None = None) -> StoreSettings:
    """`directory`: of the program. At a team's address it may be the name of one that only the server has; then what
    counts here counts, and whoever looks for the program says that there is none."""
    return program_settings(overrides, directory if directory and directory.is_dir() else None).store


def program_settings(overrides: Sequence[str] = (), directory: Path | None = None) -> Program:
    home = forge_home()
    try:
        where = directory or Path.cwd()
    except FileNotFoundError:
        where = Path("/")
    return read_program(where, home, trust_store(home), overrides)


def open_store(settings: StoreSettings | None = None, *, create: bool = True, door: str = DOOR) -> TeamStore:
    """The store as whoever types this may use it: the account itself, the person behind a token (`store.token`,
    FORGE_TEAM_TOKEN), or a person at a team's address.

    `create`: the SQLite file of this home is made when it is first used. Raises ConfigError and TeamError.
    """
    settings = settings or store_settings()
    address, token = settings.address(), settings.person_token()
    if address.startswith(("http://", "https://")):
        if not token:
            raise ConfigError(
                f"{settings.origins.get('url', 'store.url')}: a team's address needs your token: set {TOKEN_VARIABLE}, "
                "or store.token: env:NAME"
            )
        return RemoteStore(address, token)
    store = Store.open(address, forge_home().path, create=create and address.startswith(SQLITE))
    if not token:
        return OwnerStore(store, account_name(), door)
    if find_person(store, hash := token_hash(token)) is None:
        store.accounts.refuse_login(store.accounts.whose_was(hash), door, "this machine")
    return PersonStore(store, hash, door)


def own_store(settings: StoreSettings | None = None) -> Store:
    """The database itself, for runners and for whoever looks after it. Raises ConfigError and TeamError."""
    settings = settings or store_settings()
    address = database_address(settings)
    return Store.open(address, forge_home().path, create=address.startswith(SQLITE))


def database_address(settings: StoreSettings) -> str:
    """Raises ConfigError for a team's address."""
    address = settings.address()
    if address.startswith(("http://", "https://")):
        raise ConfigError(
            f"{settings.origins.get('url', 'store.url')}: this needs the address of the database, not that of a team"
        )
    return address


def account_name() -> str:
    """Returns the account's name for the record. Threat: LOGNAME and USER say what somebody wants them to."""
    try:
        return one_line(pwd.getpwuid(os.getuid()).pw_name)[:64]
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


_EXIT_CODES: Final = {
    "SESSION_NOT_FOUND": 4, "QUESTION_NOT_FOUND": 4, "PERSON_NOT_FOUND": 4, "RULE_NOT_FOUND": 4,
    "SCHEDULE_NOT_FOUND": 4, "SCHEDULE": 2,
    "PROJECT_NOT_FOUND": 4, "PROJECT_NAME": 2,
    "ROLE": 3, "FOUR_EYES": 3, "NOT_A_PERSON": 3,
}  # fmt: skip


def fail_with(verb: str, error: TeamError) -> int:
    print(f"forge {verb}: {one_line(error.message)}", file=sys.stderr)
    return _EXIT_CODES.get(error.code, 2 if error.code.startswith("STORE") else 1)


def fail_start(verb: str, error: Exception) -> int:
    """Prints why no session can be queued, and returns the exit code."""
    if isinstance(error, TeamError):
        return fail_with(verb, error)
    speaker = "forge" if verb == "run" else f"forge {verb}"
    for problem in error.problems if isinstance(error, ConfigError) else (str(error),):
        print(f"{speaker}: {escape_control_chars(problem)}", file=sys.stderr)
    return exit_code_for(error)
