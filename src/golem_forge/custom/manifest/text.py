"""manifest_text: a Manifest as the `tool.yaml` that reads back equal. Only what differs from the defaults is in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final

from golem_forge.custom.manifest import EnvVariable, Expectation, Manifest, Parameter, TestCase
from golem_forge.custom.manifest.yaml_writing import yaml_text


def manifest_text(manifest: Manifest, *, stated: Collection[str] = ()) -> str:
    """`stated`: keys that are written even where the default would do, for whoever goes on writing."""
    given = _differing(manifest, stated)
    if "timeout" in given:
        given["timeout"] = _seconds(manifest.timeout)
    if "parameters" in given:
        given["parameters"] = [_parameter(each) for each in manifest.parameters]
    if "env" in given:
        given["env"] = [_variable(each) for each in manifest.env]
    if "tests" in given:
        given["tests"] = [_case(each) for each in manifest.tests]
    return yaml_text(given)


def _differing(value: Any, stated: Collection[str] = ()) -> dict[str, Any]:
    """Fields in declared order, as plain values, without those that say what is so anyway."""
    given: dict[str, Any] = {}
    for field in fields(value):
        found = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if found != default or field.name in stated:
            given[field.name] = found.value if isinstance(found, StrEnum) else found
    return given


_ONLY_MARKS: Final = ("has_default", "has_json")


def _parameter(parameter: Parameter) -> dict[str, Any]:
    given = _differing(parameter, ("default",) if parameter.has_default else ())
    return {key: value for key, value in given.items() if key not in _ONLY_MARKS}


def _variable(variable: EnvVariable) -> Any:
    return {"name": variable.name, "required": True} if variable.required else variable.name


def _case(case: TestCase) -> dict[str, Any]:
    given = _differing(case)
    if "timeout" in given:
        given["timeout"] = _seconds(case.timeout)
    if "expect" in given:
        given["expect"] = _expectation(case.expect)
    return given


def _expectation(expect: Expectation) -> dict[str, Any]:
    given = _differing(expect, ("json",) if expect.has_json else ())
    return {key: value for key, value in given.items() if key not in _ONLY_MARKS}


def _seconds(value: float) -> float | int:
    return int(value) if value.is_integer() else value
