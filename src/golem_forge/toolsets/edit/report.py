"""What a planned patch says of itself: the diff at the prompt, the lines of its result, its semantic value.

All from the same draft that the run writes. The old content of a secret file is in none of them; of its new content
only the lines the patch itself names.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from golem_forge.core.result import ToolResult
from golem_forge.toolsets.content import decode, looks_binary
from golem_forge.toolsets.diffs import replaced_whole, unified_diff
from golem_forge.toolsets.edit.draft import Draft, FileDraft

_MOST_ORIGINAL: Final = 100 * 1024


class Entry(NamedTuple):
    """One file of the result: `A`, `M`, `D` its path, `R` old and new."""

    letter: str
    file: FileDraft
    source: FileDraft | None = None

    def __str__(self) -> str:
        moved = f"{self.source.path} -> " if self.source else ""
        return f"{self.letter} {moved}{self.file.path}"


def entries(draft: Draft) -> list[Entry]:
    """In the order in which the patch first names them; a moved file once, where its old name stands."""
    moved = {
        id(file.moved_from): file
        for file in draft.files.values()
        if file.moved_from is not None and file.now is not None and file.moved_from.now is None
    }
    destinations = {id(file) for file in moved.values()}
    found: list[Entry] = []
    for file in draft.files.values():
        if id(file) in destinations:
            continue
        if id(file) in moved:
            found.append(Entry("R", moved[id(file)], file))
        elif file.now is not None:
            found.append(Entry("M" if file.existed else "A", file))
        elif file.existed:
            found.append(Entry("D", file))
    return found


def diff(listed: list[Entry]) -> str:
    return "".join(_diff(entry) for entry in listed)


def result(draft: Draft, listed: list[Entry], shown: str) -> ToolResult:
    text = "\n".join((summary(listed) + ":", *map(str, listed), *draft.notes))
    value = _one_file(listed[0]) if len(listed) == 1 and not listed[0].file.secret else _several(listed, shown)
    value["summary"] = summary(listed)
    if draft.notes:
        value["notes"] = list(draft.notes)
    return ToolResult(value=value, text=text)


def summary(listed: list[Entry]) -> str:
    return f"Patched {'1 file' if len(listed) == 1 else f'{len(listed)} files'}"


def _one_file(entry: Entry) -> dict[str, Any]:
    file = entry.file
    old = (entry.source or file).before
    value: dict[str, Any] = {"kind": "diff", "path": file.path}
    if entry.source is not None:
        value["movedFrom"] = entry.source.path
    if old is not None and len(old) <= _MOST_ORIGINAL and not looks_binary(old):
        value["original"] = decode(old).text
    new = file.now or b""
    value |= {"modified": new.decode("utf-8", "replace"), "isNew": entry.letter == "A", "bytesWritten": len(new)}
    if file.now is None:
        value["deleted"] = True
    return value


def _several(listed: list[Entry], shown: str) -> dict[str, Any]:
    told: list[dict[str, Any]] = []
    for entry in listed:
        one: dict[str, Any] = {"path": entry.file.path, "change": entry.letter}
        if entry.source is not None:
            one["movedFrom"] = entry.source.path
        one["bytesWritten"] = len(entry.file.now or b"")
        told.append(one)
    value: dict[str, Any] = {"kind": "patch.result", "files": told}
    if len(shown) <= _MOST_ORIGINAL:
        value["diff"] = shown
    return value


def _diff(entry: Entry) -> str:
    file, source = entry.file, entry.source
    if source is None:
        return _secret(file) if file.secret else _of_one(file)
    renamed = f"rename from {source.path}\nrename to {file.path}\n"
    if file.existed:  # what is lost there is a change of its own
        gone = _removed_unseen(file) if file.secret else unified_diff(file.path, file.before, None)
        renamed = gone + renamed
    if file.secret or source.secret:
        return renamed + (_secret_words(file, source) if file.words else "")
    return renamed + unified_diff(file.path, source.before, file.now, changes=file.changes, moved_from=source.path)


def _of_one(file: FileDraft) -> str:
    if file.existed and file.before is None:
        if file.now is None:
            return f"--- a{file.path}\n+++ /dev/null\n# The old content ({file.old_size} bytes) is removed.\n"
        return replaced_whole(file.path, file.old_size, file.now)
    return unified_diff(file.path, file.before, file.now, changes=file.changes)


def _secret(file: FileDraft) -> str:
    if file.now is None:
        return _removed_unseen(file)
    return _secret_words(file, file) if file.existed else unified_diff(file.path, None, file.now)


def _removed_unseen(file: FileDraft) -> str:
    size = f"The old content ({file.old_size} bytes)"
    return f"--- a{file.path}\n+++ /dev/null\n# {size} is a secret and not shown; it is removed.\n"


def _secret_words(file: FileDraft, source: FileDraft) -> str:
    """The patch's own lines: all that its author knows of the file, and all that changes."""
    header = f"--- a{source.path}\n+++ b{file.path}\n"
    note = f"# The old content ({source.old_size} bytes) is a secret and not shown; the lines of the patch:\n"
    return header + note + "".join(f"{line}\n" for line in file.words)
