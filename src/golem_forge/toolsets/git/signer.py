"""Signing for commands: the stub that git takes for its signing program, the socket it speaks to, the tool `git:sign`,
by which Forge signs on the host with the user's own key, and what may be signed at all.

A command whose user has signing set up (`SigningSettings`, from the settings that the user has for all repositories)
gets the stub and the settings that lead git to it (`CommandSigning`). What the stub hands over to the `SigningServer`
becomes a call of `git:sign` by the command's own call, on the one path: its card shows the commit or tag, and "for this
session" covers the others. `read_signable` gives what the buffer is, or raises RemoteRefused: only the text of a commit
or a tag whose committer or tagger is the user, and nothing beside it. Its parents must be commits that the user's
repository has, or that were signed here before. `sign` runs gpg or ssh-keygen.

Without a key nothing is signed: `commit.gpgSign` is off for commands, whatever the repository says.

Threats: a command that wants something else signed (a message, a file, a commit of somebody else's name); a repository
that names the program which signs: neither key nor program ever comes from a repository; a command that floods the
socket (few at once, small requests, a number of them for each command), or another process that finds it (a token for
each command).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import tempfile
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.core.text import shorten
from golem_forge.sandbox.git.command import (
    CREDENTIAL_VARIABLES,
    NETWORK_VARIABLES,
    GitLimits,
    GitOutputLimit,
    GitTimeout,
    run_program,
)
from golem_forge.sandbox.git.host_repository import HostRepository, personal_config, refusals
from golem_forge.sandbox.git.remotes import PersonRepository, RemoteRefused, config_settings
from golem_forge.sandbox.git.repository import Repository, find_repository
from golem_forge.sandbox.host import base_python, find_program, person_environ, safe_path
from golem_forge.sandbox.process.child import listen_in
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.walls.environment import with_git_settings
from golem_forge.sandbox.walls.layout import SIGNING
from golem_forge.sandbox.walls.model import HostDirectory
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.sandbox.zones import AccessMode, Zone
from golem_forge.storage.home import forge_home
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.environment import ExecEnvironment, environment_of
from golem_forge.toolsets.git import SIGN_TOOL

MOST_SIGNED: Final = 1 << 20
_SECONDS: Final = 120.0
_LARGEST_SIGNATURE: Final = 64 << 10
_PERSON: Final = rb"([^\n<>\0]*) <([^\n<>\0]*)> \d+ [+-]\d{4}"
_ID: Final = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_COMMIT: Final = regex(
    rb"tree " + _ID + rb"\n((?:parent " + _ID + rb"\n)*)author " + _PERSON + rb"\ncommitter " + _PERSON + rb"\n"
    rb"(?:encoding [A-Za-z0-9_.:-]+\n)?(?:mergetag [^\n\0]*\n(?: [^\n\0]*\n)*)*\n([^\0]*)"
)
_TAG: Final = regex(
    rb"object (" + _ID + rb")\ntype (?:commit|tree|blob|tag)\ntag ([^\n\0]+)\ntagger " + _PERSON + rb"\n\n([^\0]*)"
)
_CRUD: Final = " .,:;<>\"\\'"
_GRANT: Final = "sign commits and tags of this repository"
_SOCKET: Final = "socket"
_STUB: Final = "signer"
_MOST_REQUEST: Final = 2 * MOST_SIGNED
_READ_S: Final = 5.0
_AT_ONCE: Final = 4
_MOST_TOKENS: Final = 256
_MOST_OF_A_COMMAND: Final = 500
_MOST_SHOWN: Final = 20_000
"""Characters of a commit or tag: what a card cannot show whole is not signed."""


class Signable(NamedTuple):
    kind: str
    """`commit` or `tag`."""
    title: str
    parents: tuple[str, ...]
    """Objects that must be known: parents of a commit, the object of a tag."""


class Identity(NamedTuple):
    name: str
    email: str


def read_signable(data: bytes, allowed: Collection[Identity]) -> Signable:
    if len(data) > MOST_SIGNED:
        raise RemoteRefused("it is too large")
    if found := _COMMIT.fullmatch(data):
        parents = tuple(re.findall(_ID.decode(), found[1].decode()))
        made = Signable("commit", found[6].decode("utf-8", "replace").strip().partition("\n")[0], parents)
        name, email = found[4], found[5]
    elif found := _TAG.fullmatch(data):
        made = Signable("tag", found[2].decode("utf-8", "replace"), (found[1].decode(),))
        name, email = found[3], found[4]
    else:
        raise RemoteRefused("it is no commit and no tag")
    said = Identity(name.decode("utf-8", "replace"), email.decode("utf-8", "replace"))
    if not any(_same(said, one) for one in allowed):
        raise RemoteRefused(f"its {'committer' if made.kind == 'commit' else 'tagger'} is not the user")
    return made


def _same(said: Identity, wanted: Identity) -> bool:
    return said.email.strip(_CRUD) == wanted.email.strip(_CRUD) and said.name.strip(_CRUD) == wanted.name.strip(_CRUD)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSettings:
    format: str
    """`ssh` or `openpgp`."""
    key: str
    program: str
    commits: bool
    """The user signs every commit."""
    tags: bool


def signing_settings(personal: Mapping[str, str]) -> SigningSettings | None:
    """`personal`: settings of the user for all repositories, names in small letters. None: signing is not set up."""
    kind = personal.get("gpg.format", "openpgp").casefold()
    key = personal.get("user.signingkey", "")
    if not key or kind not in ("ssh", "openpgp"):
        return None
    if kind == "ssh":
        program = personal.get("gpg.ssh.program", "ssh-keygen")
    else:
        program = personal.get("gpg.openpgp.program") or personal.get("gpg.program", "gpg")
    commits, tags = (is_on(personal.get(f"{one}.gpgsign", "")) for one in ("commit", "tag"))
    return SigningSettings(format=kind, key=key, program=program, commits=commits, tags=tags)


def is_on(value: str) -> bool:
    return value.casefold() in ("true", "yes", "on", "1")


def sign(data: bytes, settings: SigningSettings, environ: Mapping[str, str], folder: Path, zones: Sequence[str]) -> str:
    """The signature, as git keeps it. `folder`: private; `zones`: host directories that commands can write. Raises
    RemoteRefused."""
    program = settings.program
    path = find_program(program, zones, environ) if "/" not in program else os.path.expanduser(program)
    if path is None or not _is_outside(path, zones):
        raise RemoteRefused(f"{program!r} was not found on this machine, or lies where commands can write")
    kept = (*NETWORK_VARIABLES, *CREDENTIAL_VARIABLES)
    own = {name: environ[name] for name in kept if name in environ}
    own |= {"PATH": safe_path(environ.get("PATH", os.defpath), zones), "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
    limits = GitLimits(seconds=_SECONDS, output=_LARGEST_SIGNATURE)
    with tempfile.TemporaryDirectory(dir=folder) as private:
        place = Path(private)
        argv = [path, "--status-fd=2", "-bsau", settings.key]
        if settings.format == "ssh":
            (place / "buffer").write_bytes(data)
            argv = [path, "-Y", "sign", "-n", "git", *_ssh_key(settings.key, place), str(place / "buffer")]
        given = data if settings.format == "openpgp" else b""
        try:
            ran = run_program(argv, folder=place, environ=own, limits=limits, stdin=given)
        except (GitTimeout, GitOutputLimit, OSError):
            raise RemoteRefused(f"{os.path.basename(path)} did not sign in time") from None
        if ran.code:
            raise RemoteRefused(f"{os.path.basename(path)} could not sign: {ran.errors or f'exit code {ran.code}'}")
        made = (place / "buffer.sig").read_bytes() if settings.format == "ssh" else ran.output
    if not made.startswith(b"-----BEGIN ") or len(made) > _LARGEST_SIGNATURE:
        raise RemoteRefused(f"{os.path.basename(path)} gave no signature")
    return made.decode("ascii", "replace")


def _ssh_key(key: str, place: Path) -> list[str]:
    """A key written out is one of the agent's."""
    if not key.startswith(("key::", "ssh-")):
        return ["-f", os.path.expanduser(key)]
    (place / "key.pub").write_text(key.removeprefix("key::") + "\n")
    return ["-f", str(place / "key.pub"), "-U"]


