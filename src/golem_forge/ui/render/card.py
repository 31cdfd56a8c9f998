"""The approval card: an `approvalRequired` event as lines. Shows literally all that is approved, and why.

`approval_card` is the card, `full_card` what the key `d` shows: diff or payload uncut, every argument, the rule that
each choice would remember.
Threat: whoever wrote the arguments wants a yes. Nothing is cut at its end; each row of the literal part has a bar, so
none can look like a line of the card; what the payload leaves out (a working directory, a terminal, an argument) has a
line of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from golem_forge.ui.render.lines import (
    Line,
    chop_columns,
    finite_number,
    head_and_tail,
    line,
    lines_of,
    mappings_in,
    one_line,
    shortened,
    styled_diff,
    to_text,
    width_of,
    wrapped,
)

Fields = Mapping[str, Any]

_PLAIN_LABEL: Final = re.compile(r"(?:[^\W_]|[ .,'&+/#-]){1,60}")

_NO_WALLS: Final = "NO WALLS"
_BETWEEN: Final = "… {count} lines between; d shows all …"
_MIN_MATCH: Final = 8
_PUBLIC_FIELD_TYPES: Final = ("text", "number", "boolean", "select", "multiselect")
_DASHES: Final = 20
_BAR: Final = "│ "
_MAX_DEFAULT: Final = 60


def approval_card(request: Fields, choices: Sequence[Fields] | None = None, *, width: int | None = None) -> list[Line]:
    """`choices`: those to offer (default: all of the request). `width` breaks the literal part where it must, all else
    at words."""
    offered = mappings_in(request.get("choices")) if choices is None else choices
    reasons = list(dict.fromkeys(_texts(request.get("riskReasons"))))
    why = to_text(request.get("why", ""))
    no_walls = [reason for reason in reasons if reason.startswith(_NO_WALLS)]
    others = [reason for reason in reasons if reason not in no_walls and reason not in why]
    above = [_title(request, width), *(line(reason, "fail", "  ") for reason in no_walls)]
    facts = [*_facts(request), *(line(f"! {reason}", "warn", "  ") for reason in others), *_warnings(request)]
    ending = [*_queue_state(request), *([line(f"why asked: {why}", indent="  ")] if why else [])]
    for number, choice in enumerate(offered, 1):
        text = f"{number}  approve and remember ({_where_remembered(choice)}): {to_text(choice.get('label', ''))}"
        ending.append(line(text, "choice", "  "))
    return [
        *_wrap_rows(above, width),
        *_with_bar(head_and_tail(_literal(request), _BETWEEN), width),
        *_wrap_rows(facts, width),
        *_changed(request, width),
        *_wrap_rows(ending, width),
    ]


def _wrap_rows(rows: Sequence[Line], width: int | None) -> list[Line]:
    return list(rows) if width is None else [part for row in rows for part in wrapped(row, max(width - 1, 20))]


def _with_bar(rows: Sequence[Line], width: int | None) -> list[Line]:
    """Broken here, because the terminal would break a long line at its margin, where the card's own lines begin."""
    room = None if width is None else max(width - 1, 20) - len(_BAR)
    return [[(style, _BAR + part)] for row in rows for style, text in row for part in chop_columns(text, room)]


def full_card(request: Fields) -> list[Line]:
    rows = _literal(request)
    arguments = lines_of(_as_json(request.get("args")))
    if arguments != rows:
        rows = [*rows, line("all arguments:", "title"), *arguments]
    rows += [line(f"{name} = {value} (default)") for name, value in _defaults(request)]
    if request.get("changed"):
        rows += [line("the tool's definition changed:", "warn"), *styled_diff(to_text(request["changed"]))]
    ruled = [choice for choice in mappings_in(request.get("choices")) if choice.get("rule")]
    if ruled:
        rows.append(line("what the choices remember:", "title"))
        rows += [line(f"{choice.get('label', '')}: {choice['rule']}", indent="  ") for choice in ruled]
    return rows


def field_errors(request: Fields) -> dict[str, str]:
    """Problems of the last edit, by field."""
    return {
        to_text(one.get("name", "")): to_text(one["error"])
        for one in mappings_in(request.get("fields"))
        if one.get("error")
    }


def _title(request: Fields, width: int | None) -> Line:
    """Label and name: a label is chosen by whoever wrote the tool, the name is what rules and logs know.

    Threat: a label that reads like another tool's name or like the rest of this line, or that pushes it away. It is
    left out.
    """
    if request.get("type") == "trust":  # nothing runs yet: the question itself is the title
        return _title_rule(f"── {one_line(request.get('description', ''))} ", width)
    tool = one_line(request.get("tool", ""))
    risk = f"risk {one_line(request.get('risk', ''))} "
    if not tool:  # a program asks about something of its own
        return _title_rule(f"── {one_line(request.get('description') or 'Shall this be done?')} · {risk}", width)
    label = one_line(request.get("label") or to_text(request.get("description", "")).partition(": ")[0])
    named = f"{label} ({tool})" if label != tool and _PLAIN_LABEL.fullmatch(label) else tool
    new = "is new or changed and " if request.get("type") == "definition" else ""
    return _title_rule(f"── {named} {new}wants to run · {risk}", width)


def _title_rule(title: str, width: int | None) -> Line:
    room = _DASHES if width is None else min(_DASHES, max(width - 1 - width_of(title), 0))
    return [("title", title + "─" * room)]


def _literal(request: Fields) -> list[Line]:
    diff = request.get("diff")
    if diff:
        return styled_diff(to_text(diff))
    payload = request.get("payload", "")
    return lines_of(payload if isinstance(payload, str) else _as_json(payload))


