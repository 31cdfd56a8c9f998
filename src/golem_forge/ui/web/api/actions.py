"""Actions over HTTP: the same that a page sends over its socket, for programs that hold none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.watching.actions import take_action
from golem_forge.ui.web.wire import Model

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Response


class Action(Model, title="Action"):
    type: Literal[
        "userInput", "approvalResponse", "formResponse", "manualToolInvoke", "command", "interrupt", "getDiff"
    ]
    data: dict[str, Any]
    """The members of that action, by their wire names."""


@operation(
    "POST",
    "/api/sessions/{id}/actions",
    "act",
    tag="actions",
    body=Action,
    status=202,
    refusals={
        404: "no such question is open",
        409: "the session does not run here, or the question was answered already",
        422: "the action does not take this, or the answer would not count; the question stays open",
    },
)
async def act(call: Call) -> Response:
    """Answers a question, says something, runs a command or a tool, interrupts. What comes of it the events tell."""
    from golem_forge.ui.web.sdk import Response

    session = await call.house.find(call.path["id"])
    take_action(session, call.body.type, call.body.data)
    return Response(status_code=202)


OPERATIONS: Final[tuple[Operation, ...]] = (act,)
