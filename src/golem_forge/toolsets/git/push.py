"""Planning and running git_push. `remote_call` says whose repository and which remote it is.

The plan reads what the user's repository has, never the shadow: the address, every ref in full, the commits that the
remote does not have yet, the changed files, and what a forced push or a deletion would lose. What the remote has is
what its remote-tracking ref says; nothing is sent to find out. So a push that may lose something carries that very
value along (`--force-with-lease`), and git refuses it if the remote has moved on since. Never covered by a rule:
whatever may lose commits at the remote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import shorten
from golem_forge.sandbox.git.directory import is_object_id
from golem_forge.sandbox.git.host_repository import failure_hint, refusals, remote_words
from golem_forge.sandbox.git.remotes import (
    HEADS,
    REMOTES,
    TAGS,
    RefPush,
    RemoteRefused,
    push_updates,
)
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec import ExecSettings
from golem_forge.toolsets.git.remote_call import NoRepository, RemoteCall, open_call, plan_inside, short_id, stoppable

_MOST_COMMITS: Final = 20


_MOST_FILES: Final = 30


_MOST_KNOWN: Final = 200


_LONGEST_SUBJECT: Final = 100


_EMPTY_TREES: Final = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


_POINTER: Final = "version https://git-lfs.github.com/spec/"


_LARGEST_POINTER: Final = 1024


_MOST_POINTERS: Final = 2000


_PUSH_OPTIONS: Final = (
    *("--porcelain", "--no-progress", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no"),
)


_FORCED: Final = "git_rewrite"


"""The id on the danger list: a rule for this tool cannot accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preview:
    updates: tuple[RefPush, ...]
    """Without those that the remote has already."""
    card: tuple[str, ...]
    pointers: int
    upstream: tuple[RefPush, ...] = ()
    """Branches that follow the remote's afterwards."""


