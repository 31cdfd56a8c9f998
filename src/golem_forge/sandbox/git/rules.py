"""What a repository that a command made or changed may hold: nothing that makes git, hg or jj start a program.

`git_objections`, `mercurial_objections` and `jujutsu_objections` name what they found; an empty list means
harmless. `sequencer_objection` judges one file of a stopped rebase, cherry-pick, revert or `am`. Everything is read
by handles from the zone's root, no link is followed, only small regular files are read. Threats: the directory is a
child's and another command may still run, so what cannot be read, is too large or is not understood counts as
found. `git rebase --continue` obeys its state files (steps can be commands, a merge strategy is the name of a
program, options for `git apply` name files), so names are on a list and their content is one of a few words.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.sandbox import handles
from golem_forge.sandbox.git import formats
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, LISTING, Handle, Parts
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.zones import Zone

_LARGEST_FILE: Final = 256 * 1024
_SAMPLE: Final = ".sample"
_OBJECTS: Final = "objects"
_SECTION: Final = regex(r"\[([^\[]+)\]\s*")
_ITEM: Final = regex(r"([^=\s][^=]*?)\s*=\s*(.*)")


class ReadBudget:
    """How much is read for one command: a child may leave any number of repositories, of any size."""

    def __init__(self, repositories: int = 500, entries: int = 100_000, size: int = 8 * 1024 * 1024) -> None:
        self._repositories = repositories
        self._entries = entries
        self._size = size

    def take_repository(self) -> bool:
        self._repositories -= 1
        return self._repositories >= 0 and self._entries > 0 and self._size > 0

    def take_entry(self) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise _Objection("more entries than are looked at")

    def take_bytes(self, count: int) -> None:
        self._size -= count


class _Entry(NamedTuple):
    name: str
    is_link: bool
    is_directory: bool
    is_file: bool


class _Objection(Exception):
    """Reading stops here: this alone is reason enough."""


def leads_to(zone: Zone, base: Parts, path: str) -> Parts | None:
    """Where a path written in a file leads, as components in the zone; None: out of it, or nobody can say.

    `base`: the directory it is relative to. Links are never on the way: `..` counts only where it comes first."""
    path = path.rstrip("/") or path
    written = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        if ".." in written:
            return None
        inside = zone.inside(written)
        if inside is None and written[:1] == [zone.name] and not os.path.lexists(f"/{zone.name}"):
            return tuple(written[1:])  # as commands see the zone; outside of walls there is nothing of that name
        return inside
    up = next((count for count, part in enumerate(written) if part != ".."), len(written))
    if up > len(base) or ".." in written[up:]:
        return None
    return (*base[: len(base) - up], *written[up:])


def passes_no_link(zone: Zone, parts: Parts) -> bool:
    """Whether each component is a directory or missing."""
    try:
        zone.open(parts, DIRECTORY)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _all_found(judge: Callable[[Zone, Parts, ReadBudget], Iterator[str]]) -> Callable[..., list[str]]:
    """What a judge finds, up to where reading stops."""

    def judged(zone: Zone, parts: Parts, budget: ReadBudget) -> list[str]:
        found: list[str] = []
        try:
            found.extend(judge(zone, parts, budget))
        except _Objection as objection:
            found.append(str(objection))
        except OSError as error:
            found.append(f"something that cannot be read ({os.strerror(error.errno or 0)})")
        return found

    return judged


@_all_found
def git_objections(zone: Zone, parts: Parts, budget: ReadBudget) -> Iterator[str]:
    """Of a git directory, whatever its name. Empty: git starts nothing for it."""
    free = {normal_name(name) for name in zone.unprotect}
    if GIT_FILE in free:
        return
    directory = zone.open(parts, DIRECTORY)
    yield from (f"a link at '{path}'" for path in _find_links(directory, budget))
    if ".git/config" not in free:
        worktrees = (f"worktrees/{one.name}/config.worktree" for one in _listed(directory, "worktrees", budget))
        for name in ("config", "config.worktree", *worktrees):
            yield from _config_objections(zone, parts, directory, name, budget)
    if ".git/hooks" not in free:
        for entry in _listed(directory, "hooks", budget):
            if not entry.name.endswith(_SAMPLE) or not entry.is_file:
                yield f"hook '{entry.name}'"
    for name in ("remotes", "branches"):
        yield from (f"'{name}/{entry.name}'" for entry in _listed(directory, name, budget))
    if ".git/commondir" not in free:
        yield from _location_files(zone, parts, directory, budget)


def read_text(zone: Zone, parts: Parts) -> str | None:
    """The text of a small regular file; None if there is none that can be read."""
    try:
        return _read_file(zone.open(parts[:-1], DIRECTORY), parts[-1], ReadBudget())
    except (OSError, _Objection):
        return None


def pointer_target(zone: Zone, parts: Parts) -> Parts | None:
    """Where a `.git` file leads; None: out of the zone, or it is none that anybody understands."""
    said = (read_text(zone, parts) or "").rstrip("\r\n")
    return leads_to(zone, parts[:-1], said[len("gitdir: ") :]) if said.startswith("gitdir: ") else None


@_all_found
def mercurial_objections(zone: Zone, parts: Parts, budget: ReadBudget) -> Iterator[str]:
    """Of an `.hg`: hg runs hooks, aliases and extensions of its `hgrc`."""
    directory = zone.open(parts, DIRECTORY)
    for entry in _listed(directory, ".", budget):
        if entry.is_link:
            yield f"a link at '{entry.name}'"
        elif entry.name.casefold() == "sharedpath":
            yield "'sharedpath'"
    for name in ("hgrc", "hgrc-not-shared"):
        if text := _read_file(directory, name, budget):
            yield from _hgrc_objections(text)


@_all_found
def jujutsu_objections(zone: Zone, parts: Parts, budget: ReadBudget) -> Iterator[str]:
    """Of a `.jj`: jj runs the editors, tools, signers and fsmonitors that its settings name."""
    directory = zone.open(parts, DIRECTORY)
    yield from (f"a link at '{entry.name}'" for entry in _listed(directory, ".", budget) if entry.is_link)
    yield from _toml_objections(_read_file(directory, "workspace-config.toml", budget))
    if _is_directory(directory, "repo"):
        inner = zone.open((*parts, "repo"), DIRECTORY)
        yield from (f"a link at 'repo/{entry.name}'" for entry in _listed(inner, ".", budget) if entry.is_link)
        for name in ("config.toml", "workspace-config.toml"):
            yield from _toml_objections(_read_file(inner, name, budget))
        store = (*parts, "repo", "store")
        if _is_directory(inner, "store"):
            target = _read_file(zone.open(store, DIRECTORY), "git_target", budget)
            if target is not None and leads_to(zone, store, target.strip()) is None:
                yield "'repo/store/git_target'"
    else:
        other = _read_file(directory, "repo", budget)
        if other is not None and leads_to(zone, parts, other.strip()) is None:
            yield "'repo', which leads out of the zone"


def _config_objections(zone: Zone, parts: Parts, directory: Handle, name: str, budget: ReadBudget) -> list[str]:
    text = _read_file(directory, name, budget)
    if text is None:
        return []
    base = (*parts, *name.split("/")[:-1])

    def accepted(setting: formats.GitSetting) -> bool:
        if setting.name == formats.WORKTREE:  # submodules have it
            place = leads_to(zone, base, setting.value or "")
            return place is not None and passes_no_link(zone, place)
        return setting.name == formats.WORKTREE_CONFIG  # those files are looked at whether it is on or not

    try:
        return formats.unlisted_keys(formats.read_config(text), accepted=accepted)
    except formats.ConfigSyntaxError:
        return [f"'{name}', which is not understood"]


def _location_files(zone: Zone, parts: Parts, directory: Handle, budget: ReadBudget) -> Iterator[str]:
    """Files that say where git finds the rest. Only worktrees have them, and theirs lead to the repository they are
    in and to a work tree in this zone."""
    of_a_worktree = len(parts) >= 3 and parts[-2].casefold() == "worktrees"
    common = _read_file(directory, "commondir", budget)
    if common is not None and not (of_a_worktree and common.strip() == "../.."):
        yield "'commondir'"
    back = _read_file(directory, "gitdir", budget)
    if back is not None and not (of_a_worktree and leads_to(zone, parts, back.strip()) is not None):
        yield "'gitdir', which leads out of the zone"


def _find_links(directory: Handle, budget: ReadBudget) -> Iterator[str]:
    """Symbolic links outside of the objects: git would write through them."""
    pending: list[Parts] = [()]
    while pending:
        here = pending.pop()
        below = _listed(directory, "/".join(here) or ".", budget)
        names = {entry.name.casefold() for entry in below}
        is_repository = not here or (here[0].casefold() == "modules" and {"head", "refs", _OBJECTS} <= names)
        for entry in below:
            if entry.is_link:
                yield "/".join((*here, entry.name))
            elif entry.is_directory and not (is_repository and entry.name.casefold() == _OBJECTS):
                pending.append((*here, entry.name))


def _hgrc_objections(text: str) -> Iterator[str]:
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if header := _SECTION.fullmatch(line):
            section = header[1].strip().casefold()
            continue
        item = _ITEM.fullmatch(line)
        if item is None:
            yield f"line {number} of hgrc"
        elif section == "paths" and formats.is_plain_address(item[2]) and not re.search(r"[|;`$]", item[2]):
            continue
        elif (section, item[1].casefold()) not in (("ui", "username"), ("phases", "publish")):
            yield f"{section}.{item[1]}"


def _toml_objections(text: str | None) -> Iterator[str]:
    try:
        settings = tomllib.loads(text or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        yield "settings of jj that are not understood"
        return
    for section, values in settings.items():
        names: Iterable[Any] = values if isinstance(values, dict) else ()
        if section == "user" and isinstance(values, dict) and {*names} <= {"name", "email"}:
            continue
        yield from (f"{section}.{name}" for name in names) if names else (section,)


def _listed(directory: Handle, path: str, budget: ReadBudget) -> list[_Entry]:
    """What is in a directory below a handle; nothing if there is none, and of a link, which is told as such."""
    try:
        here = Handle(handles.open_by_walk(directory.fd, path.split("/"), LISTING))
        found = []
        with os.scandir(here.fd) as entries:
            for entry in entries:
                budget.take_entry()
                link, below = entry.is_symlink(), entry.is_dir(follow_symlinks=False)
                found.append(_Entry(entry.name, link, below, entry.is_file(follow_symlinks=False)))
        return found
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _Objection(f"'{path}', which cannot be read ({os.strerror(error.errno or 0)})") from None


def _read_file(directory: Handle, path: str, budget: ReadBudget) -> str | None:
    """The text of a small regular file; None if there is none. Raises _Objection for anything else."""
    try:
        file = Handle(handles.open_by_walk(directory.fd, path.split("/"), CONTENT))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _Objection(f"'{path}', which cannot be read ({os.strerror(error.errno or 0)})") from None
    data = handles.read_regular(file.fd, _LARGEST_FILE + 1)
    if data is None:
        raise _Objection(f"'{path}', which is not a regular file")
    budget.take_bytes(len(data))
    if len(data) > _LARGEST_FILE:
        raise _Objection(f"'{path}', which is too large")
    return data.decode("utf-8", "surrogateescape")


def _is_directory(directory: Handle, name: str) -> bool:
    found = handles.entry_stat(name, directory.fd)
    return found is not None and stat.S_ISDIR(found.st_mode)


SEQUENCER_FOLDERS: Final = ("rebase-merge", "rebase-apply", "sequencer")

_IDS: Final = rb"(?:(?:[0-9a-f]{40}|[0-9a-f]{64})\n?)"
_WORD: Final = rb"[A-Za-z0-9][A-Za-z0-9_./+@{}^~-]*"
_STATE_FILES: Final = (
    (regex(r"FETCH_HEAD"), regex(rb"(?:(?:[0-9a-f]{40}|[0-9a-f]{64})\t(?:not-for-merge)?\t[^\n\0]*\n)*")),
    (regex(r"[A-Z_]*HEAD|AUTO_MERGE|BISECT_EXPECTED_REV|refs/.*"), regex(_IDS + rb"+")),
    (regex(r"BISECT_START"), regex(_WORD + rb"\n?")),
    (regex(r"BISECT_TERMS"), regex(rb"(?:" + _WORD + rb"\n?){2}")),
    (regex(r"BISECT_NAMES"), regex(rb"(?: ?'[A-Za-z0-9_./ -]*')*\n?")),
    (regex(r"BISECT_(?:ANCESTORS_OK|FIRST_PARENT)"), regex(rb"\s*")),
    (regex(r"MERGE_MODE"), regex(rb"(?:no-ff)?\n?")),
    (regex(r"[A-Z_]+_MSG|[A-Z_]*EDITMSG|BISECT_LOG|gitdir|commondir|locked"), regex(rb"[^\0]*")),
)
"""Files of a git directory beside HEAD and the index, by name, and what they hold. Threats: `ref: refs/heads/x` in
CHERRY_PICK_HEAD makes git delete that branch, in ORIG_HEAD overwrite it; BISECT_START is a word of `git checkout`."""


def state_objection(name: str, content: bytes) -> str:
    """Why a file must not be where git finds it, in a few words; empty: it may."""
    for names, holds in _STATE_FILES:
        if names.fullmatch(name):
            return "" if holds.fullmatch(content) else "it does not hold what git writes there"
    return "git knows no such file"


_Check = Callable[[bytes], bool]
_LARGEST_STATE_FILE: Final = 1 << 20
_STRATEGIES: Final = frozenset({b"", b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"})
_EXEC: Final = regex(rb"^[ \t]*(?:exec|x)[ \t]", re.MULTILINE)
_WORDS: Final = regex(rb"[\w \t\n=,.'\"-]*")
_KEY: Final = regex(rb"(?:-S[\w@.+-]*)?\s*")
_APPLY: Final = regex(
    rb"(?:\s*'?(?:-p\d+|-C\d+|--whitespace=[a-z-]+|--3way|--reject|--keep-cr|--ignore-(?:whitespace|space-change))'?)*\s*"
)
_REWRITTEN: Final = regex(rb"(?:refs/rewritten/[\w./-]+\n?)*")
_UPDATED: Final = regex(rb"(?:refs/heads/[^\n]+\n[0-9a-f]+\n[0-9a-f]+\n?)*")
_HEAD_NAME: Final = regex(rb"(?:refs/heads/[^\n]+|detached HEAD)\n?")
_SETS_ANOTHER_REF: Final = regex(rb"^[ \t]*(?:update-ref|u)[ \t]+(?!refs/heads/)", re.MULTILINE)
"""Threat: `refs/replace/…` makes git show other content than a commit has."""
_OPTIONS: Final = frozenset(
    f"options.{name}"
    for name in (
        *("no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "signoff"),
        *("keep-redundant-commits", "record-origin", "allow-ff", "mainline", "allow-rerere-auto", "gpg-sign"),
        *("default-msg-cleanup", "no-edit", "strategy", "strategy-option"),
    )
)


def _has_plain_steps(content: bytes) -> bool:
    return _EXEC.search(content) is None and _SETS_ANOTHER_REF.search(content) is None


def _matches(pattern: re.Pattern[bytes]) -> _Check:
    return lambda content: pattern.fullmatch(content) is not None


def _are_plain_options(content: bytes) -> bool:
    try:
        settings = formats.read_config(content.decode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    for one in settings:
        value = (one.value or "").encode("utf-8", "surrogateescape")
        good = value in _STRATEGIES if one.name == "options.strategy" else _WORDS.fullmatch(value) is not None
        if not good or one.name not in _OPTIONS:
            return False
    return True


_CHECKED_FILES: Final[dict[str, _Check]] = {
    "git-rebase-todo": _has_plain_steps,
    "git-rebase-todo.backup": _has_plain_steps,
    "todo": _has_plain_steps,
    "strategy": lambda content: content.strip() in _STRATEGIES,
    "strategy_opts": _matches(_WORDS),
    "gpg_sign_opt": _matches(_KEY),
    "apply-opt": _matches(_APPLY),
    "opts": _are_plain_options,
    "refs-to-delete": _matches(_REWRITTEN),
    "update-refs": _matches(_UPDATED),
    "head-name": _matches(_HEAD_NAME),
}
_DATA_FILES: Final = regex(
    r"\d+|done|head|onto|orig-head|orig_head|msgnum|end|message(?:-\w+)?|author-script|patch(?:-merge-base)?"
    r"|stopped-sha|amend|rewritten(?:-list|-pending)?|current-fixups|interactive|quiet|verbose|signoff|autostash"
    r"|(?:no-)?reschedule-failed-exec|(?:drop|keep)_redundant_commits|allow_rerere_autoupdate|squash-onto"
    r"|ignore_date|cdate_is_adate|next|last|info|msg(?:-clean)?|final-commit|original-commit|abort-safety|keep|messageid"
    r"|scissors|quoted-cr|sign|threeway|utf8|no_inbody_headers|keepcr|dirtyindex|rebasing|applying|edit|cur|prev"
    r"|no-merge-rebase|current|onto_name|reapply_cherry_picks"
)
"""Numbers, ids, messages and flags: git reads them, and starts nothing because of them."""


def sequencer_objection(name: str, content: bytes | None) -> str:
    """Why a file of such a directory must not be where git finds it, in a few words; empty: it may. `content` None:
    nobody can read it."""
    if content is None or len(content) > _LARGEST_STATE_FILE:
        return f"{name} cannot be read"
    judged = _CHECKED_FILES.get(name)
    if judged is not None:
        if judged(content):
            return ""
        steps = "its list of steps holds `exec` lines, or sets other refs than branches"
        return steps if judged is _has_plain_steps else f"{name} names a program, a file or another ref"
    return "" if _DATA_FILES.fullmatch(name) else f"git knows no {name[:60]} there"
