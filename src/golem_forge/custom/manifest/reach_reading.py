"""What a manifest asks to reach: variables, hosts, zones and other tools. Whoever is asked for trust sees all of it.

Gives the values of `env`, `network`, `zones` and `calls`. Refuses (Fault) names of variables that decide what code
runs, what is no host, zones no worker can have, and the zone of user tools itself: a tool that could write there would
forge tools. A host is kept in one spelling, so that what is shown, asked and allowed is the same.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from golem_forge.core.visible import visible
from golem_forge.custom.manifest import EnvVariable
from golem_forge.custom.manifest.node_reading import choice, exact, fields, flag, items, mapping
from golem_forge.custom.manifest.nodes import Fault, Fields, Node, Place, Said, Scalar

MOST_VARIABLES: Final = 64
MOST_HOSTS: Final = 64
MOST_ZONES: Final = 32
MOST_CALLS: Final = 64

_ZONE: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CALLABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}|(?=.{1,128}\Z)[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+")
"""Any tool of a catalog; an MCP server's are `server__tool`."""
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_HIGHEST_PORT: Final = 65535


class ZoneMode(StrEnum):
    RO = "ro"
    RW = "rw"


def read_env(node: Node, place: Place) -> tuple[EnvVariable, ...]:
    made: dict[str, EnvVariable] = {}
    for index, item in enumerate(items(node, place, MOST_VARIABLES)):
        at: Place = (*place, index)
        if isinstance(item, Fields):
            found = fields(item, at, ("name", "required"), ("name",))
            name = variable(found["name"], (*at, "name"))
            required = flag(found["required"], (*at, "required")) if "required" in found else False
        else:
            name, required = variable(item, at), False
        if name in made:
            raise Fault(at, f"{name} is there twice", item.line)
        made[name] = EnvVariable(name=name, required=required)
    return tuple(made.values())


def variable(node: Node, place: Place) -> str:
    """The name of a variable a child may be given."""
    name = exact(node, place, 1000)
    check_variable(name, place, node.line)
    return name


def check_variable(name: str, place: Place, line: int) -> None:
    from golem_forge.sandbox.walls.environment import refused_name

    if why := refused_name(name):
        raise Fault(place, f"'{visible(name[:80])}' {why}", line)


def read_network(node: Node, place: Place) -> bool | tuple[str, ...]:
    if isinstance(node, Scalar):
        if node.said is not Said.TEXT and node.text in ("true", "false"):
            return node.text == "true"
        raise Fault(place, "must be true, false or a list of hosts", node.line)
    made: dict[str, None] = {}
    for index, item in enumerate(items(node, place, MOST_HOSTS)):
        made[_host(item, (*place, index))] = None
    return tuple(made) or False


def split_host(declared: str) -> tuple[str, int | None]:
    """A declared `host` or `host:port` in its parts. Raises ValueError with the reason.

    The host is as `net` effects write it: an IPv6 address stands in brackets.
    """
    from golem_forge.policy.rules.hosts import normal_host

    host, port = declared, ""
    if declared.startswith("["):
        host, bracket, rest = declared.partition("]")
        host += bracket
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("is not a usable address; write IPv6 as [2001:db8::1]:443")
        port = rest[1:] if rest else ""
        if rest and not port:
            raise ValueError("has no port after its `:`")
    elif declared.count(":") == 1:
        host, _, port = declared.partition(":")
        if not port:
            raise ValueError("has no port after its `:`")
    if port and not (_PORT.fullmatch(port) and int(port) <= _HIGHEST_PORT):
        raise ValueError(f"a port is a number from 1 to {_HIGHEST_PORT}")
    name = normal_host(host)
    return (f"[{name}]" if ":" in name else name), int(port) if port else None


def _host(node: Node, place: Place) -> str:
    declared = exact(node, place, 300)
    try:
        if "*" in declared:
            raise ValueError("names one host; patterns belong in rules")
        if "://" in declared:
            raise ValueError("write the host alone, without a scheme")
        host, port = split_host(declared)
    except ValueError as error:
        raise Fault(place, f"'{visible(declared[:80])}': {error}", node.line) from None
    return host if port is None else f"{host}:{port}"


def read_zones(node: Node, place: Place) -> dict[str, str]:
    from golem_forge.sandbox.zones import USER_TOOLS

    found = mapping(node, place, MOST_ZONES)
    for name in found.nodes:
        if name == USER_TOOLS:
            raise Fault((*place, name), "no tool reaches the zone of user tools", found.lines[name])
        if not _ZONE.fullmatch(name):
            problem = (
                f"'{visible(name[:80])}' is no name of a zone (a small letter, then up to 31 of a-z, 0-9, _ and -)"
            )
            raise Fault(place, problem, found.lines[name])
    return {name: choice(item, (*place, name), ZoneMode).value for name, item in found.nodes.items()}


def read_calls(node: Node, place: Place) -> tuple[str, ...]:
    made: dict[str, None] = {}
    for index, item in enumerate(items(node, place, MOST_CALLS)):
        name = exact(item, (*place, index), 1000)
        if not _CALLABLE.fullmatch(name):
            raise Fault((*place, index), f"'{visible(name[:80])}' is no name of a tool", item.line)
        if name in made:
            raise Fault((*place, index), f"'{name}' is there twice", item.line)
        made[name] = None
    return tuple(made)
