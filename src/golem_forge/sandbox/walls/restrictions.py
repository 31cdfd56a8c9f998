"""Restrictions inside one zone: protected and secret names, what path rules forbid, and masks too many for bubblewrap.

Takes a zone, its scan, rules and what this call was granted; returns ZoneRestrictions. Refuses (WALLS_UNAVAILABLE) a
`.git` or `.forge` that is a link; another protected link at the zone's root can be exchanged, which is reported
afterwards. Threat: whoever can rename a directory above a protected path can make that path anew, and above a masked
one can move it where no scan looks; so each directory on the way is a mount point of its own.

Mounts cost time: past `MOST_MOUNTS` whole directories become read-only instead (`within_budget`), those with the
deepest paths first. What is masked inside stays masked. bubblewrap reads the whole mount table again for each mount:
100 masks take 25 ms, 900 take a second, and about 4,000 are refused. So `split_masks` takes masks out of a layout where
there are more than FEW, and `put_up` mounts them before the command starts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.git.repository import NamedPath
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.protected import GIT_FILE, in_dependencies, marks, own_code_in
from golem_forge.sandbox.target import FileKind, kind_of, resolve_links
from golem_forge.sandbox.walls.directories import EntryKind, ScanFinding
from golem_forge.sandbox.walls.layout import MaskedDirectory, MaskedFile, Mount, mounted_at
from golem_forge.sandbox.walls.model import (
    PathRule,
    RefusalReason,
    Restriction,
    ShadowPlan,
    ShownPath,
    UncoveredPath,
    is_masked,
    is_read_only,
)
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.walls.zone_lease import missing_directories, self_contained
from golem_forge.sandbox.zones import Zone

FEW: Final = 100
"""Number of mounts that cost bubblewrap no more than its own start (25 ms)."""
MOST_MASKS: Final = 20_000
"""Maximum masks in one layout; they take half a second. A kernel allows 100,000 mounts (`fs.mount-max`)."""
_PATIENCE_S: Final = 30.0
_PROGRAM: Final = Path(__file__).with_name("mask_child.py")

Mask = MaskedFile | MaskedDirectory


def split_masks(mounts: Iterable[Mount]) -> tuple[tuple[Mount, ...], tuple[Mask, ...]]:
    """The layout without its masks, and the masks, where there are more than FEW. What a later mount covers needs no
    mask: put up last, it would stand on what covers it."""
    every = tuple(mounts)
    if sum(isinstance(one, Mask) for one in every) <= FEW:
        return every, ()
    last = {place: index for index, one in enumerate(every) for place in mounted_at(one)}
    masks = tuple(
        one for index, one in enumerate(every) if isinstance(one, Mask) and not _is_covered(one.place, index, last)
    )
    return tuple(one for one in every if not isinstance(one, Mask)), masks


def _is_covered(place: str, index: int, last: dict[str, int]) -> bool:
    while place != "/":
        place = os.path.dirname(place)
        if last.get(place, -1) > index:
            return True
    return False


async def put_up(pid: int, masks: Sequence[Mask]) -> None:
    """Mounts the masks in the walls of this process, whose command has not started: `mask_child.py` enters the walls
    while their inner stage waits, and needs 20 µs for each. Raises WALLS_UNAVAILABLE if the system refuses: the command
    must not start then."""
    await asyncio.to_thread(_put_up, pid, masks)


def _put_up(pid: int, masks: Sequence[Mask]) -> None:
    places = (f"{'d' if isinstance(one, MaskedDirectory) else 'f'}{one.place}\0" for one in masks)
    try:
        done = subprocess.run(
            isolated(str(_PROGRAM), str(pid)),
            input="".join(places).encode("utf-8", "surrogateescape"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unavailable(len(masks), "it took too long") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _unavailable(len(masks), lines[-1][:200] if lines else "no reason given")


def _unavailable(count: int, why: str) -> SandboxError:
    return walls_unavailable(
        f"{count:,} paths could not be hidden ({why})",
        "Try again if files of the zone changed meanwhile. Otherwise move secret files, sockets and FIFOs out of it.",
    )


_MUST_NOT_BE_LINKS = frozenset({GIT_FILE, ".forge"})


@dataclass(frozen=True, slots=True)
class ReadOnlyGit:
    """A `.git` that commands can read and not change."""

    why: str

    def notice(self, zone: Zone) -> str:
        return f"{zone.virtual((GIT_FILE,))} is read-only for commands: {self.why}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRestrictions:
    writable: bool
    masked: bool = False
    """Whether the whole zone is masked."""
    found: tuple[Restriction, ...] = ()
    """Parents before what lies in them; nothing below something that already says the same."""
    pinned: tuple[Parts, ...] = ()
    """Directories that stay writable but become mount points, so that they cannot be renamed."""
    placeholders: tuple[Parts, ...] = ()
    """Restricted paths that are missing or empty; an empty read-only directory is mounted there."""
    placeholder_files: frozenset[Parts] = frozenset()
    """The placeholders that are files."""
    self_contained: tuple[Parts, ...] = ()
    """Repositories that have no `commondir`: nothing can stand there, so one that appears is removed."""
    git: ShadowPlan | None = None
    """The mounts that replace the git directory; no restriction lies inside it."""
    lifted: tuple[Parts, ...] = ()
    """Readable in this call although the directory they are in stays masked."""
    notices: tuple[str, ...] = ()
    """Notices for the person about what is more restricted than they may expect."""
    shown: tuple[ShownPath, ...] | None = None
    """The only parts of the zone that are shown, parents first; None means everything."""

    def showing(self, only: Iterable[ShownPath]) -> ZoneRestrictions:
        """Returns the restrictions if only these paths are shown. Threat: a path in a directory that is masked, or in
        the git directory of which commands have a copy, is not shown at all; one in a directory that is read-only is
        not writable.
        """
        roots = sorted(only, key=lambda one: (len(one.parts), one.parts, one.writable))
        found = self.found
        if self.git is not None and not self.git.outside:  # what is secret in it was left to the copy
            found = (*found, Restriction(parts=(GIT_FILE,), why=RefusalReason.PROTECTED, masked=True, directory=True))
        masked = {one.parts for one in found if one.masked}
        closed = {one.parts for one in found if not one.masked}
        shown = []
        for one in roots:
            at_or_above = [one.parts[:end] for end in range(len(one.parts) + 1)]
            hidden = one.parts not in self.lifted and not masked.isdisjoint(at_or_above)
            if hidden:
                continue
            writable = one.writable and self.writable and closed.isdisjoint(at_or_above)
            shown.append(replace(one, writable=writable))
        return replace(self, found=found, shown=tuple(shown), git=None)


def restrictions(
    zone: Zone,
    scan: ZoneScan,
    rules: Sequence[PathRule],
    *,
    writable: bool,
    lifted: frozenset[str] = frozenset(),
    git: ShadowPlan | ReadOnlyGit | None = None,
    named: Iterable[NamedPath] = (),
    not_kept: Sequence[Restriction] = (),
) -> ZoneRestrictions:
    """`lifted`: virtual paths that this call's approved effects name; `git`: what a writable zone's own `.git` is;
    `named`: paths that git's settings name; `not_kept`: of `not_kept_paths`."""
    judge = _RuleMatcher(zone, rules, lifted)
    around = marks([part for part in zone.host.split("/") if part], unprotect=zone.unprotect)
    if judge.masks((), secret=Mark.SECRET_PATH in around):
        return ZoneRestrictions(writable=False, masked=True)
    writable = writable and Mark.PROTECTED_PATH not in around and not judge.read_only(())
    writable = writable and not own_code_in(zone.host).whole
    masks = {one.parts: one for one in _masked(judge, scan) if not judge.lifts(one.parts)}
    masks |= {one.parts: one for one in _never_shown(scan, writable=writable)}
    if () in masks:
        return ZoneRestrictions(writable=False, masked=True)
    opened = tuple(sorted(parts for parts in judge.granted() if is_below(parts, masks)))
    copy = git if isinstance(git, ShadowPlan) else None
    only_masks = ZoneRestrictions(
        writable=False,
        found=_outermost(masks.values()),
        lifted=opened,
        git=copy if copy is not None and copy.outside else None,
    )
    if not writable:
        return only_masks
    has_copy = git is not None and not (isinstance(git, ShadowPlan) and git.outside)
    in_git = (lambda parts: parts[0] == GIT_FILE) if has_copy else (lambda parts: False)
    masks = {parts: one for parts, one in masks.items() if not in_git(parts)}
    missing = dict.fromkeys(missing_directories(zone, scan), True)
    missing |= {parts: directory for one in named for parts, directory in _first_missing(zone, one)}
    placeholders = tuple(parts for parts in missing if not in_git(parts))
    closed = {one.parts: one for one in _read_only(judge, scan)}
    closed |= {one.parts: one for one in _named_by_git(judge, named)}
    closed |= {
        parts: Restriction(parts=parts, why=RefusalReason.PROTECTED, directory=missing[parts]) for parts in placeholders
    }
    closed = {
        parts: one
        for parts, one in closed.items()
        if parts not in masks and not is_below(parts, masks) and not in_git(parts)
    }
    if isinstance(git, ReadOnlyGit):
        closed[GIT_FILE,] = Restriction(parts=(GIT_FILE,), why=RefusalReason.PROTECTED, directory=True)
    hidden = [parts for parts in masks if not is_below(parts, masks)]
    guard = within_budget(zone.virtual(()), closed, hidden)
    if guard is None:
        text = "is read-only for commands: it holds more protected or secret paths than walls can guard."
        return replace(only_masks, notices=(f"{zone.virtual(())} {text}",))
    shut = {one.parts for one in guard.closed} | set(masks)
    # Beside the budget: they are few (`MOST_READ_ONLY`), and a directory of theirs must not be closed as a whole.
    unkept = [one for one in not_kept if one.parts not in shut and not is_below(one.parts, shut)]
    unkept = [one for one in unkept if not in_git(one.parts)]
    on_the_way = {parts for parts in _ancestors(one.parts for one in unkept) if parts not in shut}
    found = _outermost([*guard.closed, *unkept, *masks.values()])
    closed_now = {one.parts for one in found if not one.masked}
    return ZoneRestrictions(
        writable=True,
        found=found,
        pinned=tuple(
            parts
            for parts in sorted({*guard.pinned, *on_the_way})
            if parts not in closed_now and not is_below(parts, closed_now)
        ),
        placeholders=(kept := tuple(parts for parts in placeholders if parts in closed_now)),
        placeholder_files=frozenset(parts for parts in kept if not missing[parts]),
        self_contained=tuple(parts for parts in self_contained(zone, scan) if not in_git(parts)),
        git=copy,
        lifted=opened,
        notices=(*guard.notices, *((git.notice(zone),) if isinstance(git, ReadOnlyGit) else ())),
    )


