"""The cards that servers raise: may it start, is its changed tool all right, what does it want to know.

Each is an ordinary question to whoever watches the session; where nobody can answer, the answer is no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.canonical import digest
from golem_forge.core.visible import visible
from golem_forge.events.open_questions import NOBODY
from golem_forge.events.questions import RuntimeUI
from golem_forge.mcp.client.definitions.definition import HeldTool
from golem_forge.mcp.client.hooks import Form, FormAnswer

_NO_CHOICES: Final[list[Any]] = []


async def ask_to_start(ui: RuntimeUI, spec: ServerSpec, card: str, diff: str) -> bool:
    """`diff`: against the config that was approved before; empty for a server that never was."""
    changed = "its configuration changed since it was approved" if diff else "it was never started before"
    request = _card("trust", f"Start the MCP server '{spec.name}'?", spec.name, card, digest([spec.scope, spec.digest]))
    request |= {
        "args": {"server": spec.name},
        "effects": [f"net mcp://{spec.name}" if spec.is_http else f"exec {visible(spec.command)}"],
        "why": changed,
    }
    if diff:
        request["diff"] = diff
    return bool((await ui.request_approval(request))["approved"])


async def ask_about_drift(ui: RuntimeUI, held: HeldTool) -> bool | None:
    """Whether the definition as it is now may be used from here on; None: nobody answered."""
    tool = held.tool
    assert tool is not None
    request = _card(
        "definition",
        f"The tool '{visible(held.name)}' of the MCP server '{held.server}' changed. Use it as it is now?",
        f"{held.server}/{visible(held.name)}",
        held.message,
        digest([held.server, held.name, tool.digest]),
    )
    request |= {
        "args": {"server": held.server, "tool": held.name},
        "effects": [f"net mcp://{held.server}"],
        "why": "its definition is not the one that was pinned; until it is approved, nobody can call it",
        "diff": held.diff,
    }
    answer = await ui.request_approval(request)
    return None if answer["by"] == NOBODY else bool(answer["approved"])


async def ask_form(ui: RuntimeUI, form: Form, worker_path: Sequence[Mapping[str, Any]]) -> FormAnswer:
    request: dict[str, Any] = {
        "source": form.server,
        "title": f"MCP server '{form.server}' asks",
        "message": form.message,
        "fields": [dict(field) for field in form.fields],
        "workerPath": [dict(link) for link in worker_path],
    }
    if form.url:
        request["url"] = form.url
    answer = await ui.request_form(request, worker_id=str(worker_path[-1]["id"]) if worker_path else "")
    return FormAnswer(action=str(answer["action"]), values=answer.get("values") or {})


def _card(kind: str, description: str, tool: str, payload: str, fingerprint: str) -> dict[str, Any]:
    return {
        "type": kind,
        "description": description,
        "tool": tool,
        "payload": payload,
        "risk": "high",
        "riskReasons": [],
        "choices": _NO_CHOICES,
        "fingerprint": fingerprint,
        "argsKey": fingerprint,
        "previouslyDenied": 0,
        "warnings": [],
        "workerPath": [],
    }
