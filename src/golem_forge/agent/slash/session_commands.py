"""Slash commands about the session: its model and cost, its changes, its servers, going on with another one.

Each takes an Invocation and returns what is said to the person; it raises CommandError. `/export` writes by the tool
`write_file` as the person's own call, so zones, rules and approval hold. `/resume` ends this session in order and lets
whoever runs it go on with another one; where nobody can, it says which command does.

`/publish`, `/unpublish`, `/undo` and `/redo` are calls of the tools `publish_port`, `unpublish_port` and
`undo_changes` by the person, on the one path: the card of `undo_changes` shows every file.
`/rewind` undoes turn by turn, the newest first, and stops at the first that is not undone; only then the conversation
goes back.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.history import RewindPoint
from golem_forge.agent.in_force import format_value
from golem_forge.agent.model.selection import PROVIDERS, ModelKeys, models_with_a_key
from golem_forge.agent.recorded_sessions import (
    export_session,
    format_of,
    listed_sessions,
    replay,
    session_title,
    session_titles,
    spent_by_worker,
)
from golem_forge.agent.session_changes import (
    NOTHING_CHANGED,
    changes_text,
    read_changes,
    select_changes,
    select_paths,
    undo_call,
)
from golem_forge.agent.session_state import known_secrets
from golem_forge.agent.slash.invocation import PREFILL, Invocation, SlashHost, call_and_show
from golem_forge.agent.slash.parser import CommandError
from golem_forge.config.run_block import (
    GENERATION_CHECK,
    GENERATION_KEYS,
    MODE_MEANINGS,
    ApprovalMode,
    GenerationSettings,
)
from golem_forge.config.validation import ConfigProblems, check
from golem_forge.config.yaml_file import YamlFile, with_overrides
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.changes import ChangeSelection, ChangeSet
from golem_forge.core.regex import regex
from golem_forge.core.text import (
    columns,
    cost_text,
    display_name,
    display_path,
    escape_control_chars,
    local_minute,
    nearest_remark,
    one_line,
    shorten_middle,
    shorten_prose,
)
from golem_forge.events.index import SessionIndex, SessionSummary, find_session
from golem_forge.events.journal_files import is_locked, journal_path
from golem_forge.sandbox.network.loopback import OWN_LOOPBACK, SessionLoopbacks
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.ports import PUBLISH_TOOL, UNPUBLISH_TOOL, port_lines, port_rows
from golem_forge.toolsets.undo import EVERYTHING_STANDS

NEXT_MODE: Final = "next"
"""The argument of `/mode next`, which a key of a UI sends."""
CYCLE: Final = (ApprovalMode.INTERACTIVE, ApprovalMode.CONTAINED, ApprovalMode.PLAN)
_BY: Final = "this session (/mode)"
_REWIND_USAGE: Final = "/rewind N [conversation|files|both]; /rewind alone lists your messages"
_ALSO: Final = "also"
"""In `/undo` the paths behind it are taken back although they were changed since or may be somebody else's work."""
_WHAT: Final = ("conversation", "files", "both")
_SHORT: Final = 70
_NOT_REWOUND: Final = "Plans, approvals and loaded tools are not rewound."


async def _changes(host: SlashHost) -> tuple[ChangeSet, ...]:
    home, session = host.home.path, host.session_id
    return await run_in_thread(lambda: read_changes(home, session))


async def changes_command(call: Invocation) -> str:
    every = await _changes(call.host)
    if not every:
        return NOTHING_CHANGED
    if not call.args:
        return f"{changes_text(every)}\n/changes TURN, CALL or PATH shows the diff; /undo takes the last turn back."
    selected, home = select_changes(every, call.args), call.host.home.path
    found = selected.of(every)
    return await run_in_thread(lambda: changes_text(found, diffs=home, every=every))


async def undo_command(call: Invocation) -> str:
    return await _undo(call, redo=False)


async def redo_command(call: Invocation) -> str:
    return await _undo(call, redo=True)


async def _undo(call: Invocation, *, redo: bool) -> str:
    every = await _changes(call.host)
    if not every:
        return NOTHING_CHANGED
    words = list(call.args)
    at = words.index(_ALSO) if _ALSO in words else len(words)
    also = select_paths(every, words[at + 1 :]).paths
    return await call_and_show(call.host, undo_call(select_changes(every, words[:at]), also=also, redo=redo))