def _is_outside(path: str, zones: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return path.startswith("/") and not any(real == zone or real.startswith(f"{zone}/") for zone in zones)


@dataclass(slots=True)
class CommandSigning:
    """What one command gets, and what became of its requests."""

    env: dict[str, str] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    """Settings."""
    shown: tuple[HostDirectory, ...] = ()
    ctx: ToolContext | None = None
    asked: int = 0
    waiting: int = 0
    """Requests that nobody has answered yet."""
    refused: str = ""
    """Why the last one was not signed."""

    @property
    def is_offered(self) -> bool:
        return self.ctx is not None

    def applied(self, env: dict[str, str]) -> dict[str, str]:
        return with_git_settings({**env, **self.env}, self.git) if self.git else env


class SigningServer:
    """A part of the session; opened with the first command that may sign."""

    def __init__(self) -> None:
        self._folder = ""
        self._server: asyncio.AbstractServer | None = None
        self._root = secrets.token_hex(16)
        """Of every token: kept out of all output, which makes the rest of it worthless."""
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._commands: OrderedDict[str, CommandSigning] = OrderedDict()
        self._personal: dict[str, dict[str, str]] = {}
        self._shown: tuple[HostDirectory, ...] = ()
        self.signed: set[str] = set()
        """Ids of commits as git makes them of what was signed here."""

    async def personal(self, repository: Repository) -> dict[str, str]:
        """What the user has set for all repositories, as it holds for this one; asked for once."""
        if repository.git_dir not in self._personal:
            found = await run_in_thread(personal_config, repository.git_dir, person_environ())
            self._personal[repository.git_dir] = found
        return self._personal[repository.git_dir]

    async def prepare(self, command: CommandSigning, zone: Zone | None, ctx: ToolContext) -> None:
        """`zone`: where the command starts. Its settings lead git to the stub, or switch signing off."""
        repository = find_repository(zone) if zone is not None else None
        if repository is None:
            return
        personal = await self.personal(repository)
        settings = signing_settings(personal)
        own = _repository_settings(repository)
        if settings is None:
            names = ("commit.gpgsign", "tag.gpgsign")
            command.git = dict.fromkeys((name for name in names if is_on(own.get(name, ""))), "false")
            return
        with contextlib.suppress(OSError, ForgeError):  # without the stub git says that it cannot sign
            await self._open(ctx)
            token = f"{self._root}-{secrets.token_hex(16)}"
            self._commands[token] = command
            if len(self._commands) > _MOST_TOKENS:
                self._commands.popitem(last=False)
            if ctx.redactor is not None and self._root not in ctx.redactor.secrets:
                ctx.redactor.add_secret("FORGE_SIGNING_TOKEN", self._root)
            command.env = {"FORGE_SIGNING_SOCKET": f"{SIGNING}/{_SOCKET}", "FORGE_SIGNING_TOKEN": token}
            command.git = _stub_settings(settings, own)
            command.shown, command.ctx = self._shown, ctx

    async def _open(self, ctx: ToolContext) -> None:
        if self._server is not None:
            return
        home = ctx.home or forge_home().path
        python, why = own_python_directory(home)
        if why:
            raise ToolFailed(f"Forge's Python {why}")
        self._folder = _stub_folder(home / "cache")
        listener = listen_in(self._folder, _SOCKET, _AT_ONCE * 4)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_MOST_REQUEST)
        further = (HostDirectory(python, python),) if python else ()
        self._shown = (HostDirectory(self._folder, SIGNING), *further)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._free:
                answer = await self._answer(reader)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, str]:
        async with asyncio.timeout(_READ_S):
            line = await reader.readuntil(b"\n")
        try:
            said = json.loads(line)
            token, data = said["token"], said["data"]
            base64.b64decode(data, validate=True)
        except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
            return {"error": "that is no request"}
        known = (one for each, one in self._commands.items() if hmac.compare_digest(each, str(token)))
        command = next(known, None)
        if command is None or command.ctx is None:
            return {"error": "no command of this session asks"}
        command.asked += 1
        if command.asked > _MOST_OF_A_COMMAND:
            return {"error": f"one command has at most {_MOST_OF_A_COMMAND} things signed"}
        command.waiting += 1
        try:
            outcome = await command.ctx.call(SIGN_TOOL, {"data": data})
        finally:
            command.waiting -= 1
        if not outcome.ok or outcome.result is None:
            command.refused = shorten(outcome.error or outcome.status.value, 500)
            return {"error": command.refused}
        return {"signature": outcome.result.value["signature"]}

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._folder:
            remove_tree(self._folder)
        self._commands.clear()


