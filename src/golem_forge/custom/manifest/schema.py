"""The JSON Schema of a user tool's parameters: what a model and a form see, and what every call is held against.

Strict (no undeclared arguments), in declared order, nothing but what the manifest says; the same manifest always
gives the same bytes, so that definitions sent to a model do not change between turns.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.custom.manifest import Manifest, Parameter, ParameterType

_BOUNDS: Final = {
    ParameterType.NUMBER: ("minimum", "maximum"),
    ParameterType.INTEGER: ("minimum", "maximum"),
    ParameterType.STRING: ("minLength", "maxLength"),
    ParameterType.ARRAY: ("minItems", "maxItems"),
}


def input_schema(manifest: Manifest) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: parameter_schema(parameter) for parameter in manifest.parameters},
    }
    if required := [parameter.name for parameter in manifest.parameters if parameter.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def parameter_schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type.value, "description": parameter.description}
    if parameter.type is ParameterType.ARRAY:
        schema["items"] = {"type": parameter.items.value}
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    least, most = _BOUNDS.get(parameter.type, ("", ""))
    if parameter.min is not None:
        schema[least] = parameter.min
    if parameter.max is not None:
        schema[most] = parameter.max
    if parameter.pattern:
        schema["pattern"] = parameter.pattern
    if parameter.has_default:
        schema["default"] = parameter.default
    return schema