def not_kept_paths(zone: Zone, given: Iterable[tuple[str, UncoveredPath]]) -> Iterator[Restriction]:
    """Yields the existing paths of a zone that could not be undone. A link is left out: it is kept with
    its directory.
    """
    for name, one in given:
        if name != zone.name or not one.parts:
            continue
        try:
            kind = kind_of(os.stat("/".join(one.parts), dir_fd=zone.root.fd, follow_symlinks=False))
        except OSError:
            continue
        if kind in (FileKind.FILE, FileKind.DIRECTORY):
            directory = kind is FileKind.DIRECTORY
            yield Restriction(parts=one.parts, why=RefusalReason.NOT_KEPT, directory=directory, detail=one.why)


def named_paths(zone: Zone, rules: Sequence[PathRule]) -> Iterator[tuple[Parts, FileKind]]:
    """The existing paths of a zone that rules name outright; a plan is only good while these are the same."""
    yield from _RuleMatcher(zone, rules, frozenset()).literal()


class _RuleMatcher:
    """Rules and grants, asked about paths of one zone by their components."""

    def __init__(self, zone: Zone, rules: Sequence[PathRule], lifted: frozenset[str]) -> None:
        self.zone = zone
        self.rules = [_with_all_below(rule) for rule in rules]
        self._lifted = lifted

    def masks(self, parts: Parts, *, secret: bool = False) -> bool:
        outer, *inner = self.names(parts)
        return is_masked(outer, secret=secret, rules=self.rules) or any(
            is_masked(name, secret=False, rules=self.rules) for name in inner
        )

    def read_only(self, parts: Parts) -> bool:
        return any(is_read_only(name, self.rules) for name in self.names(parts))

    def lifts(self, parts: Parts) -> bool:
        return self.zone.virtual(parts) in self._lifted and not self._blocked(parts)

    def granted(self) -> Iterator[Parts]:
        """Yields the masked paths that this call may read."""
        start = self.zone.virtual(()) + "/"
        for virtual in self._lifted:
            parts = tuple(virtual.removeprefix(start).split("/"))
            if virtual.startswith(start) and not self._blocked(parts):
                yield parts

    def literal(self) -> Iterator[tuple[Parts, FileKind]]:
        """The existing paths of this zone that rules name outright."""
        for start in self.names(()):
            for rule in self.rules:
                if rule.literal.startswith(start + "/"):
                    yield from self.existing(tuple(rule.literal.removeprefix(start + "/").split("/")))

    def existing(self, parts: Parts) -> Iterator[tuple[Parts, FileKind]]:
        """The path itself, or where a link leads inside the zone; nothing if nothing is there."""
        try:
            there = resolve_links(self.zone, parts, follow_last=True)
        except SandboxError:
            return
        kind = kind_of(there.stat)
        if there.parts and kind is not None:
            yield there.parts, kind

    def places(self, parts: Parts, kind: EntryKind) -> Iterator[tuple[Parts, FileKind]]:
        """Yields where a name's content lies: a mount cannot cover a link, only its target."""
        if kind is EntryKind.LINK:
            yield from self.existing(parts)
        else:
            yield parts, FileKind.DIRECTORY if kind is EntryKind.DIRECTORY else FileKind.FILE

    def names(self, parts: Parts) -> tuple[str, ...]:
        """Returns the path as the program names it, which is how rules are written, and as the worker names it, whose
        zone may begin deeper: it cannot rename its way around a rule.
        """
        outer = self.zone.virtual((*self.zone.subpath, *parts))
        return (outer, self.zone.virtual(parts)) if self.zone.subpath else (outer,)

    def _blocked(self, parts: Parts) -> bool:
        names = self.names(parts)
        blocking = [rule for rule in self.rules if rule.verdict is Verdict.BLOCKED and Verb.READ in rule.access]
        return any(rule.matches(name) for rule in blocking for name in names)


