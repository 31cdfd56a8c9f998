"""Pictures on their way to a model: sent as they are while they fit, made smaller where they do not.

`fit_picture` returns (bytes, media type), or None where a part is too large to be sent; its line of text stands for it
then. The same bytes give the same result, so the beginning of a request stays as it was.

This is the gateway to Pillow (extra `pictures`), which is loaded for the first picture that is too large. Threat: a
picture may be made to unpack to gigabytes; one with more pixels than MAX_PIXELS is never decoded.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache
from typing import Any, Final

from golem_forge.core.calls import MediaPart

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
    """None: Pillow is not there, or cannot read it."""
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
