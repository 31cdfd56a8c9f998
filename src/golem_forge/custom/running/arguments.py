"""Arguments: a call's values as the process gets them, byte for byte. Flags, environment or standard input.

Takes a manifest and validated values (what a parameter defaults to is filled in here), gives a Passed. Refuses with
InputInvalid, naming the parameter, what cannot reach a process unchanged: NUL, broken Unicode, numbers that are none,
more than the kernel hands over. Threat: a value that becomes a second argument or a shell's word; each is one element
of a vector, begins with its own parameter's `--name=`, and no shell ever sees it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from golem_forge.custom.manifest import ArgumentStyle, BooleanFlags, Manifest, Parameter, ParameterType
from golem_forge.tools.validation import InputInvalid

LONGEST: Final = 128 * 1024
"""The kernel takes no longer argument or variable, its end included."""
_MOST_TOGETHER: Final = 1 << 20
"""Of all of them: half of what the kernel takes where the stack has its usual limit."""
_PER_WORD: Final = 16
_INSTEAD: Final = "declare `arguments: stdin-json` in tool.yaml to pass it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    argv: tuple[str, ...] = ()
    """What follows the program."""
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    """None: nothing, standard input is empty."""


def passed(manifest: Manifest, values: Mapping[str, Any], *, paths: Mapping[str, str]) -> Passed:
    """`paths`: for each `path` parameter that has a value, where that file stands inside the walls."""
    given = _given(manifest, values, paths)
    if manifest.arguments is ArgumentStyle.STDIN_JSON:
        return Passed(stdin=_json_object(given))
    if manifest.arguments is ArgumentStyle.ENV:
        env = {variable(parameter.name): _in_env(parameter, value) for parameter, value in given}
        _must_fit(env.items())
        return Passed(env=env)
    argv = tuple(flag for parameter, value in given for flag in _flags(manifest, parameter, value))
    _must_fit((flag, "") for flag in argv)
    return Passed(argv=argv)


def variable(name: str) -> str:
    """The variable that carries a parameter with `arguments: env`."""
    return f"FORGE_ARG_{name.upper().replace('-', '_')}"


def _given(manifest: Manifest, values: Mapping[str, Any], paths: Mapping[str, str]) -> list[tuple[Parameter, Any]]:
    """In declared order, with defaults; what is absent is left out."""
    known = {parameter.name for parameter in manifest.parameters}
    for name in values:
        if name not in known:
            raise _refused(name, "unknown parameter")
    given: list[tuple[Parameter, Any]] = []
    for parameter in manifest.parameters:
        name = parameter.name
        if name in paths:
            given.append((parameter, paths[name]))
        elif name in values:
            given.append((parameter, _as_declared(parameter, values[name])))
        elif parameter.has_default:
            given.append((parameter, parameter.default))
        elif parameter.required:
            raise _refused(name, "missing required parameter")
    return given


def _as_declared(parameter: Parameter, value: Any) -> Any:
    """`3.0` is an integer to JSON Schema, and not to many programs that read JSON."""
    kind = parameter.items if parameter.type is ParameterType.ARRAY else parameter.type
    if kind is not ParameterType.INTEGER:
        return value
    if isinstance(value, list | tuple):
        return [int(item) if isinstance(item, float) and item.is_integer() else item for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flags(manifest: Manifest, parameter: Parameter, value: Any) -> Iterator[str]:
    name = parameter.name
    if parameter.type is ParameterType.BOOLEAN and isinstance(value, bool):
        style = parameter.flag or manifest.boolean_flags
        if style is BooleanFlags.EQUALS:
            yield f"--{name}={_word(value)}"
        elif value:
            yield f"--{name}"
        elif style is BooleanFlags.PAIR:
            yield f"--no-{name}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield _flag(name, item, f"{name}[{index}]")
    else:
        yield _flag(name, value, name)


def _flag(name: str, value: Any, place: str) -> str:
    flag = f"--{name}={_text(value, place)}"
    if len(flag) >= LONGEST // 4 and len(flag.encode()) >= LONGEST:
        raise _refused(place, f"is longer than 128 KiB; {_INSTEAD}")
    return flag


def _in_env(parameter: Parameter, value: Any) -> str:
    name = parameter.name
    text = _json(value, name) if isinstance(value, list | tuple) else _text(value, name)
    if len(variable(name)) + 1 + len(text.encode()) >= LONGEST:
        raise _refused(name, f"is longer than 128 KiB; {_INSTEAD}")
    return text


def _must_fit(words: Any) -> None:
    size = sum(len(name.encode()) + len(value.encode()) + _PER_WORD for name, value in words)
    if size > _MOST_TOGETHER:
        raise InputInvalid(f"the arguments are together longer than 1 MiB; {_INSTEAD} more")


def _text(value: Any, place: str) -> str:
    """A scalar as a program reads it."""
    if isinstance(value, str):
        if "\0" in value:
            raise _refused(place, "contains a NUL byte, which no argument of a program can hold")
        return _unicode(value, place)
    if isinstance(value, bool | int | float):
        return _word(value, place)
    raise _refused(place, f"cannot be passed this way; {_INSTEAD}")


def _word(value: bool | int | float, place: str = "") -> str:
    """`true`, `20`, `3.14`: the shortest decimal that reads back to the same number, without an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return format(Decimal(value), "f")  # `str` refuses some thousand digits and more
    if not math.isfinite(value):
        raise _refused(place, "must be a finite number")
    return format(Decimal(repr(float(value))), "f").removesuffix(".0")


def _json_object(given: list[tuple[Parameter, Any]]) -> bytes:
    members = (
        f"{json.dumps(parameter.name, ensure_ascii=False)}:{_json(value, parameter.name)}" for parameter, value in given
    )
    return f"{{{','.join(members)}}}\n".encode()


def _json(value: Any, place: str) -> str:
    """Compact JSON of plain data. Text that JSON cannot say in UTF-8, and numbers that are none, are refused."""
    if isinstance(value, list | tuple):
        return f"[{','.join(_json(item, f'{place}[{index}]') for index, item in enumerate(value))}]"
    if isinstance(value, Mapping):
        members = (
            f"{_json(_key(key, place), place)}:{_json(item, _unicode(f'{place}.{key}', place))}"
            for key, item in value.items()
        )
        return f"{{{','.join(members)}}}"
    if isinstance(value, str):
        return json.dumps(_unicode(value, place), ensure_ascii=False)
    if isinstance(value, bool | int):
        return _word(value, place)
    if isinstance(value, float):
        _word(value, place)
        return repr(float(value))
    if value is None:
        return "null"
    raise _refused(place, "is not a JSON value")


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        raise _refused(place, "is not a JSON value")
    return key


def _unicode(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(place, "is not valid Unicode") from None
    return text


def _refused(place: str, problem: str) -> InputInvalid:
    place = place.encode("utf-8", "replace").decode()
    return InputInvalid(f"{place}: {problem}", fields=((place, problem),))
