"""Signing for commands: what may be signed, and how it is signed on the host with the user's own key.

`read_signable` takes the buffer that git wants signed and gives what it is, or raises RemoteRefused: only the text of a
commit or a tag whose committer or tagger is the user, and nothing beside it. The caller checks that its parents are
known. `SigningSettings` is what the user has set up for all repositories; `sign` runs gpg or ssh-keygen on the host.

Threats: a command that wants something else signed (a message, a file, a commit of somebody else's name), a repository
that names the program which signs: neither key nor program ever comes from a repository.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.sandbox.git.command import (
    CREDENTIAL_VARIABLES,
    NETWORK_VARIABLES,
    GitLimits,
    GitOutputLimit,
    GitTimeout,
    run_program,
)
from golem_forge.sandbox.git.remotes import RemoteRefused
from golem_forge.sandbox.host import find_program, safe_path

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
