"""`load_custom_tools`: the tools of a Python file in the process of whoever embeds Forge, without walls around them."""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from golem_forge.agent.modules.exports import ExportError, exported_tools, import_file, load_failure
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.errors import ConfigError
from golem_forge.core.json import sha256_hex
from golem_forge.core.options import options_from
from golem_forge.core.text import nearest_hint
from golem_forge.policy.base import ApprovalBlock, check_block
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool


def load_custom_tools(
    path: str | Path,
    config: Iterable[str] | Mapping[str, Any] | None = None,
    *,
    tools: Iterable[str] | None = None,
    approval: Mapping[str, Any] | None = None,
) -> list[Tool]:
    """The named exports of a trusted Python file, in that order, imported into this process. For embedders.

    The file's code runs here, with everything this process may do, before any tool is called: use it only for files you
    would run yourself. Worker files never use this; their modules are imported inside the walls. Its own folder is on
    Python's path while it loads. Raises ConfigError with the texts that a worker file's module gets.

    `config`: the names, or what a `custom` block says of them: `{"tools": […], "approval": {…}}`. `approval`:
    `{"default": verdict, "tools": {name: verdict}}`, for tools that say nothing themselves; it may tighten the others.
    A plain function: there is nothing to await.
    """
    shown, file = os.fspath(path), os.path.realpath(path)
    where = f"load_custom_tools({shown!r})"
    both = {"tools": tools, "approval": approval}
    given = {key: value for key, value in both.items() if value is not None}
    if config is not None and not isinstance(config, Mapping):
        config = {"tools": config}
    options = options_from(config, given, known=both, where=where)
    listed = options.get("tools") or ()
    names = [listed] if isinstance(listed, str) else list(listed)
    if not names:
        raise ConfigError(f"{where}: name at least one tool")
    said = _approval(options.get("approval"), where)
    if not os.path.isfile(file):
        raise ConfigError(f"Failed to load custom tools from {shown}: file not found")
    folder = os.path.dirname(file)
    sys.path.insert(0, folder)
    try:
        module = import_file(file, f"forge_module_{sha256_hex(file)[:16]}")  # never in the way of another `tools`
        found = exported_tools(module, names, shown)
    except ExportError as error:
        raise ConfigError(str(error)) from None
    except Exception as error:
        raise ConfigError(f"Failed to load custom tools from {shown}: {load_failure(error, file)}") from error
    finally:
        sys.path.remove(folder)
    errors, unknown = check_block(said, {tool.name: tool for tool in found.values()})
    if errors or unknown:
        raise ConfigError(*errors, *unknown)
    return [_with_approval(tool, said) for tool in found.values()]


def _approval(said: Any, where: str) -> ApprovalBlock:
    if said is None:
        return ApprovalBlock()
    if not isinstance(said, Mapping):
        raise ConfigError(f"{where}: approval: must be a mapping of default and tools")
    options = options_from(said, known=("default", "tools"), where=f"{where}: approval")
    default, named = options.get("default"), options.get("tools") or {}
    if not isinstance(named, Mapping):
        raise ConfigError(f"{where}: approval.tools: must be a mapping of tools to verdicts")
    return ApprovalBlock(
        default=None if default is None else Setting(_verdict(default, f"{where}: approval.default"), where),
        tools={name: Setting(_verdict(one, f"{where}: approval.tools.{name}"), where) for name, one in named.items()},
    )


def _verdict(said: Any, where: str) -> Verdict:
    if said not in tuple(Verdict):
        hint = nearest_hint(str(said), list(Verdict), f". There are: {', '.join(Verdict)}")
        raise ConfigError(f"{where}: {said!r} is not a verdict{hint}")
    return Verdict(said)


def _with_approval(tool: Tool, said: ApprovalBlock) -> Tool:
    """The tool with what was said of it, as far as it says less itself."""
    setting = said.tools.get(tool.name) or (said.default if tool.needs_approval is None else None)
    if setting is None:
        return tool
    own, verdict = tool.needs_approval, setting.value
    changed = copy.copy(tool)
    if own is None or verdict is Verdict.BLOCKED:
        changed.needs_approval = verdict.value
    elif callable(own):
        changed.needs_approval = _tightened(own, verdict)
    else:
        changed.needs_approval = strictest((_own_verdict(own), verdict)).value
    return changed


def _tightened(own: Callable[..., Any], verdict: Verdict) -> Callable[..., Any]:
    takes_two = len(inspect.signature(own).parameters) > 1

    async def check(args: dict[str, Any], ctx: ToolContext, /) -> Any:
        answer = own(args, ctx) if takes_two else own(args)
        answer = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(answer, (bool, str)):
            return answer  # no verdict: the call is refused for it
        return strictest((_own_verdict(answer), verdict)).value

    return check


def _own_verdict(answer: bool | str) -> Verdict:
    """Converts a predicate's answer to a verdict. Raises ValueError for another text."""
    return Verdict(answer) if isinstance(answer, str) else Verdict.ASK if answer else Verdict.PRE_APPROVED