async def rewind_command(call: Invocation) -> str:
    host = call.host
    points = await host.rewind_points()
    if not points:
        return "There is no message to go back to."
    every = await _changes(host)
    if not call.args:
        return _format_points(points, every)
    number, *what = call.args
    chosen = what[0].lower() if what else "both"
    if len(what) > 1 or chosen not in _WHAT or not (number.isascii() and number.isdigit()):
        raise CommandError(_REWIND_USAGE)
    point = next((each for each in points if each.turn == int(number)), None)
    if point is None:
        raise CommandError(f"There is no message {number} to go back to; /rewind lists them")
    host.check_can_rewind()
    files = chosen != "conversation" and await _undo_from(host, every, point.turn)
    host.rewind(point, conversation=chosen != "files", files=files)
    said = []
    if chosen != "files":
        host.bus.emit("status", {"type": "info", "message": point.text, "code": PREFILL}, host.id)
        said.append(f"The conversation is back before message {point.turn}, which stands in the input line again.")
    if chosen != "conversation":
        said.append("The files are back too." if files else "No files had changed since then.")
    return " ".join([*said, _NOT_REWOUND])


def _format_points(points: tuple[RewindPoint, ...], every: tuple[ChangeSet, ...]) -> str:
    changed = {turn: sum(len(each.changes) for each in every if each.turn == turn) for turn in {s.turn for s in every}}
    rows = [
        (
            str(each.turn),
            shorten_prose(one_line(" ".join(each.text.split())), _SHORT),
            f"changed {changed[each.turn]}" if changed.get(each.turn) else "",
        )
        for each in points
    ]
    return f"{columns(rows)}\n{_REWIND_USAGE}"


async def _undo_from(host: SlashHost, every: tuple[ChangeSet, ...], turn: int) -> bool:
    """Undoes the turns from this one on, newest first. False: there was nothing to undo. Raises CommandError where one
    is not undone: the others stay as well."""
    undone = taken_back(every)
    live = [each for each in every if each.changes and undone.get(each.call) != "undone" and not each.undoes]
    turns = {each.turn for each in live if each.turn >= turn}
    for each in sorted(turns, reverse=True):
        outcome = await host.path.call(undo_call(ChangeSelection(turn=each)))
        if not outcome.ok and outcome.error != EVERYTHING_STANDS:
            raise CommandError(
                f"The files of turn {each} and before are as they were, and so is the conversation. {outcome.error}"
            )
    return bool(turns)


async def mode_command(call: Invocation) -> str:
    host = call.host
    now = host.controller.mode
    if not call.args:
        rows = [(f"{'>' if mode is now else ' '} {mode.value}", meaning) for mode, meaning in MODE_MEANINGS.items()]
        return f"{columns(rows)}\n/mode NAME changes it for this session."
    if len(call.args) > 1:
        raise CommandError("One mode: /mode NAME")
    typed = call.args[0].lower()
    if typed == NEXT_MODE:
        typed = CYCLE[(CYCLE.index(now) + 1) % len(CYCLE) if now in CYCLE else 0].value
    if typed not in set(ApprovalMode):
        raise CommandError(f"'{one_line(call.args[0])}' is no approval mode{nearest_remark(typed, ApprovalMode)}")
    wanted = ApprovalMode(typed)
    if wanted is ApprovalMode.APPROVE_ALL and now is not wanted:
        raise CommandError("approve_all is chosen when a session starts: `forge run --approval approve_all`")
    if wanted is now:
        return f"The approval mode is {now.value} already."
    host.switch_approval(wanted, _BY)
    return ""  # every UI was told


_NOTHING: Final = "No command of this session listens on a port."
_NEXT: Final = "/publish PORT gives you a link to one, /unpublish PORT ends it."


_TYPED: Final = regex(r"/(?:ports|(?:un)?publish [0-9]{1,5})", re.ASCII)


def is_port_command(text: str) -> bool:
    """Whether a line is one of these commands, and nothing else."""
    return _TYPED.fullmatch(text) is not None


async def ports_command(call: Invocation) -> str:
    path = call.host.path
    parts, walls = path.parts, path.walls
    redact = walls.redact if walls is not None else path.redactor.text
    rows = await run_in_thread(lambda: port_rows(parts, redact))
    if rows:
        return f"{columns(port_lines(rows))}\n{_NEXT}"
    problem = parts.get(SessionLoopbacks).problem
    return f"Here {OWN_LOOPBACK}: {problem}." if problem else _NOTHING


async def publish_command(call: Invocation) -> str:
    port = _port(call, "/publish PORT, for example /publish 3000")
    return await call_and_show(call.host, ToolCall(PUBLISH_TOOL, {"port": port}, Caller.HUMAN))


async def unpublish_command(call: Invocation) -> str:
    port = _port(call, "/unpublish PORT; /ports lists what is published")
    return await call_and_show(call.host, ToolCall(UNPUBLISH_TOOL, {"port": port}, Caller.HUMAN))


