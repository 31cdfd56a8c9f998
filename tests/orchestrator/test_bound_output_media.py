"""Pictures, sounds and files in results: what is kept, what is measured, what stands in a text."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.core.images import image_size
from golem_forge.core.results import ToolResult
from golem_forge.orchestrator.bound_output import MAX_PARTS, OutputStore, keep_media, media_bytes, with_handles

GIF = b"GIF89a" + (3).to_bytes(2, "little") + (5).to_bytes(2, "little")
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffc0000b08000700090101")
WEBP_L = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + ((6 - 1) | ((4 - 1) << 14)).to_bytes(4, "little")


def image(data: bytes, kind: str = "image/gif") -> dict[str, Any]:
    return {"type": "image", "data": b64encode(data).decode(), "mimeType": kind}


def result(*blocks: Any) -> ToolResult:
    return ToolResult.from_mcp({"content": list(blocks)})


@pytest.mark.parametrize(("data", "size"), [(GIF, (3, 5)), (JPEG, (9, 7)), (WEBP_L, (6, 4)), (b"", (0, 0))])
def test_the_size_of_a_picture_is_read_from_its_header(data: bytes, size: tuple[int, int]) -> None:
    assert image_size(data) == size


@given(st.binary(max_size=200), st.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF0000WEBP", b"GIF89a"]))
def test_no_header_of_a_stranger_breaks_it(data: bytes, magic: bytes) -> None:
    width, height = image_size(magic + data)
    assert 0 <= width <= 100_000 and 0 <= height <= 100_000


def test_parts_are_kept_whole_and_read_back_by_their_worker_alone(tmp_path: Path) -> None:
    outputs = OutputStore(tmp_path, "s1")
    blob = {"type": "resource", "resource": {"uri": "x:1", "mimeType": "application/pdf", "blob": "JVBERi0="}}
    link = {"type": "resource_link", "uri": "x:2", "name": "b"}
    bad = {"type": "image", "data": "not base64!", "mimeType": "image/png"}
    parts = keep_media(result({"type": "text", "text": "t"}, image(GIF), bad, blob, link), outputs, "main")
    assert [(part.media_type, part.size, part.width) for part in parts] == [
        ("image/gif", 10, 3),
        ("application/pdf", 5, 0),
    ]
    assert [media_bytes(outputs, part.handle, "main") for part in parts] == [GIF, b"%PDF-"]
    assert media_bytes(outputs, parts[0].handle, "other") is None
    assert media_bytes(outputs, "out_000000000000", "main") is None


def test_a_type_that_is_none_is_bytes_and_their_number_is_bounded(tmp_path: Path) -> None:
    outputs = OutputStore(tmp_path, "s1")
    [part] = keep_media(result(image(b"no picture", "../evil\n")), outputs, "main")
    assert part.media_type == "application/octet-stream"
    assert len(keep_media(result(*[image(GIF)] * (MAX_PARTS + 5)), outputs, "main")) == MAX_PARTS


@pytest.mark.parametrize(
    ("data", "said", "kind"),
    [
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/x-wav", "audio/wav"),
        (b"RIFF\x24\x00\x00\x00AVI LIST", "video/avi", "video/avi"),
        (b"ID3\x04\x00", "audio/mp3", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "", "audio/mpeg"),
        (b"OggS\x00\x02", "application/ogg", "audio/ogg"),
        (b"a sound of another kind", "audio/mp3", "audio/mpeg"),
        (b"%PDF-1.7", "application/x-pdf", "application/pdf"),
    ],
)
def test_a_sound_has_the_type_that_providers_know(tmp_path: Path, data: bytes, said: str, kind: str) -> None:
    """Python and many servers say `audio/x-wav`: the library of a provider ended the run with it."""
    held = {"type": "audio", "data": b64encode(data).decode(), "mimeType": said}
    [part] = keep_media(result(held), OutputStore(tmp_path, "s1"), "main")
    assert part.media_type == kind


@pytest.mark.parametrize("said", ["image/jpg", "image/png", "text/plain", "../evil\n"])
def test_the_type_of_a_picture_is_what_its_header_says(tmp_path: Path, said: str) -> None:
    """A provider refuses a JPEG that is called a PNG, and knows no `image/jpg`."""
    [part] = keep_media(result(image(JPEG, said)), OutputStore(tmp_path, "s1"), "main")
    assert (part.media_type, part.width) == ("image/jpeg", 9)


def test_a_line_stands_where_the_part_stood(tmp_path: Path) -> None:
    outputs = OutputStore(tmp_path, "s1")
    given_ = result({"type": "text", "text": "Before"}, image(GIF), {"type": "text", "text": "after"})
    parts = keep_media(given_, outputs, "main")
    line = f"[image/gif, 3 × 5, 10 bytes, handle {parts[0].handle}]"
    assert with_handles(given_.text, given_, parts) == f"Before\n{line}\nafter"
    assert with_handles("Said otherwise", given_, parts) == f"Said otherwise\n{line}"
    assert with_handles("Nothing", given_, ()) == "Nothing"
