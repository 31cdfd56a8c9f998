"""Secrets of a project, which page and database keep and cannot open.

The runners of a store share a key pair. The private key is a file of each runner's account, state/runner.key in its
FORGE_HOME, and never a row; the public key is in the store (`forge secrets key`, with the owner's role). A value is
sealed on the machine of whoever types it, by `forge secrets set` or by their browser (page/sealing.js): HPKE of the
library `cryptography` (extra `secrets`) or of WebCrypto, with X25519, HKDF-SHA256 and AES-256-GCM, the one cipher that
both have. What is sealed is bound to its project and its name.

Threat: whoever can write the database moves a row to a project of their own; it does not open there. Whoever can write
the public key reads what is sealed from then on: only the owner of the tables can, and the fingerprint is shown.

A session gets those of its own project, for references `project:NAME` in `env.secrets` and in `sandbox.credentials`.
Whoever may start sessions there can in effect read them: a command that has one can print it in other words.

All methods of `ProjectSecrets` block; they are called in threads. Who may change one is judged in `people.py`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import install_command
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.storage.home import make_private_dir, open_private, read_bounded, write_private
from golem_forge.team.audit import NOBODY, Actor, record
from golem_forge.team.database import Database, TeamError

MAX_SECRET: Final = 16 << 10
"""Maximum bytes of one value."""
MAX_SEALED: Final = 2 * MAX_SECRET
_KEY_BYTES: Final = 32
_KEY: Final = "secrets key"
"""Key in `meta`: the runners' public key."""
_NAME: Final = regex(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NO_KEY: Final = (
    "The runners of this store have no key yet. Type `forge secrets key` as the account of a runner, with the owner's "
    "role, and copy state/runner.key to the other runners."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    project: str
    """Its id."""
    name: str
    sealed: str
    person: str
    created: float


class ProjectSecrets:
    def __init__(self, database: Database) -> None:
        self.database = database

    def all(self) -> list[SealedSecret]:
        rows = self.database.read("SELECT project, name, sealed, person, created FROM secrets ORDER BY project, name")
        return [_row(each) for each in rows]

    def of(self, program: str) -> list[SealedSecret]:
        rows = self.database.read(
            "SELECT project, name, sealed, person, created FROM secrets WHERE project = :project", {"project": program}
        )
        return [_row(each) for each in rows]

    def public_key(self) -> str:
        """Returns the public key. Raises TeamError if there is none."""
        row = self.database.read_one("SELECT value FROM meta WHERE key = :key", {"key": _KEY})
        if row is None:
            raise TeamError(_NO_KEY, "SECRETS_KEY")
        return str(row[0])

    def publish(self, public_key: str, *, by: Actor = NOBODY) -> None:
        """Takes the right to write `meta`, which runners and the page do not have."""
        _key_bytes(public_key)
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE "
                "SET value = excluded.value",
                {"key": _KEY, "value": public_key},
            )
            record(connection, "secrets key changed", *by, {"key": fingerprint(public_key)})

    def put(self, project: str, name: str, sealed: str, *, by: Actor = NOBODY) -> None:
        """A value that was sealed elsewhere. Raises TeamError for what cannot be one."""
        secret_name(name)
        with contextlib.suppress(binascii.Error):
            if len(sealed) <= MAX_SEALED and len(base64.b64decode(sealed, validate=True)) > _KEY_BYTES:
                with self.database.transaction() as connection:
                    connection.execute(
                        "INSERT INTO secrets (project, name, sealed, person, created) VALUES (:project, :name, "
                        ":sealed, :person, @now) ON CONFLICT (project, name) DO UPDATE SET sealed = excluded.sealed, "
                        "person = excluded.person, created = excluded.created",
                        {"project": project, "name": name, "sealed": sealed, "person": by.name},
                    )
                    record(connection, "secret set", *by, {"name": name}, program=project)
                return
        raise TeamError("This is no sealed secret.", "SECRET_NAME")

    def remove(self, project: str, name: str, *, by: Actor = NOBODY) -> None:
        with self.database.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM secrets WHERE project = :project AND name = :name", {"project": project, "name": name}
            ).rowcount
            if gone:
                record(connection, "secret removed", *by, {"name": name}, program=project)
        if not gone:
            raise TeamError(f"this project has no secret {name[:100]!r}; `forge secrets list` shows them", "NO_SECRET")

    def opened(self, program: str, home: Path) -> tuple[dict[str, str], list[str]]:
        """Returns, on a runner, the secrets of a project by name, and the names of those that cannot be
        decrypted here.
        """
        found = self.of(program)
        key = read_private_key(home) if found else None
        values: dict[str, str] = {}
        for each in found:
            with contextlib.suppress(Exception):  # of the library: another key, or a row that was moved or changed
                if key is not None:
                    values[each.name] = _open(each, key)
        return values, [each.name for each in found if each.name not in values]