def _facts(request: Fields) -> list[Line]:
    """What holds for the call besides its text; nothing twice, and nothing for what is as usual."""
    command = f"exec {one_line(request.get('payload'))}".strip()
    facts = map(one_line, (*_call_context(request), *_texts(request.get("effects"))))
    return [[("", f"  {fact}")] for fact in dict.fromkeys(facts) if fact != command]


def _call_context(request: Fields) -> Iterator[str]:
    path = mappings_in(request.get("workerPath"))
    if len(path) > 1:  # the root alone needs no line
        task = path[-1].get("task")
        names = " › ".join(to_text(one.get("name", "")) for one in path)
        yield f"worker: {names}" + (f" - {to_text(task)}" if task else "")
    args = request.get("args")
    args = args if isinstance(args, Mapping) else {}
    tool = request.get("tool")
    if tool == "exec_command":
        if args.get("workdir"):
            yield f"in {to_text(args['workdir'])}"
        if args.get("shell", "bash") != "bash" or args.get("login"):
            yield f"by {'a login ' if args.get('login') else ''}{to_text(args.get('shell', 'bash'))}"
        if args.get("tty"):
            yield "in a terminal"
    elif tool == "write_stdin":
        yield f"typed into session {to_text(args.get('session_id', ''))}"
    elif tool != "shell" and not request.get("diff"):  # of `shell` the command is all there is, its time limit apart
        # The text of a tool's own card is its author's, who could write an argument's value into it to keep it unseen.
        authored = request.get("type") == "definition"
        yield from _unshown_arguments(args, "" if authored else request.get("payload"))
        used = [f"{name} = {shortened(value, _MAX_DEFAULT)} (default)" for name, value in _defaults(request)]
        if used:
            yield " · ".join(used)
    if request.get("modelNote"):
        yield f"the caller says: {to_text(request['modelNote'])}"


def _unshown_arguments(args: Fields, payload: Any) -> Iterator[str]:
    """Arguments that cannot be read in the payload. A short value found there may be part of something else."""
    shown = one_line(payload)
    if one_line(_as_json(args)) == shown:
        return
    for name, value in args.items():
        readable = isinstance(value, str) and len(value) >= _MIN_MATCH and one_line(value) in shown
        if value is not None and not readable:
            yield f"{to_text(name)} = {to_text(value)}"


def _defaults(request: Fields) -> Iterator[tuple[str, str]]:
    """Arguments that were not given and that the tool will fill in; none of a field that is not to be seen."""
    args = request.get("args")
    given = args if isinstance(args, Mapping) else {}
    for field in mappings_in(request.get("fields")):
        name, value = field.get("name"), field.get("default")
        if name not in given and value not in (None, "", [], {}) and _is_public_field(field):
            yield one_line(name), one_line(json.dumps(value, ensure_ascii=False, default=str))


def _is_public_field(field: Fields) -> bool:
    """Whether no part of it may be a secret."""
    item = field.get("item") if field.get("type") == "list" else field
    return isinstance(item, Mapping) and item.get("type") in _PUBLIC_FIELD_TYPES


def _warnings(request: Fields) -> Iterator[Line]:
    errors = field_errors(request)
    as_warnings = {f"{name}: {problem}" for name, problem in errors.items()}
    for warning in _texts(request.get("warnings")):
        if warning not in as_warnings:
            yield line(f"! {warning}", "warn", "  ")
    for name, problem in errors.items():
        yield line(f"✗ {name}: {problem}", "fail", "  ")


def _changed(request: Fields, width: int | None) -> list[Line]:
    if not request.get("changed"):
        return []
    return [
        line("the tool's definition changed:", "warn", "  "),
        *_with_bar(head_and_tail(styled_diff(to_text(request["changed"])), _BETWEEN), width),
    ]


def _queue_state(request: Fields) -> Iterator[Line]:
    if denied := int(finite_number(request.get("previouslyDenied"))):
        yield line(f"denied {denied} times before in this session", "warn", "  ")
    if (waiting := int(finite_number(request.get("waiting")))) > 1:
        yield line(f"{waiting} identical calls wait for this answer", indent="  ")
    if request.get("expiresAt"):
        yield line(f"without an answer it is denied at {to_text(request['expiresAt'])}", indent="  ")


def _where_remembered(choice: Fields) -> str:
    where = f" for this project, in {to_text(choice['file'])}" if choice.get("file") else ""
    return to_text(choice.get("scope", "")) + where


def answer_line(request: Fields, resolved: Fields, *, here: str = "") -> Line:
    """How a card ended: who answered where it was not `here`, with which changes, what was remembered and where."""
    approved = resolved.get("approved") is True
    by = f" by {to_text(resolved.get('by', ''))}" if resolved.get("by") != here else ""
    edited = " with changed arguments" if resolved.get("edited") else ""
    reason = f": {to_text(resolved['reason'])}" if resolved.get("reason") else ""
    parts = [f"{'approved' if approved else 'denied'}{by}{edited}{reason}"]
    chosen = resolved.get("choice") if approved else None
    parts += [
        f"remembered ({_where_remembered(choice)}): {to_text(choice.get('label', ''))}"
        for choice in mappings_in(request.get("choices"))
        if chosen is not None and choice.get("id") == chosen
    ]
    return line(" · ".join(parts), "ok" if approved else "fail")


def _texts(value: Any) -> list[str]:
    return [to_text(item) for item in value] if isinstance(value, (list, tuple)) else []


def _as_json(value: Any) -> str:
    """As the payload of a tool without one of its own is written, so that equal ones look equal."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return to_text(value)
