"""Nested repositories: those that a command made or changed start no program, or they are set aside.

`vet_repositories` takes the paths that a command made or changed in a zone. Git status at the root enters gitlinks
and a shell prompt enters any directory: both run what a repository's config and hooks name. A repository that holds
such things (`git.rules`) is renamed in place, so that git, hg or jj find none there, and a critical Leftover says
how to put it back. One that the command did not touch, or in which it only committed, is left alone. Threat: names
are exchanged while they are judged; so the entry that was judged is the one that is moved, by the handle of its
directory, and what stands at the name afterwards is moved too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import stat
import string
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise, product
from typing import Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import display_name, escape_control_chars, shorten
from golem_forge.sandbox.git import rules
from golem_forge.sandbox.handles import DIRECTORY, ENTRY, Handle, Parts, call_libc
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.zones import Zone

NESTED_REPOSITORY: Final = "nested_repository"
_MOST_SET_ASIDE: Final = 2000
_MOST_TOLD: Final = 20
_MOST_NAMED: Final = 8
_LONGEST_NAME: Final = 60
_TRIES: Final = 50
_RENAME_NOREPLACE: Final = 1
_SAFE: Final = frozenset(string.ascii_letters + string.digits + " /._-")

_MARKERS: Final = frozenset(
    "".join(letters)
    for name in (GIT_FILE, ".hg", ".jj")
    for letters in product(*({letter, letter.upper()} for letter in name))
)
"""In every spelling: a file system may not tell them apart."""
_DECISIVE: Final = {
    GIT_FILE: ({"config"}, {"config.worktree"}, {"commondir"}, {"gitdir"}, {"hooks"}, {"remotes"}, {"branches"}),
    ".hg": ({"hgrc"}, {"hgrc-not-shared"}, {"sharedpath"}),
    ".jj": (
        {"workspace-config.toml"},
        {"repo", "repo/config.toml", "repo/workspace-config.toml", "repo/store", "repo/store/git_target"},
    ),
}
"""What, made or changed in such a directory, makes it another repository than it was. Everything else is work done
in it: objects, refs, logs, the index."""
_HEAD: Final = "HEAD"
_BARE_LAST: Final = frozenset({"head", "objects", "refs", "config", "config.worktree", "commondir", "gitdir"})
"""Of a repository that is not called `.git`: it comes to be by any of these, so each of them counts."""
_BARE_FOLDERS: Final = frozenset({"hooks", "remotes", "branches"})
_ROOT_S_OWN: Final = frozenset({"head", "objects", "refs"})
"""Not looked at below the zone's own `.git`: what comes into it, GitShadow decides."""


class _RepositoryKind(StrEnum):
    DIRECTORY = "directory"
    POINTER = "pointer"
    LINK = "link"
    BARE = "bare"
    MERCURIAL = "mercurial"
    JUJUTSU = "jujutsu"


@dataclass(slots=True)
class _Touched:
    """A repository in which something was made or changed."""

    decisive: bool = False
    entries: set[Parts] = field(default_factory=set)
    """Paths in it outside of its objects: none of them may be a link."""


def vet_repositories(
    zone: Zone, changed: Iterable[Parts], gitlinks: Iterable[Parts] = (), budget: rules.ReadBudget | None = None
) -> tuple[Leftover, ...]:
    """Judge what a command left, and set aside what is not harmless.

    `changed`: files and links made or changed, directories made or moved there with all that is in them; a directory
    in which only something else changed is not among them. `gitlinks`: directories that git enters by the index and
    that are to be judged even if nothing in them changed, such as newly added ones."""
    if GIT_FILE in {normal_name(name) for name in zone.unprotect}:
        return ()
    touched = _touched(changed)
    for place in gitlinks:
        touched.setdefault((*place, GIT_FILE), _Touched()).decisive = True
    return tuple(_Vetting(zone, budget or rules.ReadBudget()).run(touched))


def is_bare_repository(zone: Zone, parts: Parts) -> bool:
    """Whether git takes this directory for a repository although it is not called `.git`."""
    try:
        directory = zone.open(parts, DIRECTORY)
    except OSError:
        return False
    if not _exists(directory, _HEAD):
        return False
    return _exists(directory, "commondir") or (_exists(directory, "objects") and _exists(directory, "refs"))


