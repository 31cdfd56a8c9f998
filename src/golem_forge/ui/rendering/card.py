"""The approval card: an `approvalRequired` event as lines. Everything that is approved, literally, and why it is asked.

Threat: whoever wrote the arguments wants a yes. Nothing is cut at its end; nothing can look like a line of the card,
so a bar stands before each row of the literal part; what the payload leaves out (a working directory, a terminal, an
argument) has a line of its own.
`whole` is what the key `d` shows: diff or payload uncut, every argument, what each choice would remember as a rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from golem_forge.ui.rendering.diffs import bounded, coloured
from golem_forge.ui.rendering.lines import (
    Line,
    chopped,
    line,
    lines_of,
    mappings,
    number,
    one_line,
    shortened,
    width_of,
    words,
    wrapped,
)

Fields = Mapping[str, Any]

_PLAIN_LABEL: Final = re.compile(r"(?:[^\W_]|[ .,'&+/#-]){1,60}")

_NO_WALLS: Final = "NO WALLS"
_BETWEEN: Final = "… {count} lines between; d shows all …"
_UNMISTAKABLE: Final = 8
_SEEN: Final = ("text", "number", "boolean", "select", "multiselect")
_DASHES: Final = 20
_BAR: Final = "│ "
_MOST_DEFAULT: Final = 60


def card(request: Fields, choices: Sequence[Fields] | None = None, *, width: int | None = None) -> list[Line]:
    """`choices`: those to offer (default: all of the request). `width` breaks the literal part where it must, all else
    at words."""
    offered = mappings(request.get("choices")) if choices is None else choices
    reasons = list(dict.fromkeys(_texts(request.get("riskReasons"))))
    why = words(request.get("why", ""))
    above = [
        _title(request, width),
        *(line(reason, "fail", "  ") for reason in reasons if reason.startswith(_NO_WALLS)),
    ]
    facts = [
        *_about(request),
        *(
            line(f"! {reason}", "warn", "  ")
            for reason in reasons
            if not reason.startswith(_NO_WALLS) and reason not in why
        ),
        *_warnings(request),
    ]
    ending = [
        *_standing(request),
        *([line(f"why asked: {why}", indent="  ")] if why else []),
        *(_choice(number, choice) for number, choice in enumerate(offered, 1)),
    ]
    return [
        *_fitted(above, width),
        *_barred(bounded(_literal(request), _BETWEEN), width),
        *_fitted(facts, width),
        *_changed(request, width),
        *_fitted(ending, width),
    ]


def _fitted(rows: Sequence[Line], width: int | None) -> list[Line]:
    return list(rows) if width is None else [part for row in rows for part in wrapped(row, max(width - 1, 20))]


def _barred(rows: Sequence[Line], width: int | None) -> list[Line]:
    """Broken here, because the terminal would break a long line at its margin, where the card's own lines begin."""
    room = None if width is None else max(width - 1, 20) - len(_BAR)
    return [[(style, _BAR + part)] for row in rows for style, text in row for part in chopped(text, room)]


def whole(request: Fields) -> list[Line]:
    rows = _literal(request)
    arguments = lines_of(_as_json(request.get("args")))
    if arguments != rows:
        rows = [*rows, line("all arguments:", "title"), *arguments]
    rows += [line(f"{name} = {value} (default)") for name, value in _defaults(request)]
    if request.get("changed"):
        rows += [line("the tool's definition changed:", "warn"), *coloured(words(request["changed"]))]
    ruled = [choice for choice in mappings(request.get("choices")) if choice.get("rule")]
    if ruled:
        rows.append(line("what the choices remember:", "title"))
        rows += [line(f"{choice.get('label', '')}: {choice['rule']}", indent="  ") for choice in ruled]
    return rows


def field_errors(request: Fields) -> dict[str, str]:
    """Problems of the last edit, by field."""
    return {
        words(one.get("name", "")): words(one["error"]) for one in mappings(request.get("fields")) if one.get("error")
    }


def _title(request: Fields, width: int | None) -> Line:
    """Label and name: a label is chosen by whoever wrote the tool, the name is what rules and logs know.

    Threat: a label that reads like another tool's name or like the rest of this line, or that pushes it away. It is
    left out.
    """
    if request.get("type") == "trust":  # nothing runs yet: the question itself is the title
        return _ruled(f"── {one_line(request.get('description', ''))} ", width)
    tool = one_line(request.get("tool", ""))
    risk = f"risk {one_line(request.get('risk', ''))} "
    if not tool:  # a program asks about something of its own
        return _ruled(f"── {one_line(request.get('description') or 'Shall this be done?')} · {risk}", width)
    label = one_line(request.get("label") or words(request.get("description", "")).partition(": ")[0])
    named = f"{label} ({tool})" if label != tool and _PLAIN_LABEL.fullmatch(label) else tool
    new = "is new or changed and " if request.get("type") == "definition" else ""
    return _ruled(f"── {named} {new}wants to run · {risk}", width)


def _ruled(title: str, width: int | None) -> Line:
    room = _DASHES if width is None else min(_DASHES, max(width - 1 - width_of(title), 0))
    return [("title", title + "─" * room)]


def _literal(request: Fields) -> list[Line]:
    diff = request.get("diff")
    if diff:
        return coloured(words(diff))
    payload = request.get("payload", "")
    return lines_of(payload if isinstance(payload, str) else _as_json(payload))


