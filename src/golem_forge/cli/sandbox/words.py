"""The words after `forge sandbox exec` and `explain`: a few options, and a command after `--`."""

from __future__ import annotations

from dataclasses import dataclass, field

from golem_forge.cli.plain import parser
from golem_forge.cli.sandbox import HELP


@dataclass(slots=True, kw_only=True)
class ShortCommand:
    program: str = "."
    timeout: float | None = None
    json: bool = False
    path: str = ""
    """Only for `explain`: what stands before or without `--`."""
    command: list[str] = field(default_factory=list)


def read_words(verb: str, words: list[str]) -> ShortCommand | int:
    """What was asked for; an exit code where that was only help."""
    before, command = words, list[str]()
    if "--" in words:
        at = words.index("--")
        before, command = words[:at], words[at + 1 :]
    reader = parser(verb, HELP)
    reader.add_argument("-p", "--program", default=".")
    reader.add_argument("--timeout", type=float, default=None)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("rest", nargs="*")
    asked = reader.parse_args(before)
    if asked.rest and verb.endswith("exec"):
        command = [*asked.rest, *command]
    path = " ".join(asked.rest) if verb.endswith("explain") else ""
    return ShortCommand(program=asked.program, timeout=asked.timeout, json=asked.json, path=path, command=command)
