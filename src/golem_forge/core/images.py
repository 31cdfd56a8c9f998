"""Pictures: their type and size, read from the few bytes of the header, and making one smaller on its way to a model.
Of sounds and PDFs the type alone.

`fit_picture` returns (bytes, media type) as they are while they fit, else made smaller, or None where a part is too
large to be sent; its line of text stands for it then. The same bytes give the same result, so the beginning of a
request stays as it was. This is the gateway to Pillow (extra `pictures`), which is loaded for the first picture that is
too large.

Threat: whoever made the file chose its bytes. `image_size` decodes nothing, and a size that no picture has counts as
none. What is said of a picture's type, by a name or a server, may be wrong, and a provider refuses a picture under the
wrong one. A picture may be made to unpack to gigabytes; one with more pixels than MAX_PIXELS is never decoded.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache
from typing import Any, Final

from golem_forge.core.calls import MediaPart

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


def picture_type(data: bytes) -> str:
    """The media type of a picture whose size can be told; empty: there is none in these bytes."""
    kind = next((kind for magic, kind in _TYPES.items() if data.startswith(magic)), "")
    return kind if image_size(data) != (0, 0) else ""


def file_type(data: bytes) -> str:
    """The media type of a picture, sound or PDF by its first bytes; empty: they do not say."""
    if kind := picture_type(data):
        return kind
    if data[:4] == b"RIFF":
        return "audio/wav" if data[8:12] == b"WAVE" else ""
    return next((kind for magics, kind in _OTHER_TYPES.items() if data.startswith(magics)), "")


_OTHER_TYPES: Final[dict[tuple[bytes, ...], str]] = {
    (b"%PDF-",): "application/pdf",
    (b"ID3\x02", b"ID3\x03", b"ID3\x04", b"\xff\xfa", b"\xff\xfb", b"\xff\xf2", b"\xff\xf3"): "audio/mpeg",
    (b"OggS\x00",): "audio/ogg",
    (b"fLaC\x00", b"fLaC\x80"): "audio/flac",
}
_TYPES: Final = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8": "image/jpeg", b"RIFF": "image/webp"}


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


_log = logging.getLogger(__name__)
MAX_SIDE: Final = 1_568
"""Pixels of the longer side; providers make larger pictures smaller themselves, and count what they were."""
MAX_BYTES: Final = 3_500_000
"""Providers refuse a request with a picture over 5 MB of base64."""
MAX_DOCUMENT_BYTES: Final = 20_000_000
MAX_PIXELS: Final = 50_000_000
_QUALITY: Final = 85


def fit_picture(data: bytes, part: MediaPart) -> tuple[bytes, str] | None:
    if not part.media_type.startswith("image/"):
        return (data, part.media_type) if len(data) <= MAX_DOCUMENT_BYTES else None
    if len(data) <= MAX_BYTES and max(part.width, part.height) <= MAX_SIDE:
        return data, part.media_type
    if not part.width or part.width * part.height > MAX_PIXELS:
        return None
    smaller = _smaller(data)
    if smaller is not None:
        return smaller
    return (data, part.media_type) if len(data) <= MAX_BYTES else None


@lru_cache(maxsize=16)
def _smaller(data: bytes) -> tuple[bytes, str] | None:
    """Returns a smaller picture with its media type; None if Pillow is not installed or cannot read the picture."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                return None
            picture: Any = opened.convert("RGB" if opened.mode not in ("RGBA", "LA", "P", "L") else "RGBA")
            picture.thumbnail((MAX_SIDE, MAX_SIDE))
            written = io.BytesIO()
            if opened.format == "JPEG" or opened.mode == "RGB":
                picture.convert("RGB").save(written, "JPEG", quality=_QUALITY)
                kind = "image/jpeg"
            else:
                picture.save(written, "PNG", optimize=True)
                kind = "image/png"
    except Exception as error:  # whatever a library raises for bytes of a stranger
        _log.warning("a picture could not be made smaller (%s)", type(error).__name__)
        return None
    return (written.getvalue(), kind) if written.tell() <= MAX_BYTES else None