def _stub_folder(cache: Path) -> str:
    """A private directory with the stub in it."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.path.realpath(tempfile.mkdtemp(prefix="sign-", dir=cache))
    source = (Path(__file__).parents[2] / "sandbox/git/signer_child.py").read_bytes()
    header = f"#!/bin/sh\n''':'\nexec {shlex.quote(base_python())} -I -S -B \"$0\" \"$@\"\n'''\n"
    stub = Path(folder, _STUB)
    stub.write_bytes(header.encode() + source)
    stub.chmod(0o500)
    return folder


def _stub_settings(settings: SigningSettings, own: Mapping[str, str]) -> dict[str, str]:
    """What leads git inside to the stub. The key stays a name: the stub does not need it."""
    stub = f"{SIGNING}/{_STUB}"
    said = {"gpg.format": settings.format, "user.signingKey": f"{SIGNING}/key"}
    said |= {"gpg.program": stub, "gpg.openpgp.program": stub, "gpg.ssh.program": stub, "gpg.x509.program": stub}
    for name, personal in (("commit.gpgSign", settings.commits), ("tag.gpgSign", settings.tags)):
        here = own.get(name.lower())
        said[name] = str(personal if here is None else is_on(here)).lower()
    return said


def _repository_settings(repository: Repository) -> dict[str, str]:
    try:
        found = config_settings(repository)
    except (RemoteRefused, OSError):
        return {}
    return {one.name: "true" if one.value is None else one.value for one in found}


async def plan_sign(args: dict[str, Any], ctx: ToolContext) -> Plan:
    environment = environment_of(None, ctx)
    await environment.walls.carry_git()
    server = ctx.parts.get(SigningServer)
    data = base64.b64decode(args["data"])
    zone = environment.sandbox.zones.get(environment.sandbox.default_zone or "")
    found = [(one, find_repository(one)) for one in environment.sandbox.zones.values()]
    repositories = [repository for one, repository in found if repository is not None]
    if zone is None or not repositories:
        raise ToolFailed("there is no repository here")
    personal = await server.personal(repositories[0])
    settings = signing_settings(personal)
    if settings is None:
        raise ToolFailed("signing is not set up")
    text = data.decode("utf-8", "replace")
    if len(text) > _MOST_SHOWN:
        raise ToolFailed(
            f"it has {len(text):,} characters, more than a card shows ({_MOST_SHOWN:,}): shorten its message"
        )
    with refusals():
        meant = await run_in_thread(_checked, data, repositories, personal, environment, server.signed)
    return Plan(
        run=partial(_run, data, settings, environment, server, ctx),
        effects=(Effect(verb=Verb.EXEC, target=f"sign {meant.kind} {shorten(meant.title, 100)}", grant=_GRANT),),
        payload=text,
        fingerprint_args={"sha256": hashlib.sha256(data).hexdigest()},
        read_only=True,
    )


def _checked(
    data: bytes,
    repositories: list[Repository],
    personal: Mapping[str, str],
    environment: ExecEnvironment,
    signed: set[str],
) -> Signable:
    """Raises RemoteRefused."""
    people = [PersonRepository(one) for one in repositories]
    allowed = {Identity(personal.get("user.name", ""), personal.get("user.email", ""))}
    for person in people:
        own = {one.name: one.value or "" for one in person.settings}
        name, email = (own.get(f"user.{key}", personal.get(f"user.{key}", "")) for key in ("name", "email"))
        allowed.add(Identity(name, email))
    meant = read_signable(data, [one for one in allowed if one.email])
    unknown = [one for one in meant.parents if one not in signed]
    for person in people:
        if unknown:
            host = HostRepository(person, forge_home().path / "cache", person_environ(), _writable(environment))
            try:
                said = host.look("cat-file", "--batch-check", given="\n".join((*unknown, "")).encode())
            finally:
                host.close()
            missing = {line.split(" ")[0] for line in said.splitlines() if line.endswith(" missing")}
            unknown = [one for one in unknown if one in missing]
    if unknown:
        raise RemoteRefused("it follows a commit that the user's repository does not have yet")
    return meant


def _writable(environment: ExecEnvironment) -> list[str]:
    return [one.host for one in environment.sandbox.zones.values() if one.mode is AccessMode.RW]


async def _run(
    data: bytes, settings: SigningSettings, environment: ExecEnvironment, server: SigningServer, ctx: ToolContext
) -> ToolResult:
    cache = (ctx.home or forge_home().path) / "cache"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)

    def work() -> str:
        with refusals():
            return sign(data, settings, person_environ(), cache, _writable(environment))

    signature = await run_in_thread(work)
    server.signed |= set(_commit_ids(data, signature))
    return ToolResult(value={"kind": "git.signature", "signature": signature}, text="signed")


def _commit_ids(data: bytes, signature: str) -> tuple[str, ...]:
    """Of the commit that git makes of it: the signature becomes a header, each further line behind a blank."""
    head, _, message = data.partition(b"\n\n")
    lines = signature.rstrip("\n").replace("\n", "\n ").encode()
    ids = []
    for name, make in (("gpgsig", hashlib.sha1), ("gpgsig-sha256", hashlib.sha256)):
        content = head + b"\n" + name.encode() + b" " + lines + b"\n\n" + message
        ids.append(make(b"commit %d\0" % len(content) + content).hexdigest())
    return tuple(ids)
