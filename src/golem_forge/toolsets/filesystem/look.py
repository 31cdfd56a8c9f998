"""file_exists and file_info: what is at a path, without giving its content.

Links are followed, as everywhere; one that leads nowhere is described itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import from_os_error
from golem_forge.sandbox.target import Kind, Target
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.content import SAMPLE_BYTES, decode, has_binary_name, looks_binary, media_type
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import file_tool, path_field, reading_plan
from golem_forge.toolsets.numbered import count_lines

if TYPE_CHECKING:
    from pydantic import BaseModel

_MOST_READ: Final = 10 * 1024 * 1024


def file_exists_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "file_exists",
        "Tell whether something is at a path, and what it is: file, directory, link (one that leads nowhere) or other.",
        label="File exists?",
        arguments=_path_alone,
        planner=_plan_exists,
        reach=reach,
        needs_approval=needs_approval,
    )


def file_info_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "file_info",
        "Describe a file or directory: type, size, time of change, mode, media type, whether it is binary, and up to "
        "10 MiB its number of lines and its SHA-256.",
        label="File info",
        arguments=_path_alone,
        planner=_plan_info,
        reach=reach,
        needs_approval=needs_approval,
    )


def _path_alone() -> type[BaseModel]:
    from pydantic import create_model

    return create_model("path", path=path_field("The file or directory"))


def _plan_exists(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = _what_is_there(reach, args["path"], ctx)
    answer = {
        "path": target.virtual,
        "exists": target.exists,
        "type": target.kind.value if target.kind else None,
    }
    return reading_plan(reach, target, lambda: answer)


def _plan_info(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = _what_is_there(reach, args["path"], ctx)
    target.must_exist()
    return reading_plan(reach, target, lambda: _describe(target))


def _what_is_there(reach: Reach, path: str, ctx: ToolContext) -> Target:
    target = reach.target(path, Verb.READ, ctx)
    if target.exists:
        return target
    itself = reach.target(path, Verb.READ, ctx, follow_last=False)
    return itself if itself.kind is Kind.LINK else target


def _describe(target: Target) -> dict[str, Any]:
    info = files.stat(target)
    answer: dict[str, Any] = {
        "path": target.virtual,
        "type": info.kind.value,
        "size": info.size,
        "modified": _utc(info.modified) if target.zone else None,
        "mode": f"{info.mode:04o}",
        "mime": None,
        "binary": None,
        "lines": None,
        "sha256": None,
    }
    if info.kind is Kind.FILE and not target.unreadable:
        answer |= _content_facts(target, info.size)
    return answer


def _content_facts(target: Target, size: int) -> dict[str, Any]:
    import hashlib

    whole = size <= _MOST_READ
    data = files.read_bytes(target) if whole else _beginning(target)
    binary = has_binary_name(target.name) or looks_binary(data)
    facts: dict[str, Any] = {"mime": media_type(target.name, binary=binary), "binary": binary}
    if whole:
        facts["lines"] = None if binary else count_lines(decode(data).text)
        facts["sha256"] = hashlib.sha256(data).hexdigest()
    return facts


def _beginning(target: Target) -> bytes:
    assert target.entry is not None
    try:
        return os.pread(target.entry.fd, SAMPLE_BYTES, 0)
    except OSError as error:
        raise from_os_error(error, target.virtual) from None


def _utc(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