def _touched(changed: Iterable[Parts]) -> dict[Parts, _Touched]:
    """By the path of what git, hg or jj look for: a `.git`, or the directory itself if that is the repository."""
    found: dict[Parts, _Touched] = {}
    for parts in changed:
        if not parts:
            continue
        if not _MARKERS.isdisjoint(parts):
            for at, name in enumerate(parts):
                if name in _MARKERS and not (at == 0 and name.casefold() == GIT_FILE):
                    _touch(found.setdefault(parts[: at + 1], _Touched()), name.casefold(), parts[at + 1 :])
        elif parts[-1].casefold() not in _BARE_LAST and _BARE_FOLDERS.isdisjoint(parts):
            continue
        in_root_s_own = parts[0].casefold() == GIT_FILE
        for at, name in enumerate(parts):
            folded = name.casefold()
            counts = folded in _BARE_FOLDERS or (at == len(parts) - 1 and folded in _BARE_LAST)
            if not counts or (at and parts[at - 1] in _MARKERS) or (in_root_s_own and folded in _ROOT_S_OWN):
                continue
            found.setdefault(parts[:at], _Touched()).decisive = True
    return found


def _touch(touched: _Touched, marker: str, rest: Parts) -> None:
    if not rest:
        touched.decisive = True
        return
    folded = tuple(part.casefold() for part in rest)
    if folded[0] == "objects":
        return
    touched.entries.add(rest)
    for names in _DECISIVE[marker]:
        if "/".join(folded) in names or (marker == GIT_FILE and folded[0] in names):
            touched.decisive = True


class _Vetting:
    def __init__(self, zone: Zone, budget: rules.ReadBudget) -> None:
        self._zone = zone
        self._budget = budget
        self._moves = 0

    def run(self, touched: dict[Parts, _Touched]) -> Iterator[Leftover]:
        told: list[Leftover] = []
        kept: list[str] = []
        # What a pointer leads to comes before the pointer, and inner ones before the outer ones that hold them.
        for parts in sorted(touched, key=lambda each: (-len(each), each)):
            kind = self._kind(parts)
            if kind is None:
                continue
            objections = self._objections(parts, kind, touched[parts])
            if kind in (_RepositoryKind.DIRECTORY, _RepositoryKind.BARE):
                objections += self._stopped_work(parts, touched[parts])
            if not objections:
                continue
            if self._moves >= _MOST_SET_ASIDE:
                kept.append(self._zone.virtual(parts))
                continue
            self._moves += 1
            told.append(self._set_aside(parts, kind, objections))
        yield from told[:_MOST_TOLD]
        if more := told[_MOST_TOLD:]:
            paths = tuple(one.paths[0] for one in more)
            text = f"{len(more)} more repositories that would make your programs run code were set aside"
            yield _critical(f"{text}: {_names(paths)}", paths)
        if kept:
            text = f"{len(kept)} more repositories were made or changed, and Forge did not check them. Run no git there"
            yield _critical(f"{text}: {_names(kept)}", tuple(kept))

    def _kind(self, parts: Parts) -> _RepositoryKind | None:
        """What stands there now; None: no repository."""
        marker = parts[-1].casefold() if parts and parts[-1] in _MARKERS else ""
        if not marker:
            return _RepositoryKind.BARE if is_bare_repository(self._zone, parts) else None
        try:
            entry = self._zone.open(parts, ENTRY)
        except FileNotFoundError:
            return None
        except OSError:
            return _RepositoryKind.DIRECTORY  # nobody knows: judging it will say why
        mode = os.fstat(entry.fd).st_mode
        if stat.S_ISLNK(mode):
            return _RepositoryKind.LINK
        if stat.S_ISDIR(mode):
            return {
                GIT_FILE: _RepositoryKind.DIRECTORY,
                ".hg": _RepositoryKind.MERCURIAL,
                ".jj": _RepositoryKind.JUJUTSU,
            }[marker]
        return _RepositoryKind.POINTER if marker == GIT_FILE else None

    def _objections(self, parts: Parts, kind: _RepositoryKind, touched: _Touched) -> list[str]:
        found: list[str] = []
        if not touched.decisive:
            found += (f"a link at '{'/'.join(entry)}'" for entry in self._links(parts, touched.entries))
            if not found:
                return []
        if not self._budget.take_repository():
            return ["things that Forge did not check (too many repositories at once)"]
        if kind is _RepositoryKind.LINK:
            return ["a link"]
        if kind is _RepositoryKind.POINTER:
            return self._pointer_objections(parts)
        others = {
            _RepositoryKind.MERCURIAL: rules.mercurial_objections,
            _RepositoryKind.JUJUTSU: rules.jujutsu_objections,
        }
        found += others.get(kind, rules.git_objections)(self._zone, parts, self._budget)
        return list(dict.fromkeys(found))

    def _pointer_objections(self, parts: Parts) -> list[str]:
        target = rules.pointer_target(self._zone, parts)
        if target is None:
            return ["a file that leads git out of the zone"]
        folded = [part.casefold() for part in target]
        of_another = any(name == GIT_FILE and after in ("worktrees", "modules") for name, after in pairwise(folded))
        try:
            there = _exists(self._zone.open(target, DIRECTORY), _HEAD)
        except OSError:
            there = False
        if not there and folded[-3:-1] == [GIT_FILE, "modules"]:
            return ["half of a submodule: `git submodule add` is for a person to run"]
        if not there or not (of_another or is_bare_repository(self._zone, target)):
            return [f"a file that leads git to '{'/'.join(target)}', where no repository is"]
        if of_another:  # judged by itself if it was touched; the root's own, GitShadow decides
            return []
        found = rules.git_objections(self._zone, target, self._budget)
        return [f"{what} in '{'/'.join(target)}'" for what in found]

    def _links(self, parts: Parts, entries: set[Parts]) -> Iterator[Parts]:
        for entry in sorted(entries):
            try:
                found = self._zone.open((*parts, *entry), ENTRY)
            except OSError:
                continue
            if stat.S_ISLNK(os.fstat(found.fd).st_mode):
                yield entry

    def _stopped_work(self, parts: Parts, touched: _Touched) -> Iterator[str]:
        """Files that a rebase, cherry-pick or `am` obeys when it goes on."""
        for entry in sorted(touched.entries):
            if not {*entry[:-1]}.isdisjoint(rules.SEQUENCER_FOLDERS):
                text = rules.read_text(self._zone, (*parts, *entry))
                content = text.encode("utf-8", "surrogateescape") if text is not None else None
                if content is not None and (why := rules.sequencer_objection(entry[-1], content)):
                    yield f"a stopped rebase or cherry-pick ({why})"

    def _set_aside(self, parts: Parts, kind: _RepositoryKind, objections: list[str]) -> Leftover:
        bare = kind is _RepositoryKind.BARE
        entry = (*parts, _HEAD) if bare else parts
        shown = self._zone.virtual(parts if bare else parts[:-1])
        text = f"{display_name(shown)} is a repository in which a command left {_names(objections)}"
        try:
            aside = move_aside(self._zone, entry)
            back = [(aside, entry)]
            if kind is _RepositoryKind.DIRECTORY:
                # Without it, git does not take the directory for a repository under its new name either.
                with contextlib.suppress(OSError):
                    back.append(((*entry, move_aside(self._zone, (*aside, _HEAD))[-1]), (*entry, _HEAD)))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            text += f". It could not be set aside ({why}): do not run git there or open a shell prompt in it."
            return _critical(text, (self._zone.virtual(entry),))
        commands = " && ".join(f"mv {_shell_word(source)} {_shell_word(target)}" for source, target in back)
        text += f". It was set aside: read it, then `{commands}` in /{self._zone.name} puts it back."
        return _critical(text, (self._zone.virtual(entry), self._zone.virtual(aside)))


