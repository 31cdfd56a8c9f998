"""`/model`, `/clear`, `/status`, `/sessions`, `/web`, `/exit`: the session itself."""

from __future__ import annotations

import inspect
from typing import Any, Final

from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.mcp import servers_in_words
from golem_forge.workers.slash.table import columns
from golem_forge.workers.slash.tokens import CommandError

_NO_MODEL: Final = "no model (/tools lists what you can run by hand)"


async def model(call: Invocation) -> str:
    host = call.host
    if not call.args:
        return f"Model: {host.model_name or _NO_MODEL}"
    if len(call.args) > 1:
        raise CommandError("One model: /model PROVIDER:NAME")
    switched = host.switch_model(call.args[0])
    if inspect.isawaitable(switched):
        await switched
    return f"Model: {host.model_name}, from the next request on."


async def clear(call: Invocation) -> str:
    cleared = call.host.clear_history()
    if inspect.isawaitable(cleared):
        await cleared
    return "The history is empty."


async def leave(call: Invocation) -> str:
    call.leave()
    return ""


async def web(call: Invocation) -> str:
    if call.host.open_page is None:
        raise CommandError("This session cannot be shown in a browser from here; `forge run --ui web` starts one")
    return f"This session is at {await call.host.open_page()}; the printed link opens it once, within 5 minutes."


async def status(call: Invocation) -> str:
    host = call.host
    waiting = host.controller.pending
    rows = [
        ("worker", host.worker.name),
        ("session", host.session_id),
        ("model", host.model_name or _NO_MODEL),
        ("context", _context(host.context_used, host.context_limit)),
        ("usage", usage_words(host.meter.sums())),
        ("approval", f"{host.controller.mode.value}, {waiting} waiting for an answer"),
    ]
    if servers := servers_in_words(host):
        rows.append(("servers", servers))
    return columns(rows)


def _context(used: int, limit: int) -> str:
    return f"{used:,} of {limit:,} tokens" if limit else f"{used:,} tokens"


def usage_words(sums: dict[str, Any]) -> str:
    cost = sums.get("cost")
    price = "cost unknown" if cost is None else f"cost ${cost:.4f}"
    return f"{sums['input']:,} tokens in ({sums['cached']:,} cached), {sums['output']:,} out, {price}"


async def sessions(call: Invocation) -> str:
    """Off the loop: the index may have journals to read."""
    from golem_forge.tools.threads import run_in_thread
    from golem_forge.workers.session_list import listed_sessions, session_row, session_state, session_table

    home, root, here = call.host.home.path, call.host.program.root, call.host.session_id

    def rows() -> list[tuple[str, ...]]:
        return [
            session_row(each, "this one" if each.id == here else session_state(home, each), root)
            for each in listed_sessions(home)
        ]

    found = await run_in_thread(rows)
    if not found:
        return "There was no conversation yet."
    return columns(session_table(found)) + "\n`forge run --resume ID` goes on with one."
