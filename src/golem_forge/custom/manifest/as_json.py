"""Manifests as JSON, for the registry's cache: what was read from YAML once is not read from YAML again.

`manifest_to_json` gives plain values without those that are defaults; `manifest_from_json` gives the Manifest back and
raises (KeyError, TypeError, ValueError, AttributeError) for anything else. It checks no rule of the manifest: whoever
uses a manifest that came this way holds it against the YAML first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from golem_forge.custom.manifest import (
    ArgumentStyle,
    BooleanFlags,
    EnvVariable,
    Expectation,
    Manifest,
    OutputForm,
    Parameter,
    ParameterType,
    PathUse,
    TestCase,
)


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(manifest)
    return plain


def manifest_from_json(data: Mapping[str, Any]) -> Manifest:
    return Manifest(
        **_converted(
            data,
            parameters=lambda found: tuple(map(_parameter, found)),
            arguments=ArgumentStyle,
            boolean_flags=BooleanFlags,
            env=lambda found: tuple(EnvVariable(**each) for each in found),
            network=lambda found: found if isinstance(found, bool) else tuple(found),
            calls=tuple,
            output=OutputForm,
            tests=lambda found: tuple(map(_test, found)),
        )
    )


def _parameter(data: Mapping[str, Any]) -> Parameter:
    types = {"type": ParameterType, "items": ParameterType, "flag": BooleanFlags, "path": PathUse}
    return Parameter(**_converted(data, enum=tuple, **types))


def _test(data: Mapping[str, Any]) -> TestCase:
    return TestCase(**_converted(data, expect=_expectation))


def _expectation(data: Mapping[str, Any]) -> Expectation:
    return Expectation(**_converted(data, stdout_contains=tuple, stderr_contains=tuple))


def _converted(data: Mapping[str, Any], **by_key: Callable[[Any], Any]) -> dict[str, Any]:
    return {key: by_key[key](value) if key in by_key else value for key, value in data.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        held = ((each, getattr(value, each.name)) for each in fields(value))
        return {each.name: _plain(item) for each, item in held if not _is_default(item, each.default)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_default(value: Any, default: Any) -> bool:
    """True is not 1 here, nor 30 the same as 30.0."""
    return type(value) is type(default) and bool(value == default)
