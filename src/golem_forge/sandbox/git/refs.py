"""RefExchange: refs of the user and of the shadow are compared, and those that commands moved are pushed.

Refs of the user go into the shadow. What only a command moved goes to the user with all objects that it needs, by a
push that git verifies. What both moved stays the user's, and the command's is kept as `refs/forge/heads/…`. What git
does not accept stays in the shadow as `refs/forge/refused/…`. `refs/forge/base/…` in the user's repository keeps what
commands may build on. Threat: a ref can make git show other content than there is (`refs/replace`), or be taken for
something else by its name; so names and values are on a list, and git compares the old value.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.git import directory
from golem_forge.sandbox.git.directory import PACKED_REFS, GitLocked, Stamp
from golem_forge.sandbox.git.remotes import REMOTES, local_remotes
from golem_forge.sandbox.git.sides import MOST_NAMED, GitSides, Sync, SyncPhase
from golem_forge.sandbox.git.transport import GitFailed, RefUpdate
from golem_forge.sandbox.protected import GIT_FILE

HEAD_CONTENT: Final = regex(rb"ref: (refs/heads/[^\n]+)\n?|[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_NO_REFS: Final = regex(r"refs/(?:replace|forge)/.*|refs/heads/HEAD|refs/[^/]+/-.*")
"""Replacements make git show other content than a commit has; a branch HEAD is taken for HEAD, and `-x` for an option;
the others are Forge's."""
_FORGE: Final = "refs/forge/"
_PINS: Final = f"{_FORGE}base/"
"""Commits that the shadow was given: the user's `git gc` must not take what commands may still build on."""
_MOST_PINS: Final = 200
_MOST_KNOWN: Final = 5000
_MOST_ALONE: Final = 16
_REMOTE: Final = regex(r"refs/remotes/[^/]+")
_STASH: Final = "refs/stash"
STASH_LOG: Final = "logs/refs/stash"
_WAS: Final = f"{_FORGE}was/dropped/"
_MOST_MADE: Final = 2000
"""New refs at once. Threat: each becomes a file and a log in the user's repository."""
_GIT_SAID: Final = "git said: "
_LATER: Final = "later"
_SETTLING_S: Final = 0.3


class RefMove(NamedTuple):
    name: str
    update: RefUpdate
    put_back: bool = False
    """The user's value goes into the shadow afterwards."""
    told: str = ""


class Carried(NamedTuple):
    lacking: bool
    """Git does not find all objects that went along."""
    stash_stays: bool
    """The user's stash was not changed."""
    unkept: bool
    """What nothing of the user's or of the command's would name any more could not be kept as a ref."""
    taken_back: frozenset[str]
    """Refs that a command made and that are gone from the shadow."""