async def plan_push(
    settings: ExecSettings | None, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    words = ["push", *(["--force"] if args["force"] else []), *(["-u"] if args["set_upstream"] else [])]
    try:
        call = await open_call(settings, sandbox, args, ctx, push=True)
    except NoRepository:
        operands = [args["remote"], *args["refspecs"]] if args["remote"] else []
        return await plan_inside(settings, sandbox, args["workdir"], [*words, *operands], ctx)
    try:
        if call.address.is_local:
            return await call.plan_local(words, args["refspecs"])
        found = await run_in_thread(_preview, call, args)
    except BaseException:
        call.host.close()
        raise
    if not found.updates and not found.upstream:
        call.host.close()
        text = f"Everything up to date: {call.address.shown} has it already, as of the last fetch or push."
        return Plan(run=lambda: text, effects=())
    shown = call.address.shown
    named = tuple(dict.fromkeys((*found.updates, *found.upstream)))
    warnings = [*call.warnings(), *_lfs_warning(found.pointers)]
    return Plan(
        run=partial(stoppable, partial(_push, call, found)),
        effects=(*(_effect(shown, one) for one in named), call.reached()),
        payload="\n".join(found.card),
        fingerprint_args={
            "remote": call.remote.name,
            "refspecs": sorted(one.describe() for one in named),
            "force": any(one.force for one in found.updates),
            "set_upstream": bool(found.upstream),
            "workdir": call.place,
        },
        rule_args=tuple({"url": shown, "ref": one.target} for one in named),
        targets=(f"repository {call.person.git_dir}", *(f"{one.target} {one.old} {one.new}" for one in named)),
        close=call.host.close,
        warnings=tuple(warnings),
    )


def _effect(url: str, one: RefPush) -> Effect:
    target = f"{url} {one.describe()}"
    if not one.force:
        return Effect(verb=Verb.NET, target=target)
    what = f"deleting {one.target}" if one.new is None else f"a forced push of {one.target}"
    return Effect(verb=Verb.NET, target=target, marks=(Mark.DANGER,), dangers=(_FORCED,), danger_parts=(what,))


def _lfs_warning(pointers: int) -> Iterator[str]:
    if pointers:
        files = "1 file is" if pointers == 1 else f"{pointers} files are"
        yield f"{files} kept by git-lfs: only the pointers are pushed. Push their content with `git lfs push`."


def _preview(call: RemoteCall, args: dict[str, Any]) -> _Preview:
    with refusals():
        person, remote = call.person, call.remote
        default = "" if args["refspecs"] else call.host.personal("push.default")
        wanted = push_updates(person, remote, args["refspecs"], force=args["force"], default=default)
        updates = tuple(one for one in wanted if one.new is None or one.new != one.old)
        known = _known(call)
        card = [f"git push {call.address.shown}"]
        pointers = 0
        for one in updates:
            if one.new is None:
                card.extend(_deleted(call, one, known))
                continue
            base = _base(call, one, one.new, known)
            card.extend(_moved(call, one, one.new, base, known))
            changes = _changes(call, base, one.new)
            card.extend(changes.stat)
            pointers += _pointers(call, changes.ids)
        follow = wanted if args["set_upstream"] else ()
        upstream = tuple(
            one
            for one in follow
            if one.source.startswith(HEADS) and one.tracking and not person.follows(one.source, remote.name, one.target)
        )
        card += [f"{one.source.removeprefix(HEADS)} follows {one.tracking} afterwards (-u)" for one in upstream]
        return _Preview(updates=updates, card=tuple(card), pointers=pointers, upstream=upstream)


def _known(call: RemoteCall) -> list[str]:
    """What the remote has, as far as its remote-tracking refs say."""
    prefix = f"{REMOTES}{call.remote.name}/"
    refs = call.person.refs.items() if call.remote.name else ()
    found = (value for name, value in refs if name.startswith(prefix) and is_object_id(value))
    return list(dict.fromkeys(found))[:_MOST_KNOWN]


def _deleted(call: RemoteCall, one: RefPush, known: Sequence[str]) -> Iterator[str]:
    """What the card says of a ref that goes."""
    others = [each for each in known if each != one.old]
    yield f"DELETE {one.target}, which stood at {short_id(one.old)} when it was last seen ({_seen(one)})"
    yield from _lost(call, one.old, others)


def _seen(one: RefPush) -> str:
    return one.tracking.removeprefix(REMOTES) or one.target


def _moved(call: RemoteCall, one: RefPush, new: str, base: str, known: Sequence[str]) -> Iterator[str]:
    """What the card says of a ref that is set, and of its commits."""
    yield f"{one.source} → {one.target}   {short_id(one.old) if one.old else 'new'}..{short_id(new)}"
    if one.old is not None and one.old != base and not _is_ancestor(call, one.old, new):
        if not one.force:
            raise RemoteRefused(
                f"{one.target} at the remote has commits that {one.source} does not have, as of the last fetch. Call "
                "git_fetch and merge or rebase first; only `force` would overwrite them."
            )
        yield f"FORCED: {one.target} stood at {short_id(one.old)} when it was last seen ({_seen(one)})"
        yield from _lost(call, one.old, [new])
    elif one.force and one.old is None and one.target.startswith(TAGS):
        yield "FORCED, but git refuses if the remote has a tag of this name: the user moves one in their own terminal."
    elif one.force and one.old is None:
        yield "FORCED, but nobody here has seen that ref at the remote: git refuses if it is there. git_fetch shows it."
    commits = list(_commits(call, new, [*known, *([one.old] if one.old else [])]))
    yield from (f"  {line}" for line in commits or ["no new commits"])


def _lost(call: RemoteCall, old: str | None, kept: Sequence[str]) -> Iterator[str]:
    lines = list(_commits(call, old or "", kept))
    if lines:
        yield "LOST at the remote, if nothing else there has them (git refuses if it has changed since):"
        yield from (f"  {line}" for line in lines)
    else:
        yield "  no commit is lost: other branches of the remote, or yours, have them"


def _commits(call: RemoteCall, tip: str, without: Sequence[str]) -> Iterator[str]:
    given = "\n".join((tip, *(f"^{one}" for one in without), "")).encode()
    words = ("log", "--no-color", "--no-show-signature", f"--max-count={_MOST_COMMITS + 1}", "--format=%h %an: %s")
    lines = [line for line in call.host.look(*words, "--stdin", given=given).split("\n") if line]
    yield from (shorten(line, _LONGEST_SUBJECT) for line in lines[:_MOST_COMMITS])
    if len(lines) > _MOST_COMMITS:
        count = int(call.host.look("rev-list", "--count", "--stdin", given=given) or 0)
        yield f"… and {count - _MOST_COMMITS} more commits"


def _base(call: RemoteCall, one: RefPush, new: str, known: Sequence[str]) -> str:
    """What the changed files are counted from."""
    others = [one.old] if one.old is not None else list(known)
    try:
        found = call.host.look("merge-base", new, *others).strip() if others else ""
    except RemoteRefused:  # nothing in common
        found = ""
    return found or _EMPTY_TREES[len(new)]


class _Changes(NamedTuple):
    stat: list[str]
    ids: list[str]
    """What the changed files hold now."""


def _changes(call: RemoteCall, base: str, new: str) -> _Changes:
    words = ("diff-tree", "-r", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-abbrev")
    stat = ("--stat=100", f"--stat-count={_MOST_FILES}")
    lines = call.host.look(*words, "--raw", *stat, base, new).splitlines()
    raw = [line.split(" ") for line in lines if line.startswith(":")]
    shown = [line.rstrip() for line in lines if line and not line.startswith(":")]
    if raw and " changed" not in "".join(shown[-1:]):  # more files than one answer holds
        shown = [line.rstrip() for line in call.host.look(*words, *stat, base, new).splitlines()]
    return _Changes(shown, [facts[3] for facts in raw if len(facts) > 3 and facts[1].startswith("100")])


def _pointers(call: RemoteCall, changed: Sequence[str]) -> int:
    """How many of these objects are pointers of git-lfs."""
    ids = list(dict.fromkeys(changed))
    if not ids or len(ids) > _MOST_POINTERS:
        return 0
    given = "\n".join((*ids, "")).encode()
    sizes = call.host.look("cat-file", "--batch-check=%(objectname) %(objectsize)", given=given)
    small = [line.split(" ")[0] for line in sizes.splitlines() if int(line.split(" ")[-1] or 0) <= _LARGEST_POINTER]
    held = call.host.look("cat-file", "--batch", given="\n".join((*small, "")).encode()) if small else ""
    return sum(line.startswith(_POINTER) for line in held.splitlines())


def _is_ancestor(call: RemoteCall, old: str, new: str) -> bool:
    return not call.host.look("rev-list", "--max-count=1", "--stdin", given=f"{old}\n^{new}\n".encode()).strip()


def _push(call: RemoteCall, found: _Preview, stopped: Callable[[], bool]) -> str:
    leases = [f"--force-with-lease={one.target}:{one.old or ''}" for one in found.updates if one.force]
    specs = [f"{one.new or ''}:{one.target}" for one in found.updates]
    if not specs:
        followed = (f"{one.source} follows {one.tracking}" for one in found.upstream)
        return "\n".join((f"{call.address.shown} has it already.", *followed, *_follow(call, found.upstream)))
    ran = call.host.reach("push", *_PUSH_OPTIONS, *leases, call.host.remote, *specs, stopped=stopped)
    said = dict(_report(ran.output.decode("utf-8", "replace")))
    lines, failed = [], False
    for one in found.updates:
        done, words = said.get(one.target, (False, ""))
        failed = failed or not done
        if not done:
            lines.append(f"{one.target} was not pushed{f': {words}' if words else ''}{_way(one, words)}")
            continue
        where = "deleted" if one.new is None else f"{short_id(one.old)}..{short_id(one.new)}" if one.old else "new"
        lines.append(f"{one.describe()} ({where})")
        if one.tracking and not call.host.set_tracking(one.tracking, one.new, "update by push"):
            lines.append(f"{one.tracking} could not be updated; git_fetch does it.")
    lines += _follow(call, [one for one in found.upstream if said.get(one.target, (one not in found.updates, ""))[0]])
    errors = remote_words(ran.errors, call.address)
    if failed or ran.code:
        lines += [f"git said: {errors}"] if errors else []
        hint = failure_hint(ran.errors)
        text = "\n".join((f"Push to {call.address.shown} failed.", *lines, *([hint] if hint else [])))
        raise ToolFailed(text, code="PUSH_FAILED")
    lines += [f"The remote said: {errors}"] if errors else []
    return "\n".join((f"Pushed to {call.address.shown}:", *lines, *_lfs_warning(found.pointers)))


def _way(one: RefPush, words: str) -> str:
    """What to do about a ref that the remote did not take, by git's words."""
    if one.target.startswith(TAGS) and re.search("stale|already exists", words):
        return "; the remote has another tag of this name, which the user moves or deletes in their own terminal"
    return "; the remote changed since it was last fetched: call git_fetch" if "stale" in words else ""


def _follow(call: RemoteCall, upstream: Sequence[RefPush]) -> Iterator[str]:
    """Sets what branches follow; says where that failed."""
    for one in upstream:
        if not call.host.set_upstream(one.source, call.remote.name, one.target):
            yield f"The upstream of {one.source} could not be set in the repository's config."


def _report(text: str) -> Iterator[tuple[str, tuple[bool, str]]]:
    """By the remote's ref: whether it is there now, and git's words. `<flag>\\t<from>:<to>\\t<words>`"""
    for line in text.splitlines():
        flag, _, rest = line.partition("\t")
        refs, tab, words = rest.partition("\t")
        if tab and len(flag) <= 1:
            yield refs.rpartition(":")[2], (flag != "!", shorten(words, _LONGEST_SUBJECT))
