"""Forms on the page: what they send is what `tools/forms.py` would send, every kind of field takes and gives its value,
and what is wrong stands at its field."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.ui.web.bench import Window, Windows, browsing

from golem_forge.tools.forms import derive_fields, form_arguments

pytestmark = browsing

_NAMES = st.sampled_from(["a", "branch", "__proto__", "constructor", "toString", "Ünï", "x y"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)
_PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 500},
        {"type": "string", "format": "password"},
        {"type": ["string", "null"]},
        {"type": "integer", "minimum": 1},
        {"type": "boolean"},
        {"type": "boolean", "default": False},
        {"enum": ["x", 1, None]},
        {"const": {"k": 1}},
        {"type": "array", "items": {"enum": ["p", "q"]}},
        {"type": "object"},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "object", "properties": {"k": {"const": "c"}}}, {"type": "number"}]},
    ]
)
_SCHEMAS = st.recursive(
    _PLAIN,
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda parts, needed: {
                "type": "object",
                "properties": parts,
                "required": [n for n in parts if n in needed],
            },
            st.dictionaries(_NAMES, inner, min_size=1, max_size=3),
            st.sets(_NAMES),
        )
    ),
    max_leaves=6,
)
_OBJECTS = st.builds(
    lambda parts, needed: {"type": "object", "properties": parts, "required": [n for n in parts if n in needed]},
    st.dictionaries(_NAMES, _SCHEMAS, min_size=1, max_size=4),
    st.sets(_NAMES),
)
_VALUES = st.dictionaries(_NAMES | st.just("stray"), _JSON, max_size=5)


async def test_a_form_sends_what_python_would_send(functions: Window) -> None:
    cases: list[dict[str, Any]] = []

    @settings(database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(_OBJECTS, _VALUES)
    def collect(schema: dict[str, Any], values: dict[str, Any]) -> None:
        cases.append({"fields": derive_fields(schema), "values": values})

    collect()
    sent = await functions.run(
        """async (cases) => {
          const { formArguments } = await import("/forms/arguments.js");
          return cases.map(text => JSON.parse(text)).map(one => JSON.stringify(formArguments(one.fields, one.values)));
        }""",
        [json.dumps(case) for case in cases],
    )
    wanted = [form_arguments(case["fields"], case["values"]) for case in cases]
    assert [_read(text) for text in sent] == wanted
    assert sum(bool(one) for one in wanted) > 10, "the cases say something"


_EVERY_KIND = {
    "type": "object",
    "required": ["branch", "amount", "ready", "remote", "where", "target", "many"],
    "properties": {
        "branch": {"type": "string", "description": "Target branch"},
        "__proto__": {"type": "string"},
        "note": {"type": "string", "maxLength": 5000},
        "token": {"type": "string", "format": "password"},
        "amount": {"type": "integer", "minimum": 1},
        "ready": {"type": "boolean"},
        "force": {"type": "boolean", "default": False},
        "maybe": {"type": ["boolean", "null"]},
        "remote": {"enum": ["origin", "upstream"]},
        "level": {"enum": [1, "1", None]},
        "kinds": {"type": "array", "items": {"enum": ["p", "q", "r"]}},
        "many": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "where": {
            "type": "object",
            "required": ["street"],
            "properties": {"street": {"type": "string"}, "zip": {"type": "integer"}},
        },
        "more": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
        "target": {
            "oneOf": [
                {"title": "File", "type": "object", "properties": {"kind": {"const": "f"}, "path": {"type": "string"}}},
                {"title": "Number", "type": "integer"},
            ]
        },
        "extra": {"type": "object"},
        "day": {"type": "string", "format": "date"},
        "fixed": {"const": 7},
    },
}
_MOUNT = """async ({fields, values}) => {
  const { formFor } = await import("/forms/form.js");
  window.form = formFor(fields, values);
  document.querySelector("main").replaceChildren(form.node);
}"""
_SENT = "() => JSON.stringify(form.values())"


async def test_every_kind_of_field_takes_and_gives_its_value(windows: Windows) -> None:
    window = await windows.with_modules()
    page = window.page
    await window.run(_MOUNT, {"fields": derive_fields(_EVERY_KIND), "values": {}})
    assert await window.run(_SENT) == "null", "nothing is sent while something is missing"
    assert await window.focused() == "Branch (required)", "the first problem has the focus"
    missing = page.locator("[aria-invalid=true]")
    assert await missing.count() >= 5, "each missing value says so at once"
    branch = page.get_by_label("Branch (required)")
    described = await branch.get_attribute("aria-describedby")
    assert described is not None
    words = [await page.locator(f"#{one}").inner_text() for one in described.split()]
    assert words == ["Target branch", "✗ a value is needed"], "the error is tied to its field"

    await branch.fill("dev")
    await branch.press("Shift+Enter")
    await page.keyboard.type("x")
    assert await branch.get_attribute("aria-invalid") is None, "typing takes the error away"
    await page.get_by_label("Amount (required)").fill("12345678901234567890")
    await page.get_by_label("Ready").check()
    await page.get_by_label("Remote (required)").select_option(label="upstream")
    await page.get_by_label("Level").select_option(index=2)
    await page.get_by_label("q", exact=True).check()
    await page.get_by_label("Many 1").fill("one")
    await page.get_by_role("button", name="Add to Many").click()
    assert await window.focused() == "Many 2 (required)", "a new item has the focus"
    await page.keyboard.type("two")
    await page.get_by_role("button", name="Move item 2 up").click()
    await page.get_by_label("Street").fill("Main")
    await page.get_by_label("Target (required)").select_option(label="File")
    await page.get_by_label("Path").fill("/a")
    await page.get_by_label("Extra").fill('{"n": 9007199254740993}')
    await page.get_by_label("Token").fill("canary-token")
    sent = _read(await window.run(_SENT))
    assert sent == {
        "branch": "dev\nx",
        "token": "canary-token",
        "amount": 12345678901234567890,
        "ready": True,
        "force": False,
        "maybe": None,
        "remote": "upstream",
        "level": "1",
        "kinds": ["q"],
        "many": ["two", "one"],
        "where": {"street": "Main"},
        "target": {"kind": "f", "path": "/a"},
        "extra": {"n": 9007199254740993},
        "fixed": 7,
    }
    await window.run("() => form.forget()")
    assert await page.get_by_label("Token").input_value() == "", "a secret does not stay"
    assert await window.accessible() == []


async def test_a_form_starts_from_values_and_shows_errors_by_path(windows: Windows) -> None:
    window = await windows.with_modules(dark=True)
    page = window.page
    values = {
        "branch": "a\u202eb\r\nand so on",
        "note": "",
        "token": "[secret, not shown]",
        "amount": 3,
        "ready": False,
        "remote": "origin",
        "kinds": [],
        "many": ["x"],
        "where": {"street": "S", "zip": 5},
        "more": {"x": "here"},
        "target": 4,
    }
    await window.run(_MOUNT, {"fields": derive_fields(_EVERY_KIND), "values": values})
    assert "a\\u202eb" in await window.text(), "hidden characters of a value are said"
    assert await page.get_by_label("Token").input_value() == "", "a secret is never prefilled"
    kept = {name: value for name, value in values.items() if name not in ("token", "note")}
    assert _read(await window.run(_SENT)) == {**kept, "force": False, "maybe": None, "level": None, "fixed": 7}
    await window.run(
        "(errors) => form.showErrors(errors)",
        {"where": "where.zip: too small; where.street: too short", "many[0]": "not x", "": "not now"},
    )
    said = await page.locator(".field-error:visible").all_inner_texts()
    assert [re.sub(r"^✗ ", "", one) for one in said] == ["not now", "not x", "too short", "too small"]
    assert await page.get_by_label("Zip").get_attribute("aria-invalid") == "true"


def _read(text: str) -> Any:
    return json.loads(text)
