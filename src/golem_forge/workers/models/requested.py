"""Calls as a model asked for them, made fit for the history: every id unique, and none runnable of a cut response.

`requested_calls` is for model layers; `fit_to_keep` is the last word on any response, whoever made it.
Threat: ids, names and arguments are whatever a model or its server sends: megabytes, broken Unicode, endless nesting,
the id of another worker's call. The journal, its index and every later request must still hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from golem_forge.core.ids import new_id
from golem_forge.tools.json_values import NotJson, as_json, safe_json, valid_unicode
from golem_forge.workers.messages import AssistantMessage, Message, RequestedCall
from golem_forge.workers.models.flood import MAX_CALLS, TOO_LARGE
from golem_forge.workers.models.layer import Finish, ModelError

CUT: Final = "response was cut at the token limit"
_USABLE_ID: Final = re.compile(r"[!-~]{1,256}")
_LONGEST_NAME: Final = 200
"""No tool has a longer one."""


def requested_calls(
    asked: Iterable[tuple[str, str, Any]], *, history: Sequence[Message], finish: Finish
) -> tuple[RequestedCall, ...]:
    """(id, name, arguments) of one response → its calls. A missing id, or one the history has, is replaced."""
    taken = {call.id for message in history if isinstance(message, AssistantMessage) for call in message.calls}
    calls: list[RequestedCall] = []
    for asked_id, name, args in asked:
        call_id = asked_id if asked_id and asked_id not in taken else f"call_{new_id()}"
        taken.add(call_id)
        # Models that have nothing to say send nothing at all; that is an empty object, not broken JSON.
        usable = {} if args is None or args == "" else args
        problem = CUT if finish is Finish.LENGTH else ""
        calls.append(RequestedCall(id=call_id, name=name, args=usable, problem=problem))
    return tuple(calls)


def fit_to_keep(message: AssistantMessage, taken: set[str]) -> AssistantMessage:
    """The message as it can be kept, and the same object if it could be. `taken`: ids of all calls of the session; its
    own are added. What the provider alone understands of a changed one is left out: it names what is no longer there.
    """
    if len(message.calls) > MAX_CALLS:
        asked = f"{len(message.calls)} calls in one response, more than {MAX_CALLS}"
        raise ModelError(f"{message.model or 'the model'} asked for {asked}; none of them was run", code=TOO_LARGE)
    calls = tuple(_fit(call, taken) for call in message.calls)
    text, thinking = valid_unicode(message.text), valid_unicode(message.thinking)
    same = text == message.text and thinking == message.thinking
    if same and all(one is other for one, other in zip(calls, message.calls, strict=True)):
        return message
    return replace(message, text=text, thinking=thinking, calls=calls, raw=None)


def _fit(call: RequestedCall, taken: set[str]) -> RequestedCall:
    """The journal knows a call by its id, so one that came before in this session gets a fresh one."""
    usable = call.id not in taken and _USABLE_ID.fullmatch(call.id) is not None
    call_id = call.id if usable else f"call_{new_id()}"
    taken.add(call_id)
    name = valid_unicode(call.name)
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    args, problem = _fit_args(call.args)
    if call_id == call.id and name == call.name and args is call.args:
        return call
    return replace(call, id=call_id, name=name, args=args, problem=call.problem or problem)


def _fit_args(args: Any) -> tuple[Any, str]:
    if isinstance(args, str):
        text = valid_unicode(args)
        return (args, "") if text == args else (text, "")
    try:
        as_json(args)
    except NotJson as error:
        return safe_json(args)[0], f"the arguments are not JSON: {error}"
    return args, ""