class RefExchange:
    def __init__(self, sync: Sync) -> None:
        self._sync = sync
        self._sides = sync.sides
        self._real, self._shadow = sync.sides.real, sync.sides.shadow
        self._transport = sync.sides.transport
        self._theirs: dict[str, str] = {}
        self._pinned: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        """What both sides hold, as far as it is settled."""
        self._local: frozenset[str] | None = None
        """Remotes that are paths, once somebody has asked."""
        self._no_room: frozenset[str] = frozenset()
        """New refs of the command that git cannot have beside the user's: `a` beside `a/b`."""
        self._taken_back: set[str] = set()

    def carry(
        self,
        named: Collection[str],
        staged: Callable[[], Collection[str]],
        *,
        dropped: Collection[str],
        overruled: Mapping[str, str],
        log: tuple[bytes | None, Stamp | None] | None,
    ) -> Carried:
        """Compare, and push what commands moved. `named`: objects that must go along; `staged` finds more of them while
        git pushes. `dropped`: what nothing of the user's would name any more, which is kept as a ref. `overruled`: the
        same of what only a file of the command's names that the user's own takes the place of; with the names of the
        refs. `log`: the new list of stashes, and the stamp of the user's own that it takes the place of."""
        moves = self._compare()
        kept = {one: f"{_WAS}{one}" for one in sorted(dropped)}
        if kept:
            text = f"What the command took out of your stash or a stopped rebase is kept as {', '.join(kept.values())}."
            self._sync.tell_once("dropped", sorted(kept), "git_refs", Severity.WARNING, text)
        present = self._transport.found(overruled) if overruled else {}
        theirs = {one: name for one, name in overruled.items() if one not in present}
        if theirs:
            text = "You and the command both changed the stash or HEAD: yours stays, the command's is kept as"
            self._sync.tell("git_refs", Severity.WARNING, f"{text} {', '.join(sorted(theirs.values()))}.", "")
        kept |= theirs
        there = {*self._theirs, *(move.update.name for move in moves)}
        moves += [RefMove(name, RefUpdate(name, None, one)) for one, name in kept.items() if name not in there]
        held = {value for value in self._theirs.values() if directory.is_object_id(value)}
        plain = [move for move in moves if move.update.name == _STASH]
        pushed = [move for move in moves if move.update.name != _STASH]
        made = {move for move in pushed if move.update.old is None and move.name == move.update.name}
        made = {move for move in made if not move.name.startswith(_FORGE)}
        if len(made) > _MOST_MADE:
            text = (
                f"The command made {len(made):,} refs: they stay inside, where `forge sandbox exec -- git branch` shows"
            )
            self._sync.tell_once("made", len(made), "git_refs", Severity.CRITICAL, f"{text} them.")
            pushed = [move for move in pushed if move not in made]
        pushed += self._pins(pushed)  # a stash is pinned once it is set: else nothing but the pin may name it
        tips = {move.update.new for move in pushed if move.update.new} - held
        with ThreadPoolExecutor(1) as beside:
            pushing = beside.submit(self._push, pushed, tips, held) if pushed else None
            needed = {*named, *staged(), *(move.update.new for move in plain if move.update.new)} - held
            refused = pushing.result() if pushing is not None else {}
        lacking = not self._bring(needed, pushed, refused, held)
        if lacking:
            text = f"Git does not find all objects that files in {self._sides.shown('')} name; these stay inside."
            self._sync.tell_once("lacking", sorted(needed)[:20], "git_objects", Severity.CRITICAL, text)
        final = self._sync.when is not SyncPhase.RUNNING
        for name in theirs.values() if final else ():  # such a name may stand for nothing, for ever
            if refused.get(name) == _LATER:
                refused[name] = f"{_GIT_SAID}too many others were not sound"
        told = {name for name in theirs.values() if final and refused.get(name, "").startswith(_GIT_SAID)}
        unkept = any(refused.get(name) for name in {*kept.values()} - told)
        stash = next((move.update for move in plain), None)
        if lacking:
            refused[_STASH] = f"{_GIT_SAID}its objects are missing"
        elif stash is not None or log is not None:
            refused[_STASH] = _LATER if unkept else self._set_stash(stash, log)
        self._sync.state.refs[self._sides.prefix] = self._settle([*plain, *pushed], refused)
        return Carried(lacking, bool(refused.get(_STASH)), unkept, frozenset(self._taken_back))

    def _bring(
        self, needed: Collection[str], pushed: Collection[RefMove], refused: Mapping[str, str], held: Collection[str]
    ) -> bool:
        """Push objects that the refs did not bring along. Whether the user has all of them then, and what they need.
        The same process of git tells of parents: which commits the user still has is asked for each moved branch."""
        updates = [move.update for move in pushed if not refused.get(move.update.name)]
        pins = self._pinned | {one.name: one.new for one in updates if one.name.startswith(_PINS)}
        self._pinned = {name: value for name, value in pins.items() if value}
        moved = {one.new for one in updates if one.new}
        steps = {f"{one}~1": one for one in moved - {*held} if len(moved) <= MOST_NAMED}
        found = self._transport.found({*needed, *steps})
        self._transport.parents |= {one: found[step].object_id for step, one in steps.items() if step in found}
        absent = {one for one in needed if one not in found}
        if absent:
            self._push([], absent, {*held, *moved})
        return self._transport.connected({one for one in needed if one in absent or found[one].kind != "blob"})

    def _compare(self) -> list[RefMove]:
        base = self._sync.state.refs.get(self._sides.prefix)
        if base is None and (packed := self._real.read(PACKED_REFS)) is not None:
            lines = packed.splitlines(keepends=True)
            kept_lines = [line for line in lines if f" {_PINS}".encode() not in line]
            self._shadow.replace(PACKED_REFS, b"".join(kept_lines))
        found, base = self._real.refs(), base or {}
        self._pinned = {name: value for name, value in found.items() if name.startswith(_PINS)}
        self._theirs = theirs = {name: value for name, value in found.items() if not name.startswith(_PINS)}
        ours = self._shadow.refs() if self._shadow_has_refs() else base
        ours = {name: value for name, value in ours.items() if not name.startswith(f"{_FORGE}refused/")}
        if deep := self._shadow.too_deep:
            text = (
                "The command made refs of too many levels: they stay inside, where `forge sandbox exec -- git branch`"
            )
            self._sync.tell_once("deep", deep, "git_refs", Severity.WARNING, f"{text} shows them.")
        self._kept = kept = dict(base)
        moves: list[RefMove] = []
        gone = [name for name in base if name not in ours and theirs.get(name) == base[name]]
        if len(gone) > MOST_NAMED and self._sync.when is not SyncPhase.RUNNING:  # more than anybody is told of by name
            for name in gone:
                if directory.is_object_id(base[name]):
                    beside = f"{_FORGE}was/{name.removeprefix('refs/')}"
                    moves.append(RefMove(name, RefUpdate(beside, theirs.get(beside), base[name])))
            text = f"{len(gone)} refs that the command deleted in {self._sides.shown('')} are kept as refs/forge/was/…"
            self._sync.tell("git_refs", Severity.WARNING, text, "refs")
        later = self._find_no_room(theirs, ours, base)
        # Those that go come first: only then can a branch `a` take the place of `a/b`.
        for name in sorted({*theirs, *ours, *base}, key=lambda name: (name in ours, name)):
            their, our, old = theirs.get(name), ours.get(name), base.get(name)
            # What is gone may come back. And a stash that is popped in the same command was never there.
            on_its_way = name == _STASH or (our is None and old is not None) or name in self._no_room
            if name in later or (on_its_way and self._sync.when is SyncPhase.RUNNING):
                self._sync.postponed = self._sync.postponed or our != old or name in later
                continue
            try:
                if their != our and (move := self._compare_ref(name, their, our, old)) is not None:
                    moves.append(move)
                    continue
            except GitLocked:
                self._sync.retry(name)
                continue
            except (OSError, ValueError):  # a name that no file can have, or beside one that stands in its way
                text = f"In {self._sides.shown('')} the ref {name[:120]} cannot be carried over."
                self._sync.tell_once(name, our, "git_refs", Severity.WARNING, text)
                continue
            if (their := theirs.get(name)) is None:
                kept.pop(name, None)
            else:
                kept[name] = their
        return moves

    def _find_no_room(self, theirs: Mapping[str, str], ours: Mapping[str, str], base: Mapping[str, str]) -> set[str]:
        """Both made refs that git cannot have beside each other. Those of the command are kept under another name.
        Gives the user's, which the shadow gets once there is room."""
        made = {name for name in ours if name not in theirs and ours[name] != base.get(name)}
        if not made:
            return set()
        stay = {name for name in theirs if name in ours or theirs[name] != base.get(name)}
        self._no_room = frozenset(_without_room(made, stay))
        return _without_room(stay - {*ours}, self._no_room)

    def _compare_ref(self, name: str, their: str | None, our: str | None, old: str | None) -> RefMove | None:
        """None: the shadow holds the user's value now."""
        why = _ref_objection(name, our) or self._remote_objection(name)
        if our is None and self._is_on(name):
            why = f"the command deleted {_shown_ref(name)}, the branch that you are on; it was put back."
        if self._sync.leaves_zone and self._is_on(name) and not why:
            beside = name_beside(name, our or "")
            text = f"{_shown_ref(name)} stays where it was; the command's is kept as {beside}."
            return RefMove(name, RefUpdate(beside, self._theirs.get(beside), our), put_back=True, told=text)
        symbolic = any(value is not None and not directory.is_object_id(value) for value in (their, our))
        if name in self._no_room and our is not None and not why and not symbolic:
            beside = name_beside(name, our)
            text = f"Git cannot have {_shown_ref(name)} beside what you made: the command's is kept as {beside}."
            return RefMove(name, RefUpdate(beside, self._theirs.get(beside), our), put_back=True, told=text)
        if our != old and their == old and not why:
            if not symbolic:
                return RefMove(name, RefUpdate(name, their, our))
            if our is None:
                self._real.delete_ref(name, old=their)
                del self._theirs[name]
            else:
                self._real.set_ref(name, our, old=their)
                self._theirs[name] = our
            return None
        if our != old and their == old:
            self._sync.tell("git_refs", Severity.CRITICAL, f"In {self._sides.shown('')} {why}", name)
        elif our != old and our is not None and not why and not symbolic:  # both moved it
            beside = name_beside(name, our)
            text = f"You and the command both moved {_shown_ref(name)}: yours stays, the command's is kept as {beside}."
            return RefMove(name, RefUpdate(beside, self._theirs.get(beside), our), put_back=True, told=text)
        self._give(name, their, our)
        return None

    def _remote_objection(self, name: str) -> str:
        """Threat: the card of a push shows what the remote lacks, by its remote-tracking refs. A command that moves one
        takes commits off that card; so only a remote that is a path is followed inside."""
        if not name.startswith(REMOTES):
            return ""
        if self._local is None:
            self._local = local_remotes(self._real)
        if name.removeprefix(REMOTES).partition("/")[0] in self._local:
            return ""
        return f"the command moved {_shown_ref(name)}, which says what the remote has: only git_fetch and git_push do."

    def _give(self, name: str, their: str | None, our: str | None) -> None:
        """The shadow's ref gets the user's value, if it is still what was compared: a command may have committed
        meanwhile. Raises GitLocked then."""
        if their is None:
            self._shadow.delete_ref(name, old=our)
        elif self._shadow.ref(name) != our:
            raise GitLocked(name)
        else:
            try:
                self._shadow.set_ref(name, their, old=our)
            except OSError:  # something stands in its way
                self._sync.put_back(name, f"{their}\n".encode(), None, seen=self._shadow.stamp(name))

    def _is_on(self, branch: str) -> bool:
        """Whether the user is on a branch and the command did not go to another one. Git refuses to delete it then,
        so whoever did took the file away."""
        path = f"{self._sides.own}HEAD"
        said = (HEAD_CONTENT.fullmatch(side.read(path) or b"") for side in (self._real, self._shadow))
        theirs, ours = (os.fsdecode(match[1] or b"") if match is not None else None for match in said)
        return theirs == branch and ours in (branch, None)

    def _shadow_has_refs(self) -> bool:
        """False: a command took the whole directory away, which is no deletion of each. It is put back."""
        found = self._shadow.look("refs")
        if found is not None and stat.S_ISDIR(found.st_mode):
            return True
        text = f"The command removed {self._sides.shown('refs')}; it was put back."
        self._sync.tell("git_refs", Severity.CRITICAL, text, "refs")
        self._shadow.clear("refs")
        self._shadow.make_folder("refs")
        self._shadow.clear(PACKED_REFS)
        for name, value in self._sync.state.refs.get(self._sides.prefix, {}).items():
            with contextlib.suppress(GitLocked, OSError):
                self._shadow.set_ref(name, value, old=None)
        return False

    def _pins(self, moves: list[RefMove]) -> list[RefMove]:
        """Only before a command, or where something is pushed anyway: it takes git 10 ms."""
        if self._sync.when is not SyncPhase.BETWEEN and not moves:
            return []
        # A running command may take back a commit whose ref is refused now: then only the pin would have named it, and
        # the user's commit-graph would name what their repack dropped.
        final = moves if self._sync.when is not SyncPhase.RUNNING else []
        moved = {move.name: move.update.new for move in final if move.name == move.update.name and move.update.new}
        after = (self._theirs | moved).items()
        tips = {name: value for name, value in after if name.startswith("refs/heads/") or name == _STASH}
        head = (self._real.read("HEAD") or b"").decode("utf-8", "replace").strip()
        if len(tips) > _MOST_PINS:
            on = head.removeprefix("ref: ")
            tips = {name: value for name, value in tips.items() if name in (on, _STASH)}
        ids = {value for value in (*tips.values(), head) if directory.is_object_id(value)}
        pins = {f"{_PINS}{value}": value for value in ids}
        return [
            RefMove(name, RefUpdate(name, self._pinned.get(name), pins.get(name)))
            for name in sorted({*pins, *self._pinned})
            if self._pinned.get(name) != pins.get(name)
        ]

    def _push(self, moves: list[RefMove], wanted: set[str], held: Collection[str]) -> dict[str, str]:
        """Why each ref was not set, by its name on the user's side."""
        self._transport.prepare(self._sides.store)
        if not wanted and all(move.name.startswith(_PINS) for move in moves):
            with contextlib.suppress(GitFailed):  # else each for itself, with the reason
                self._transport.update_refs([move.update for move in moves])
                return {}
        updates = [move.update for move in moves] or [self._nothing_moved(wanted)]
        known = [*held][:_MOST_KNOWN]
        with contextlib.suppress(GitFailed):
            return self._transport.push(updates, sorted(wanted), known)
        time.sleep(_SETTLING_S)  # the user's `git repack` may just have taken away a pack that was being read
        try:
            return self._transport.push(updates, sorted(wanted), known)
        except GitFailed as failed:
            if len(updates) == 1 and wanted <= {updates[0].new}:
                return {updates[0].name: f"{_GIT_SAID}{failed}"}
        # Something in it is not sound, or not there. What is sound by itself still goes.
        results: dict[str, str] = {}
        for move in moves[:_MOST_ALONE]:
            alone = {move.update.new} if move.update.new and move.update.new not in held else set()
            try:
                results |= self._transport.push([move.update], sorted(alone), known)
            except GitFailed as failed:
                results[move.update.name] = f"{_GIT_SAID}{failed}"
        results |= {move.update.name: _LATER for move in moves[_MOST_ALONE:]}
        rest = wanted - {move.update.new for move in moves}
        if rest:
            with contextlib.suppress(GitFailed):
                self._transport.push([self._nothing_moved(rest)], sorted(rest), known)
        return results

    def _nothing_moved(self, wanted: Collection[str]) -> RefUpdate:
        """A ref that stays as it is, so that objects can go along. Forge's own one: git notes nothing of it for HEAD.
        Where there is none yet, one that the next command takes away."""
        for name, value in self._pinned.items():
            return RefUpdate(name, value, value)
        return RefUpdate(f"{_PINS}objects", None, min(wanted))

    def _set_stash(self, update: RefUpdate | None, log: tuple[bytes | None, Stamp | None] | None) -> str:
        """`receive-pack` does not take a ref right below `refs`. Ref and list change together, under the lock that the
        user's `git stash` takes. Gives why it was not set."""
        old = update.old if update is not None else self._theirs.get(_STASH)
        new = update.new if update is not None else old

        def is_set() -> bool:
            if self._real.ref(_STASH) != old:
                return False
            if log is not None:
                self._real.write_log(STASH_LOG, log[0], old=log[1])
            return True

        try:
            if new is not None:
                self._real.replace(_STASH, f"{new}\n".encode(), still=is_set)
            else:
                self._real.delete_ref(_STASH, old=old)
                if log is not None:
                    self._real.write_log(STASH_LOG, log[0], old=log[1])
        except (GitLocked, OSError):
            return "locked"
        return ""

    def _settle(self, moves: list[RefMove], refused: dict[str, str]) -> dict[str, str]:
        kept = self._kept
        for move in moves:
            update, why = move.update, refused.get(move.update.name, "")
            if why == _LATER:
                self._sync.postponed = True
            elif update.name.startswith(_PINS):
                continue
            elif move.name != update.name and not why:
                if move.told:
                    self._sync.tell("git_refs", Severity.WARNING, move.told, move.name)
                if move.put_back:
                    self._return_ref(move, kept)
            elif not why and move.name.startswith(_FORGE):
                continue  # told already, and the shadow gets it as any ref of the user's
            elif not why:
                self._sync.moved[move.name] = (update.old, update.new)
                if update.new is None:
                    kept.pop(move.name, None)
                else:
                    kept[move.name] = update.new
            elif not why.startswith(_GIT_SAID):
                self._sync.retry(move.name)
            else:
                self._refuse_ref(move, why, kept)
        return kept

    def _refuse_ref(self, move: RefMove, why: str, kept: dict[str, str]) -> None:
        """Git does not accept what a ref leads to. It stays in the shadow, under another name once the command ended:
        later commands go on with what the user has."""
        self._sync.postponed = True
        name, new = move.name, move.update.new
        if self._sync.when is SyncPhase.RUNNING or new is None:
            return
        aside = f"{_FORGE}refused/{name.removeprefix('refs/')}"
        text = f"Git does not accept what the command left at {_shown_ref(name)} ({why.removeprefix(_GIT_SAID)})"
        if self._transport.holds(new):
            with contextlib.suppress(GitLocked, OSError):
                self._shadow.set_ref(aside, new, old=self._shadow.ref(aside))
            text += f": yours stays, and `forge sandbox exec -- git log {shlex.quote(aside)}` shows the command's."
        else:
            text += ": its objects are missing. Yours stays."
        self._sync.tell("git_refs", Severity.CRITICAL, text, name)
        self._return_ref(move, kept)

    def _return_ref(self, move: RefMove, kept: dict[str, str]) -> None:
        their = self._theirs.get(move.name)
        try:
            self._give(move.name, their, move.update.new)
        except (GitLocked, OSError, ValueError):
            self._sync.postponed = True
            return
        if their is None:
            self._taken_back.add(move.name)
            kept.pop(move.name, None)
        else:
            kept[move.name] = their


