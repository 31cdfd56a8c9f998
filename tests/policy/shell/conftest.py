"""A small machine for the analysers: two zones, system programs, one toolchain, one link."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest

from golem_forge.policy.shell.arguments import names
from golem_forge.policy.shell.strict import Operand, ProgramFile

SECRET_NAMES = [".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", ".netrc", ".npmrc", "credentials.json"]
LINKS = {"/workspace/link": "/workspace/deep/down", "/workspace/out": "/etc"}
SYSTEM = names(
    "ls cat tac rev nl paste head tail wc cut tr grep egrep fgrep find sed sort uniq stat file du df basename"
    " dirname realpath readlink md5sum sha1sum sha256sum sha512sum cksum cmp comm diff echo printf date pwd true"
    " false whoami id uname which seq expr git lsof bash sh cargo make awk test tree od fold column nproc arch python"
    " python3 node"
)


def is_secret(path: str) -> bool:
    parts = [part.lower() for part in path.split("/")]
    if any(part in (".ssh", ".aws", ".gnupg") for part in parts):
        return True
    if parts[-1].endswith((".example", ".sample", ".template", ".pub")):
        return False
    return any(fnmatchcase(parts[-1], name) for name in SECRET_NAMES)


class World:
    """`zsh` and `tac` come from a toolchain before the system's; `rg` is the one Forge ships."""

    def program(self, name: str) -> ProgramFile | None:
        base = posixpath.basename(name)
        if name == "rg":
            return ProgramFile("/forge/bin/rg", system=False, zone=False, shipped=True)
        if name in ("zsh", "tac"):
            return ProgramFile(f"/opt/tools/bin/{name}", system=False, zone=False)
        if "/" not in name:
            return ProgramFile(f"/usr/bin/{name}", system=True, zone=False) if name in SYSTEM else None
        if not name.startswith("/"):
            return None
        folder = posixpath.dirname(name)
        if folder in ("/bin", "/usr/bin") and base in SYSTEM:
            return ProgramFile(f"/usr/bin/{base}", system=True, zone=False)
        return ProgramFile(name, system=False, zone=folder.startswith(("/workspace", "/scratch")))

    def operand(self, path: str, cwd: str) -> Operand:
        if not path or path.startswith("~"):
            return Operand("bad", path)
        full = posixpath.normpath(posixpath.join(cwd, path))
        for link, target in LINKS.items():
            if full == link or full.startswith(link + "/"):
                full = target + full[len(link) :]
        zone = full.split("/")[1]
        if zone not in ("workspace", "scratch"):
            return Operand("outside", full)
        directory = full in ("/workspace", "/workspace/src", "/scratch") or full.startswith("/workspace/deep")
        return Operand("inside", full, "/host" + full, secret=is_secret(full), directory=directory)

    def scan_complete(self, virtual: str, *, hidden: bool = True) -> bool:
        return not virtual.startswith("/workspace/deep")

    def work_tree(self, place: str) -> str | None:
        return "/" + place.split("/")[1]

    def has_read_rules(self) -> bool:
        return False


@pytest.fixture(scope="session")
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def secret() -> Callable[[str], bool]:
    return is_secret
