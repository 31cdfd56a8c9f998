"""`forge log verify`: are the journals what was written? Names each line that was changed, cut, moved or inserted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golem_forge.cli.log import HELP
from golem_forge.cli.log.finding import ID_SHOWN, NotFound, home_with_sessions, session_id
from golem_forge.cli.plain import complain, homely, one_line, parser, print_json_list
from golem_forge.events.anchors import Anchor
from golem_forge.events.index import Index
from golem_forge.events.journal_reader import Problem, Verification, verify
from golem_forge.events.session_files import journal_path, list_journals, sessions_dir


def run_verify(words: list[str]) -> int:
    reader = parser("log verify", HELP)
    reader.add_argument("session", nargs="?", default="all")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    home = home_with_sessions()
    try:
        paths = [] if home is None else _journals(home, asked.session)
    except NotFound as error:
        complain("log", str(error))
        return 4
    if home is None or not paths:
        complain("log", "no session was recorded yet.")
        return 0
    anchors = Index(home).anchors()
    unsound: list[Path] = []

    def results() -> Iterator[tuple[Path, Verification]]:
        for path in paths:
            result = _verified(path, anchors.get(path.stem))
            if not result.ok:
                unsound.append(path)
            yield path, result

    if asked.json:
        print_json_list(_as_json(*each) for each in results())
    else:
        for each in results():
            _print(*each)
    return 1 if unsound else 0


def _journals(home: Path, typed: str) -> list[Path]:
    """Oldest first. A journal that is gone while what was kept beside it is there is one of them."""
    kept = [path.with_suffix(".jsonl") for path in sorted(sessions_dir(home).glob("*.head"))]
    lost = [path for path in kept if not path.exists()]
    if typed == "all":
        return [*lost, *reversed(list_journals(home))]
    if found := [path for path in lost if path.stem.startswith(typed)]:
        return found
    return [journal_path(home, session_id(Index(home), typed))]


def _verified(path: Path, anchor: Anchor | None) -> Verification:
    if not path.exists():
        return Verification(ok=False, lines=0, problems=[Problem(1, "the journal is missing (deleted)")], notes=[])
    return verify(path, anchor)


def _print(path: Path, result: Verification) -> None:
    for line, what in result.problems:
        print(f"{homely(path)}:{line}: {one_line(what)}")
    notes = "".join(f"; {note}" for note in result.notes)
    state = "ok" if result.ok else "NOT ok"
    print(f"{path.stem[:ID_SHOWN]}  {state}, {result.lines} lines{notes}")


def _as_json(path: Path, result: Verification) -> dict[str, Any]:
    return {
        "session": path.stem,
        "file": str(path),
        "ok": result.ok,
        "lines": result.lines,
        "problems": [{"line": line, "what": what} for line, what in result.problems],
        "notes": result.notes,
    }
