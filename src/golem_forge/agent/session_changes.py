"""What a session changed, for people: found by turn, call or path, as text, as JSON; and the call that takes it back.

Reads the session's change log (`sandbox/undo/log.py`). Diffs come from the undo store; what is no text has none.
`undo_call` makes the call of the tool `undo_changes`, which only people may make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.changes import ChangeSelection, ChangeSet, PathChange, describe_changes, describe_lasting
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import columns, one_line, shorten
from golem_forge.events.index import SessionIndex
from golem_forge.sandbox.undo.log import UNDO_TOOL, SessionChangeLog, taken_back
from golem_forge.sandbox.undo.restore import change_diff
from golem_forge.sandbox.undo.store import changing_sessions

NOTHING_CHANGED: Final = "This session changed no files."
ID_SHOWN: Final = 12
_LONGEST_WHAT: Final = 100
_SHORTEST_PREFIX: Final = 2


def read_changes(home: Path, session: str) -> tuple[ChangeSet, ...]:
    """Returns the change sets of a session, oldest first. What only reached hosts is included in turns that changed
    something.
    """
    every = SessionChangeLog(home, session).read()
    turns = {each.turn or each.call for each in every if each.changed_something}
    return tuple(each for each in every if (each.turn or each.call) in turns)


def newest_changed_session(home: Path, root: str) -> str:
    """The id of the session that last changed something in this directory, other than by undoing; empty: there is none.
    A single call (`forge call`) is a session too, of which only the undo store knows the directory."""
    known = {each.id for each in SessionIndex(home).sessions(limit=200) if each.root == root}
    known |= changing_sessions(home, root)
    found = [(log.path.stat().st_mtime_ns, id) for id in known if (log := SessionChangeLog(home, id)).path.exists()]
    for _, id in sorted(found, reverse=True):
        if any(made.tool != UNDO_TOOL for made in read_changes(home, id)):
            return id
    return ""


# ---- finding


def select_changes(sets: Sequence[ChangeSet], words: Sequence[str]) -> ChangeSelection:
    """Reads typed words: a number is a turn, the beginning of a call's id that call, anything else paths. Raises
    ForgeError if there is no such change.
    """
    if not words:
        return ChangeSelection()
    if len(words) == 1:
        word = words[0]
        if word.isascii() and word.isdigit() and len(word) < 10:
            return select_turn(sets, int(word))
        if not word.startswith("/") and len(word) >= _SHORTEST_PREFIX:
            calls = dict.fromkeys(each.call for each in sets if each.call.startswith(word))
            if len(calls) > 1 and word not in calls:
                raise ForgeError(f"'{one_line(word)}' is the beginning of {len(calls)} calls; give more of it")
            if calls:
                return ChangeSelection(call=word if word in calls else next(iter(calls)))
    return select_paths(sets, words)


def select(
    sets: Sequence[ChangeSet], *, turn: int | None = None, call: str = "", paths: Sequence[str] = ()
) -> ChangeSelection:
    """Selects paths of a turn, of a call or of everything. Raises ForgeError if there is no such change."""
    selected = ChangeSelection()
    if turn is not None:
        selected = select_turn(sets, turn)
    elif call:
        selected = select_call(sets, call)
    return replace(selected, paths=select_paths(selected.of(sets), paths).paths) if paths else selected


def select_turn(sets: Sequence[ChangeSet], turn: int) -> ChangeSelection:
    known = sorted({each.turn for each in sets if each.turn})
    if turn not in known:
        have = f"; turns that did: {', '.join(map(str, known))}" if known else ""
        raise ForgeError(f"Turn {turn} changed no files{have}.")
    return ChangeSelection(turn=turn)


def select_call(sets: Sequence[ChangeSet], call: str) -> ChangeSelection:
    """Selects a call by its id or the beginning of it. Raises ForgeError."""
    found = dict.fromkeys(each.call for each in sets if each.call.startswith(call))
    if call not in found and len(found) != 1:
        many = f"'{one_line(call)}' is the beginning of {len(found)} calls; give more of it"
        raise ForgeError(many if found else f"No call '{one_line(call)}' of this session changed files.")
    return ChangeSelection(call=call if call in found else next(iter(found)))


def select_paths(sets: Sequence[ChangeSet], words: Sequence[str]) -> ChangeSelection:
    """Each as it is, or from a zone on: `src/a.py` is `/workspace/src/a.py`."""
    known = {one.path for each in sets for one in each.changes}
    return ChangeSelection(paths=tuple(_path(word, known) for word in words))


def _path(word: str, known: set[str]) -> str:
    wanted = word.removeprefix("./").rstrip("/")
    fitting = {each for each in known if _is_at(each, wanted)}
    if not fitting and not word.startswith("/"):
        zones = {each.split("/")[1] for each in known}
        for zone in sorted(zones):
            whole = f"/{zone}/{wanted}"
            if any(_is_at(each, whole) for each in known):
                return whole
    if not fitting:
        raise ForgeError(f"This session changed nothing at '{one_line(word)}'.")
    return wanted


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


# ---- showing


def changes_text(sets: Sequence[ChangeSet], *, diffs: Path | None = None, every: Sequence[ChangeSet] = ()) -> str:
    """Formats changes by turn and call, one line a path; with `diffs`, the home, also the diffs. `every`: all changes
    of the session, to mark what was undone.
    """
    undone = taken_back(every or sets)
    lines: list[str] = []
    turns: dict[int, list[ChangeSet]] = {}
    for each in sets:
        turns.setdefault(each.turn, []).append(each)
    for turn, of_turn in turns.items():
        count = describe_changes(of_turn)
        lines.append(f"{f'turn {turn}' if turn else 'by hand'}{f' · {count}' if count else ''}")
        for each in of_turn:
            lines += _call_lines(each, undone.get(each.call, ""), diffs) if each.changed_something else []
        if lasting := describe_lasting(of_turn):
            lines.append(f"  not taken back: {lasting}")
    return "\n".join(lines)


def _call_lines(made: ChangeSet, undone: str, diffs: Path | None) -> list[str]:
    what = shorten(one_line(made.what), _LONGEST_WHAT)
    named = what if what.startswith(made.tool) else f"{made.tool} {what}".rstrip()
    state = f"  ({undone})" if undone else ""
    lines = [f"  {one_line(made.call)[:ID_SHOWN]}  {one_line(named)}{state}"]
    if made.problem:
        lines.append(f"    some changes may be missing: {one_line(made.problem)}")
    if diffs is None:
        rows = [(one.verb, one.path, change_counts(one), _remark(one)) for one in made.files]
        lines += columns(rows, indent="    ").split("\n") if rows else []
    else:
        for one in made.files:
            lines.append(f"    {one.verb} {one_line(one.path)}  {change_counts(one)}  {_remark(one)}".rstrip())
            lines += change_diff(diffs, one).rstrip("\n").split("\n") if one.verb != "mode" else []
    for ref in made.refs:
        before, after = (
            shorten(one_line(each.removeprefix("ref: refs/heads/")), ID_SHOWN) or "(none)" for each in ref[1:]
        )
        lines.append(f"    {one_line(ref.name)} {before} → {after}")
    return [line for line in lines if line.strip()]


def change_counts(change: PathChange) -> str:
    """Returns `+12 −3` or `+12`; empty if lines were not counted."""
    if change.added is None:
        return ""
    sides = ((change.added, "+"), (change.removed or 0, "−"))
    return " ".join(f"{mark}{count}" for count, mark in sides if count)


def _remark(change: PathChange) -> str:
    if change.before.lost:
        return f"cannot be undone: {change.before.lost}"
    return f"perhaps by {', '.join(change.others)}" if change.others else ""


def change_json(made: ChangeSet, undone: Mapping[str, str], *, diffs: Path | None = None) -> dict[str, Any]:
    """Returns a change set as JSON; `diffs`: the home, to include the diff of each path."""
    return {
        "turn": made.turn,
        "call": made.call,
        "tool": made.tool,
        "worker": made.worker,
        "at": made.at,
        "what": made.what,
        "added": made.lines[0],
        "removed": made.lines[1],
        "undone": undone.get(made.call, ""),
        "undoes": list(made.undoes),
        "problem": made.problem,
        "remade": list(made.remade),
        "reached": list(made.reached),
        "files": [
            {
                "path": one.path,
                "verb": one.verb,
                "added": one.added,
                "removed": one.removed,
                "others": list(one.others),
                "lost": one.before.lost,
                **({"diff": change_diff(diffs, one)} if diffs is not None else {}),
            }
            for one in made.files
        ],
        "refs": [one._asdict() for one in made.refs],
    }


# ---- taking back


def undo_call(
    selected: ChangeSelection | None = None, *, also: Sequence[str] = (), redo: bool = False, session: str = ""
) -> ToolCall:
    """A person's call; only what is not the default is named."""
    args = selected.arguments() if selected is not None else {}
    args |= {"also": list(also)} if also else {}
    args |= {"redo": True} if redo else {}
    args |= {"session": session} if session else {}
    return ToolCall(UNDO_TOOL, args, Caller.HUMAN)
