"""Forms with values in them, and the secrets that are not (ui.md §7)."""

from __future__ import annotations

from typing import Any

from golem_forge.tools.forms import (
    MASK,
    derive_fields,
    errors_by_field,
    form_arguments,
    mask_secrets,
    prefill_fields,
    restore_secrets,
    secret_fields,
    secret_texts,
)

SECRET = {"type": "string", "format": "password"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "password": SECRET,
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "server": {
            "type": "object",
            "properties": {"host": {"type": "string"}, "token": SECRET},
            "required": ["host", "token"],
        },
        "others": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "pin": SECRET}},
        },
        "version": {"const": 2},
    },
    "required": ["user", "password", "server"],
}
FIELDS = derive_fields(SCHEMA)
VALUES: dict[str, Any] = {
    "user": "ann",
    "password": "canary-1",
    "nick": "a",
    "server": {"host": "h", "token": "canary-2"},
    "others": [{"name": "x", "pin": "canary-3"}, {"name": "y", "pin": "canary-4"}],
    "version": 2,
}


def test_values_are_filled_in_at_every_level_and_secrets_at_none() -> None:
    filled = {field["name"]: field for field in prefill_fields(FIELDS, VALUES)}
    assert filled["user"]["default"] == "ann"
    assert filled["server"]["fields"][0]["default"] == "h"
    assert "canary" not in repr(filled)
    assert filled["version"] == next(field for field in FIELDS if field["name"] == "version")
    assert "canary" not in repr(FIELDS) and "default" not in FIELDS[0]  # the form itself is left as it was


def test_a_field_that_may_be_null_still_may() -> None:
    fields = prefill_fields(FIELDS, {"nick": "a"})
    assert form_arguments(fields, {"nick": ""})["nick"] is None
    assert form_arguments(fields, {"nick": "b"})["nick"] == "b"


def test_secrets_are_masked_at_every_level() -> None:
    shown = mask_secrets(FIELDS, VALUES)
    assert "canary" not in repr(shown)
    assert shown["password"] == shown["server"]["token"] == shown["others"][1]["pin"] == MASK
    assert shown["others"][1]["name"] == "y" and VALUES["password"] == "canary-1"


def test_what_was_left_empty_or_masked_stays_what_it_was() -> None:
    edited = {
        "user": "bob",
        "password": "",
        "server": {"host": "other"},
        "others": [{"name": "x", "pin": MASK}, {"name": "y", "pin": "canary-new"}],
    }
    kept = restore_secrets(FIELDS, edited, VALUES)
    assert (kept["user"], kept["password"]) == ("bob", "canary-1")
    assert kept["server"] == {"host": "other", "token": "canary-2"}
    assert [each["pin"] for each in kept["others"]] == ["canary-3", "canary-new"]
    assert restore_secrets(FIELDS, {"user": "c"}, {"user": "d"}) == {"user": "c"}


def test_problems_go_to_the_field_they_are_in() -> None:
    problems = [("n", "too big"), ("tags[0].name", "too long"), ("n", "odd"), ("", "as a whole")]
    assert errors_by_field(problems) == {"n": "too big; odd", "tags": "tags[0].name: too long", "": "as a whole"}


HIDDEN: Any = {
    "$defs": {
        "Login": {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}, "required": ["pin"]},
        "Guest": {"type": "object", "properties": {"nick": {"type": "string"}}, "required": ["nick"]},
        "Step": {
            "type": "object",
            "properties": {"pin": {"type": "string", "format": "password"}, "next": {"$ref": "#/$defs/Step"}},
        },
    },
    "type": "object",
    "properties": {
        "headers": {"type": "object", "additionalProperties": {"type": "string", "writeOnly": True}},
        "logins": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Login"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string", "format": "password"}, {"type": "integer"}]},
        "rows": {"type": "array", "items": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Login"}}},
        "number": {"type": "integer", "writeOnly": True},
        "words": {"type": "array", "writeOnly": True, "items": {"type": "string"}},
        "who": {"anyOf": [{"$ref": "#/$defs/Login"}, {"$ref": "#/$defs/Guest"}]},
        "step": {"$ref": "#/$defs/Step"},
        "plain": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["headers", "logins"],
}


def test_a_secret_that_no_field_of_a_form_stands_for_is_hidden_all_the_same() -> None:
    step: Any = {"pin": "canary-end"}
    for level in range(9):
        step = {"pin": f"canary-step-{level}", "next": step}
    values: Any = {
        "headers": {"X": "canary-header"},
        "logins": {"a": {"pin": "canary-login"}},
        "pair": ["canary-pair", 1],
        "rows": [{"b": {"pin": "canary-row"}}],
        "number": 123456789,
        "words": ["canary-word"],
        "who": {"pin": "canary-who"},
        "step": step,
        "plain": {"shown": "as it is"},
    }
    shown = mask_secrets(secret_fields(HIDDEN), values)
    assert "canary" not in repr(shown) and "123456789" not in repr(shown)
    assert shown["plain"] == values["plain"]
    fields = derive_fields(HIDDEN)
    assert "canary" not in repr(prefill_fields(fields, values))
    edited = {**shown, "headers": "", "plain": {}}
    assert restore_secrets(fields, edited, values) == {**values, "plain": {}}
    known = set(secret_texts(fields, values))
    assert {"canary-header", "canary-login", "canary-pair", "canary-row", "canary-word", "canary-who"} < known
    assert {"canary-end", "canary-step-0", "canary-step-8"} < known
    assert not known & {"as it is", "shown"}
    assert set(secret_texts(fields, {"who": {"nick": "somebody"}})) == set()