def _about(request: Fields) -> Iterator[Line]:
    """What holds for the call besides its text; nothing twice, and nothing for what is as usual."""
    payload = request.get("payload")
    seen = {f"exec {one_line(payload)}".strip()}
    for text in (*_circumstances(request), *_texts(request.get("effects"))):
        shown = one_line(text)
        if shown not in seen:
            seen.add(shown)
            yield [("", f"  {shown}")]


def _circumstances(request: Fields) -> Iterator[str]:
    if path := _worker_path(request):
        yield path
    args = request.get("args")
    args = args if isinstance(args, Mapping) else {}
    tool = request.get("tool")
    if tool == "exec_command":
        if args.get("workdir"):
            yield f"in {words(args['workdir'])}"
        if args.get("shell", "bash") != "bash" or args.get("login"):
            yield f"by {'a login ' if args.get('login') else ''}{words(args.get('shell', 'bash'))}"
        if args.get("tty"):
            yield "in a terminal"
    elif tool == "write_stdin":
        yield f"typed into session {words(args.get('session_id', ''))}"
    elif tool != "shell" and not request.get("diff"):  # of `shell` the command is all there is, its time limit apart
        # The text of a tool's own card is its author's, who could write an argument's value into it to keep it unseen.
        authored = request.get("type") == "definition"
        yield from _left_out(args, "" if authored else request.get("payload"))
        if used := " · ".join(
            f"{name} = {shortened(value, _MOST_DEFAULT)} (default)" for name, value in _defaults(request)
        ):
            yield used
    if request.get("modelNote"):
        yield f"the caller says: {words(request['modelNote'])}"


def _left_out(args: Fields, payload: Any) -> Iterator[str]:
    """Arguments that cannot be read in the payload. A short value found there may be part of something else."""
    shown = one_line(payload)
    if one_line(_as_json(args)) == shown:
        return
    for name, value in args.items():
        told = isinstance(value, str) and len(value) >= _UNMISTAKABLE and one_line(value) in shown
        if value is not None and not told:
            yield f"{words(name)} = {words(value)}"


def _defaults(request: Fields) -> Iterator[tuple[str, str]]:
    """Arguments that were not given and that the tool will fill in; none of a field that is not to be seen."""
    args = request.get("args")
    given = args if isinstance(args, Mapping) else {}
    for field in mappings(request.get("fields")):
        name, value = field.get("name"), field.get("default")
        if name not in given and value not in (None, "", [], {}) and _open_to_all(field):
            yield one_line(name), one_line(json.dumps(value, ensure_ascii=False, default=str))


def _open_to_all(field: Fields) -> bool:
    """Whether no part of it may be a secret."""
    kind, item = field.get("type"), field.get("item")
    return kind in _SEEN or (kind == "list" and isinstance(item, Mapping) and item.get("type") in _SEEN)


def _worker_path(request: Fields) -> str:
    """`worker: main › analyzer - its task`; the root alone needs no line."""
    path = mappings(request.get("workerPath"))
    if len(path) < 2:
        return ""
    task = path[-1].get("task")
    return f"worker: {' › '.join(words(one.get('name', '')) for one in path)}" + (f" - {words(task)}" if task else "")


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
        *_barred(bounded(coloured(words(request["changed"])), _BETWEEN), width),
    ]


def _standing(request: Fields) -> Iterator[Line]:
    if denied := int(number(request.get("previouslyDenied"))):
        yield line(f"denied {denied} times before in this session", "warn", "  ")
    if (waiting := int(number(request.get("waiting")))) > 1:
        yield line(f"{waiting} identical calls wait for this answer", indent="  ")
    if request.get("expiresAt"):
        yield line(f"without an answer it is denied at {words(request['expiresAt'])}", indent="  ")


def _choice(at: int, choice: Fields) -> Line:
    return line(f"{at}  approve and remember ({_kept_where(choice)}): {words(choice.get('label', ''))}", "choice", "  ")


def _kept_where(choice: Fields) -> str:
    where = f" for this project, in {words(choice['file'])}" if choice.get("file") else ""
    return words(choice.get("scope", "")) + where


def answered(request: Fields, resolved: Fields, *, here: str = "") -> Line:
    """How a card ended: who answered where it was not `here`, with which changes, what was remembered and where."""
    approved = resolved.get("approved") is True
    by = f" by {words(resolved.get('by', ''))}" if resolved.get("by") != here else ""
    edited = " with changed arguments" if resolved.get("edited") else ""
    reason = f": {words(resolved['reason'])}" if resolved.get("reason") else ""
    parts = [f"{'approved' if approved else 'denied'}{by}{edited}{reason}"]
    chosen = resolved.get("choice") if approved else None
    parts += [
        f"remembered ({_kept_where(choice)}): {words(choice.get('label', ''))}"
        for choice in mappings(request.get("choices"))
        if chosen is not None and choice.get("id") == chosen
    ]
    return line(" · ".join(parts), "ok" if approved else "fail")


def _texts(value: Any) -> list[str]:
    return [words(item) for item in value] if isinstance(value, (list, tuple)) else []


def _as_json(value: Any) -> str:
    """As the payload of a tool without one of its own is written, so that equal ones look equal."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return words(value)
