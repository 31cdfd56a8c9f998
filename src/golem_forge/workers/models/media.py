"""Which attachments a provider takes. Text of any kind goes to everybody, as text; the rest where it is understood."""

from __future__ import annotations

from typing import Final

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF: Final = ("application/pdf",)
_TAKEN: Final[dict[str, tuple[str, ...]]] = {
    "anthropic": _IMAGES + _PDF,
    "openai": _IMAGES + _PDF,
    "google": (*_IMAGES, *_PDF, "audio/", "video/"),
    "openrouter": _IMAGES + _PDF,
    "ollama": _IMAGES,
    "openai-compatible": _IMAGES,
}
"""Media types; one that ends in `/` stands for all of its kind."""
_TEXT: Final = ("application/json", "application/xml", "application/yaml", "application/toml", "application/javascript")


def is_text(media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return plain.startswith("text/") or plain in _TEXT or plain.endswith(("+json", "+xml"))


def takes(provider: str, media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return is_text(plain) or any(
        plain.startswith(known) if known.endswith("/") else plain == known for known in _TAKEN[provider]
    )
