"""Names that need a person: protected (others run what is in them) and secret (they hold credentials).

Takes the components of a path inside a zone, gives Marks. Names compare case-insensitively and at any depth.
Facts about names only: that changing a protected path or reading a secret one asks is policy's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Final

from golem_forge.core.effects import Mark

GIT_FILE: Final = ".git"
"""As a file it names another directory, and git runs the hooks it finds there."""

PROTECTED_NAMES: Final = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", GIT_FILE),
    *(
        ".git/modules/**/hooks",
        ".git/modules/**/config",
        ".git/modules/**/config.worktree",
        ".git/modules/**/commondir",
    ),
    *(".git/worktrees/**/config.worktree", ".git/worktrees/**/commondir", ".git/worktrees/**/gitdir"),
    *(".forge", "forge.yaml", "*.worker", ".gitconfig", ".gitmodules"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".inputrc", ".envrc", ".ripgreprc", ".mcp.json"),
    *(".vscode", ".idea", ".husky", ".ssh", ".gnupg", ".config/fish", ".config/systemd", ".config/autostart"),
)
"""Every name `unprotect` may take away. Each stands for the path and everything below it."""

_SINGLE: Final = frozenset(name for name in PROTECTED_NAMES if "/" not in name and "*" not in name) - {GIT_FILE}
_PAIRS: Final = frozenset(tuple(name.split("/")) for name in PROTECTED_NAMES if name.count("/") == 1)
_GIT_NESTED: Final = {
    (".git", part): frozenset(name.rpartition("/")[2] for name in PROTECTED_NAMES if name.startswith(f".git/{part}/"))
    for part in ("modules", "worktrees")
}
"""Below these, at any depth: settings, hooks, and files that say where git finds settings and hooks."""

_WORTH_A_LOOK: Final = re.compile(
    r"(?:^|/)(?:\.|id_|forge\.yaml|credentials\.json|service-account)|\.(?:worker|pem|key|p12|pfx|keystore|kdbx)(?:/|$)"
)
"""Every name of both classes has one of these in it. Nearly every path has none, and is done with one search."""

_SECRET_DIRECTORIES: Final = frozenset({".aws", ".ssh", ".gnupg"})
_SECRET_FILES: Final = frozenset(
    {".env", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials.json"}
)
_SECRET_PAIRS: Final = frozenset({(".kube", "config"), (".docker", "config.json")})
_SECRET_ENDINGS: Final = (".pem", ".key", ".p12", ".pfx", ".keystore", ".kdbx")
_ENV_EXAMPLES: Final = (".example", ".sample", ".template")
_KEY_STARTS: Final = ("id_rsa", "id_ed25519", "id_ecdsa")


def marks(
    relative_parts: Sequence[str], *, git_is_file: bool = False, unprotect: Iterable[str] = ()
) -> tuple[Mark, ...]:
    """What the path is. `git_is_file`: a last component `.git` is, or would become, something else than a directory."""
    folded = [part.casefold() for part in relative_parts]
    found = []
    if _protected_by(folded, git_is_file) - {normal_name(name) for name in unprotect}:
        found.append(Mark.PROTECTED_PATH)
    if _is_secret(folded):
        found.append(Mark.SECRET_PATH)
    return tuple(found)


def is_plain(path: str) -> bool:
    """True: certainly neither protected nor secret. For a whole path, when most of them need no closer look."""
    return _WORTH_A_LOOK.search(path.casefold()) is None


def is_secret_name(path: str) -> bool:
    """For a path as someone wrote it, in any directory: `./.env`, `~/.ssh/id_rsa`."""
    if is_plain(path):
        return False
    return _is_secret([part.casefold() for part in path.split("/") if part not in ("", ".")])


def normal_name(name: str) -> str:
    """A name of the `unprotect` list, spelled as in PROTECTED_NAMES."""
    return name.casefold().rstrip("/").removesuffix("/**").removeprefix("./")


def _protected_by(parts: Sequence[str], git_is_file: bool) -> set[str]:
    """The names of PROTECTED_NAMES that cover this path."""
    names = {part for part in parts if part in _SINGLE}
    names.update("/".join(pair) for pair in pairwise(parts) if pair in _PAIRS)
    if any(part.endswith(".worker") for part in parts):
        names.add("*.worker")
    if git_is_file and parts and parts[-1] == GIT_FILE:
        names.add(GIT_FILE)
    for start in range(len(parts) - 2):
        inside = _GIT_NESTED.get((parts[start], parts[start + 1]), ())
        names.update(f".git/{parts[start + 1]}/**/{part}" for part in parts[start + 2 :] if part in inside)
    return names


def _is_secret(parts: Sequence[str]) -> bool:
    if not parts:
        return False
    last = parts[-1]
    return (
        last in _SECRET_FILES
        or (last.startswith(".env.") and not last.endswith(_ENV_EXAMPLES))
        or last.endswith(_SECRET_ENDINGS)
        or (last.startswith(_KEY_STARTS) and not last.endswith(".pub"))
        or fnmatchcase(last, "service-account*.json")
        or tuple(parts[-2:]) in _SECRET_PAIRS
        or not _SECRET_DIRECTORIES.isdisjoint(parts)
    )