def _restriction(parts: Parts, kind: FileKind, why: RefusalReason, *, masked: bool = False) -> Restriction:
    return Restriction(parts=parts, why=why, masked=masked, directory=kind is FileKind.DIRECTORY)


def _masked(judge: _RuleMatcher, scan: ZoneScan) -> Iterator[Restriction]:
    for finding in scan.findings:
        if finding.secret and judge.masks(finding.parts, secret=True):
            for parts, kind in judge.places(finding.parts, finding.kind):
                if finding.kind is EntryKind.LINK:
                    scan.link_targets.add(parts)
                yield _restriction(parts, kind, RefusalReason.SECRET, masked=True)
    for led_to in scan.link_targets:
        for parts, kind in judge.existing(led_to):
            if judge.masks(parts, secret=True):
                yield _restriction(parts, kind, RefusalReason.SECRET, masked=True)
    for parts, kind in _rule_paths(judge, scan, {Verb.READ}):
        if judge.masks(parts):
            yield _restriction(parts, kind, RefusalReason.RULE, masked=True)


def _never_shown(scan: ZoneScan, *, writable: bool) -> Iterator[Restriction]:
    """A socket leads to a process of the host, and what cannot be listed may hold anything; no grant is about these.
    A FIFO that came with a command is there for the next, which could not remove it if something stood on it."""
    for finding in scan.findings:
        if finding.kind is EntryKind.SOCKET and writable and scan.is_own_fifo(finding.parts):
            continue
        if finding.unlisted or finding.kind is EntryKind.SOCKET:
            yield Restriction(parts=finding.parts, why=RefusalReason.SEALED, masked=True, directory=finding.unlisted)