def name_beside(name: str, value: str) -> str:
    """Under which the command's value of a ref or of HEAD is kept, where the user's stays."""
    return f"{_FORGE}{name.removeprefix('refs/')}-{value[:12]}"


def _without_room(names: Collection[str], others: Collection[str]) -> set[str]:
    """Those that git cannot have beside the others: a ref is a file, and no directory of refs."""
    folders = {above for name in others for above in _above(name)}
    others = {*others}
    return {name for name in names if name in folders or not others.isdisjoint(_above(name))}


def _above(name: str) -> list[str]:
    return [name[:at] for at, char in enumerate(name) if char == "/"]


def moved_refs(sides: GitSides, moved: dict[str, tuple[str | None, str | None]]) -> Leftover:
    """One line about refs that commands moved, made or deleted."""
    words, lost = [], []
    for name, (old, new) in moved.items():
        if old is None:
            words.append(f"{_shown_ref(name)} made at {_short(new)}")
        elif new is None:
            words.append(f"{_shown_ref(name)} deleted (was {_short(old)})")
        else:
            words.append(f"{_shown_ref(name)} {_short(old)} → {_short(new)}")
        of_people = name.startswith(("refs/heads/", "refs/tags/"))
        if of_people and old and (new is None or len(words) > MOST_NAMED or not sides.transport.is_ancestor(old, new)):
            lost.append(_shown_ref(name))
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    note = f"; commits of the old one are no longer in {', '.join(lost[:MOST_NAMED])}" if lost else ""
    shown = sides.zone.virtual((GIT_FILE, sides.prefix.rstrip("/")) if sides.prefix else ())
    text = one_line(f"Git refs of {shown} moved: {', '.join(words[:MOST_NAMED])}{more}{note}.")
    severity = Severity.WARNING if lost else Severity.NOTE
    return Leftover(kind="git_refs", severity=severity, text=text, paths=(one_line(f"{shown}/refs"),))


