"""One native toolset's block, held against the model of its keys. Gives what the toolset is built from.

Every wrong key is told with its path, its own level's nearest key and, where there is a file, its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from golem_forge.config.shape import Problems
from golem_forge.config.yaml_file import Path as Place
from golem_forge.core.nearest import nearest
from golem_forge.tools.toolset import Toolset

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def checked_block(toolset: Toolset, block: Mapping[str, Any], path: Place, problems: Problems) -> BaseModel | None:
    """The block (without `approval`) as the toolset's model; None where it has no keys of its own."""
    model = toolset.config
    if model is None:
        for key in block:
            problems.add((*path, key), "unknown key; this toolset has none but 'approval'")
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(block))
    except ValidationError as error:
        for place, text in _in_words(model, error):
            problems.add((*path, *place), text)
        return None


def _in_words(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[Place, str]]:
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        if each["type"] == "extra_forbidden":
            *above, key = each["loc"]
            yield each["loc"], f"unknown key{_meant(str(key), _keys_at(model, above))}"
        else:
            yield each["loc"], each["msg"].removeprefix("Value error, ")


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
