"""Planning and running git_fetch: fetch, pull (a fetch, then a merge inside the walls), ls-remote, clone. `remote_call`
says whose repository and which remote it is.

A fetch: what the remote sends arrives in a private repository first, where git checks every object. From there it goes
to the user's repository as what commands made does: by a push that git verifies, with the old value of each ref
compared (`sandbox/git/transport.py`). Only remote-tracking branches and tags are written, and FETCH_HEAD.

A clone is fetched in the same way. Then git clones it inside the walls, from a bare copy that is shown read-only and
has nothing of the user's settings in it. So a hook or a filter runs where every command of the agent runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.git.directory import GitLocked, is_object_id, is_ref_name
from golem_forge.sandbox.git.host_repository import failure_hint, refusals, remote_words
from golem_forge.sandbox.git.remotes import (
    HEADS,
    REMOTES,
    TAGS,
    FetchSpec,
    RemoteRefused,
    fetch_refspecs,
    parse_refspec,
)
from golem_forge.sandbox.git.transport import GitFailed, RefUpdate, Transport
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.layout import CLONED
from golem_forge.sandbox.walls.model import HostDirectory
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.toolsets.exec import ExecSettings
from golem_forge.toolsets.exec.command_plan import CommandExtras
from golem_forge.toolsets.git.remote_call import NoRepository, RemoteCall, open_call, plan_inside, short_id, stoppable

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
        run=partial(stoppable, partial(_list, call, patterns))
        if args["list_only"]
        else partial(stoppable, partial(_fetch, call, specs)),
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
        run=partial(stoppable, partial(_clone, call, branch, depth)),
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
            yield f"{name} {f'{short_id(one.old)}..' if one.old else 'new, '}{short_id(one.new)}"
    if len(moved) > _MOST_LINES:
        yield f"… and {len(moved) - _MOST_LINES} more"
    if not moved:
        yield "nothing new"


def _failure(call: RemoteCall, what: str, errors: str) -> ToolFailed:
    hint = failure_hint(errors)
    said = remote_words(errors, call.address)
    lines = (f"{what} {call.address.shown} failed.", f"git said: {said}", *([hint] if hint else []))
    return ToolFailed("\n".join(lines), code="FETCH_FAILED")
