"""Action events: what a UI asks of the runtime. They may hold raw secrets, so the bus hands out redacted copies."""

from __future__ import annotations

from typing import Any, Literal

from golem_forge.core.ids import new_id
from golem_forge.events.wire import EventData, filled

Json = dict[str, Any]


class UserInput(EventData, type="userInput", action=True):
    request_id: str
    content: str
    attachments: list[Json] | None = None
    """`{digest, name}` of files that were sent before."""


class ApprovalResponse(EventData, type="approvalResponse", action=True):
    request_id: str
    approved: bool
    choice: str | None = None
    args: Json | None = None
    """The arguments as the person edited them."""
    reason: str | None = None
    stop: bool | None = None
    """Deny and end the turn."""
    remember: Literal["session", "always"] | None = None
    """Instead of `choice`: the narrowest offered choice of this scope."""


class FormResponse(EventData, type="formResponse", action=True):
    request_id: str
    action: Literal["accept", "decline", "cancel"]
    values: Json | None = None


class ManualToolInvoke(EventData, type="manualToolInvoke", action=True):
    tool_name: str
    args: Json = filled(dict)
    request_id: str | None = None
    """Of the sender's choice: 32 random hexadecimal digits become the id of the call, and run it once however often it
    is sent."""


class Command(EventData, type="command", action=True):
    request_id: str = filled(new_id)
    text: str


class Interrupt(EventData, type="interrupt", action=True):
    reason: str | None = None
    worker_id: str | None = None
    """Only that worker's branch; absent: everything."""


class GetDiff(EventData, type="getDiff", action=True):
    request_id: str
    path: str
