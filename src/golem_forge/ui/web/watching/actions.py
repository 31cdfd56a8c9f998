"""What a page asks of a session: checked, then put on the bus as any UI's action would be.

Refuses (Refused) a session that does not run here (409), data that the action does not take (422), an answer to a
question that is unknown (404) or closed already (409, saying who answered), and an answer that would not count (422);
the question stays open then. The runtime decides everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Final

from golem_forge.events.envelope import Event
from golem_forge.events.types import REGISTRY
from golem_forge.ui.web.watching.diffs import diff_for
from golem_forge.ui.web.watching.live import NAME, LiveSession
from golem_forge.ui.web.watching.session import SessionState, WatchedSession
from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ACTIONS: Final = frozenset(
    {"userInput", "approvalResponse", "formResponse", "manualToolInvoke", "command", "interrupt", "getDiff"}
)
ANSWERS: Final = frozenset({"userInput", "approvalResponse", "formResponse"})
_READ_ONLY: Final = {
    SessionState.ELSEWHERE: "This session runs elsewhere: here it can only be watched.",
    SessionState.CLOSED: "This session does not run: here it can only be looked at. Resume it to go on.",
}
_OF_THE_SESSION: Final = frozenset({"command", "manualToolInvoke"})
"""Nobody hears them before it stands."""
_UNKNOWN: Final = "No such question is open."
_MOST_PROBLEM: Final = 500


def take_action(session: WatchedSession, type: str, data: Mapping[str, Any], source: str = NAME) -> None:
    if type not in ACTIONS:
        raise Refused(422, f"Unknown action; there are {', '.join(sorted(ACTIONS))}.", {"type": "unknown"})
    given = _checked(type, data)
    if not isinstance(session, LiveSession):
        raise Refused(409, _READ_ONLY.get(session.state, _READ_ONLY[SessionState.CLOSED]))
    if type in ANSWERS:
        _answer(session, type, given, source)
        return
    if type == "getDiff" and diff_for(session.ui.open_question(given["requestId"]), given["path"]) is None:
        raise Refused(404, "No open question changes this path.")
    if type in _OF_THE_SESSION and not session.stands:
        raise Refused(409, "The session is just being started; answer what it asks, then try again.")
    session.bus.emit(type, given, source=source)


def _answer(session: LiveSession, type: str, given: dict[str, Any], source: str) -> None:
    request = given["requestId"]
    objection = session.ui.objection(type, given)
    if objection is None:
        late = session.resolutions.words(request)
        raise Refused(409, late) if late else Refused(404, _UNKNOWN)
    if objection:
        raise Refused(422, f"This answer does not count: {objection[:_MOST_PROBLEM]}.")
    session.bus.emit(type, given, source=source)
    if "args" in given and (still := session.ui.open_question(request)) is not None:
        fields = _field_errors(still)
        words = "; ".join(f"{name}: {error}" for name, error in fields.items()) or "see the card"
        raise Refused(422, f"The changed arguments do not fit: {words[:_MOST_PROBLEM]}", fields)


def _field_errors(question: Event) -> dict[str, str]:
    fields = question.wire.get("fields") or []
    return {
        str(field.get("name")): str(field["error"])
        for field in fields
        if isinstance(field, Mapping) and field.get("error")
    }


def _checked(type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The members this action knows, of the types it says; None where optional is left out."""
    kind = REGISTRY[type]
    known = {field.wire: field for field in kind.FIELDS}
    problems = {name[:100]: "unknown" for name in data if name not in known}
    given: dict[str, Any] = {}
    for wire, field in known.items():
        value = data.get(wire)
        if value is None:
            if field.required:
                problems[wire] = "missing"
            continue
        try:
            given[wire] = _adapter(type, field.attribute).validate_python(value, strict=True)
        except (ValueError, RecursionError):  # pydantic's words may quote a secret
            problems[wire] = "of another type than this action takes"
    if problems:
        first = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise Refused(422, f"{type}: {first[:_MOST_PROBLEM]}", problems)
    return given


@cache
def _adapter(type: str, attribute: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(get_annotations(REGISTRY[type], eval_str=True)[attribute])
