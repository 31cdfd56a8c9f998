"""Prompts of a session's MCP servers, as the commands they are: what the composer offers behind a `/`.

The same list as the terminal's completion. A session that does not run here has none: its servers are not here either.
"""

from __future__ import annotations

from typing import Any

from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.subject import subject_of
from golem_forge.ui.web.wire import Model


class PromptShown(Model, title="PromptShown"):
    name: str
    """What is typed behind the `/`."""
    server: str
    description: str
    fields: list[dict[str, Any]]
    """Of its arguments, as a tool's."""


class PromptList(Model, title="PromptList"):
    prompts: list[PromptShown]


@operation("GET", "/api/sessions/{id}/prompts", "list_prompts", answer=PromptList, tag="servers")
async def list_prompts(call: Call) -> PromptList:
    """The prompts of the MCP servers that are ready, or known from before, by the commands that run them."""
    from golem_forge.workers.slash.prompts import prompts_of

    subject = await subject_of(call)
    found = prompts_of(subject.runtime) if subject.runtime is not None else {}
    shown = [
        {"name": name, "server": each.server, "description": each.description, "fields": each.fields}
        for name, each in sorted(found.items())
    ]
    return PromptList.model_validate(subject.fit({"prompts": shown}))