def _ref_objection(name: str, value: str | None) -> str:
    """Why a ref that a command set is not taken over."""
    if not directory.is_ref_name(name):
        return f"the command made a ref with a name that git does not allow ({name[:80]}); Forge ignored it."
    if _NO_REFS.fullmatch(name):
        return f"the command changed {name[:120]}, which would change what git shows; Forge ignored it."
    if name.count("/") == 1 and name != _STASH:
        return f"the command made {name[:120]}, which stands in the way of others; Forge ignored it."
    if value is None or directory.is_object_id(value):
        return ""
    target = value.removeprefix("ref: ")
    remote = name.removesuffix("/HEAD")
    if (
        _REMOTE.fullmatch(remote)
        and target.startswith(f"{remote}/")
        and directory.is_ref_name(target)
        and target != name
    ):
        return ""
    return f"the command wrote something to {name[:120]} that is no commit; Forge ignored it."


def _shown_ref(name: str) -> str:
    """As people say it: `main`, `tag v1`."""
    for start, word in (("refs/heads/", ""), ("refs/tags/", "tag "), ("refs/remotes/", "")):
        if name.startswith(start):
            return word + name.removeprefix(start)
    return name


def _short(value: str | None) -> str:
    return value[:7] if value and directory.is_object_id(value) else (value or "nothing")
