"""Questions of the runtime as requests to the client: approvals as permissions, forms as elicitations.

Every question of a call is asked with its card, its diff, and an option for each thing that can be remembered. The
answer goes onto the bus like that of any other UI, and names `acp:<client>`. A malformed answer denies; a cancelled one
denies and cancels the turn.
Threat: clients answer permissions by themselves (`--approve-all`). So this UI is attached without the right to trust:
a question of trust is never sent as a permission, and the runtime counts no such answer from here.
A field that holds a secret is never asked for in the client: what is typed there is on record there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import one_line, shorten
from golem_forge.events.bus import EventBus
from golem_forge.events.open_questions import MAX_REASON_CHARS, TRUST_QUESTIONS
from golem_forge.events.serialization import Event
from golem_forge.ui.acp.transport import ClientGone, Json, RpcError
from golem_forge.ui.acp.updates import UpdateStream
from golem_forge.ui.render.card import build_card

ALLOW: Final = "allow_once"
REJECT: Final = "reject_once"
_CHOICE: Final = "remember:"
_MOST_LABEL: Final = 200
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_WHY_NOT: Final = "Why not? The agent reads your reason. Leave it empty to give none."
_log = logging.getLogger(__name__)
_ON_PAGE: Final = "Type /web and answer it on the page."


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorFacts:
    name: str = "client"
    forms: bool = False
    """Whether it shows forms (`elicitation.form`)."""
    urls: bool = False
    terminals: bool = False
    """Whether it shows a command's output as a terminal that the agent feeds (`_meta.terminal_output`)."""
    extras: frozenset[str] = frozenset()
    """Updates of the protocol's drafts that it asks for: `notices`, `compaction` (`session.…` of its capabilities)."""

    @property
    def ui_name(self) -> str:
        """The name in the journal and for other UIs."""
        return f"acp:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLink:
    """The connection of one session to the client."""

    client: EditorFacts
    send: Callable[[Json], None]
    """Sends one update."""
    ask: Callable[[str, Json], Awaitable[Any]]
    """A request about this session. Raises RpcError, ClientGone."""
    has_room: Callable[[], Awaitable[None]]
    """Returns when the client has read most of what it was sent."""


