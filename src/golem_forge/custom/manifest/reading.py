"""read_manifest: the bytes of a `tool.yaml` in, a Manifest out; every rule of the format, and none that it lacks.

Refuses with Unusable: one code, one message that starts with `tool.yaml:` and names the key, one line. The first
problem in the order of the file is the one that is told; how keys fit together is looked at once each is fine by
itself. Nothing is read but these bytes: whether the entrypoint exists is the folder's question.
`manifest_of` holds nodes that came from no file (what a model asks for) against the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.manifest import (
    LONGEST_TIMEOUT_S,
    MANIFEST,
    ArgumentStyle,
    BooleanFlags,
    Manifest,
    OutputForm,
)
from golem_forge.custom.manifest.cases_reading import read_tests
from golem_forge.custom.manifest.node_reading import (
    choice,
    exact,
    fields,
    filled,
    flag,
    one_line,
    plain_value,
    prose,
    seconds,
)
from golem_forge.custom.manifest.nodes import Fault, Fields, Node, Place
from golem_forge.custom.manifest.parameter_reading import check_style, read_parameters
from golem_forge.custom.manifest.reach_reading import read_calls, read_env, read_network, read_zones
from golem_forge.custom.manifest.yaml_nodes import yaml_nodes
from golem_forge.custom.names import is_reserved, name_problem

SHORTEST_TIMEOUT_S: Final = 0.1
LONGEST_DESCRIPTION: Final = 1024
LONGEST_VERSION: Final = 64
LONGEST_USAGE: Final = 8192
LONGEST_LABEL: Final = 128

REQUIRED: Final = ("name", "description", "version", "entrypoint")


class _Mode(StrEnum):
    LLM = "llm"
    MANUAL = "manual"
    BOTH = "both"


def read_manifest(data: bytes, *, folder: str) -> Manifest:
    """`folder`: the name of the folder it stands in, which must be the tool's."""
    try:
        top = yaml_nodes(data)
        return manifest_of(top, folder)
    except Fault as fault:
        raise Unusable(fault.code, f"{MANIFEST}: {fault}", line=fault.line) from None


def manifest_of(top: Fields, folder: str) -> Manifest:
    """Raises Fault."""
    given: dict[str, Any] = {}
    for key, node in top.nodes.items():
        read = _READERS.get(key)
        if read is not None:
            given[key] = read(node, (key,))
            if key == "name":
                _check_name(given[key], folder, node.line)
        elif key != "tests":
            fields(top, (), (*_READERS, "tests"))
    fields(top, (), top.nodes, REQUIRED)
    if "parameters" in given:
        style = given.get("arguments", ArgumentStyle.FLAGS)
        check_style(top.nodes["parameters"], ("parameters",), given["parameters"], style)
    if "output_schema" in given and given.get("output") is not OutputForm.JSON:
        raise Fault(("output_schema",), "is only used with `output: json`", top.lines["output_schema"])
    if tests := top.nodes.get("tests"):
        given["tests"] = read_tests(tests, ("tests",), given.get("parameters", ()))
    return Manifest(**given)


def _check_name(name: str, folder: str, line: int) -> None:
    if name != folder:
        problem = f"'{visible(name[:80])}' is not the folder's name '{visible(folder[:80])}'; rename one of the two"
        raise Fault(("name",), problem, line, Code.NAME_MISMATCH)
    if problem := name_problem(name):
        raise Fault(("name",), problem, line, Code.NAME_INVALID)
    if is_reserved(name):
        raise Fault(("name",), f"tool name '{name}' is reserved", line, Code.RESERVED_NAME)


def _name(node: Node, place: Place) -> str:
    return filled(exact(node, place, 4096), place, node.line)


def _description(node: Node, place: Place) -> str:
    return filled(one_line(node, place, LONGEST_DESCRIPTION), place, node.line)


def _version(node: Node, place: Place) -> str:
    return filled(one_line(node, place, LONGEST_VERSION), place, node.line)


def _entrypoint(node: Node, place: Place) -> str:
    name = filled(exact(node, place, 4096), place, node.line)
    inside = "/" not in name and "\\" not in name and name not in (".", "..")
    if not inside or visible(name) != name or not name.isprintable() or len(name.encode()) > 255:
        problem = f"'{visible(name[:80])}' must be the name of a file directly in the tool's folder"
        raise Fault(place, problem, node.line, Code.ENTRYPOINT_INVALID)
    return name


def _output_schema(node: Node, place: Place) -> dict[str, Any]:
    from golem_forge.tools.jsonschema import SchemaCheck
    from golem_forge.tools.validation import ToolDefinitionError

    if not isinstance(node, Fields):
        raise Fault(place, "must be a JSON Schema (a mapping)", node.line)
    schema: dict[str, Any] = plain_value(node, place)
    declared = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if str(declared).removesuffix("#") != "https://json-schema.org/draft/2020-12/schema":
        raise Fault((*place, "$schema"), "must be https://json-schema.org/draft/2020-12/schema", node.line)
    try:
        SchemaCheck(schema)
    except ToolDefinitionError as error:
        raise Fault(place, visible(str(error)), node.line) from None
    return schema


def _label(node: Node, place: Place) -> str:
    return one_line(node, place, LONGEST_LABEL)


_READERS: Final[dict[str, Callable[[Node, Place], Any]]] = {
    "name": _name,
    "description": _description,
    "version": _version,
    "entrypoint": _entrypoint,
    "usage": lambda node, place: prose(node, place, LONGEST_USAGE),
    "parameters": read_parameters,
    "arguments": lambda node, place: choice(node, place, ArgumentStyle),
    "boolean_flags": lambda node, place: choice(node, place, BooleanFlags),
    "timeout": lambda node, place: seconds(node, place, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S),
    "env": read_env,
    "network": read_network,
    "zones": read_zones,
    "calls": read_calls,
    "output": lambda node, place: choice(node, place, OutputForm),
    "output_schema": _output_schema,
    "mode": lambda node, place: choice(node, place, _Mode).value,
    "label": _label,
    "category": _label,
    "background": flag,
}
"""In the order of the format. `tests` come last: their arguments are read by the types of the parameters."""
