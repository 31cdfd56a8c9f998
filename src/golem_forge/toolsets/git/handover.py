"""Commands that become calls of git_push or git_fetch: takes the text of a command, gives the tool and its arguments.

Only a text that the strict parser reads as one plain `git push`, `fetch`, `pull`, `ls-remote` or `clone`, with options
that these tools know; `git -C DIR …` starts there. Everything else is None: it stays a command inside the walls, where
no remote is reached, and says so (`REACHING_REMOTES`). Only words are read here; the plan finds out where the remote
is.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

from golem_forge.core.regex import regex
from golem_forge.policy.containment import names_a_host
from golem_forge.policy.shell.strict import Parsed, parse_strict
from golem_forge.toolsets.git import FETCH_TOOL, PUSH_TOOL

REACHING_REMOTES: Final = (
    "Git reaches a remote with the user's credentials only as a command of its own: run `git push REMOTE BRANCH`, "
    "`git fetch REMOTE`, `git pull`, `git ls-remote REMOTE` or `git clone ADDRESS` and nothing beside it (in another "
    "directory with `workdir`), or call git_push or git_fetch."
)
OF_A_SUBMODULE: Final = (
    "A submodule is added or cloned by the user, in their own terminal: git writes settings of their repository for "
    "it. One that is there is fetched and pushed with `git -C DIRECTORY fetch` or `push`, as a command of its own."
)
UNREACHED: Final = regex(
    r"fatal: unable to access '|fatal: Could not read from remote repository|ssh: Could not resolve hostname",
    re.IGNORECASE,
)
"""What git says inside the walls about a remote that needs the network."""
_DIRECTORY: Final = regex(r"(?:/\.git|\.git)$")
"""What git leaves out of an address to name the directory of a clone."""
_SILENT: Final = frozenset({"-q", "--quiet", "-v", "--verbose", "--progress", "--no-progress"})
_OPTIONS: Final[dict[str, dict[str, tuple[str, Any]]]] = {
    "push": {
        **dict.fromkeys(("-f", "--force", "--force-with-lease"), ("force", True)),
        **dict.fromkeys(("-u", "--set-upstream"), ("set_upstream", True)),
        **dict.fromkeys(("--no-verify", "--porcelain"), ("", None)),
        **dict.fromkeys(("-d", "--delete"), ("delete", True)),
    },
    "fetch": {},
    "pull": {
        **dict.fromkeys(("-r", "--rebase", "--rebase=true"), ("then", "rebase")),
        **dict.fromkeys(("--no-rebase", "--rebase=false", "--ff", "--no-edit"), ("then", "merge")),
        "--ff-only": ("then", "ff-only"),
    },
    "ls-remote": {},
    "clone": {"--single-branch": ("", None)},
}
_VALUED: Final = {"clone": {"-b": "branch", "--branch": "branch", "--depth": "depth"}}
"""Options with a value, which is the next word or stands behind `=`."""


def hand_over(text: str, workdir: str) -> tuple[str, dict[str, Any]] | None:
    parsed = parse_strict(text)
    if not isinstance(parsed, Parsed) or len(parsed.segments) != 1 or parsed.segments[0].redirections:
        return None
    program, *words = parsed.segments[0].words
    if program == "git" and words[:1] == ["-C"] and len(words) > 2:
        workdir, words = posixpath.join(workdir, words[1]), words[2:]
    if program != "git" or not words or (command := words[0]) not in _OPTIONS:
        return None
    said: dict[str, Any] = {}
    operands: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            operands.append(word)
        elif word in _OPTIONS[command]:
            key, meant = _OPTIONS[command][word]
            said |= {key: meant} if key else {}
        elif key := _VALUED.get(command, {}).get(name, ""):
            said[key] = value if equals else next(rest, "")
        elif word not in _SILENT:
            return None
    args: dict[str, Any] = {"workdir": workdir} if workdir else {}
    if command == "clone":
        return _clone(args, said, operands)
    args |= {"remote": operands[0]} if operands else {}
    args |= {"refspecs": operands[1:]} if operands[1:] else {}
    if command == "push":
        if said.pop("delete", False):
            if not operands[1:] or any(":" in one for one in operands[1:]):
                return None
            args["refspecs"] = [f":{one}" for one in operands[1:]]
        return PUSH_TOOL, args | said
    if command == "pull":
        args |= {"then": "ff-only"} | said
    elif command == "ls-remote":
        args["list_only"] = True
    return FETCH_TOOL, args


def _clone(args: dict[str, Any], said: dict[str, Any], operands: list[str]) -> tuple[str, dict[str, Any]] | None:
    """Of a host. What lies on this machine is cloned inside the walls, by git itself."""
    depth = said.get("depth", "0")
    if not 1 <= len(operands) <= 2 or not names_a_host(operands[0]) or not depth.isdecimal() or len(depth) > 6:
        return None
    into = operands[1] if operands[1:] else _DIRECTORY.sub("", operands[0].rstrip("/")).rpartition("/")[2]
    into = into.rpartition(":")[2]
    if not into:
        return None
    args |= {"remote": operands[0], "clone_to": into}
    args |= {"refspecs": [said["branch"]]} if said.get("branch") else {}
    args |= {"depth": int(depth)} if int(depth) else {}
    return FETCH_TOOL, args
