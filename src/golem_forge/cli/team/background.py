"""`forge run --background`: checks what can be checked here, queues the session, and sees to it that a runner runs.

What a start would refuse is refused before anything is queued: a configuration with problems, a missing model, code
that nobody trusts. The session runs on this machine, or on runners with the label it names.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.session_plan import SessionRequest, is_built_in, plan_session
from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.dry_run import check_start
from golem_forge.cli.run import RunArgs
from golem_forge.cli.team import ID_SHOWN, fail_start, open_store, store_settings
from golem_forge.config.store_block import FROM_VARIABLE, TOKEN_VARIABLE
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.text import one_line, shorten
from golem_forge.sandbox.host import own_command, person_environ
from golem_forge.storage.home import forge_home
from golem_forge.team.database import Database, PostgresDatabase, SqliteDatabase
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import NewSession, program_id
from golem_forge.team.session_workspace import NO_WORKSPACE, workspace_facts
from golem_forge.team.workspace import Workspace, read_workspace

IDLE_S: Final = 600
NONE: Final = "none"
_NO_INPUT: Final = "the input is missing: give it as words, with --input or --file, or on standard input"
_STARTED_WITHIN_S: Final = 10.0
_STORE_VARIABLE: Final = "FORGE_RUNNER_STORE"
"""Passes the store's address to a runner that is started here; it may hold a password, so it is not in the command
line.
"""


def run_background(asked: RunArgs) -> int:
    try:
        settings = store_settings(asked.overrides, asked.directory)
        store = open_store(settings)
        new = remote_session(asked) if settings.is_remote else new_session(asked)
        session_id = store.queue(new)
        note = "" if asked.no_runner or settings.is_remote else ensure_runner(store, new.label)
    except (ConfigError, NotTrusted, ForgeError) as error:
        return fail_start("run", error)
    short = session_id[:ID_SHOWN]
    print(f"queued {short}")
    print("  forge ps               what runs and what waits")
    print("  forge inbox            its questions, to answer")
    print(f"  forge attach {short}   this terminal on it: its text, its questions, your messages")
    print(f"  forge send {short} …   a message for its next turn")
    print(f"  forge stop {short}     ends it")
    if note:
        print(note, file=sys.stderr)
    return 0


def remote_session(asked: RunArgs) -> NewSession:
    """Returns a session for a team's server, which plans it with its own program, keys and rules."""
    text = _input_of(asked)
    given = [each for each in asked.overrides if not each.startswith("store.")]
    if given or asked.workspace:
        raise ConfigError(
            "a team's server takes no --set and no workspace: its own configuration counts (`workspace` in the "
            "program's forge.yaml there)"
        )
    directory = "" if asked.directory in (Path(), Path.cwd()) else str(asked.directory)
    if Path(directory).is_absolute():
        raise ConfigError("a team's server runs its own programs: -p takes the name of one below its directory")
    facts = {
        "directory": directory,
        "worker": asked.worker or "",
        "model": asked.model or "",
        "approval": asked.approval or "",
    }
    title = shorten(one_line(text), 200)
    return NewSession(facts=facts, input=text, title=title, label=asked.label or "", priority=asked.priority)


def new_session(asked: RunArgs, *, in_batch: bool = False) -> NewSession:
    """Raises what a start would refuse: ConfigError, NotTrusted, ModelError. `in_batch`: the built-in worker, which is
    a conversation, ends with its first answer."""
    text = _input_of(asked)
    check_start(asked)
    plan = plan_session(
        asked.directory, SessionRequest(home=forge_home(), answers=True, overrides=asked.overrides), asked.worker
    )
    if plan.waits_for_trust:
        raise NotTrusted(plan.program.root)
    if not text.strip() and not plan.worker.allow_empty_input:
        raise ConfigError(_NO_INPUT)
    workspace = parse_workspace(asked.workspace) if isinstance(asked.workspace, str) else asked.workspace
    facts: dict[str, Any] = {
        "directory": str(Path(asked.directory).absolute()),
        "worker": asked.worker or "",
        "model": asked.model or "",
        "approval": asked.approval or "",
        "overrides": list(asked.overrides),
        "host": socket.gethostname(),
    }
    if (cloned := workspace_facts(plan, workspace)) is not None:
        facts["workspace"] = cloned
    return NewSession(
        facts=facts,
        input=text,
        worker=plan.worker.name,
        mode="single" if in_batch and is_built_in(plan.worker) else plan.worker.mode or "single",
        title=shorten(one_line(text), 200),
        program=program_id(plan.program.root),
        project=plan.program.root.name,
        label=asked.label or host_label(),
        priority=asked.priority,
    )


def _input_of(asked: RunArgs) -> str:
    """Raises ConfigError where there is none, and for a priority that does not exist."""
    if asked.input is None:
        raise ConfigError(_NO_INPUT)
    if not -10 <= asked.priority <= 10:
        raise ConfigError("--priority takes a number from -10 to 10")
    return asked.input


def parse_workspace(given: str) -> Workspace:
    """Parses `GIT[@REF]`, or `none`. Raises ConfigError."""
    if given == NONE:
        return NO_WORKSPACE
    git, _, ref = given.rpartition("@")
    address = git.partition("://")[2] if "://" in git else git
    if not git or ":" in ref or not ref or ("://" in git and "/" not in address):  # the @ belongs to the address
        git, ref = given, ""
    return read_workspace({"git": git, "ref": ref}, where="--workspace", folder=Path.cwd())


def host_label() -> str:
    """Returns the label of this machine and account, for a session that needs its local directory."""
    return f"{machine_label()}:{os.getuid()}"


def machine_label() -> str:
    """Returns the label of every runner on this machine; the page uses it for the sessions that it queues, as older
    versions did.
    """
    return f"host:{socket.gethostname()}"


def ensure_runner(store: TeamStore, label: str) -> str:
    """Starts a runner here if none takes this label. Gives a remark for the person, or nothing."""
    for runner in store.runners():
        if not runner["draining"] and (not label or label in runner["labels"]):
            return ""
    if label and label not in (host_label(), machine_label()):
        return f"no runner with the label {one_line(label)!r} runs now; the session waits until one does"
    home = forge_home()
    log = home.ensure("state") / "runner.log"
    private = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(private, "ab") as output:
        child = subprocess.Popen(
            own_command("runner", "--idle", str(IDLE_S), "--set", f"store.url={FROM_VARIABLE}{_STORE_VARIABLE}"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_runner_environ(store.database),
            cwd="/",
            start_new_session=True,
        )
    until = time.monotonic() + _STARTED_WITHIN_S
    while time.monotonic() < until and child.poll() is None:
        if any(each["pid"] == child.pid for each in store.runners()):
            return ""
        time.sleep(0.05)
    if child.poll() is not None:
        return f"the runner could not be started; {home.shown(log)} says why, and `forge runner` starts one here"
    return ""


def _runner_environ(database: Database | None) -> dict[str, str]:
    """Returns the environment of a runner, with the address of the store that the session was queued in. The team token
    of the person who started it is removed, since the runner goes on for others.
    """
    settings = store_settings()
    address = database.url if isinstance(database, PostgresDatabase) else "sqlite"
    if isinstance(database, SqliteDatabase):
        address = f"sqlite://{database.path.absolute()}"
    token = settings.token.removeprefix(FROM_VARIABLE) or TOKEN_VARIABLE
    kept = {name: value for name, value in person_environ().items() if name not in (token, TOKEN_VARIABLE)}
    return kept | {_STORE_VARIABLE: address}
