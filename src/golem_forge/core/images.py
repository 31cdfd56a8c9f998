"""The size of a picture, read from the few bytes of its header. Threat: whoever made the file chose them; nothing is
decoded, and a size that no picture has counts as none."""

from __future__ import annotations

from typing import Final

_LARGEST_SIDE: Final = 100_000


def image_size(data: bytes) -> tuple[int, int]:
    """(width, height) from the header of a PNG, GIF, JPEG or WebP; (0, 0): it cannot be told."""
    width = height = 0
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
        width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data[:2] == b"\xff\xd8":
        width, height = _jpeg_size(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        width, height = _webp_size(data)
    return (width, height) if 0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE else (0, 0)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4]) if marker != 0xFF else 1
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if form == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + ((bits >> 14) & 0x3FFF)
    if form == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return 0, 0