def _port(call: Invocation, usage: str) -> int:
    typed = call.args[0] if len(call.args) == 1 else ""
    if not (typed.isascii() and typed.isdigit() and len(typed) <= 5 and 0 < int(typed) < 65536):
        raise CommandError(usage)
    return int(typed)


NO_MODEL: Final = "no model (/tools lists what you can run by hand)"
PRICE_UNKNOWN: Final = "price unknown"
_WRITE: Final = "write_file"
_ID_SHOWN: Final = 12
_MAX_EXPORT_BYTES: Final = 512 << 10
_MAX_MODELS: Final = 40
_MAX_DIRECTORY: Final = 20
_MAX_TITLE: Final = 40


def known_models(host: SlashHost) -> list[str]:
    """Models that somebody named: the one in use, the program's, its workers', priced ones, a default where there is a
    key. No provider is asked what it has."""
    settings = host.program.run
    named = [host.model_name, settings.model, *(each.model for each in host.workers), *settings.pricing]
    named += models_with_a_key(settings.models, os.environ, ModelKeys(host.home))
    return list(dict.fromkeys(name for name in named if name))


async def model_command(call: Invocation) -> str:
    host = call.host
    if not call.args:
        return await run_in_thread(lambda: _format_models(host))
    names = [word for word in call.args if "=" not in word]
    if len(names) > 1:
        raise CommandError("One model: /model PROVIDER:NAME")
    if not (names or host.model_name):
        raise CommandError("There is no model to set: /model PROVIDER:NAME chooses one")
    generation = _changed_settings(host.generation, [word for word in call.args if "=" in word])
    switched = host.switch_model(names[0] if names else host.model_name, generation)
    if inspect.isawaitable(switched):
        await switched
    return f"Model: {_model_line(host)}, from the next request on."


def _changed_settings(before: GenerationSettings, words: list[str]) -> GenerationSettings:
    """`effort=high` says it, `effort=default` takes it back."""
    said = before.said
    away = [word.partition("=")[0] for word in words if word.partition("=")[2] == "default"]
    file = with_overrides(YamlFile("/model", {}, {}), [word for word in words if not word.endswith("=default")])
    problems = ConfigProblems(YamlFile("/model", file.value, {}, elsewhere={(): "/model"}))
    said |= check(GENERATION_CHECK, problems.file, problems)
    for name in away:
        if name not in GENERATION_KEYS:
            problems.unknown_key((), name, GENERATION_KEYS)
        said.pop(name, None)
    problems.raise_if_any()
    return GenerationSettings(**said)


def _model_line(host: SlashHost) -> str:
    said = "".join(f", {name} {format_value(value)}" for name, value in host.generation.said.items())
    return f"{host.model_name}{said}" if host.model_name else NO_MODEL


def _format_models(host: SlashHost) -> str:
    lines = [f"Model: {_model_line(host)}"]
    if others := [name for name in known_models(host) if name != host.model_name][:_MAX_MODELS]:
        lines += ["You can choose:", *(f"  {escape_control_chars(name)}" for name in others)]
    settings, providers = ", ".join(GENERATION_KEYS), ", ".join(PROVIDERS)
    usage = f"/model PROVIDER:NAME switches, /model effort=high sets one of {settings}."
    return "\n".join([*lines, f"{usage} Providers: {providers}."])


async def compact_command(call: Invocation) -> str:
    before_after = await call.host.compact_history(" ".join(call.args))
    if before_after is None:
        return "There is nothing to condense yet: the history is as short as it can be."
    before, after = before_after
    return f"The history is condensed: {before:,} tokens before, {after:,} after."


async def cost_command(call: Invocation) -> str:
    """Shows the cost by worker and model, from the journal; without a journal only the sum."""
    host = call.host
    spent: dict[tuple[str, str], dict[str, Any]] = {}
    if (journal := host.journal) is not None:
        journal.flush()
        root, settings = (host.worker.name, host.model_name), host.program.run
        spent = await run_in_thread(lambda: spent_by_worker(journal.path, root, settings))
    sums = host.meter.sums()
    if not spent and not sums["input"] and not sums["output"]:
        return "No model was asked anything yet."
    rows = [(display_name(worker), display_name(model), *_amounts(one)) for (worker, model), one in spent.items()]
    if spent and sums["cost"] is None and all(one["cost"] is not None for one in spent.values()):
        sums["cost"] = sum(one["cost"] for one in spent.values())  # a price that was not known at the time
    total = ("total", "", *_amounts(sums))
    table = columns([("WORKER", "MODEL", "INPUT", "CACHED", "OUTPUT", "COST"), *rows, total])
    return f"{table}\n{about}" if (about := _about_prices(spent.values(), sums)) else table


