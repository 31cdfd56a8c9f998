"""`@tool`: turns a function into a Tool. The schema comes from its signature when somebody first asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from golem_forge.tools.tool import Tool


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str = "", description: str | None = None, schema: Any = None, **options: Any
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str | None = None,
    schema: Any = None,
    **options: Any,
) -> Any:
    """Use as `@tool` or `@tool(needs_approval=…, mode=…, label=…, …)`; options are those of Tool."""

    def wrap(function: Callable[..., Any]) -> Tool:
        named = name or getattr(function, "__name__", "")
        if not named or named == "<lambda>":
            raise TypeError("a tool needs a name: use @tool(name=…) for a lambda, a partial or a callable object")
        return Tool(
            named,
            description,
            execute=function,
            input_schema=schema,
            takes_mapping=False,
            **options,
        )

    return wrap if function is None else wrap(function)
