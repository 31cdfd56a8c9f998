"""The past of a session over HTTP: its events in pages, one event whole, one open question whole.

A page of events is shown as the socket shows it, bounded; a single event or question is given as it was recorded, for
a reader who wants to see what was shortened there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from golem_forge.events.envelope import Event
from golem_forge.events.jsontext import encode
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.watching.frames import shown_members
from golem_forge.ui.web.watching.history import PAGE
from golem_forge.ui.web.wire import Model, Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Response

_Number = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
_NO_EVENT: Final = "This session has no event of that number."
_LONGEST_NUMBER: Final = 16


class EventsQuery(Model, title="EventsQuery"):
    after: _Number | None = None
    """The events that follow this number."""
    before: _Number | None = None
    """The events just below this number. Neither: the last ones."""
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


class Envelope(Model, title="Envelope"):
    type: str
    seq: int
    ts: str
    session_id: str
    worker_id: str
    data: dict[str, Any]


class Shown(Model, title="Shown-Output"):
    event: Envelope
    view: dict[str, Any]
    """How a page shows it; `cut` where `data` was shortened."""


class EventsPage(Model, title="EventsPage"):
    events: list[Shown]
    """In rising order."""
    more: bool
    """Whether there are others beyond, in the direction that was asked for."""


class WholeEvent(Model, title="WholeEvent"):
    event: Envelope


@operation("GET", "/api/sessions/{id}/events", "list_events", tag="events", query=EventsQuery, answer=EventsPage)
async def list_events(call: Call) -> Response:
    """Recorded events in pages of at most 200; a page ends early where its events are long."""
    query = call.query
    if query.after is not None and query.before is not None:
        raise Refused(422, "Give `after` or `before`, not both.", {"before": "not together with `after`"})
    session = await call.house.find(call.path["id"])
    page = await session.history.page(after=query.after, before=query.before, limit=query.limit)
    return await _answer(lambda: {"events": [shown_members(event) for event in page.events], "more": page.more})


@operation(
    "GET",
    "/api/sessions/{id}/events/{seq}",
    "get_event",
    tag="events",
    answer=WholeEvent,
    refusals={404: "there is no event of that number"},
)
async def get_event(call: Call) -> Response:
    """One recorded event, whole."""
    session = await call.house.find(call.path["id"])
    number = call.path["seq"]
    if not number.isascii() or not number.isdigit() or len(number) > _LONGEST_NUMBER:
        raise Refused(404, _NO_EVENT)
    event = await session.history.one(int(number))
    if event is None:
        raise Refused(404, _NO_EVENT)
    return await _whole(event)


@operation(
    "GET",
    "/api/sessions/{id}/questions/{requestId}",
    "get_question",
    tag="events",
    answer=WholeEvent,
    refusals={404: "no such question is open", 409: "the session does not run here"},
)
async def get_question(call: Call) -> Response:
    """One open question (`approvalRequired`, `formRequired`, `inputPrompt`), whole."""
    question = call.house.live(call.path["id"]).ui.open_question(call.path["requestId"])
    if question is None:
        raise Refused(404, "No such question is open; what it was is among the events.")
    return await _whole(question)


async def _whole(event: Event) -> Response:
    return await _answer(lambda: {"event": event.to_dict()})


async def _answer(make: Any) -> Response:
    """Written off the loop: an event may have megabytes."""
    from golem_forge.ui.web.sdk import Response

    return Response(await run_in_thread(lambda: encode(make())), media_type="application/json")


OPERATIONS: Final[tuple[Operation, ...]] = (list_events, get_event, get_question)