def _read_only(judge: _RuleMatcher, scan: ZoneScan) -> Iterator[Restriction]:
    for parts, kind in _rule_paths(judge, scan, {Verb.WRITE, Verb.DELETE}):
        if judge.read_only(parts):
            yield _restriction(parts, kind, RefusalReason.RULE)
    for finding in scan.findings:
        if finding.protected:
            for parts, kind in _protected_places(judge, finding):
                yield _restriction(parts, kind, RefusalReason.PROTECTED)
    for own in own_code_in(judge.zone.host).closed:
        for parts, kind in judge.existing(own):
            yield _restriction(parts, kind, RefusalReason.OWN_CODE)


def _named_by_git(judge: _RuleMatcher, named: Iterable[NamedPath]) -> Iterator[Restriction]:
    """Hooks directories, included settings, programs: git runs or obeys what stands there."""
    for one in named:
        for parts, kind in judge.existing(one.parts) if one.parts else ():
            yield _restriction(parts, kind, RefusalReason.PROTECTED)


def _first_missing(zone: Zone, named: NamedPath) -> Iterator[tuple[Parts, bool]]:
    """Yields the first missing component of a path that git's settings name, which must not be created, and whether it
    would be a directory.
    """
    for length in range(1, len(named.parts) + 1):
        try:
            os.stat("/".join(named.parts[:length]), dir_fd=zone.root.fd, follow_symlinks=False)
        except FileNotFoundError:
            yield named.parts[:length], named.directory or length < len(named.parts)
            return
        except OSError:
            return


