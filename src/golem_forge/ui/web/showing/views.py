"""Events as pages get them: `shown(event)` gives `{"event", "view"}`, both bounded to what fits one frame.

The event is the envelope with long texts and lists without their middle; the view is what the server prepared of it:
HTML of Markdown, a result by its form, a diff. `view.cut` says that what stands here is not all; then
`GET …/events/{seq}` (or `…/questions/{requestId}`) gives the whole. Never raises: an event of a stranger's journal may
hold anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.events.envelope import Event
from golem_forge.ui.web.showing.bounds import bounded, shortened_middle
from golem_forge.ui.web.showing.markdown import to_html
from golem_forge.ui.web.showing.result_view import change_view, result_view

MOST_MESSAGE: Final = 150_000
_log = logging.getLogger(__name__)

View = dict[str, Any]
Data = Mapping[str, Any]


def shown(event: Event) -> dict[str, Any]:
    return {"event": (found := _bounded_envelope(event))[0], "view": _view(event, cut=found[1])}


def _bounded_envelope(event: Event) -> tuple[dict[str, Any], bool]:
    try:
        wire: Mapping[str, Any] = event.wire
    except Exception:
        wire = {}
    data, cut = bounded(wire)
    envelope = {
        "type": event.type,
        "seq": event.seq,
        "ts": event.ts,
        "sessionId": event.session_id,
        "workerId": event.worker_id,
        "data": data,
    }
    return envelope, cut


def _view(event: Event, *, cut: bool) -> View:
    make = _VIEWS.get(event.type)
    view: View = {}
    if make is not None:
        try:
            view = make(event.wire)
        except Exception as error:  # whatever it was, the event itself is still shown
            _log.error("an event %r could not be prepared: %s", event.type, type(error).__name__)
    if cut and ("form" in view or "html" in view):
        return {**view, "shortened": True}  # its own `cut` tells of the result, this one of the event's data
    return {**view, "cut": True} if cut else view


def _message(data: Data) -> View:
    message = data.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, str) or message is None or message.get("role") == "user":
        return {}
    text, cut = shortened_middle(content, MOST_MESSAGE)
    return {"html": to_html(text), **({"cut": True} if cut else {})}


def _diff_content(data: Data) -> View:
    path, original, modified = data.get("path"), data.get("original"), data.get("modified")
    return change_view(
        path[:1000] if isinstance(path, str) else "",
        original if isinstance(original, str) else None,
        modified if isinstance(modified, str) else "",
        is_new=bool(data.get("isNew")),
    )


_VIEWS: Final[Mapping[str, Callable[[Data], View]]] = {
    "message": _message,
    "toolResult": result_view,
    "diffContent": _diff_content,
    "approvalRequired": lambda _: {"cut": False},
}
