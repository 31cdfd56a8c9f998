"""What the blocks `custom`, `external`, `workers`, `user_tools`, `mcp` and every block's `approval` may look like.

Each function takes a value, its place and the file's Problems, adds every problem with its line, and gives the checked
block, or None where it cannot be used.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.config.modes import Setting
from golem_forge.config.shape import Check, Problems, Shape, flag, list_of, map_of, refuse, text
from golem_forge.config.yaml_file import Path as Place
from golem_forge.config.zones import VERDICT
from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import ApprovalBlock
from golem_forge.sandbox.walls.environment import env_block
from golem_forge.workers.blocks import (
    EVERY_SERVER,
    CustomBlock,
    ExternalBlock,
    McpBlock,
    UserToolsBlock,
    WorkersBlock,
)

_APPROVAL: Final = Shape({"default": VERDICT, "tools": map_of(VERDICT)})


def approval_block(value: Any, path: Place, problems: Problems) -> ApprovalBlock:
    checked: Any = _APPROVAL(value, path, problems)
    said: dict[str, Any] = checked if isinstance(checked, dict) else {}
    default = said.get("default")
    return ApprovalBlock(
        default=None if default is None else Setting(Verdict(default), problems.file.at((*path, "default"))),
        tools={
            name: Setting(Verdict(word), problems.file.at((*path, "tools", name)))
            for name, word in said.get("tools", {}).items()
        },
    )


def _names(value: Any, path: Place, problems: Problems) -> Any:
    """At least one name, each once."""
    names = list_of(text)(value, path, problems)
    if not isinstance(names, list):
        return names
    if not value:
        problems.add(path, "expected at least one name")
    for index, name in enumerate(names):
        if name in names[:index]:
            problems.add((*path, index), f"{name!r} is named twice")
    return names


def _exports(value: Any, path: Place, problems: Problems) -> Any:
    names = _names(value, path, problems)
    for name in names if isinstance(names, list) else ():
        if name.startswith("_") or not name.isidentifier():
            problems.add(path, f"{name!r} cannot be exported: use the name of a function that does not start with '_'")
    return names


def _module(value: Any, path: Place, problems: Problems) -> Any:
    if isinstance(value, str) and value.endswith(".py") and "\0" not in value:
        return value
    return refuse(problems, path, value, "a Python file, like ./tools.py")


_SHARED: Final[dict[str, Check]] = {"approval": approval_block, "env": env_block}
_CUSTOM: Final = Shape({"module": _module, "tools": _exports, **_SHARED}, required=("module", "tools"))
_EXTERNAL: Final = Shape(
    {"package": text, "import": text, "entry_point": text, "tools": _names, **_SHARED}, required=("package",)
)
_WORKERS: Final = Shape({"allow": _names, "approval": approval_block}, required=("allow",))


_MCP: Final = Shape({"servers": _names}, required=("servers",))
_USER_TOOLS: Final = Shape({"tools": _names, "create": flag, "approval": approval_block})


def user_tools_block(value: Any, path: Place, problems: Problems) -> UserToolsBlock | None:
    checked = _checked(_USER_TOOLS, {} if value is None else value, path, problems)
    if checked is None:
        return None
    return UserToolsBlock(
        tools=tuple(checked.get("tools", ("*",))),
        create=checked.get("create", True),
        approval=checked.get("approval") or ApprovalBlock(),
        origin=problems.file.at(path),
    )


def mcp_block(value: Any, path: Place, problems: Problems) -> McpBlock | None:
    checked = _checked(_MCP, value, path, problems)
    if checked is None:
        return None
    servers = tuple(checked["servers"])
    if EVERY_SERVER in servers and len(servers) > 1:
        problems.add((*path, "servers"), f"'{EVERY_SERVER}' means every server; name it alone")
        return None
    return McpBlock(servers=servers, origin=problems.file.at(path))


def custom_blocks(value: Any, path: Place, problems: Problems) -> tuple[CustomBlock, ...]:
    """One block, or a list of them."""
    if not isinstance(value, list):
        found = _custom(value, path, "custom", problems)
        return (found,) if found else ()
    if not value:
        problems.add(path, "expected at least one block")
    blocks = [_custom(each, (*path, index), f"custom[{index}]", problems) for index, each in enumerate(value)]
    return tuple(block for block in blocks if block)


def _custom(value: Any, path: Place, key: str, problems: Problems) -> CustomBlock | None:
    checked = _checked(_CUSTOM, value, path, problems)
    if checked is None:
        return None
    return CustomBlock(
        module=checked["module"],
        tools=tuple(checked["tools"]),
        approval=checked.get("approval") or ApprovalBlock(),
        env=checked.get("env"),
        origin=problems.file.at(path),
        key=key,
    )


def external_block(value: Any, path: Place, problems: Problems) -> ExternalBlock | None:
    if isinstance(value, dict) and ("import" in value) == ("entry_point" in value):
        problems.add(path, "needs exactly one of 'import' and 'entry_point'")
    checked = _checked(_EXTERNAL, value, path, problems)
    if checked is None:
        return None
    return ExternalBlock(
        package=checked["package"],
        import_path=checked.get("import", ""),
        entry_point=checked.get("entry_point", ""),
        tools=tuple(checked.get("tools", ())),
        approval=checked.get("approval") or ApprovalBlock(),
        env=checked.get("env"),
        origin=problems.file.at(path),
    )


def workers_block(value: Any, path: Place, problems: Problems) -> WorkersBlock | None:
    checked = _checked(_WORKERS, value, path, problems)
    if checked is None:
        return None
    return WorkersBlock(
        allow=tuple(checked["allow"]),
        approval=checked.get("approval") or ApprovalBlock(),
        origin=problems.file.at(path),
    )


def _checked(shape: Shape, value: Any, path: Place, problems: Problems) -> dict[str, Any] | None:
    before = len(problems.found)
    checked: Any = shape(value, path, problems)
    return checked if len(problems.found) == before and isinstance(checked, dict) else None
