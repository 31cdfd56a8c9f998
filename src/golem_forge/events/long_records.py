"""Records of any length in a file of bounded lines: one that is too long for a line is written as several `part`s.

`in_parts` gives the bodies of the lines, `Joiner` and `joined` the records as they were. A record that a crash left
without its last part never was. Beyond 64 MiB only its length and digest are kept, under `tooLong`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from golem_forge.events.jsontext import decode, encode
from golem_forge.events.quoting import NAMES

PART: Final = 1 << 20
"""Characters of JSON text in one part."""
LONGEST: Final = 64 << 20


def in_parts(type: str, fields: bytes) -> Iterator[str]:
    """`fields`: the JSON object of the record's own members."""
    if len(fields) <= PART:
        body = fields[1:-1].decode()
        yield f'"type":{NAMES[type]},{body}' if body else f'"type":{NAMES[type]}'
        return
    if len(fields) > LONGEST:
        known = encode({"tooLong": f"{len(fields)} bytes sha256:{sha256(fields).hexdigest()[:8]}"})
        yield from in_parts(type, known)
        return
    text = fields.decode()
    pieces = [text[at : at + PART] for at in range(0, len(text), PART)]
    for number, piece in enumerate(pieces, start=1):
        yield f'"type":"part","of":{NAMES[type]},"part":{number},"parts":{len(pieces)},"text":{encode(piece).decode()}'


class Joiner:
    """Takes records one by one and gives them back whole. The parts of one follow each other; a row that does not is
    left out."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The record that is whole now; None after a part that is not the last."""
        if record.get("type") != "part":
            self._pieces = []
            return record
        number, text = record.get("part"), record.get("text")
        if number == 1:
            self._pieces = []
        if number != len(self._pieces) + 1 or not isinstance(text, str):
            self._pieces = []
            return None
        self._pieces.append(text)
        if number != record.get("parts"):
            return None
        whole, self._pieces = "".join(self._pieces), []
        try:
            fields = decode(whole)
        except ValueError:
            return None
        if not isinstance(fields, dict):
            return None
        return {"n": record.get("n"), "ts": record.get("ts"), "type": record.get("of"), **fields}


def joined(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Every record, whole."""
    joiner = Joiner()
    for record in records:
        if (whole := joiner.add(record)) is not None:
            yield whole
