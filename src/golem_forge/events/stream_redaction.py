"""StreamRedactor: redaction of output that arrives in pieces. A value split across two pieces is still found.

`feed` gives what can be shown now and keeps back only an end that could be the beginning of something to take out
(at most twice the longest such spelling); `finish` gives the rest. `cut_secrets_out` is for a text that somebody cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from golem_forge.events.redaction import PATH_CONTEXT, Redactor


class StreamRedactor:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._before = ""
        """The end of what was shown, with its paths as they came: it decides whether a path begins after it."""

    def feed(self, chunk: str) -> str:
        text = self._held + chunk
        cut = self._safe_end(text)
        self._held = text[cut:]
        return self._shown(text[:cut])

    def finish(self) -> str:
        text, self._held = self._held, ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        text = self._redactor.secrets_out(text)
        shown = self._redactor.paths_out(text, self._before)
        self._before = (self._before + text[-PATH_CONTEXT:])[-PATH_CONTEXT:]
        return shown

    def _safe_end(self, text: str) -> int:
        """The first place from which on the text could still become something to take out."""
        secrets = self._redactor.secret_spans(text)
        paths = self._redactor.path_spans(text)
        secret_places = {place for one in self._redactor.secrets for place in _beginnings(text, one)}
        # What follows a path decides whether it is one, and a `.` needs one character more.
        path_places = {
            place
            for one in self._redactor.paths
            for ending in ("\0", ".\0")
            for place in _beginnings(text, one + ending)
        }
        cut = min(
            min((place for place in secret_places if not _inside(place, secrets)), default=len(text)),
            min((place for place in path_places if not _inside(place, secrets + paths)), default=len(text)),
        )
        while (divided := _inside(cut, secrets + paths)) is not None:
            cut = divided
        return cut


def cut_secrets_out(text: str, redactor: Redactor) -> str:
    """A text that was cut at its end, without its secrets and without an end that may be the beginning of one."""
    secrets = redactor.secret_spans(text)
    begun = (place for one in redactor.secrets for place in _beginnings(text, one))
    cut = min((place for place in begun if _inside(place, secrets) is None), default=len(text))
    return redactor.secrets_out(text[:cut])


def _inside(place: int, spans: list[tuple[int, int]]) -> int | None:
    """The beginning of the span that this place would divide."""
    return next((start for start, end in spans if start < place < end), None)


def _beginnings(text: str, spelling: str) -> Iterator[int]:
    """Every place from which the rest of `text` is a beginning (not the whole) of `spelling`."""
    first = spelling[0]
    place = text.find(first, max(0, len(text) - len(spelling) + 1))
    while place >= 0:
        if spelling.startswith(text[place:]):
            yield place
        place = text.find(first, place + 1)