def _rule_paths(judge: _RuleMatcher, scan: ZoneScan, verbs: set[Verb]) -> Iterator[tuple[Parts, FileKind]]:
    """Paths that a rule about one of these verbs could mean: named outright, or every name the scan saw."""
    meant = [rule for rule in judge.rules if rule.verdict is not Verdict.PRE_APPROVED and verbs & rule.access]
    if not meant:
        return
    yield from judge.literal()
    scanning = [rule for rule in meant if not rule.literal]
    if scanning:
        for parts, kind in scan.names():
            if any(rule.matches(name) for rule in scanning for name in judge.names(parts)):
                yield from judge.places(parts, kind)


def _protected_places(judge: _RuleMatcher, finding: ScanFinding) -> Iterator[tuple[Parts, FileKind]]:
    parts = finding.parts
    if finding.kind is EntryKind.LINK:
        if parts[-1].casefold() in _MUST_NOT_BE_LINKS:
            shown = judge.zone.virtual(parts)
            raise walls_unavailable(
                f"'{shown}' is a link, which a command could replace", f"Put the real thing at '{shown}'."
            )
        if len(parts) > 1:  # nothing can stand on the link, so the directory it is in must not change
            yield parts[:-1], FileKind.DIRECTORY
    yield from judge.places(parts, finding.kind)


