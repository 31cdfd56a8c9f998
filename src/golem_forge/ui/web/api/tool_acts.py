"""What a person does about their own tools: trust and activate one, switch it off and on, go back to a version.

The same acts as `forge tools activate | retire | restore | undo`, kept in the same book; the session they are made from
takes them over at once, others with their next turn. A yes is to exactly what was shown: it names the digest of the
files and the hosts a build would fetch from, and is refused (409) when the folder is another one by now. Everything
runs off the loop of the session; a build or a test may take minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pydantic import Field

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.subject import Subject, subject_of
from golem_forge.ui.web.api.tool_answers import Said
from golem_forge.ui.web.wire import Model, Refused

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.trust.promotion import Readied
    from golem_forge.custom.workshop import Workshop

_PERSON: Final = "person"
_CHANGED: Final = "The folder changed since it was shown; read what it is now, then agree to that."
_MORE_HOSTS: Final = "It would fetch from hosts that were not shown; read what it is now, then agree to that."
_BUSY: Final = "It is being activated already; the list shows what becomes of it."
_REFUSALS: Final = {
    404: "no such tool of the person's",
    409: "it is not what was shown, or it cannot be done; says why",
}
_BY_STATUS: Final = {Status.TOOL_NOT_FOUND: 404, Status.INPUT_INVALID: 422}
_LONGEST_DIGEST: Final = 200
_UNDER_WAY: Final[set[str]] = set()
"""Folders of tools that are being activated: builds and tests are processes, and nobody needs two of the same."""


class ShownTool(Model, title="ShownTool"):
    digest: str = Field(max_length=_LONGEST_DIGEST)
    """Of the files that were shown."""
    build_hosts: list[str] = Field(default_factory=list, max_length=100)
    """What it was shown to be built with."""


class ShownDigest(Model, title="ShownDigest"):
    digest: str = Field(max_length=_LONGEST_DIGEST)


class Back(Model, title="Back"):
    version: str = Field(default="", max_length=_LONGEST_DIGEST)
    """A digest, or its first 6 digits or more; empty: the version before."""


@operation(
    "POST",
    "/api/sessions/{id}/tools/{name}/activate",
    "activate_tool",
    body=ShownTool,
    answer=Said,
    tag="tools",
    refusals=_REFUSALS,
)
async def activate_tool(call: Call) -> Said:
    """Trusts exactly the files that were shown, builds the tool, runs its tests, and offers it if they pass."""
    subject, name, shown = await subject_of(call), call.path["name"], call.body
    folder = str(subject.home.path / "tools" / name)
    if folder in _UNDER_WAY:
        raise Refused(409, _BUSY)
    _UNDER_WAY.add(folder)
    try:
        text = await run_in_thread(lambda: asyncio.run(_activate(subject, name, shown)))
    finally:
        _UNDER_WAY.discard(folder)
    return await _done(subject, text)


@operation(
    "POST",
    "/api/sessions/{id}/tools/{name}/deny",
    "deny_tool",
    body=ShownDigest,
    answer=Said,
    tag="tools",
    refusals=_REFUSALS,
)
async def deny_tool(call: Call) -> Said:
    """Says no to the files that were shown: nothing of them ran, and the next card says how often they were denied."""

    def deny(shop: Workshop, name: str) -> str:
        shop.book.denied(name, _entry(shop, name, call.body.digest).digest)
        return f"tool '{name}' is not trusted; none of it ran"

    return await _act(call, deny)


@operation(
    "POST", "/api/sessions/{id}/tools/{name}/retire", "retire_tool", answer=Said, tag="tools", refusals=_REFUSALS
)
async def retire_tool(call: Call) -> Said:
    """Switches it off: nobody can call it. Its folder stays, and so does the trust in it."""
    from golem_forge.custom.trust.switching import retire

    return await _act(call, lambda shop, name: retire(shop, _present(shop, name)))


@operation(
    "POST", "/api/sessions/{id}/tools/{name}/restore", "restore_tool", answer=Said, tag="tools", refusals=_REFUSALS
)
async def restore_tool(call: Call) -> Said:
    """Switches a retired tool on again, as it was."""
    from golem_forge.custom.trust.switching import restore

    return await _act(call, lambda shop, name: restore(shop, _present(shop, name)))


@operation(
    "POST", "/api/sessions/{id}/tools/{name}/undo", "undo_tool", body=Back, answer=Said, tag="tools", refusals=_REFUSALS
)
async def undo_tool(call: Call) -> Said:
    """Brings back the version before, or the named one, also of a deleted tool. What is there now stays a version."""
    from golem_forge.custom.trust.switching import standing_line
    from golem_forge.custom.versions import is_known, short, undone

    def undo(shop: Workshop, name: str) -> str:
        if not is_known(shop, name):
            raise _unknown(name)
        done = undone(shop, name, call.body.version)
        if done.change.digest == done.before:
            return f"tool '{name}' is at version {short(done.before)} already."
        aside = done.change.set_aside
        kept = (
            f" What was there could not be kept as a version; it stands in {shop.home.shown(aside)} now."
            if aside
            else ""
        )
        return f"tool '{name}' is at version {short(done.change.digest)} again. {standing_line(shop, name)}{kept}"

    return await _act(call, undo)


async def _act(call: Call, act: Callable[[Workshop, str], str]) -> Said:
    subject, name = await subject_of(call), call.path["name"]
    return await _done(subject, await run_in_thread(lambda: _acted(subject, name, act)))


def _acted(subject: Subject, name: str, act: Callable[[Workshop, str], str]) -> str:
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(subject.home)
    try:
        shop.registry.refresh()
        return act(shop, name)
    except OSError as error:
        raise Refused(409, f"It could not be done: {error.strerror or type(error).__name__}.") from None
    except ForgeError as error:
        raise _refused(error) from None
    finally:
        shop.book.close()


async def _activate(subject: Subject, name: str, shown: ShownTool) -> str:
    """In a loop of its own, as `forge tools activate` does it."""
    from golem_forge.custom.trust.activating import activate
    from golem_forge.workers.own_shop import open_shop

    shop = open_shop(subject.home, subject.root)
    try:
        entry = _entry(shop, name, shown.digest)
        results = await activate(shop, entry, lambda ready: _agreed(shop, ready, shown))
        lines = [f"tool '{name}' is active", *(result.line for result in results or ())]
        return "\n".join(lines)
    except ForgeError as error:
        raise _refused(error) from None
    finally:
        shop.book.close()


def _agreed(shop: Workshop, ready: Readied, shown: ShownTool) -> bool:
    if not set(ready.hosts) <= set(shown.build_hosts):
        raise Refused(409, _MORE_HOSTS)
    if not shop.trusts(ready.entry):
        shop.trust(ready.entry, who=_PERSON)
    return True


def _entry(shop: Workshop, name: str, shown: str) -> Entry:
    """The tool as it is now, which must be what was shown."""
    from golem_forge.custom.diagnostic import Diagnostic

    found = shop.registry.look(name)
    if found is None:
        raise _unknown(name)
    if isinstance(found, Diagnostic):
        raise Refused(409, visible(f"'{name}' is no usable tool: {found.told}"))
    if found.digest != shown:
        raise Refused(409, _CHANGED)
    return found


def _present(shop: Workshop, name: str) -> str:
    """Also a folder that is no usable tool: whoever repairs it later may not want it offered."""
    if shop.registry.look(name) is None:
        raise _unknown(name)
    return name


def _unknown(name: str) -> Refused:
    return Refused(404, f"There is no tool '{visible(name[:100])}' of yours.")


def _refused(error: ForgeError) -> Refused:
    return Refused(_BY_STATUS.get(error.status, 409), visible(error.message))


async def _done(subject: Subject, text: str) -> Said:
    await subject.look_at_tools()
    return Said(text=subject.fit(text))
