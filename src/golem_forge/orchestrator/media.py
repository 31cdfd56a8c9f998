"""Pictures, sounds and files in results: kept whole by handle, measured, and read back.

`keep_media` takes a result and returns a MediaPart for each content block that holds bytes, in their order; the blocks
stay as they are. A block that is not valid base64, and one for which the session has no room, is left out: its text
stays. `media_bytes` reads a kept part back. `with_handles` writes the handles into the text that a model reads.

Bytes are stored as base64 lines, as those of MCP resources are, so `read_output` can show them.

Threat: a server chooses type and bytes. The type is checked for its form, the bytes are never decoded here, and the
size of a picture is read from the few bytes of its header.
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode, b64encode, encodebytes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import MediaPart
from golem_forge.core.errors import ToolFailed
from golem_forge.core.images import image_size
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult, block_text
from golem_forge.orchestrator.outputs import OutputStore

_log = logging.getLogger(__name__)
MAX_PARTS: Final = 20
"""Of one result."""
_MEDIA_TYPE: Final = regex(r"[a-z]{1,20}/[a-z0-9!#$&^_.+-]{1,80}")
_UNKNOWN_TYPE: Final = "application/octet-stream"


def keep_media(result: ToolResult, outputs: OutputStore, worker: str) -> tuple[MediaPart, ...]:
    parts: list[MediaPart] = []
    for block in result.content[: 10 * MAX_PARTS]:
        found = _bytes_in(block)
        if found is None or len(parts) == MAX_PARTS:
            continue
        media_type, data = found
        try:
            handle = outputs.keep_pieces((encodebytes(data),), worker)
        except (OSError, ToolFailed) as error:
            _log.warning("a part of a result could not be kept (%s)", type(error).__name__)
            break
        width, height = image_size(data)
        parts.append(MediaPart(handle=handle, media_type=media_type, size=len(data), width=width, height=height))
    return tuple(parts)


def _bytes_in(block: Any) -> tuple[str, bytes] | None:
    """(media type, bytes) of a content block that has any."""
    if not isinstance(block, Mapping):
        return None
    if block.get("type") in ("image", "audio"):
        said, written = block.get("mimeType"), block.get("data")
    elif block.get("type") == "resource" and isinstance(resource := block.get("resource"), Mapping):
        said, written = resource.get("mimeType"), resource.get("blob")
    else:
        return None
    if not isinstance(written, str):
        return None
    try:
        data = b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        return None
    plain = said.partition(";")[0].strip().lower() if isinstance(said, str) else ""
    return (plain if _MEDIA_TYPE.fullmatch(plain) else _UNKNOWN_TYPE), data


def media_bytes(outputs: OutputStore, handle: str, worker: str) -> bytes | None:
    """None where it is no longer there."""
    kept = outputs.find(handle, worker)
    if kept is None:
        return None
    try:
        return b64decode(kept.path.read_bytes())
    except (OSError, binascii.Error, ValueError):
        return None


MOST_SHOWN: Final = 12 * 1024 * 1024
"""Bytes of a stored part that are shown to a person."""


def stored_picture(path: Path) -> str:
    """The base64 of a kept picture, for who shows it; empty: there is none, it is no picture, or it is too large."""
    try:
        with path.open("rb") as file:
            written = file.read(MOST_SHOWN + 1)
        data = b64decode(written) if len(written) <= MOST_SHOWN else b""
    except (OSError, binascii.Error, ValueError):
        return ""
    return b64encode(data).decode() if image_size(data) != (0, 0) else ""


def with_handles(text: str, result: ToolResult | None, media: Sequence[MediaPart]) -> str:
    """The text with each part's line in the place of what stood for it, else at the end."""
    if not media:
        return text
    shown = [block_text(block) for block in result.content if _bytes_in(block) is not None] if result else []
    for stood, part in zip(shown, media, strict=False):
        text = text.replace(stood, part.text, 1) if stood and stood in text else f"{text}\n{part.text}".lstrip()
    return text
