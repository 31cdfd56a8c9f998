"""Rewriter: one name for a file on both sides of a server's walls. Callers say `/workspace/a`, the server its path.

Answers come with every text rewritten, at any depth: zones by their addresses, known secrets taken out. Bytes (images,
blobs) and cursors are left alone. Requests go the other way: an argument that is an address of one of its zones, whole,
becomes the place where the zone stands. (Inside walls the address is a link to it; servers that compare paths before
they follow links would refuse it.) A URI that was rewritten is remembered and goes back as the server wrote it.
A server over HTTP has no walls and no zones: only the session's secrets are taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from golem_forge.events.all_texts import all_texts

if TYPE_CHECKING:
    from golem_forge.mcp.client.definitions.manifest import Manifest

Clean = Callable[[str], str]

_FILE: Final = "file://"
_CURSOR: Final = "nextCursor"
_READ: Final = frozenset({"description", "title"})
_BYTES: Final = frozenset({"image", "audio"})
_MOST_URIS: Final = 20_000
"""Threat: a server that names resources without end."""


class Rewriter:
    def __init__(self) -> None:
        self.clean: Clean | None = None
        """`Walls.cleaned` of the connection there is; None: nothing is to be rewritten."""
        self.places: Mapping[str, str] = {}
        """Address of a zone → where it stands inside, if that is elsewhere."""
        self._uris: dict[str, str] = {}

    def request(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """As it is sent."""
        sent = dict(params)
        if self.places and "arguments" in sent:
            sent["arguments"] = self._arguments(sent["arguments"])
        if isinstance(uri := sent.get("uri"), str):
            sent["uri"] = self._uris.get(uri) or self._place(uri)
        return sent

    def _arguments(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._place(value)
        if isinstance(value, Mapping):
            return {key: self._arguments(item) for key, item in value.items()}
        return [self._arguments(item) for item in value] if isinstance(value, list) else value

    def _place(self, text: str) -> str:
        scheme = _FILE if text.startswith(f"{_FILE}/") else ""
        path = text.removeprefix(scheme)
        for address, place in self.places.items():
            if path == address or path.startswith(f"{address}/"):
                return f"{scheme}{quote(place) if scheme else place}{path.removeprefix(address)}"
        return text

    def words(self, text: str) -> str:
        return self.clean(text) if self.clean is not None else text

    def result(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Of a tool; the same object where nothing is to be rewritten, as in most. Raises RecursionError for one that
        nests without end."""
        if self.clean is None:
            return raw
        said = all_texts(raw)
        if said is not None and self.clean(said) is said:
            return raw
        return {
            key: self._protocol(value, self.clean) if key == "content" else _every_text(value, self.clean)
            for key, value in raw.items()
        }

    def answer(self, raw: dict[str, Any]) -> dict[str, Any]:
        """To any other request. Raises RecursionError, too."""
        return raw if self.clean is None else self._protocol(raw, self.clean)

    def manifest(self, listed: Manifest) -> Manifest:
        """What a model reads of it: descriptions, titles, instructions. Names and values of schemas go back to the
        server and stay as they are."""
        if (clean := self.clean) is None:
            return listed
        return replace(
            listed,
            instructions=clean(listed.instructions),
            tools=tuple(_described(entry, clean) for entry in listed.tools),
            prompts=tuple(_described(entry, clean) for entry in listed.prompts),
        )

    def _protocol(self, value: Any, clean: Clean) -> Any:
        """Of what the protocol defines, where some members are no text."""
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, list):
            return [self._protocol(item, clean) for item in value]
        if not isinstance(value, dict):  # it was read from JSON
            return value
        return {key: self._member(value, key, item, clean) for key, item in value.items()}

    def _member(self, around: Mapping[str, Any], key: str, value: Any, clean: Clean) -> Any:
        if key in ("blob", _CURSOR) or (key == "data" and around.get("type") in _BYTES):
            return value
        said = self._protocol(value, clean)
        if key == "uri" and said != value and isinstance(value, str) and len(self._uris) < _MOST_URIS:
            self._uris[said] = value
        return said


def _described(entry: Any, clean: Clean) -> Any:
    try:
        return _with_descriptions(entry, clean)
    except RecursionError:
        return entry  # nobody will read it: it is kept out for its depth


def _with_descriptions(value: Any, clean: Clean) -> Any:
    if isinstance(value, list):
        return [_with_descriptions(item, clean) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: clean(item) if key in _READ and isinstance(item, str) else _with_descriptions(item, clean)
        for key, item in value.items()
    }


def _every_text(value: Any, clean: Clean) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _every_text(item, clean) for key, item in value.items()}
    return [_every_text(item, clean) for item in value] if isinstance(value, list) else value
