"""Options bound by the tool's schema (ui.md §6, case 14)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from golem_forge.tools.cli_args import (
    BindingError,
    BoundOptions,
    OptionToken,
    bind_options,
    bind_partial,
    words_as_tokens,
)

PUSH = {
    "type": "object",
    "properties": {
        "branch": {"type": "string"},
        "remote": {"enum": ["origin", "upstream"], "default": "origin"},
        "force": {"type": "boolean", "default": False},
    },
    "required": ["branch"],
}
ALL = {
    "type": "object",
    "properties": {
        "msg": {"type": "string"},
        "n": {"type": "integer"},
        "count": {"type": "integer", "minimum": -10},
        "ratio": {"type": "number"},
        "tag": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "array", "items": {"type": "integer"}},
        "opts": {"type": "object"},
        "level": {"enum": [1, 2, "high", None]},
        "a": {"type": "boolean"},
        "b": {"type": "boolean"},
        "c": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        "dry_run": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "note": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"$ref": "#/$defs/point"}]},
        "any": {},
        "where": {"$ref": "#/$defs/point"},
        "wrapped": {"allOf": [{"$ref": "#/$defs/colour"}]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "max-size": {"type": "integer"},
        "fixed": {"const": "v1"},
        "no_cache": {"type": "boolean"},
        "only": {"type": "boolean", "enum": [True]},
        "nothing": {"type": "null"},
    },
    "$defs": {
        "point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        "colour": {"enum": ["red", "green"]},
    },
}


def tokens(line: str) -> list[OptionToken]:
    """Words of a line and where they begin; ~ stands for an empty word."""
    found, position = [], 0
    for word in line.split(" "):
        if word:
            found.append(OptionToken("" if word == "~" else word, position))
        position += len(word) + 1
    return found


@table(
    ("line", "args"),
    [
        ("--msg ~", {"msg": ""}),
        ("--n 5", {"n": 5}),
        ("--msg -hello", {"msg": "-hello"}),
        ("--msg --force", {"msg": "--force"}),
        ("--msg --", {"msg": "--"}),
        ("--msg -i", {"msg": "-i"}),
        ("--msg=a=b", {"msg": "a=b"}),
        ("--msg=", {"msg": ""}),
        ("--msg 007", {"msg": "007"}),
        ("--msg null", {"msg": "null"}),
        ("--count -5", {"count": -5}),
        ("--count=-5", {"count": -5}),
        ("-abc", {"a": True, "b": True, "c": True}),
        ("-ab -n 3", {"a": True, "b": True, "n": 3}),
        ("-abn 3", {"a": True, "b": True, "n": 3}),
        ("-n=3", {"n": 3}),
        ("-r -.5", {"ratio": -0.5}),
        ("--no-a", {"a": False}),
        ("--a=false --b=true", {"a": False, "b": True}),
        ("--a true --b false", {"a": True, "b": False}),
        ("--a yes --b no", {"a": True, "b": False}),
        ("--a 1 --b 0 --n 1", {"a": True, "b": False, "n": 1}),
        ("--a=yes --b=0", {"a": True, "b": False}),
        ("--c false", {"c": False}),
        ("-a false -b --msg true", {"a": False, "b": True, "msg": "true"}),
        ("-ab false", {"a": True, "b": False}),
        ("--a --b true", {"a": True, "b": True}),
        ("--dry-run no", {"dry_run": False}),
        ("--only yes", {"only": True}),
        ("--dry-run", {"dry_run": True}),
        ("--dry_run", {"dry_run": True}),
        ("--no-dry-run", {"dry_run": False}),
        ("--no-cache", {"no_cache": True}),
        ("--max_size 3", {"max-size": 3}),
        ("--c=null", {"c": None}),
        ("--tag x --tag y", {"tag": ["x", "y"]}),
        ("--tag x", {"tag": ["x"]}),
        ('--tag ["x","y"]', {"tag": ["x", "y"]}),
        ("--tag [draft]", {"tag": ["[draft]"]}),
        ('--tag ["x"] --tag y', {"tag": ['["x"]', "y"]}),
        ("--size 1 --size -2", {"size": [1, -2]}),
        ('--points {"x":1} --points {"x":2}', {"points": [{"x": 1}, {"x": 2}]}),
        ("--ratio 5", {"ratio": 5}),
        ("--ratio 2.5e3", {"ratio": 2500.0}),
        ('--opts {"k":[1]}', {"opts": {"k": [1]}}),
        ('--where {"x":1}', {"where": {"x": 1}}),
        ("--level 2", {"level": 2}),
        ("--level high", {"level": "high"}),
        ("--level null", {"level": None}),
        ("--maybe null", {"maybe": None}),
        ("--maybe 4", {"maybe": 4}),
        ("--note null", {"note": None}),
        ("--note x", {"note": "x"}),
        ("--either 4", {"either": 4}),
        ("--either four", {"either": "four"}),
        ('--either {"x":1}', {"either": {"x": 1}}),
        ('--either {"x":"y"}', {"either": '{"x":"y"}'}),
        ("--either true", {"either": "true"}),
        ("--any [1]", {"any": [1]}),
        ("--any text", {"any": "text"}),
        ("--any NaN", {"any": "NaN"}),
        ("--wrapped red", {"wrapped": "red"}),
        ("--fixed v1", {"fixed": "v1"}),
        ("--nothing null", {"nothing": None}),
        ("--n 5 --", {"n": 5}),
        ("", {}),
    ],
)
def test_14_values_take_their_type_from_the_schema(line: str, args: dict[str, Any]) -> None:
    bound = bind_options(ALL, tokens(line))
    assert bound == args
    assert {name: type(value) for name, value in bound.items()} == {name: type(value) for name, value in args.items()}


@table(
    ("schema", "line", "message"),
    [
        (PUSH, "/git_push --brnach x", "Unknown option '--brnach' at position 10 (did you mean '--branch'?)"),
        (PUSH, "/git_push --zzz x", "Unknown option '--zzz' at position 10"),
        (PUSH, "/git_push --no-branch", "Unknown option '--no-branch' at position 10 (did you mean '--branch'?)"),
        (PUSH, "/git_push --no-forec", "Unknown option '--no-forec' at position 10 (did you mean '--no-force'?)"),
        (PUSH, "/git_push -z", "Unknown option '-z' at position 10"),
        (PUSH, "/git_push --branch", "Missing value for '--branch' at position 10"),
        (PUSH, "/git_push -b", "Missing value for '-b' at position 10"),
        (PUSH, "/git_push", "Missing required: branch"),
        (PUSH, "/git_push --remote x --branch y", "'--remote' at position 10: must be one of origin, upstream"),
        (PUSH, "/git_push --remote Origin", "'--remote' at position 10: must be one of origin, upstream"),
        (PUSH, "/git_push main", "Unexpected argument 'main' at position 10"),
        (PUSH, "/git_push -5", "Unexpected argument '-5' at position 10"),
        (PUSH, "/git_push -", "Unexpected argument '-' at position 10"),
        (PUSH, "/git_push -- main", "Unexpected argument 'main' at position 13"),
        (PUSH, "/git_push --force main", "Unexpected argument 'main' at position 18"),
        (PUSH, "/git_push --force 2", "Unexpected argument '2' at position 18"),
        (PUSH, "/git_push --force true false", "Unexpected argument 'false' at position 23"),
        (PUSH, "/git_push --no-force true", "Unexpected argument 'true' at position 21"),
        (PUSH, "/git_push --force true --force", "'--force' at position 23: given twice"),
        (PUSH, "/git_push --force=maybe", "'--force' at position 10: expected boolean, got \"maybe\""),
        (PUSH, "/git_push --force=", "'--force' at position 10: expected boolean, got \"\""),
        (PUSH, "/git_push --no-force=1", "'--no-force' at position 10: takes no value"),
        (PUSH, "/git_push --force --no-force", "'--no-force' at position 18: given twice"),
        (PUSH, "/git_push --branch a --branch b", "'--branch' at position 21: given twice"),
        (ALL, '/list --opts {"a":1,"a":2}', "'--opts' at position 6: a key stands twice in one object"),
        (ALL, '/list --tag [{"a":1,"a":2}]', "'--tag' at position 6: a key stands twice in one object"),
        (ALL, "/list --count abc", "'--count' at position 6: expected integer, got \"abc\""),
        (ALL, "/list --count 1.5", "'--count' at position 6: expected integer, got \"1.5\""),
        (ALL, "/list --count ~", "'--count' at position 6: expected integer, got \"\""),
        (ALL, "/list --count null", "'--count' at position 6: expected integer, got \"null\""),
        (ALL, "/list --count ٣", "'--count' at position 6: expected integer, got \"٣\""),
        (ALL, "/list --ratio nan", "'--ratio' at position 6: expected number, got \"nan\""),
        (ALL, "/list --ratio 1e9999", "'--ratio' at position 6: expected number, got \"1e9999\""),
        (ALL, "/list --opts abc", "'--opts' at position 6: expected object, got \"abc\""),
        (ALL, "/list --opts [1]", "'--opts' at position 6: expected object, got \"[1]\""),
        (ALL, "/list --size 1 --size x", "'--size' at position 15: expected integer, got \"x\""),
        (ALL, "/list --nothing x", "'--nothing' at position 6: expected null, got \"x\""),
        (ALL, "/list -nab 3", "'-n' at position 6: needs a value and cannot stand inside '-nab'"),
        (ALL, "/list --\x1b[31m", "Unknown option '--\\x1b[31m' at position 6"),
    ],
)
def test_14_errors_say_what_and_where(schema: dict[str, Any], line: str, message: str) -> None:
    with pytest.raises(BindingError) as refused:
        bind_options(schema, tokens(line)[1:])
    assert str(refused.value) == message


def test_an_ambiguous_letter_names_all_it_could_mean() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "pattern": {"type": "string"}}}
    with pytest.raises(BindingError) as refused:
        bind_options(schema, tokens("-p x"))
    assert str(refused.value) == "'-p' is ambiguous: --path, --pattern"
    schema["properties"]["p"] = {"type": "string"}
    assert bind_options(schema, tokens("-p x")) == {"p": "x"}


@table(
    ("words", "message"),
    [
        (["--brnach", "x"], "Unknown option '--brnach' (did you mean '--branch'?)"),
        (["--branch"], "Missing value for '--branch'"),
        (["--remote", "x"], "'--remote': must be one of origin, upstream"),
        (["main"], "Unexpected argument 'main'"),
    ],
)
def test_words_of_a_shell_have_no_position(words: list[str], message: str) -> None:
    with pytest.raises(BindingError) as refused:
        bind_options(PUSH, words_as_tokens(words))
    assert str(refused.value) == message


def test_16_what_was_given_is_kept_for_the_form() -> None:
    assert bind_partial(PUSH, tokens("-i --force")) == BoundOptions({"force": True}, ("branch",), True)
    several = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    with pytest.raises(BindingError, match=r"^Missing required: a, b$"):
        bind_options(several, [])


def test_i_is_always_interactive_even_where_a_parameter_begins_with_it() -> None:
    schema = {"type": "object", "properties": {"input": {"type": "string"}}}
    assert bind_partial(schema, tokens("-i")) == BoundOptions({}, (), True)


def test_required_with_a_default_is_not_missing() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}
    assert bind_options(schema, []) == {}


@table("schema", [{}, {"type": "object"}, {"properties": None}, {"$ref": "#"}, {"$ref": "other"}])
def test_a_schema_without_parameters_takes_none(schema: dict[str, Any]) -> None:
    assert bind_options(schema, []) == {}
    with pytest.raises(BindingError, match="Unknown option '--x'"):
        bind_options(schema, words_as_tokens(["--x", "1"]))


def test_a_huge_value_is_not_repeated_in_full() -> None:
    with pytest.raises(BindingError) as refused:
        bind_options(ALL, words_as_tokens(["--n", "x" * 100_000]))
    assert len(str(refused.value)) < 200
