"""From the `toolsets:` blocks of a worker to its native tools. Every block is checked before any tool is built.

Refuses (ConfigError) an unknown toolset with the nearest name, and every wrong key with its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from golem_forge.core.errors import ConfigError
from golem_forge.core.nearest import nearest
from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import Toolset, ToolsetContext

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def tools_from_blocks(blocks: Mapping[str, Any], toolsets: Mapping[str, Toolset]) -> list[Tool]:
    """In the order of the blocks. A tool that two of them give (`read_file` is in `coding` too) is taken once."""
    given: Any = blocks
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise ConfigError(f"toolsets: must be a mapping from names to blocks, like {{'coding': {{}}}}, not {kind}")
    problems: list[str] = []
    tools: dict[str, Tool] = {}
    for name, block in blocks.items():
        toolset = toolsets.get(name)
        if toolset is None:
            close = nearest(name, toolsets)
            hint = f"; did you mean '{close}'?" if close else f". There are: {', '.join(sorted(toolsets))}"
            problems.append(f"toolsets.{name}: no such toolset{hint}")
            continue
        config = _checked(toolset, block, problems)
        if not problems:
            for tool in toolset.get_tools(ToolsetContext(config=config)):
                tools.setdefault(tool.name, tool)
    if problems:
        raise ConfigError(*problems)
    return list(tools.values())


def _checked(toolset: Toolset, block: Any, problems: list[str]) -> BaseModel | None:
    """The block as the toolset's model; None where it has no keys of its own."""
    where = f"toolsets.{toolset.name}"
    block = {} if block is None else block
    if not isinstance(block, Mapping):
        problems.append(f"{where}: must be a mapping, not {type(block).__name__}")
        return None
    model = toolset.config
    if model is None:
        problems += [f"{where}.{key}: unknown key; this toolset has none" for key in block]
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(block))
    except ValidationError as error:
        problems += _in_words(where, model, error)
        return None


def _in_words(where: str, model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path = ".".join(str(part) for part in each["loc"])
        if each["type"] == "extra_forbidden":
            *above, key = each["loc"]
            yield f"{where}.{path}: unknown key{_meant(str(key), _keys_at(model, above))}"
        else:
            yield f"{where}.{path}: {each['msg'].removeprefix('Value error, ')}"


def _keys_at(model: type[BaseModel], path: Iterable[int | str]) -> list[str]:
    """The keys of the model that a path of field names and list positions leads to; none where it cannot be told."""
    found: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int) or found is None:
            continue  # an item of a list has the model of its field
        field = found.model_fields.get(part) or next(
            (each for each in found.model_fields.values() if each.alias == part), None
        )
        found = _model_in(field.annotation) if field is not None else None
    return [] if found is None else [field.alias or name for name, field in found.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model that an annotation like `list[Rule] | None` is about."""
    from typing import get_args

    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [model for each in get_args(annotation) if (model := _model_in(each)) is not None]
    return found[0] if len(found) == 1 else None


def _meant(key: str, known: Iterable[str]) -> str:
    known = list(known)
    if not known:
        return ""
    close = nearest(key, known)
    return f"; did you mean '{close}'?" if close else f". There are: {', '.join(sorted(known))}"
