"""Planning a patch: every operation worked out against the files as they are, before anyone is asked.

Takes the parsed operations, fills a Draft with the bytes that the run will write, or refuses with the one text that
says what to repair. Nothing on disk is changed here.
"""

from __future__ import annotations

from collections.abc import Sequence

from golem_forge.sandbox import files
from golem_forge.sandbox.errors import too_large
from golem_forge.toolsets.edit.draft import Draft
from golem_forge.toolsets.edit.grammar import Add, Delete, Operation, Update
from golem_forge.toolsets.edit.placing import place
from golem_forge.toolsets.edit.text import PatchedText


def fill(draft: Draft, operations: Sequence[Operation]) -> None:
    for operation in operations:
        if isinstance(operation, Add):
            _add(draft, operation)
        elif isinstance(operation, Delete):
            _delete(draft, operation)
        else:
            _update(draft, operation)
    draft.must_fit_together()


def _add(draft: Draft, operation: Add) -> None:
    file = draft.to_write(operation.path)
    file.becomes("".join(f"{line}\n" for line in operation.lines).encode())
    file.deleted = False
    file.moved_from = None
    file.words = [f"+{line}" for line in operation.lines]


def _delete(draft: Draft, operation: Delete) -> None:
    file = draft.existing(operation.path, operation.number)
    draft.take_away(file, operation.path)
    file.deleted = True


def _update(draft: Draft, operation: Update) -> None:
    file = draft.existing(operation.path, operation.number)
    if file.now is None:
        raise too_large(file.path, file.old_size, files.READ_LIMIT, "Read and write it in parts with a program.")
    text = PatchedText(file.now, file.path)
    placed = place(operation.chunks, text, secret=file.secret)
    draft.notes += placed.notes
    written = text.written(placed.edits) if operation.chunks else None
    words = [line.mark + line.text for chunk in operation.chunks for line in chunk.lines]
    destination = draft.to_write(operation.move_to) if operation.move_to is not None else file
    if destination is file:
        draft.will_be_written(file)
        if written is not None:
            file.becomes(written.data, changes=written.changes)
        file.words += words
        return
    draft.must_not_be_deleted(destination, operation.move_number)
    draft.will_be_moved(file)
    destination.secret = destination.secret or file.secret
    destination.becomes(file.now if written is None else written.data)
    destination.words = [*file.words, *words]
    destination.changes = None if file.touched or written is None else written.changes
    origin = file.moved_from or file
    draft.take_away(file, operation.path)
    destination.moved_from = origin if origin.existed else None
