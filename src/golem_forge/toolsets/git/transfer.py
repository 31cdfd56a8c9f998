"""Planning and running git_push and git_fetch: push, fetch, pull (a fetch, then a merge inside the walls), ls-remote,
clone. `remote_call` says whose repository and which remote it is.

A push: the plan reads what the user's repository has, never the shadow: the address, every ref in full, the commits
that the remote does not have yet, the changed files, and what a forced push or a deletion would lose. What the remote
has is what its remote-tracking ref says; nothing is sent to find out. So a push that may lose something carries that
very value along (`--force-with-lease`), and git refuses it if the remote has moved on since. Never covered by a rule:
whatever may lose commits at the remote.

A fetch: what the remote sends arrives in a private repository first, where git checks every object. From there it goes
to the user's repository as what commands made does: by a push that git verifies, with the old value of each ref
compared (`sandbox/git/transport.py`). Only remote-tracking branches and tags are written, and FETCH_HEAD.

A clone is fetched in the same way. Then git clones it inside the walls, from a bare copy that is shown read-only and
has nothing of the user's settings in it. So a hook or a filter runs where every command of the agent runs.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import escape_control_chars, shorten
from golem_forge.sandbox.git.directory import GitLocked, is_object_id, is_ref_name
from golem_forge.sandbox.git.host_repository import failure_hint, refusals, remote_words
from golem_forge.sandbox.git.remotes import (
    HEADS,
    REMOTES,
    TAGS,
    FetchSpec,
    RefPush,
    RemoteRefused,
    fetch_refspecs,
    parse_refspec,
    push_updates,
)
from golem_forge.sandbox.git.transport import GitFailed, RefUpdate, Transport
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.layout import CLONED
from golem_forge.sandbox.walls.model import HostDirectory
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec import ExecSettings
from golem_forge.toolsets.exec.command_plan import CommandExtras
from golem_forge.toolsets.git.remote_call import NoRepository, RemoteCall, open_call, plan_inside

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
_MOST_LINES: Final = 100
_MOST_NEW: Final = 20_000
_FETCH_HEAD: Final = "FETCH_HEAD"
_FETCH_OPTIONS: Final = (
    *("--no-recurse-submodules", "--no-auto-maintenance", "--no-progress", "--no-write-fetch-head"),
)
_THEN: Final = {
    "merge": ("merge", "--no-edit", _FETCH_HEAD),
    "ff-only": ("merge", "--ff-only", _FETCH_HEAD),
    "rebase": ("rebase", _FETCH_HEAD),
}


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
        run=partial(_stoppable, partial(_push, call, found)),
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
    yield f"DELETE {one.target}, which stood at {_short(one.old)} when it was last seen ({_seen(one)})"
    yield from _lost(call, one.old, others)


def _seen(one: RefPush) -> str:
    return one.tracking.removeprefix(REMOTES) or one.target


def _moved(call: RemoteCall, one: RefPush, new: str, base: str, known: Sequence[str]) -> Iterator[str]:
    """What the card says of a ref that is set, and of its commits."""
    yield f"{one.source} → {one.target}   {_short(one.old) if one.old else 'new'}..{_short(new)}"
    if one.old is not None and one.old != base and not _is_ancestor(call, one.old, new):
        if not one.force:
            raise RemoteRefused(
                f"{one.target} at the remote has commits that {one.source} does not have, as of the last fetch. Call "
                "git_fetch and merge or rebase first; only `force` would overwrite them."
            )
        yield f"FORCED: {one.target} stood at {_short(one.old)} when it was last seen ({_seen(one)})"
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


def _short(one: str | None) -> str:
    return (one or "")[:10]


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
        where = "deleted" if one.new is None else f"{_short(one.old)}..{_short(one.new)}" if one.old else "new"
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


async def plan_fetch(
    settings: ExecSettings | None, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    alone = bool(args["list_only"] or args["clone_to"])
    try:
        call = await open_call(settings, sandbox, args, ctx, push=False, needs_repository=not alone)
    except NoRepository:
        if args["clone_to"]:
            raise ToolFailed(
                "git_fetch: `remote` is the address to clone, with https:// or as user@host:path."
            ) from None
        operands = [args["remote"], *args["refspecs"]] if args["remote"] else []
        return await plan_inside(settings, sandbox, args["workdir"], [*_local_words(args), *operands], ctx)
    try:
        if args["clone_to"]:
            return await _plan_clone(call, args)
        if args["depth"]:
            raise ToolFailed("git_fetch: `depth` is for a clone (`clone_to`); leave it out.")
        if call.address.is_local:
            return await call.plan_local(_local_words(args), args["refspecs"])
        return await _plan_remote_fetch(call, args)
    except BaseException:
        call.host.close()
        raise


def _local_words(args: dict[str, Any]) -> tuple[str, ...]:
    if args["list_only"]:
        return ("ls-remote",)
    pull = {"": ("fetch",), "merge": ("pull", "--no-rebase", "--no-edit"), "ff-only": ("pull", "--ff-only")}
    return pull.get(args["then"], ("pull", "--rebase"))


async def _plan_remote_fetch(call: RemoteCall, args: dict[str, Any]) -> Plan:
    shown, then = call.address.shown, args["then"]
    if args["list_only"] and then:
        raise ToolFailed("git_fetch: `list_only` only looks; leave `then` out.")
    with refusals():
        patterns = _patterns(args["refspecs"]) if args["list_only"] else ()
        specs = () if args["list_only"] else fetch_refspecs(call.person, call.remote, args["refspecs"])
    if then and not any(spec.for_merge for spec in specs):
        raise ToolFailed("The branch that is checked out follows no branch of that remote; name one in `refspecs`.")
    words = [f"git ls-remote {shown}", *patterns] if args["list_only"] else [f"git fetch {shown}"]
    words += [f"  {spec.describe()}" for spec in specs]
    what = "ls-remote" if args["list_only"] else "fetch"
    sources = [spec.source for spec in specs] or ["*"]
    plan = Plan(
        run=partial(_stoppable, partial(_list, call, patterns))
        if args["list_only"]
        else partial(_stoppable, partial(_fetch, call, specs)),
        effects=(Effect(verb=Verb.NET, target=f"{shown} {what} {' '.join(sources)}"), call.reached()),
        payload="\n".join(words),
        fingerprint_args={
            "remote": call.remote.name,
            "refspecs": [spec.describe() for spec in specs] or list(patterns),
            "then": then,
            "list_only": args["list_only"],
            "workdir": call.place,
        },
        rule_args=tuple({"url": shown, "ref": source} for source in dict.fromkeys(sources)),
        targets=(f"repository {call.person.git_dir}",),
        close=call.host.close,
        warnings=call.warnings(),
    )
    return _followed(call, plan, await call.plan_inside(*_THEN[then])) if then else plan


def _followed(call: RemoteCall, plan: Plan, inner: Plan) -> Plan:
    """One call with one card: on the host, then inside the walls."""

    async def run() -> Any:
        said = await plan.run()
        done = inner.run()
        done = await done if inspect.isawaitable(done) else done
        done.result.text = f"{said}\n{done.result.text}"
        return done

    def close() -> None:
        call.host.close()
        inner.release()

    return replace(
        plan,
        run=run,
        effects=(*(plan.effects or ()), *(inner.effects or ())),
        command=inner.command,
        payload=f"{plan.payload}\nthen, inside the walls:\n{inner.payload}",
        targets=(*plan.targets, *inner.targets),
        recheck=inner.recheck,
        close=close,
    )


async def _plan_clone(call: RemoteCall, args: dict[str, Any]) -> Plan:
    """`refspecs`: the branch or tag to check out."""
    into, named, depth = args["clone_to"], args["refspecs"], args["depth"]
    shown, url = call.address.shown, call.remote.urls[0]
    if args["list_only"] or args["then"] or len(named) > 1:
        raise ToolFailed("git_fetch: beside `clone_to` stand `remote`, `depth`, and one branch or tag in `refspecs`.")
    if into.startswith("-") or not into.isprintable():
        raise ToolFailed("git_fetch: `clone_to` is the name of a new directory.")
    with refusals():
        branch = parse_refspec(named[0]).source if named else ""
    options = [f"--branch={branch}"] if branch else []
    words = ["clone", *options, "--", url, into]
    if call.address.is_local:
        call.host.close()
        return await call.plan_inside(*words)
    call.host.copy.mkdir(mode=0o700)
    source = HostDirectory(str(call.host.copy), CLONED)
    inner = await call.plan_inside(*words, extras=CommandExtras((source,), {f"url.{CLONED}.insteadOf": url}))
    one = branch if depth and branch else "*"
    refs = [f"{HEADS}{one}", f"{TAGS}{one}"]
    last = f" (the last {depth} commits)" if depth else ""
    plan = Plan(
        run=partial(_stoppable, partial(_clone, call, branch, depth)),
        effects=(Effect(verb=Verb.NET, target=f"{shown} clone {' '.join(refs)}"), call.reached()),
        payload=f"git clone {shown} {into}{last}",
        fingerprint_args={
            "remote": url,
            "refspecs": named,
            "clone_to": into,
            "depth": depth,
            "workdir": args["workdir"],
        },
        rule_args=tuple({"url": shown, "ref": ref} for ref in refs),
        targets=(f"clone {url}",),
        close=call.host.close,
    )
    return _followed(call, plan, inner)


def _clone(call: RemoteCall, branch: str, depth: int, stopped: Callable[[], bool]) -> str:
    host = call.host
    asked = ("HEAD", f"{HEADS}{branch}", f"{TAGS}{branch}") if branch else ("HEAD",)
    listed = host.reach("ls-remote", "--symref", "--", host.remote, *asked, stopped=stopped)
    if listed.code:
        raise _failure(call, "Clone of", listed.errors)
    lines = [line.split("\t") for line in listed.output.decode("utf-8", "replace").splitlines()]
    names = {line[1] for line in lines if len(line) == 2}
    head = next(
        (line[0].removeprefix("ref: ") for line in lines if line[0].startswith(f"ref: {HEADS}")), f"{HEADS}main"
    )
    if branch and not names & set(asked[1:]):
        raise ToolFailed(f"{call.address.shown} has no branch or tag {branch!r}.", code="FETCH_FAILED")
    wanted = [f"{HEADS}*", f"{TAGS}*"]
    if depth:
        wanted = [name for name in asked[1:] if name in names] or ([head] if "HEAD" in names else wanted)
    options = [*_FETCH_OPTIONS, "--no-tags", *([f"--depth={depth}"] if depth else [])]
    specs = [f"+{name}:{name}" for name in wanted]
    ran = host.reach("fetch", *options, "--", host.remote, *specs, stopped=stopped)
    if ran.code:
        raise _failure(call, "Clone of", ran.errors)
    count = len(host.refs())
    host.lay_out_copy(head)
    return f"Fetched {count} branches and tags from {call.address.shown}."


def _patterns(given: list[str]) -> tuple[str, ...]:
    for pattern in given:
        if pattern.startswith("-") or not pattern.isprintable() or len(pattern) > 1000:
            raise RemoteRefused("A pattern of refs is a name, as refs/heads/*.")
    return tuple(given)


def _list(call: RemoteCall, patterns: tuple[str, ...], stopped: Callable[[], bool]) -> str:
    ran = call.host.reach("ls-remote", "--", call.host.remote, *patterns, stopped=stopped)
    if ran.code and not ran.cut:
        raise _failure(call, "ls-remote of", ran.errors)
    text = escape_control_chars(ran.output.decode("utf-8", "replace"))
    return text.rstrip("\n") or f"{call.address.shown} has no such refs."


def _fetch(call: RemoteCall, specs: tuple[FetchSpec, ...], stopped: Callable[[], bool]) -> str:
    before = {name: value for name, value in call.person.files.refs().items() if is_object_id(value)}
    call.host.put_refs(before)
    words = [spec.describe() for spec in specs]
    options = [*_FETCH_OPTIONS, *(["--no-tags"] if call.remote.no_tags else [])]
    ran = call.host.reach("fetch", *options, "--", call.host.remote, *words, stopped=stopped)
    if ran.code:
        raise _failure(call, "Fetch from", ran.errors)
    after = call.host.refs()
    moved = [
        RefUpdate(name, before.get(name), value)
        for name, value in sorted(after.items())
        if name.startswith((REMOTES, TAGS)) and is_ref_name(name) and is_object_id(value) and before.get(name) != value
    ]
    if len(moved) > _MOST_NEW:
        raise RemoteRefused(f"The remote sent {len(moved):,} refs; name the branches that are needed.")
    refused = _carry(call, moved, before) if moved else {}
    _write_fetch_head(call, specs, after)
    return "\n".join((f"Fetched from {call.address.shown}:", *_told(call, moved, refused)))


def _carry(call: RemoteCall, moved: list[RefUpdate], before: dict[str, str]) -> dict[str, str]:
    """Into the user's repository. Gives for each ref why it was not set; empty: it was."""
    host, person = call.host, call.person
    transport = Transport(person.git_dir, str(host.git_dir / "objects"), str(host.folder), person.settings)
    wanted = list(dict.fromkeys(one.new for one in moved if one.new))
    try:
        return transport.push(moved, wanted, list(dict.fromkeys(before.values())))
    except GitFailed as error:
        raise RemoteRefused(f"What was fetched could not be taken over: {error}") from None