def _amounts(one: dict[str, Any]) -> tuple[str, str, str, str]:
    price = PRICE_UNKNOWN if one["cost"] is None else cost_text(one["cost"], one.get("prices"))
    return f"{one['input']:,}", f"{one['cached']:,}", f"{one['output']:,}", price


def _about_prices(rows: Iterable[dict[str, Any]], sums: dict[str, Any]) -> str:
    """Says where prices come from that the person did not write; empty if there are none."""
    said = [str(one["prices"]) for one in rows if one.get("prices")] or [str(sums.get("prices") or "")]
    listed = sorted({part for each in said for part in each.split(", ") if part not in ("", "local")})
    return f"Prices {', '.join(listed)}; your own `pricing` in forge.yaml wins." if listed else ""


async def export_command(call: Invocation) -> str:
    host = call.host
    if len(call.args) > 1:
        raise CommandError("One file: /export FILE; a name that ends in .json gives JSON, any other Markdown")
    by_hand = f"`forge sessions export {host.session_id[:_ID_SHOWN]} -o FILE` writes it where you like."
    if (journal := host.journal) is None:
        raise CommandError("This session keeps no journal, so there is nothing to export.")
    if _WRITE not in host.path.catalog:
        raise CommandError(f"This worker has no tool {_WRITE}. {by_hand}")
    file = call.args[0] if call.args else f"session-{host.session_id[:_ID_SHOWN]}.md"
    journal.flush()
    text = await run_in_thread(lambda: _export_text(host, journal.path, format_of(file)))
    if text is None:
        raise CommandError(f"This session is too long for {_WRITE}. {by_hand}")
    return await call_and_show(host, ToolCall(_WRITE, {"path": file, "content": text}, Caller.HUMAN))


def _export_text(host: SlashHost, journal: Path, format: str) -> str | None:
    """Returns the export, without what this session or the home now knows as a secret; None if it is longer than the
    tool accepts.
    """
    home, known_now = host.home.path, known_secrets(host.home)
    session = next(each for each in SessionIndex(home).sessions(prefix=host.session_id, limit=1))
    title = session_title(session, session_titles(home))

    def clean(text: str) -> str:
        return known_now.text(host.path.redactor.text(text))

    pieces, size = [], 0
    for piece in export_session(session, title, replay(journal), format, clean):
        pieces.append(piece)
        size += len(piece.encode())
        if size > _MAX_EXPORT_BYTES:
            return None
    return "".join(pieces)


async def resume_command(call: Invocation) -> str:
    host = call.host
    if len(call.args) > 1:
        raise CommandError("One session: /resume ID, /resume last, or /resume NUMBER of the list")
    if not call.args:
        return await run_in_thread(lambda: _format_choices(host))
    wanted = call.args[0]
    id = await run_in_thread(lambda: _chosen_session(host, wanted))
    if host.open_session is None:
        raise CommandError(f"No other session can be opened from here; `forge run --resume {id[:_ID_SHOWN]}` does it")
    return await host.open_session(id, call.leave)


def _others(host: SlashHost) -> list[SessionSummary]:
    """The conversations that can go on here, newest first."""
    home = host.home.path
    newest_first = reversed(listed_sessions(home))
    return [each for each in newest_first if each.id != host.session_id and not is_locked(journal_path(home, each.id))]


def _format_choices(host: SlashHost) -> str:
    titles, root = session_titles(host.home.path), str(host.program.root)
    rows = [
        (
            str(number),
            each.id[:_ID_SHOWN],
            local_minute(each.updated),
            "." if each.root == root else shorten_middle(display_path(each.root), _MAX_DIRECTORY, "…"),
            shorten_prose(one_line(session_title(each, titles)), _MAX_TITLE),
        )
        for number, each in enumerate(_others(host), 1)
    ]
    if not rows:
        return "There is no other conversation to go on with."
    table = columns([("#", "SESSION", "LAST", "DIRECTORY", "TITLE"), *rows])
    return f"{table}\n/resume NUMBER goes on with one of them, /resume last with the first."


def _chosen_session(host: SlashHost, wanted: str) -> str:
    """The id of a number of the list, of `last`, an id or the beginning of one. Raises CommandError, ForgeError."""
    others = [each.id for each in _others(host)]
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= 2:  # an id has more digits
        if not 1 <= int(wanted) <= len(others):
            raise CommandError(f"There is no number {wanted} in the list; /resume shows it")
        return others[int(wanted) - 1]
    if wanted.lower() == "last":
        if not others:
            raise CommandError("There is no other conversation to go on with")
        return others[0]
    found = find_session(host.home.path, wanted)
    if found.id == host.session_id:
        raise CommandError("This is the session you are in")
    if is_locked(journal_path(host.home.path, found.id)):
        raise CommandError(f"Session {found.id[:_ID_SHOWN]} is in use by another process; end it there first")
    return found.id