def move_aside(zone: Zone, parts: Parts) -> Parts:
    """Rename an entry to a free name beside it, and whatever is put in its place meanwhile. Raises OSError."""
    *above, name = parts
    directory = zone.open(above, DIRECTORY)
    judged = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    free = _renamed(directory, name, judged)
    for _ in range(_TRIES):
        if not _exists(directory, name):
            return (*above, free)
        _renamed(directory, name, None)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _renamed(directory: Handle, name: str, judged: os.stat_result | None) -> str:
    """The new name. A child may have taken the right to write from the directory: its owner gives it back."""
    for number in range(1, _TRIES):
        free = f"{name}.set-aside-by-forge-{number if number < _TRIES // 2 else secrets.token_hex(8)}"
        try:
            _rename(directory.fd, name, free)
        except FileExistsError:
            continue
        except PermissionError:
            mode = stat.S_IMODE(os.fstat(directory.fd).st_mode)
            os.chmod(f"/proc/self/fd/{directory.fd}", mode | stat.S_IRWXU)
            _rename(directory.fd, name, free)
        except FileNotFoundError:
            if judged is None:  # gone by itself
                return name
            raise
        return free
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def _rename(directory: int, name: str, other: str) -> None:
    """Never over something that is there."""
    names = directory, os.fsencode(name), directory, os.fsencode(other)
    try:
        call_libc("renameat2", *names, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        try:
            os.stat(other, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, other, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None


def _exists(directory: Handle, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return True


def _critical(text: str, paths: tuple[str, ...]) -> Leftover:
    return Leftover(kind=NESTED_REPOSITORY, severity=Severity.CRITICAL, text=text, paths=paths[:_MOST_TOLD])


def _shell_word(parts: Parts) -> str:
    """A path as one word for bash and zsh, whatever characters are in it."""
    path = "/".join(parts)
    if path.isprintable() and escape_control_chars(path) == path:
        return shlex.quote(path if not path.startswith("-") else f"./{path}")
    return "$'" + "".join(chr(byte) if chr(byte) in _SAFE else f"\\x{byte:02x}" for byte in os.fsencode(path)) + "'"


def _names(found: Iterable[str]) -> str:
    """A few of them, each short, on one line."""
    words = [display_name(each) for each in found]
    shown = [shorten(word, _LONGEST_NAME) for word in words[:_MOST_NAMED]]
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(shown) + more
