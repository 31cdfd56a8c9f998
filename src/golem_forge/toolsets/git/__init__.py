"""git_push and git_fetch: git reaches a remote on the host, with the person's own credentials, after a card was
approved that shows the address, the refs in full and the commits. No child ever sees a key, a password or the agent.

Both belong to the toolset `exec`: a command that is nothing but `git push …`, `git fetch …`, `git pull …`,
`git ls-remote …` or `git clone …` is handed over to them (`handover`). A remote that is a path of this machine is
reached inside the walls, by the same command, without credentials: on the host git would run the hooks of that
repository.

Planning (`push`, `fetch`) is loaded with the first call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import NeedsApproval, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

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
    from golem_forge.toolsets.git.signing import plan_sign

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
    from pydantic import Field

    place = "A directory of the repository: /<zone>/…, or relative to the default zone."
    return {
        "remote": (str, Field(default="", max_length=2000, description=remote)),
        "refspecs": (list[str], Field(default_factory=list, max_length=50, description=refspecs)),
        "workdir": (str, Field(default="", description=place)),
    }


def _push_arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    fields = _common_fields(
        "The name of a remote, or an https or ssh address; default: the branch's own, or origin.",
        "Branches and tags to push, as git writes them: main, main:other, v1.0, :gone (deletes).",
    )
    force = "Overwrite what the remote has, if it is what was last fetched; the user sees what would be lost."
    fields["force"] = (bool, Field(default=False, description=force))
    follow = "Afterwards the branch follows the remote's, as with `git push -u`."
    fields["set_upstream"] = (bool, Field(default=False, description=follow))
    return create_model(PUSH_TOOL, **fields)


def _sign_arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    return create_model(
        "git_sign", data=(str, Field(max_length=2 << 20, description="What git wants signed, in base64."))
    )


def _fetch_arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    fields = _common_fields(
        "The name of a remote, or an https or ssh address; default: the branch's own, or origin.",
        "What to fetch, as git writes it; default: what the remote's settings say. With list_only: patterns.",
    )
    then = "After the fetch, inside the walls: merge, fast-forward only, or rebase onto what was fetched."
    fields["then"] = (Literal["", "merge", "ff-only", "rebase"], Field(default="", description=then))
    only = "Only list what the remote has, as `git ls-remote` does."
    fields["list_only"] = (bool, Field(default=False, description=only))
    into = "Clone the remote, given by its address, into this new directory; `refspecs` may name one branch or tag."
    fields["clone_to"] = (str, Field(default="", max_length=1000, description=into))
    last = "With clone_to: only so many of the last commits."
    fields["depth"] = (int, Field(default=0, ge=0, le=1_000_000, description=last))
    return create_model(FETCH_TOOL, **fields)
