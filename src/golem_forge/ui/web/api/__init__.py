"""The REST API: operations, and the models that they take and give. `all_operations` has every one, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_forge.ui.web.api.operation import Operation


def all_operations() -> tuple[Operation, ...]:
    """In the order in which the description lists them: all that a module here declares with `@operation`."""
    from golem_forge.ui.web.api import events, openapi, rules, servers, sessions, settings, tools, user_tools
    from golem_forge.ui.web.api.operation import Operation

    modules = (sessions, events, tools, user_tools, servers, rules, settings, openapi)
    declared = (value for module in modules for value in vars(module).values() if isinstance(value, Operation))
    return tuple({(each.method, each.path): each for each in declared}.values())
