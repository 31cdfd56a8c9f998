"""The approval card: an `approvalRequired` event as sections of data, drawn here as lines and on the page as elements.

`build_card` says everything that is approved, and why; `approval_card` draws it as lines, `full_card` draws what the
key `d` shows: diff or payload uncut, every argument, the rule that each choice would remember. `card_view` is the same
card for the page.
Threat: whoever wrote the arguments wants a yes. Nothing is cut at its end; each row of the literal part has a bar, so
none can look like a line of the card; what the payload leaves out (a working directory, a terminal, an argument) has a
line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from golem_forge.core.effects import NOT_COVERED, quote_target, without_command
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten
from golem_forge.ui.render.lines import (
    Line,
    Style,
    as_json,
    chop_columns,
    compact_diff,
    ends_of_diff,
    finite_number,
    line,
    lines_of,
    mappings_in,
    one_line,
    styled_diff,
    to_text,
    width_of,
    wrapped_lines,
)
from golem_forge.ui.render.reports import call_subject

Fields = Mapping[str, Any]

_PLAIN_LABEL: Final = regex(r"(?:[^\W_]|[ .,'&+/#-]){1,60}")
_NO_WALLS: Final = "NO WALLS"
_EXEC: Final = "exec "
_EXACTLY: Final = "exactly this command"
_BETWEEN: Final = "… {count} lines between; d shows all …"
_NO_CHANGE: Final = "no change"
_IN_PROJECT: Final = " for this project"
_MIN_MATCH: Final = 8
_PUBLIC_FIELD_TYPES: Final = ("text", "number", "boolean", "select", "multiselect")
_DASHES: Final = 20
_RISK: Final = " · risk "
_RISK_STYLES: Final[Mapping[str, Style]] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "critical": "critical",
}
_BAR: Final = "│ "
_MAX_DEFAULT: Final = 60
_WISHES: Final = {
    "file_write": "wants to change files",
    "worker": "wants to start a worker",
    "definition": "is new or changed and wants to run",
}


@dataclass(frozen=True, slots=True)
class CardRow:
    text: str
    look: Literal["", "warn", "fail", "said"] = ""
    """The style; `said` marks the caller's words."""
    warning: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    kind: Literal[
        "unconfined",  # that no walls confine the call; before all else
        "text",  # what would run, literally
        "diff",  # what would change
        "commands",  # the commands of one line
        "facts",  # what holds for the call besides its text
        "warnings",
        "changed",  # a diff of the tool's definition
        "arguments",  # on request: every argument, and what the tool fills in
        "standing",  # denied before; other calls that wait
        "deadline",
        "why",
    ]
    title: str = ""
    text: str = ""
    member: str = ""
    """The member of the request that holds the text. The page reads it there: it may be long."""
    rows: tuple[CardRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOffer:
    id: str
    label: str
    kept: str
    """How long and where it is kept: `always for this project, in .forge/rules.yaml`."""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    title: str
    heading: str
    """The title on the page, where the kind of the call is named; the risk follows."""
    sections: tuple[Section, ...]
    offers: tuple[CardOffer, ...]
    numbers: tuple[int, ...] = ()
    """The key of each offer."""


def build_card(request: Fields, choices: Sequence[Fields] | None = None) -> Card:
    """`choices`: those to offer (default: all of the request)."""
    reasons = list(dict.fromkeys(_texts(request.get("riskReasons"))))
    why = to_text(request.get("why") or "")
    commands = _shown_commands(request)
    no_walls = [CardRow(reason, "fail") for reason in reasons if reason.startswith(_NO_WALLS)]
    others = [
        CardRow(without_command(one, commands), "warn")
        for one in reasons
        if not one.startswith(_NO_WALLS) and one not in why
    ]
    literal = _literal(request)
    sections = (
        Section(kind="unconfined", rows=tuple(no_walls)),
        literal,
        _commands(request),
        Section(kind="facts", rows=tuple(_facts(request))),
        Section(kind="warnings", rows=(*others, *_warnings(request))),
        Section(
            kind="changed",
            title="the tool's definition changed:",
            text=to_text(request.get("changed") or ""),
            member="changed",
        ),
        _arguments(request, literal),
        Section(kind="standing", rows=tuple(_standing(request))),
        Section(kind="deadline", text=to_text(request.get("expiresAt") or "")),
        Section(kind="why", text=without_command(why, commands)),
    )
    always = (literal.kind, "why")
    numbered = numbered_choices(mappings_in(request.get("choices")) if choices is None else choices)
    return Card(
        title=_title(request),
        heading=_heading(request),
        sections=tuple(one for one in sections if one.text or one.rows or one.kind in always),
        offers=tuple(map(_offer, numbered.values())),
        numbers=tuple(numbered),
    )


def card_view(request: Fields) -> dict[str, Any]:
    """Returns the card as JSON for the page."""
    card = build_card(request)
    sections = [asdict(replace(one, text="") if one.member else one) for one in card.sections]
    # the rule of that very command would only repeat it
    said = _EXACTLY if len(mappings_in(request.get("segments"))) == 1 else ""
    offers = [replace(one, rule="") if one.label == said else one for one in card.offers]
    return {
        "title": card.heading,
        "about": _about(request),
        "sections": sections,
        "offers": [asdict(one) for one in offers],
    }


def _about(request: Fields) -> str:
    """Returns the subject for a list of questions: `cart.py +1 −1`, or the command."""
    if request.get("diff"):
        files = [row[0][1] for row in compact_diff(to_text(request["diff"]))[0] if row[0][0] == "title"]
        path, _, counts = files[0].partition(" ") if files else ("", "", "")
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"{path.rpartition('/')[2]} {counts}{more}".strip()
    args = request.get("args")
    return call_subject(request.get("tool"), args) or shorten(one_line(request.get("payload", "")), _MAX_DEFAULT)


# ---- as lines


def approval_card(
    request: Fields, choices: Sequence[Fields] | None = None, *, width: int | None = None, with_diff: bool = True
) -> list[Line]:
    """`width` breaks the literal part where it must, all else at words. `with_diff=False`: for a UI that shows the diff
    itself."""
    card = build_card(request, choices)
    room = _DASHES if width is None else min(_DASHES, max(width - 1 - width_of(card.title), 0))
    rows = wrapped_lines([_title_line(card.title, "─" * room, request)], width)
    changed: set[str] = set()
    for section in card.sections:
        if section.kind == "diff":
            diff, changed = compact_diff(section.text)
            rows += _with_bar(diff or [line(_NO_CHANGE, "dim")], width) if with_diff else []
        elif section.kind == "facts":  # that it writes a file whose change stands above needs no second line
            facts = [row for row in section.rows if row.note or row.text.partition(" ")[2] not in changed]
            rows += _section_lines(replace(section, rows=tuple(facts)), width)
        else:
            rows += _section_lines(section, width)
    return [*rows, *wrapped_lines(_offer_lines(card, width, changed), width)]


def _offer_lines(card: Card, width: int | None, changed: Collection[str]) -> list[Line]:
    """`3 session · 4 always, in FILE: what is remembered`: what differs only in how long stands on one line. Where that
    line is too long for the one file that the card shows, it says `this file`."""
    ways: dict[str, list[str]] = {}
    for number, offer in zip(card.numbers, card.offers, strict=True):
        ways.setdefault(offer.label, []).append(f"{number} {offer.kept.replace(_IN_PROJECT, '')}")
    rows: list[Line] = []
    for label, kept in ways.items():
        said = f"{' · '.join(kept)}: {label}"
        verb, _, path = label.partition(" ")
        if width is not None and width_of(said) > width - 3 and len(changed) == 1 and path in changed:
            said = f"{' · '.join(kept)}: {verb} this file"
        rows.append(line(said, "choice", "  "))
    return rows


def _title_line(title: str, dashes: str, request: Fields) -> Line:
    """The risk at the end of the title in its own colour."""
    name, mark, _ = title.rpartition(_RISK)
    level = _RISK_STYLES.get(to_text(request.get("risk", "")))
    if level is None or not mark:
        return [("title", title + dashes)]
    return [("title", f"{name} · "), (level, f"risk {level}"), ("title", f" {dashes}")]


def full_card(request: Fields) -> list[Line]:
    card = build_card(request)
    sections = {section.kind: section for section in card.sections}
    literal = sections.get("diff") or sections["text"]
    rows = _literal_lines(literal) or [line(_NO_CHANGE, "dim")]
    if arguments := sections.get("arguments"):
        shown = list(_argument_lines(request)) if arguments.text else []
        rows += [line("all arguments:", "title"), *shown] if shown else []
        rows += [line(row.text) for row in arguments.rows]
    if changed := sections.get("changed"):
        rows += [line(changed.title, "warn"), *_literal_lines(changed)]
    if ruled := [offer for offer in card.offers if offer.rule]:
        rows.append(line("what the choices remember:", "title"))
        said = dict.fromkeys(f"{offer.label}: {offer.rule}" for offer in ruled)  # once for both scopes
        rows += [line(each, indent="  ") for each in said]
    return rows


def _argument_lines(request: Fields) -> Iterator[Line]:
    """Each argument by its name; text of several lines as those lines. What the diff of a native tool shows is left
    out."""
    diffed = _DIFFED.get(to_text(request.get("tool", "")), ()) if request.get("diff") else ()
    for name, value in _given_arguments(request).items():
        if name in diffed:
            continue
        if isinstance(value, str) and "\n" in value.strip("\n"):
            yield line(f"{to_text(name)}:", indent="  ")
            yield from _with_bar(lines_of(value), None)
        else:
            yield line(f"{to_text(name)} = {json.dumps(value, ensure_ascii=False, default=str)}", indent="  ")


_DIFFED: Final[Mapping[str, tuple[str, ...]]] = {"apply_patch": ("input", "patch"), "write_file": ("path", "content")}
"""Arguments that Forge itself made the diff from."""


def _section_lines(section: Section, width: int | None) -> list[Line]:
    match section.kind:
        case "text" | "changed":
            title = [line(section.title, "warn", "  ")] if section.title else []
            return [*title, *_with_bar(_literal_lines(section), width)]
        case "arguments":
            return []
        case "deadline":
            rows = [line(f"without an answer Forge denies it at {section.text}", indent="  ")]
        case "why":
            rows = [line(asked_because(section.text), indent="  ")] if section.text else []
        case _:
            rows = [_row_line(row, marked=section.kind == "warnings") for row in section.rows]
    return wrapped_lines(rows, width)


def asked_because(why: Any) -> str:
    """A sentence stands for itself: `Writing in /workspace asks.`"""
    said = one_line(why)
    return said if said.endswith(".") and said[:1].isupper() else f"why asked: {said}"


def _row_line(row: CardRow, *, marked: bool) -> Line:
    if row.look == "said":
        return line(f"the caller says: {row.text}", indent="  ")
    mark = ("! " if row.look == "warn" else "✗ ") if marked else ""
    notes = ", ".join(filter(None, (row.warning, row.note)))
    return line(f"{mark}{row.text}{f' ({notes})' if notes else ''}", row.look, "  ")


def _literal_lines(section: Section) -> list[Line]:
    return lines_of(section.text) if section.kind == "text" else styled_diff(section.text)


def _with_bar(rows: Sequence[Line], width: int | None) -> list[Line]:
    """Broken here, because the terminal would break a long line at its margin, where the card's own lines begin. Of
    many rows the first and the last: one long line must not push the title away either."""
    room = None if width is None else max(width - 1, 20) - len(_BAR)
    broken: list[Line] = [[(style, part)] for row in rows for style, text in row for part in chop_columns(text, room)]
    return [[(style, _BAR + text)] for row in ends_of_diff(broken, _BETWEEN) for style, text in row]


# ---- what the sections say


def _title(request: Fields) -> str:
    risk = f"{_RISK}{one_line(request.get('risk', ''))}"
    if request.get("type") == "trust":  # nothing runs yet: the question itself is the title
        return f"── {one_line(request.get('description', ''))} "
    if not request.get("tool"):
        return f"── {_question(request)}{risk} "
    wish = _WISHES["definition"] if request.get("type") == "definition" else "wants to run"
    return f"── {_tool_name(request)} {wish}{risk} "


def _heading(request: Fields) -> str:
    kind = to_text(request.get("type", ""))
    no_call = kind in ("trust", "sampling") or (kind == "definition" and not request.get("toolCallId"))
    if no_call or not request.get("tool"):
        return _question(request)
    return f"{_tool_name(request)} {_WISHES.get(kind, 'wants to run')}"


def _question(request: Fields) -> str:
    """Returns the question of a request without a call: a program or a server asks on its own."""
    return one_line(request.get("description") or "Do you allow this?")


def _tool_name(request: Fields) -> str:
    """Label and name: a label is chosen by whoever wrote the tool, the name is what rules and logs know.

    Threat: a label that reads like another tool's name or like the rest of this line, or that pushes it away. It is
    left out.
    """
    tool = one_line(request.get("tool", ""))
    label = one_line(request.get("label") or to_text(request.get("description", "")).partition(": ")[0])
    return f"{label} ({tool})" if label != tool and _PLAIN_LABEL.fullmatch(label) else tool


def _literal(request: Fields) -> Section:
    if request.get("diff"):
        return Section(kind="diff", text=to_text(request["diff"]), member="diff")
    payload = request.get("payload", "")
    text = payload if isinstance(payload, str) else as_json(payload)
    if not request.get("diff") and to_text(request.get("tool", "")) in _DIFFED and request.get("type") == "file_write":
        return Section(kind="diff")  # the file is as the call would leave it
    # A program that is trusted anew: its files against those of then.
    is_diff = request.get("type") == "trust" and text.startswith("--- ")
    return Section(kind="diff" if is_diff else "text", text=text, member="payload")


def _shown_commands(request: Fields) -> list[str]:
    """The command of the literal part, as it stands there and as its effect names it; of several none is that one."""
    effects, segments = _effects(request), mappings_in(request.get("segments"))
    named = [row.text.removeprefix(_EXEC) for row in effects[:1] if len(segments) == 1 and row.text.startswith(_EXEC)]
    return [one_line(request.get("payload")), *named]


def _several_commands(request: Fields) -> dict[int, Fields]:
    """Returns the segments of a line with several commands, by the index of their effect."""
    segments = mappings_in(request.get("segments"))
    execs = [at for at, row in enumerate(_effects(request)) if row.text.startswith(_EXEC)]
    return dict(zip(execs, segments, strict=True)) if len(execs) == len(segments) > 1 else {}


def _commands(request: Fields) -> Section:
    """The parts of a line of several commands; nothing for a single one: the literal part is that command."""
    effects = _effects(request)
    rows = tuple(
        CardRow(
            quote_target(effects[at].text),
            warning=", ".join(_texts(segment.get("dangers"))),
            note=effects[at].note or ("only reads" if segment.get("proven") is True else ""),
        )
        for at, segment in _several_commands(request).items()
    )
    return Section(kind="commands", title=f"{len(rows)} commands", rows=rows)


def _facts(request: Fields) -> Iterator[CardRow]:
    """Yields the facts of a card, without repetitions and usual values."""
    commands = {f"{_EXEC}{name}" for name in _shown_commands(request)}
    parts = _several_commands(request)
    context = [CardRow(one_line(text)) for text in _call_context(request)]
    said = [CardRow(to_text(request["modelNote"]), "said")] if request.get("modelNote") else []
    effects = []
    for at, row in enumerate(_effects(request)):
        if row.text in commands:
            row = replace(row, text="the command" if row.note else "")
        if row.text and at not in parts:
            effects.append(row)
    return iter(dict.fromkeys((*context, *said, *effects)))


def _effects(request: Fields) -> list[CardRow]:
    texts = [one_line(text) for text in _texts(request.get("effects"))]
    note = NOT_COVERED.strip(" ()")
    return [CardRow(text.removesuffix(NOT_COVERED), note=note if text.endswith(NOT_COVERED) else "") for text in texts]


def _call_context(request: Fields) -> Iterator[str]:
    path = mappings_in(request.get("workerPath"))
    if len(path) > 1:  # the root alone needs no line
        task = path[-1].get("task")
        names = " › ".join(to_text(one.get("name", "")) for one in path)
        yield f"worker: {names}" + (f" - {to_text(task)}" if task else "")
    args = _given_arguments(request)
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
        used = [f"{name} = {shorten(value, _MAX_DEFAULT)} (default)" for name, value in _defaults(request)]
        if used:
            yield " · ".join(used)


def _given_arguments(request: Fields) -> Fields:
    args = request.get("args")
    return args if isinstance(args, Mapping) else {}


def _unshown_arguments(args: Fields, payload: Any) -> Iterator[str]:
    """Arguments that cannot be read in the payload. A short value found there may be part of something else."""
    shown = one_line(payload)
    if one_line(as_json(args)) == shown:
        return
    for name, value in args.items():
        readable = isinstance(value, str) and len(value) >= _MIN_MATCH and one_line(value) in shown
        if value is not None and not readable:
            yield f"{to_text(name)} = {to_text(value)}"


def _arguments(request: Fields, literal: Section) -> Section:
    """Returns the arguments, unless the literal part already shows them."""
    arguments = as_json(request.get("args"))
    shown = literal.member == "payload" and lines_of(arguments) == lines_of(literal.text)
    return Section(
        kind="arguments",
        text="" if shown else arguments,
        member="" if shown else "args",
        rows=tuple(CardRow(f"{name} = {value} (default)") for name, value in _defaults(request)),
    )


def _defaults(request: Fields) -> Iterator[tuple[str, str]]:
    """Arguments that were not given and that the tool will fill in; none of a field that is not to be seen."""
    given = _given_arguments(request)
    for field in mappings_in(request.get("fields")):
        name, value = field.get("name"), field.get("default")
        if name not in given and value not in (None, "", [], {}) and _is_public_field(field):
            yield one_line(name), one_line(json.dumps(value, ensure_ascii=False, default=str))


def _is_public_field(field: Fields) -> bool:
    """Whether no part of the field may be a secret."""
    item = field.get("item") if field.get("type") == "list" else field
    return isinstance(item, Mapping) and item.get("type") in _PUBLIC_FIELD_TYPES


def field_errors(request: Fields) -> dict[str, str]:
    """Returns the problems of the last edit, by field."""
    return {
        to_text(one.get("name", "")): to_text(one["error"])
        for one in mappings_in(request.get("fields"))
        if one.get("error")
    }


def _warnings(request: Fields) -> list[CardRow]:
    """Returns the warnings of the call, then the problems of the last edit, which are also among the warnings."""
    problems = [f"{name}: {problem}" for name, problem in field_errors(request).items()]
    others = [CardRow(warning, "warn") for warning in _texts(request.get("warnings")) if warning not in problems]
    return [*others, *(CardRow(problem, "fail") for problem in problems)]


def _standing(request: Fields) -> Iterator[CardRow]:
    if denied := int(finite_number(request.get("previouslyDenied"))):
        yield CardRow(f"denied {denied} times before in this session", "warn")
    if (waiting := int(finite_number(request.get("waiting")))) > 1:
        yield CardRow(f"{waiting} identical calls wait for this answer")


def _offer(choice: Fields) -> CardOffer:
    where = f"{_IN_PROJECT}, in {to_text(choice['file'])}" if choice.get("file") else ""
    id, label = to_text(choice.get("id", "")), to_text(choice.get("label", ""))
    return CardOffer(
        id=id,
        label=_EXACTLY if id.startswith("exact:") and label.startswith("exactly ") else label,
        kept=to_text(choice.get("scope", "")) + where,
        rule=to_text(choice.get("rule") or ""),
    )


def _texts(value: Any) -> list[str]:
    return [to_text(item) for item in value] if isinstance(value, (list, tuple)) else []


# ---- answers


def answer_of_key(key: str, choices: Sequence[Fields]) -> dict[str, Any] | None:
    """Returns the answer of a key: `y` approves, `q` denies and ends the turn, a number also remembers that choice.
    None for another key.
    """
    if key == "y":
        return {"approved": True}
    if key == "q":
        return {"approved": False, "stop": True}
    chosen = numbered_choices(choices).get(int(key)) if key.isascii() and key.isdigit() else None
    return None if chosen is None else {"approved": True, "choice": chosen.get("id")}


_WIDEST: Final = 9
_OTHERS: Final = range(5, _WIDEST)
_JUST_THIS: Final = ("exact", "request", "file", "files")


def numbered_choices(choices: Iterable[Fields]) -> dict[int, Fields]:
    """Returns the choices by key, in order. A key means the same on every card: 1 the suggested choice for the session,
    2 the same permanently; 3 just this call or file, and 4 permanently; then other rules, narrow to wide; 9 whatever
    stays inside the walls.
    """
    numbered: dict[int, Fields] = {}
    others = iter(_OTHERS)
    for choice in choices:
        for_good = choice.get("scope") == "always"
        kind = to_text(choice.get("id", "")).partition(":")[0]
        if kind == "grant":
            number: int | None = _WIDEST
        elif choice.get("suggested") is True:
            number = 2 if for_good else 1
        elif kind in _JUST_THIS:
            number = 4 if for_good else 3
        else:
            number = next(others, None)
        if number in numbered:
            number = next(others, None)
        if number is not None:
            numbered[number] = choice
    return dict(sorted(numbered.items()))


def shown_choices(choices: Iterable[Fields]) -> list[Fields]:
    """Returns the choices in the order of their keys."""
    return list(numbered_choices(choices).values())


def choice_numbers(choices: Sequence[Fields]) -> str:
    """Returns the keys of the choices: `3`, or `1-3,9`."""
    keys = list(numbered_choices(choices))
    runs: list[list[int]] = []
    for key in keys:
        if runs and runs[-1][-1] == key - 1:
            runs[-1].append(key)
        else:
            runs.append([key])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def answer_line(request: Fields, resolved: Fields, *, here: str = "") -> Line:
    """Describes the end of a card: who answered if not `here`, with which changes, and what was remembered where."""
    approved = resolved.get("approved") is True
    by = f" by {to_text(resolved.get('by', ''))}" if resolved.get("by") != here else ""
    edited = " with changed arguments" if resolved.get("edited") else ""
    reason = f": {to_text(resolved['reason'])}" if resolved.get("reason") else ""
    parts = [f"{'approved' if approved else 'denied'}{by}{edited}{reason}"]
    chosen = resolved.get("choice") if approved else None
    for choice in mappings_in(request.get("choices")):
        if chosen is not None and choice.get("id") == chosen:
            offer = _offer(choice)
            kept = f" ({offer.kept}): {offer.label}"  # of the call as it was asked about
            parts.append(f"remembered{' for the changed arguments' if edited else kept}")
    return line(" · ".join(parts), "ok" if approved else "fail")