def secret_name(name: str) -> str:
    """Returns a valid name. Raises TeamError for any other."""
    if _NAME.fullmatch(name) is None:
        raise TeamError(
            "The name of a secret has letters, digits and _, and begins with none of the digits.", "SECRET_NAME"
        )
    return name


def seal(value: str, public_key: str, project: str, name: str) -> str:
    """Encrypts a value so that only a runner of the store can read it, bound to this project and name. Raises
    TeamError.
    """
    data = value.encode()
    if not data.strip() or len(data) > MAX_SECRET or b"\0" in data or b"\n" in data:
        raise TeamError(f"A secret is one line of at most {MAX_SECRET >> 10} KiB.", "SECRET_NAME")
    (suite, _), keys = _library()
    public = keys.X25519PublicKey.from_public_bytes(_key_bytes(public_key))
    return base64.b64encode(suite.encrypt(data, public, info=_bound_to(project, name))).decode()


def _open(secret: SealedSecret, key: bytes) -> str:
    (suite, older), keys = _library()
    private = keys.X25519PrivateKey.from_private_bytes(key)
    sealed, info = base64.b64decode(secret.sealed), _bound_to(secret.project, secret.name)
    with contextlib.suppress(Exception):  # of the library: another cipher
        return str(suite.decrypt(sealed, private, info=info), "utf-8")
    return str(older.decrypt(sealed, private, info=info), "utf-8")


def make_key(home: Path) -> str:
    """The public key of this account's private one, which is made where there is none. Raises TeamError and OSError."""
    _, keys = _library()
    if (key := read_private_key(home)) is None:
        key = keys.X25519PrivateKey.generate().private_bytes_raw()
        make_private_dir(_path(home).parent)
        write_private(_path(home), base64.b64encode(key) + b"\n")
    return base64.b64encode(keys.X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()).decode()


def read_private_key(home: Path) -> bytes | None:
    """Returns the private key; None if this account has none. Raises OSError for a file that others
    could have written.
    """
    try:
        with open_private(_path(home), 1000, owned=True) as file:
            return _key_bytes(read_bounded(file, 1000).decode("ascii", "replace").strip())
    except FileNotFoundError:
        return None


def fingerprint(public_key: str) -> str:
    """Returns a fingerprint that people can compare."""
    return sha256(_key_bytes(public_key)).hexdigest()[:32]


def _path(home: Path) -> Path:
    return home / "state" / "runner.key"


def _key_bytes(text: str) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        if len(found := base64.b64decode(text, validate=True)) == _KEY_BYTES:
            return found
    raise TeamError("This is no key of `forge secrets key`.", "SECRETS_KEY")


def _bound_to(project: str, name: str) -> bytes:
    return f"golem-forge secret\0{project}\0{name}".encode()


def _library() -> tuple[tuple[Any, Any], Any]:
    """((the suite, the one of what was sealed before the page could), the module of their keys). Raises TeamError."""
    try:
        from cryptography.hazmat.primitives import hpke
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError:
        raise TeamError(
            f"Secrets of projects are sealed by a library that is missing. Run `{install_command('secrets')}`.",
            "SECRETS_KEY",
        ) from None
    ciphers = (hpke.AEAD.AES_256_GCM, hpke.AEAD.CHACHA20_POLY1305)
    suite, older = (hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, each) for each in ciphers)
    return (suite, older), x25519


def _row(row: tuple[Any, ...]) -> SealedSecret:
    project, name, sealed, person, created = row
    return SealedSecret(project=project, name=name, sealed=sealed, person=person, created=float(created))
