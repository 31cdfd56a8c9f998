"""write_file: creates or replaces one file. The diff is made when planning, from the bytes that the run will write.

Refuses before anyone is asked what cannot work. If the old content is another one by the time of the run, nothing is
written: the person agreed to a change of the content they saw.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.result import ToolResult
from golem_forge.sandbox import files, writing
from golem_forge.sandbox.errors import path_changed, too_large
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.content import decode, looks_binary
from golem_forge.toolsets.diffs import replaced_secret, replaced_whole, unified_diff
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import file_tool, path_field

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.target import Target

_MOST_ARGUMENTS: Final = 16 * 1024 * 1024
"""Above the write limit, so that a content just over it gets the answer that names that limit."""
_MOST_ORIGINAL: Final = 100 * 1024


def write_file_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "write_file",
        "Create a file or replace its whole content (at most 10 MiB). Missing directories are made. The content is "
        "written as given; no newline is added.",
        label="Write file",
        arguments=_arguments,
        planner=_plan,
        reach=reach,
        needs_approval=needs_approval,
        always=Verb.WRITE,
        max_argument_bytes=_MOST_ARGUMENTS,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    return create_model(
        "write_file",
        path=path_field("The file"),
        content=(str, Field(description="The whole new content.")),
    )


def _plan(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = reach.target(args["path"], Verb.WRITE, ctx)
    content: str = args["content"]
    data = content.encode()
    if len(data) > writing.WRITE_LIMIT:
        raise too_large(target.virtual, len(data), writing.WRITE_LIMIT, "Write it as several files.")
    change = _Change(target, content, data)
    return Plan(
        run=change.make,
        effects=(reach.effect(target),),
        diff=change.diff,
        recheck=target.recheck,
        close=target.close,
    )


class _Change:
    """One planned write: what is there, what will be there, and the diff between the two."""

    def __init__(self, target: Target, content: str, data: bytes) -> None:
        self._target = target
        self._content = content
        self._data = data
        self._original: str | None = None
        self._old_hash: bytes | None = None
        self._old_size = target.stat.st_size if target.stat else 0
        self._unchanged = False
        if self._old_size > files.READ_LIMIT:
            self.diff = replaced_whole(target.virtual, self._old_size, data)
            return
        old = files.read_bytes(target) if target.exists else None
        secret = Mark.SECRET_PATH in target.marks
        self.diff = (
            replaced_secret(target.virtual, len(old), data)
            if secret and old is not None
            else unified_diff(target.virtual, old, data)
        )
        if old is not None:
            self._old_hash = hashlib.sha256(old).digest()
            self._unchanged = old == data
            if len(old) <= _MOST_ORIGINAL and not secret and not looks_binary(old):
                self._original = decode(old).text

    def make(self) -> ToolResult:
        target = self._target
        # Size and time of change do not tell everything: two writes within one tick of the clock look alike.
        if self._old_hash is not None and hashlib.sha256(files.read_bytes(target)).digest() != self._old_hash:
            raise path_changed(target.virtual)
        if self._unchanged:
            target.recheck()
        else:
            writing.write_atomic(target, self._data)
        return self._result()

    def _result(self) -> ToolResult:
        path, size = self._target.virtual, len(self._data)
        if self._unchanged:
            summary = f"Unchanged {path}"
        elif self._target.exists:
            summary = f"Modified {path} ({size} bytes, was {self._old_size})"
        else:
            summary = f"Created {path} ({size} bytes)"
        value: dict[str, Any] = {"kind": "diff", "path": path}
        if self._original is not None:
            value["original"] = self._original
        value |= {
            "modified": self._content,
            "isNew": not self._target.exists,
            "bytesWritten": 0 if self._unchanged else size,
            "summary": summary,
        }
        return ToolResult(value=value, text=summary)
