"""Patches inside shell commands: a script that is nothing but a call of `apply_patch` is a patch, not a command.

Takes the text of a script; recognises exactly three forms and gives None for everything else, so that what a shell
would read differently stays a command. Threat: text before, after or between would be dropped unseen.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Final

from golem_forge.toolsets.edit.failures import PatchInvalid
from golem_forge.toolsets.edit.grammar import Update, has_padded_markers, is_patch, parse

BARE_PATCH: Final = "This is a patch; call apply_patch with it as input."

_B: Final = r"[ \t]"
_CD: Final = (
    rf"cd{_B}+(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"$`\\!\n]+)\"|(?P<plain>[\w./@%+=:,][\w./@%+=:,-]*))"
    rf"{_B}*&&{_B}*"
)
_WORD: Final = r"(?:'(?P<word>\w+)'|\"(?P<word2>\w+)\"|(?P<unquoted>\w+))"
_HEREDOC: Final = re.compile(
    rf"\s*(?:{_CD})?apply_patch{_B}*<<{_B}*{_WORD}{_B}*\r?\n(?P<rest>.*)",
    re.DOTALL,
)
_QUOTED: Final = re.compile(rf"\s*apply_patch{_B}+'(?P<patch>(?:[^']|'\\'')*)'\s*")
_PATH_LINE: Final = re.compile(r"(\s*\*\*\* (?:Add File|Delete File|Update File|Move to):[ \t]+)(.*?)(\s*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCommand:
    patch: str
    directory: str
    """What its relative paths are relative to; empty: where the command would have run."""


def split_patch_command(cmd: str) -> PatchCommand | None:
    if quoted := _QUOTED.fullmatch(cmd):
        return PatchCommand(patch=quoted["patch"].replace("'\\''", "'"), directory="")
    heredoc = _HEREDOC.fullmatch(cmd)
    if heredoc is None:
        return None
    word = heredoc["word"] or heredoc["word2"] or heredoc["unquoted"]
    lines = heredoc["rest"].split("\n")
    end = next((at for at, line in enumerate(lines) if line.rstrip("\r") == word), None)
    if end is None or any(line.strip() for line in lines[end + 1 :]):
        return None
    patch = "\n".join((*lines[:end], ""))
    if heredoc["unquoted"] and re.search(r"[$`\\]", patch):  # the shell would expand these
        return None
    directory = heredoc["single"] or heredoc["double"] or heredoc["plain"] or ""
    return None if directory.startswith("-") else PatchCommand(patch=patch, directory=directory)


def is_bare_patch(cmd: str) -> bool:
    """The patch alone, with no command around it."""
    return is_patch(cmd)


def rebased(patch: str, directory: str) -> str:
    """The same patch with its relative paths below `directory`; absolute ones stay. What is no patch stays as it is.

    A line that only might be a marker is changed too: it then fits no file, rather than the wrong one.
    """
    if directory in ("", "."):
        return patch
    try:
        operations = parse(patch)
    except PatchInvalid:
        return patch
    numbers = {operation.number for operation in operations}
    numbers |= {operation.move_number for operation in operations if isinstance(operation, Update)}
    lines = patch.split("\n")
    for at, line in enumerate(lines):
        if at + 1 in numbers or has_padded_markers(line):
            marker = _PATH_LINE.fullmatch(line)
            if marker is not None:
                lines[at] = marker[1] + posixpath.join(directory, marker[2]) + marker[3]
    return "\n".join(lines)
