"""git_push and git_fetch: git reaches a remote on the host, with the person's own credentials, after a card was
approved that shows the address, the refs in full and the commits. No child ever sees a key, a password or the agent.

Both belong to the toolset `exec`. `hand_over` takes the text of a command and gives the tool and its arguments where
the strict parser reads it as one plain `git push …`, `git fetch …`, `git pull …`, `git ls-remote …` or `git clone …`
with options that these tools know; `git -C DIR …` starts there. Everything else stays a command inside the walls, where
no remote is reached, and says so (`REACHING_REMOTES`). Only words are read here; the plan finds out where the remote
is. A remote that is a path of this machine is reached inside the walls, by the same command, without credentials: on
the host git would run the hooks of that repository.

Planning (`transfer`, `signing`) is loaded with the first call.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from golem_forge.core.lazy_module import pydantic
from golem_forge.core.regex import regex
from golem_forge.policy.containment import names_a_host
from golem_forge.policy.shell.strict import Parsed, parse_strict
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import NeedsApproval, Tool

if TYPE_CHECKING:
    from golem_forge.toolsets.exec import ExecSettings

PUSH_TOOL: Final = "git_push"
FETCH_TOOL: Final = "git_fetch"
SIGN_TOOL: Final = "git:sign"
"""Only a running command reaches it (`tools/catalog.py`)."""
_PUSH_DESCRIPTION: Final = (
    "Push branches or tags of this repository to a remote, with the user's own credentials. The user sees the address "
    "and the commits and is asked. Without arguments: the branch that is checked out, to where git would push it."
)
_FETCH_DESCRIPTION: Final = (
    "Fetch from a remote of this repository with the user's own credentials, into its remote-tracking branches. "
    "`then` goes on inside the walls as `git pull` does; `list_only` only lists the remote's refs; `clone_to` clones."
)
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
    r"fatal: unable to access '|fatal: Could not read from remote repository",
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


def git_tools(
    settings: ExecSettings | None = None, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> list[Tool]:
    return [git_push_tool(settings, sandbox, needs_approval), git_fetch_tool(settings, sandbox, needs_approval)]


def create_git_push_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return git_push_tool(None, sandbox, needs_approval)


def create_git_fetch_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return git_fetch_tool(None, sandbox, needs_approval)


def git_push_tool(
    settings: ExecSettings | None, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> Tool:
    """`settings`: of the commands that run inside the walls."""
    return native_tool(
        PUSH_TOOL,
        _PUSH_DESCRIPTION,
        input_schema=_push_arguments,
        planner=partial(_plan_push, settings, sandbox),
        needs_approval=needs_approval,
        label="Git push",
        category="Git",
    )


def git_fetch_tool(
    settings: ExecSettings | None, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None
) -> Tool:
    return native_tool(
        FETCH_TOOL,
        _FETCH_DESCRIPTION,
        input_schema=_fetch_arguments,
        planner=partial(_plan_fetch, settings, sandbox),
        needs_approval=needs_approval,
        label="Git fetch",
        category="Git",
    )


def git_sign_tool() -> Tool:
    return native_tool(
        SIGN_TOOL,
        "Sign a commit or tag that a command makes, with the user's own key.",
        input_schema=_sign_arguments,
        planner=_plan_sign,
        label="Sign",
        category="Git",
    )


async def _plan_sign(args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.toolsets.git.signer import plan_sign

    return await plan_sign(args, ctx)


async def _plan_push(
    settings: ExecSettings | None, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    from golem_forge.toolsets.git.push import plan_push

    return await plan_push(settings, sandbox, args, ctx)


async def _plan_fetch(
    settings: ExecSettings | None, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    from golem_forge.toolsets.git.fetch import plan_fetch

    return await plan_fetch(settings, sandbox, args, ctx)


def _common_fields(remote: str, refspecs: str) -> dict[str, Any]:
    place = "A directory of the repository: /<zone>/…, or relative to the default zone."
    return {
        "remote": (str, pydantic.Field(default="", max_length=2000, description=remote)),
        "refspecs": (list[str], pydantic.Field(default_factory=list, max_length=50, description=refspecs)),
        "workdir": (str, pydantic.Field(default="", description=place)),
    }


def _push_arguments() -> type[pydantic.BaseModel]:
    fields = _common_fields(
        "The name of a remote, or an https or ssh address; default: the branch's own, or origin.",
        "Branches and tags to push, as git writes them: main, main:other, v1.0, :gone (deletes).",
    )
    force = "Overwrite what the remote has, if it is what was last fetched; the user sees what would be lost."
    fields["force"] = (bool, pydantic.Field(default=False, description=force))
    follow = "Afterwards the branch follows the remote's, as with `git push -u`."
    fields["set_upstream"] = (bool, pydantic.Field(default=False, description=follow))
    return pydantic.create_model(PUSH_TOOL, **fields)


def _sign_arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        "git_sign", data=(str, pydantic.Field(max_length=2 << 20, description="What git wants signed, in base64."))
    )


def _fetch_arguments() -> type[pydantic.BaseModel]:
    fields = _common_fields(
        "The name of a remote, or an https or ssh address; default: the branch's own, or origin.",
        "What to fetch, as git writes it; default: what the remote's settings say. With list_only: patterns.",
    )
    then = "After the fetch, inside the walls: merge, fast-forward only, or rebase onto what was fetched."
    fields["then"] = (Literal["", "merge", "ff-only", "rebase"], pydantic.Field(default="", description=then))
    only = "Only list what the remote has, as `git ls-remote` does."
    fields["list_only"] = (bool, pydantic.Field(default=False, description=only))
    into = "Clone the remote, given by its address, into this new directory; `refspecs` may name one branch or tag."
    fields["clone_to"] = (str, pydantic.Field(default="", max_length=1000, description=into))
    last = "With clone_to: only so many of the last commits."
    fields["depth"] = (int, pydantic.Field(default=0, ge=0, le=1_000_000, description=last))
    return pydantic.create_model(FETCH_TOOL, **fields)


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