def _write_fetch_head(call: RemoteCall, specs: tuple[FetchSpec, ...], refs: dict[str, str]) -> None:
    """As git writes it: what a merge takes comes first."""
    lines = []
    for spec in sorted(specs, key=lambda one: not one.for_merge):
        if value := refs.get(spec.target):
            kind = "tag" if spec.source.startswith(TAGS) else "branch"
            name = spec.source.removeprefix(HEADS).removeprefix(TAGS)
            mark = "" if spec.for_merge else "not-for-merge"
            lines.append(f"{value}\t{mark}\t{kind} '{name}' of {call.address.shown}\n")
    try:
        call.person.files.replace(f"{call.person.repository.own}{_FETCH_HEAD}", "".join(lines).encode())
    except GitLocked:
        raise RemoteRefused("Another git has the lock of FETCH_HEAD; try again.") from None


def _told(call: RemoteCall, moved: list[RefUpdate], refused: dict[str, str]) -> Iterator[str]:
    for one in moved[:_MOST_LINES]:
        name = one.name.removeprefix(REMOTES).removeprefix(TAGS)
        if why := refused.get(one.name):
            yield f"{name} was not set: {why}"
        else:
            yield f"{name} {f'{_short(one.old)}..' if one.old else 'new, '}{_short(one.new)}"
    if len(moved) > _MOST_LINES:
        yield f"… and {len(moved) - _MOST_LINES} more"
    if not moved:
        yield "nothing new"


def _failure(call: RemoteCall, what: str, errors: str) -> ToolFailed:
    hint = failure_hint(errors)
    said = remote_words(errors, call.address)
    lines = (f"{what} {call.address.shown} failed.", f"git said: {said}", *([hint] if hint else []))
    return ToolFailed("\n".join(lines), code="FETCH_FAILED")


async def _stoppable(work: Callable[[Callable[[], bool]], str]) -> str:
    """`work(stopped)` in a thread, which is told to end when the call is cancelled."""
    stop = threading.Event()

    def guarded() -> str:
        with refusals():
            return work(stop.is_set)

    try:
        return await run_in_thread(guarded)
    except asyncio.CancelledError:
        stop.set()
        raise
