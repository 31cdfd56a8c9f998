#!/usr/bin/env python3
"""A reviewer by rules: approves what the person's own last message names, and a few checks. It never denies.

    approval:
      reviewer: {run: /home/me/bin/review_by_rules.py, up_to: medium}

It reads what a reviewer is told as JSON on standard input and prints one line: `approve: why` or `unsure: why`. The
output of tools plays no part in it, so no file and no page can talk it into a yes.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

CHECKS = (
    *(("pytest",), ("python", "-m", "pytest"), ("ruff", "check"), ("mypy",), ("npm", "test"), ("make", "test")),
    *(("cargo", "test"), ("cargo", "check"), ("go", "test"), ("go", "vet")),
)
"""Commands that build and test and change nothing that counts."""
HARMLESS = {"-q", "-v", "-x", "-k"}
"""Options that they may have. Others choose what runs: `go test -exec`, `pytest -p`, `ruff check --fix`."""
NO_RULE = " (no rule covers it)"
"""How an effect ends that no rule covers."""
COMMAND_TOOLS = ("exec_command", "shell")
FILE_TOOLS = ("write_file", "apply_patch", "delete_file")
SHELL = set("|&;<>()$`\\\"'*?[]#~=%{}\n")


def review(told: dict[str, Any]) -> tuple[str, str]:
    """(answer, reason)"""
    card, message = told.get("card", {}), told.get("message", "")
    tool, args = card.get("tool", ""), card.get("args", {})
    if card.get("riskReasons"):
        return "unsure", "the card warns of something"
    if tool in COMMAND_TOOLS:
        return _command(args.get("cmd") or args.get("command") or "")
    if tool in FILE_TOOLS:
        return _files(card, message)
    return _arguments(args, message)


def _command(text: str) -> tuple[str, str]:
    if set(text) & SHELL:
        return "unsure", "the command is more than one plain program"
    words = tuple(shlex.split(text))
    for check in CHECKS:
        rest = words[len(check) :]
        if words[: len(check)] == check and all(word in HARMLESS or word[0] != "-" for word in rest if word):
            return "approve", "it only checks"
    return "unsure", "not a known check"


def _files(card: dict[str, Any], message: str) -> tuple[str, str]:
    """Each file that is touched is named in the message, by its whole name."""
    touched = [each.partition(" ")[2].removesuffix(NO_RULE) for each in card.get("effects", ())]
    unnamed = [path for path in touched if not _names(message, path.rpartition("/")[2])]
    if not touched or unnamed:
        return "unsure", f"the message does not name {', '.join(unnamed) or 'a file'}"
    return "approve", "the message names what it touches"


def _arguments(args: dict[str, Any], message: str) -> tuple[str, str]:
    """Each text of the arguments stands in the message."""
    texts = [text for text in _texts(args) if text.strip()]
    if not texts or not all(_names(message, text) for text in texts):
        return "unsure", "the message does not name all that the call would use"
    return "approve", "the message names all that the call uses"


def _names(message: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(text.strip().lower())}(?![\w-])", message.lower()) is not None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


if __name__ == "__main__":
    print(": ".join(review(json.load(sys.stdin))))