class Questions:
    def __init__(
        self,
        bus: EventBus,
        link: SessionLink,
        updates: UpdateStream,
        page_link: Callable[[], Awaitable[str]],
        cancel: Callable[[], None],
    ) -> None:
        """`page_link` gives a link to this session's page, and raises ForgeError. `cancel`: the whole turn."""
        self._bus = bus
        self._link = link
        self._updates = updates
        self._page_link = page_link
        self._cancel = cancel
        self._open: dict[str, asyncio.Task[None]] = {}
        self._forms: set[str] = set()
        self._cancelled: set[str] = set()
        """Calls whose question was cancelled: each is recorded as denied, and then the turn ends."""

    def take(self, event: Event) -> None:
        match event.type:
            case "approvalRequired":
                self._begin(event, self._ask_permission)
            case "formRequired":
                self._forms.add(str(event.wire["requestId"]))
                self._begin(event, self._ask_form)
            case "approvalResolved" | "formResolved":
                self._forms.discard(str(event.wire["requestId"]))
                if (task := self._open.pop(str(event.wire["requestId"]), None)) is not None:
                    task.cancel()
            case "toolResult":
                self._end_cancelled(str(event.wire["toolCallId"]))

    def _end_cancelled(self, call_id: str) -> None:
        if call_id in self._cancelled:
            self._cancelled.discard(call_id)
            self._cancel()

    def cancel_forms(self) -> None:
        """Closes the forms that were shown here: a slash command waits for its form, whatever else is interrupted."""
        for request_id in list(self._forms):
            self._say("formResponse", {"requestId": request_id, "action": "cancel"})

    def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        self._open.clear()

    def _begin(self, event: Event, ask: Callable[[Event], Awaitable[None]]) -> None:
        request_id = str(event.wire["requestId"])
        if request_id not in self._open:  # else it is shown again with other facts
            self._open[request_id] = asyncio.get_running_loop().create_task(self._guarded(event, ask))

    async def _guarded(self, event: Event, ask: Callable[[Event], Awaitable[None]]) -> None:
        """A question that could not be asked is answered with no."""
        try:
            await ask(event)
        except ClientGone:
            return  # the session ends, and with it every question
        except Exception as error:
            _log.error("a question could not be asked: %s", error_name(error))
            is_form = event.type == "formRequired"
            answer: Json = {"action": "cancel"} if is_form else {"approved": False}
            self._say(
                "formResponse" if is_form else "approvalResponse", {"requestId": event.wire["requestId"], **answer}
            )

    # ---- approvals

    async def _ask_permission(self, event: Event) -> None:
        wire = event.wire
        if wire.get("type") in TRUST_QUESTIONS:
            text = f"{one_line(str(wire['description']))} An editor cannot answer this. {_ON_PAGE}"
            self._link.send(self._updates.say(text))
            return
        proposed = self._updates.proposed(event)
        if proposed["sessionUpdate"] == "tool_call":
            self._link.send(proposed)
        call_id = str(proposed["toolCallId"])
        call = self._updates.calls[call_id]
        card: Json = {"toolCallId": call_id, "title": call.title, "kind": call.kind, "status": "pending"}
        card["content"] = self._updates.card(event)
        if locations := self._updates.locations(event):
            card["locations"] = locations
        if "rawInput" in proposed:
            card["rawInput"] = proposed["rawInput"]
        options = options_of(wire)
        answer = await self._answer("session/request_permission", {"toolCall": card, "options": options})
        chosen = _chosen_option(answer, options)
        response: Json = {"requestId": wire["requestId"], "approved": chosen is not None and chosen != REJECT}
        if chosen is not None and chosen.startswith(_CHOICE):
            response["choice"] = chosen.removeprefix(_CHOICE)
        if chosen == REJECT and (reason := await self._reason()):
            response["reason"] = reason
        if not wire.get("toolCallId"):  # no call follows that would say how it ended
            status = "completed" if response["approved"] else "failed"
            self._updates.calls.pop(call_id, None)
            self._link.send({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status})
        self._say("approvalResponse", response)
        if _is_cancelled(answer):
            self._cancelled.add(call_id)
            if not wire.get("toolCallId"):
                self._end_cancelled(call_id)

    async def _reason(self) -> str:
        if not self._link.client.forms:
            return ""
        reason = {"type": "string", "title": "Reason", "maxLength": MAX_REASON_CHARS}
        schema = {"type": "object", "properties": {"reason": reason}}
        answer = await self._answer("elicitation/create", _form_request(_WHY_NOT, schema))
        content = answer.get("content") if answer.get("action") == "accept" else None
        text = content.get("reason") if isinstance(content, Mapping) else None
        return text[:MAX_REASON_CHARS] if isinstance(text, str) else ""

    # ---- forms

    async def _ask_form(self, event: Event) -> None:
        wire, client = event.wire, self._link.client
        message = "\n".join(filter(None, (str(wire["title"]), str(wire["message"]))))
        schema = form_schema(wire["fields"])
        if client.urls and (wire.get("url") or schema is None):
            await self._ask_at_url(wire, message)
            return
        if schema is not None and client.forms and not wire.get("url"):
            request = _form_request(message, schema)
        else:
            where = f" It is at `{wire['url']}`." if wire.get("url") else ""
            self._link.send(self._updates.say(f"{message}{where}\n\nThis form waits. {_ON_PAGE}"))
            return
        answer = await self._answer("elicitation/create", request)
        action = answer.get("action")
        response: Json = {
            "requestId": wire["requestId"],
            "action": action if action in ("accept", "decline") else "cancel",
        }
        if action == "accept":
            response["values"] = form_values(wire["fields"], answer.get("content"))
        self._say("formResponse", response)

    async def _ask_at_url(self, wire: Mapping[str, Any], message: str) -> None:
        """Asks at the address that the form names; else on Forge's page, which answers it."""
        request_id, address = str(wire["requestId"]), wire.get("url")
        url = str(address) if address else await self._page_link()
        request = {"mode": "url", "message": message, "elicitationId": request_id, "url": url}
        action = (await self._answer("elicitation/create", request)).get("action")
        if address or action != "accept":
            known = action if action in ("accept", "decline") else "cancel"
            self._say("formResponse", {"requestId": request_id, "action": known})

    # ---- both

    async def _answer(self, method: str, params: Json) -> Mapping[str, Any]:
        """Empty where the client refuses or answers with something else. Raises ClientGone."""
        try:
            answer = await self._link.ask(method, params)
        except RpcError:
            return {}
        return answer if isinstance(answer, Mapping) else {}

    def _say(self, type: str, response: Json) -> None:
        task = self._open.pop(str(response["requestId"]), None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._bus.emit(type, response, source=self._link.client.ui_name)


def options_of(wire: Mapping[str, Any]) -> list[Json]:
    """Returns the options of a card: allow once, each choice to remember, and deny."""
    offers = [
        {
            "optionId": f"{_CHOICE}{offer.id}",
            "name": shorten(f"Allow and remember ({offer.kept}): {offer.label}", _MOST_LABEL),
            "kind": "allow_always",
        }
        for offer in build_card(wire).offers
    ]
    once = {"optionId": ALLOW, "name": "Allow once", "kind": ALLOW}
    return [once, *offers, {"optionId": REJECT, "name": "Reject", "kind": REJECT}]


def _chosen_option(answer: Mapping[str, Any], options: Sequence[Json]) -> str | None:
    """Returns the chosen option; None if it was not offered, which denies."""
    outcome = answer.get("outcome")
    chosen = outcome.get("optionId") if isinstance(outcome, Mapping) and outcome.get("outcome") == "selected" else None
    return next((str(each["optionId"]) for each in options if each["optionId"] == chosen), None)


def _is_cancelled(answer: Mapping[str, Any]) -> bool:
    """The person cancelled the prompt, as the protocol says it; an answer that cannot be read only denies."""
    outcome = answer.get("outcome")
    return isinstance(outcome, Mapping) and outcome.get("outcome") == "cancelled"


def _form_request(message: str, schema: Json) -> Json:
    return {"mode": "form", "message": message, "requestedSchema": schema}


def form_schema(fields: Sequence[Mapping[str, Any]]) -> Json | None:
    """The fields as a client's form; None: it has one that no client shows, or that holds a secret."""
    properties: Json = {}
    for field in fields:
        schema = _property(field)
        if schema is None:
            return None
        texts = {"title": field.get("label"), "description": field.get("description")}
        properties[str(field["name"])] = {**schema, **{name: text for name, text in texts.items() if text}}
    required = [str(field["name"]) for field in fields if field.get("required")]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _property(field: Mapping[str, Any]) -> Json | None:
    default = field.get("default")
    match field.get("type"):
        case "text":
            schema: Json = {"type": "string"}
            schema |= {"format": field["format"]} if field.get("format") in _FORMATS else {}
            schema |= {"pattern": field["pattern"]} if field.get("pattern") else {}
            return schema | ({"default": default} if isinstance(default, str) else {})
        case "number":
            limits = {"minimum": field.get("min"), "maximum": field.get("max"), "default": default}
            return {"type": "number", **{name: value for name, value in limits.items() if _is_number(value)}}
        case "boolean":
            return {"type": "boolean", **({"default": default} if isinstance(default, bool) else {})}
        case "select":
            return {"type": "string", "oneOf": _titled(field)}
        case "multiselect":
            return {"type": "array", "items": {"anyOf": _titled(field)}}
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _titled(field: Mapping[str, Any]) -> list[Json]:
    return [{"const": str(each["value"]), "title": str(each["label"])} for each in field.get("options") or ()]


def form_values(fields: Sequence[Mapping[str, Any]], content: Any) -> Json:
    """Returns the filled-in values by field; for a choice the offered value."""
    given = content if isinstance(content, Mapping) else {}
    values: Json = {}
    for field in fields:
        name = str(field["name"])
        if name not in given:
            continue
        offered = {str(each["value"]): each["value"] for each in field.get("options") or ()}
        value = given[name]
        if field.get("type") == "select":
            value = offered.get(str(value), value)
        elif field.get("type") == "multiselect" and isinstance(value, list):
            value = [offered.get(str(each), each) for each in value]
        values[name] = value
    return values