def _with_all_below(rule: PathRule) -> PathRule:
    """Makes a rule with a literal path match everything below that path too."""
    if not rule.literal:
        return rule
    literal, matches = rule.literal, rule.matches
    return replace(rule, matches=lambda name: name == literal or name.startswith(literal + "/") or matches(name))


def _outermost(found: Iterable[Restriction]) -> tuple[Restriction, ...]:
    """Removes restrictions below a masked path, and read-only ones below a read-only path; parents first."""
    every = {one.parts: one for one in found}
    masked = {parts for parts, one in every.items() if one.masked}
    kept = [
        one
        for parts, one in every.items()
        if not is_below(parts, masked) and (one.masked or not is_below(parts, every))
    ]
    return tuple(sorted(kept, key=lambda one: (len(one.parts), one.parts)))


MOST_MOUNTS: Final = 40
_HEADS_OF_PAIRS: Final = frozenset({".kube", ".docker"})
"""Directories in which certain names are secret."""
MOST_WHOLE: Final = 200
"""Maximum number of directories that are read-only as a whole; with more, the zone is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountBudget:
    closed: tuple[Restriction, ...]
    pinned: tuple[Parts, ...]
    """Directories on the way to what is closed, in order."""
    notices: tuple[str, ...] = ()


def within_budget(zone: str, closed: Mapping[Parts, Restriction], masked: Collection[Parts] = ()) -> MountBudget | None:
    """`zone` is its address, for the notices. Nothing of `closed` is or lies below a masked path. The scan looks into
    every directory, and what it does not look into is masked: a masked path is found again wherever it was moved."""
    single = {parts: one for parts, one in closed.items() if not is_below(parts, closed)}
    hidden = {parts for parts in masked if not is_below(parts, closed)}  # nothing can be renamed where all is read-only
    hidden = {parts for parts in hidden if not may_move(parts)}
    whole: dict[Parts, Restriction] = {}
    pinned = _ancestors((*single, *hidden))
    while len(single) + len(pinned) > MOST_MOUNTS:
        nested = [parts for parts in (*single, *hidden) if len(parts) > 1]
        if not nested:
            break
        deepest = max(nested, key=lambda parts: (len(parts), parts))
        # Where a repository has many submodules, only what is theirs.
        top = deepest[: 2 if deepest[0].casefold() == GIT_FILE and len(deepest) > 2 else 1]
        whole[top] = Restriction(parts=top, why=RefusalReason.PROTECTED, directory=True)
        single = {parts: one for parts, one in single.items() if parts[: len(top)] != top}
        hidden = {parts for parts in hidden if parts[: len(top)] != top}
        pinned = _ancestors((*single, *hidden, *whole))
    if len(whole) + len(single) > MOST_WHOLE:
        return None
    whole = {top: one for top, one in whole.items() if not is_below(top, whole)}
    return MountBudget(
        closed=(*single.values(), *whole.values()),
        pinned=tuple(sorted(parts for parts in pinned if parts not in whole and not is_below(parts, whole))),
        notices=tuple(
            f"{zone}/{'/'.join(top)} is read-only for commands: it holds too many protected or secret paths to guard"
            " each."
            for top in sorted(whole)
        ),
    )


def may_move(parts: Parts) -> bool:
    """Whether directories above a masked path may be renamed, mount and all: installers must be able to exchange a
    package with a key of its tests in it, and a name that counts by itself counts in every place."""
    return in_dependencies(parts) and parts[-2].casefold() not in _HEADS_OF_PAIRS


def is_below(parts: Parts, others: Collection[Parts]) -> bool:
    """Whether a directory above is among the others; the path itself does not count."""
    return any(parts[:length] in others for length in range(1, len(parts)))


def _ancestors(paths: Iterable[Parts]) -> set[Parts]:
    return {parts[:length] for parts in paths for length in range(1, len(parts))}
