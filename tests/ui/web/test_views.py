"""Results as a page shows them: by kind and hint, bounded, whatever a tool returned."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_forge.events.serialization import Event, encode_json
from golem_forge.tools.results import to_result
from golem_forge.ui.web.views import SizeLimits, both_ends, bounded_json, event_with_view, result_view

MIB = 1 << 20


def view(value: Any, **more: Any) -> dict[str, Any]:
    return result_view(
        {
            "toolCallId": "c",
            "toolName": "t",
            "args": {},
            "status": "success",
            "durationMs": 12.3,
            "decision": None,
            "truncated": False,
            "value": value,
            **more,
        }
    )


def custom(data: Any, preferred: str, **more: Any) -> dict[str, Any]:
    return {"kind": "x.y", "data": data, "display": {"preferredView": preferred}, **more}


def of_tool(value: Any) -> dict[str, Any]:
    return view(dict(to_result(value).value))


def test_text() -> None:
    made = view({"kind": "text", "content": "hello"})
    assert (made["form"], made["text"], made["cut"], made["took"]) == ("text", "hello", False, "12 ms")
    long = view({"kind": "text", "content": "a" * 100_000 + "END"})
    assert (
        long["cut"] and long["text"].endswith("END") and "characters …" in long["text"] and len(long["text"]) < 66_000
    )


def test_markdown_and_code_are_html_only_in_their_own_member() -> None:
    made = view(custom("# Hi <img src=x>", "markdown"))
    assert (made["form"], made["html"]) == ("markdown", "<h3>Hi &lt;img src=x&gt;</h3>")
    made = view(custom("x = '<b>'", "code") | {"display": {"preferredView": "code", "language": "PY"}})
    assert (made["form"], made["language"], made["text"]) == ("code", "python", "x = '<b>'")
    assert '<span class="n">x</span>' in made["html"] and "<b>" not in made["html"]
    assert view(custom("x", "code") | {"display": {"preferredView": "code", "language": "nope"}})["language"] == ""


def test_a_file_is_code_by_its_name() -> None:
    made = view({"kind": "file_content", "path": "/w/a.py", "content": "import os\n", "size": 10})
    assert (made["form"], made["language"], made["summary"]) == ("code", "python", "/w/a.py (10 bytes)")
    assert view({"kind": "file_content", "path": "/w/a", "content": "x", "size": 1})["form"] == "text"


@pytest.mark.parametrize(
    ("value", "summary", "counts"),
    [
        ({"original": "a\n", "modified": "a\n", "isNew": False}, "/w/a no changes", (0, 0)),
        ({"original": "a\n", "modified": "a\n\n", "isNew": False}, "/w/a +1 −0", (1, 0)),
        ({"modified": "a\n", "isNew": True}, "/w/a new file", (1, 0)),
        ({"modified": "a\n", "isNew": False}, "/w/a +? −?", (-1, -1)),
    ],
)
def test_u21_a_diff(value: dict[str, Any], summary: str, counts: tuple[int, int]) -> None:
    made = view({"kind": "diff", "path": "/w/a", "bytesWritten": 2, **value})
    assert (made["form"], made["summary"], (made["added"], made["removed"])) == ("diff", summary, counts)


def test_a_diff_too_large_to_compare_says_so_and_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difflib, "SequenceMatcher", None)
    big = "line\n" * 10_000_000
    made = view(
        {"kind": "diff", "path": "/w/a", "original": big, "modified": big + "x", "isNew": False, "bytesWritten": 1}
    )
    assert made["cut"] and made["summary"] == "/w/a +? −?"
    patch = "--- a/x\n+++ b/x\n@@ -0,0 +1,90000 @@\n" + "+0123456789\n" * 90_000
    made = view({"kind": "patch.result", "diff": patch})
    assert made["cut"] and "lines between, display cut" in made["diff"] and made["diff"].endswith("+0123456789\n")
    assert made["added"] == 90_000


def test_files_tables_trees() -> None:
    made = view({"kind": "file_list", "path": "/w", "files": [f"f{n}" for n in range(600)], "count": 700})
    assert (made["form"], len(made["files"]), made["count"], made["cut"]) == ("files", 500, 700, True)
    assert made["summary"] == "/w (700 entries)"
    rows = [{"a": n, "b": {"c": [n]}, "long": "x" * 999} for n in range(300)]
    made = view(custom(rows, "table"))
    assert (made["form"], made["columns"], made["count"], made["cut"]) == ("table", ["a", "b", "long"], 300, True)
    assert made["rows"][0] == ["0", '{"c":[0]}', "x" * 199 + "…"] and len(made["rows"]) == 200
    assert view(custom([1, 2], "table"))["form"] == "tree"
    assert view(custom([], "table"))["form"] == "tree"
    tree = view(custom({"a": list(range(5_000))}, "tree"))
    assert tree["form"] == "tree" and tree["cut"] and tree["data"]["a"][-1] == 4_999


def test_commands_hidden_and_failed() -> None:
    made = view({"kind": "exec.result", "stdout": "out", "stderr": "err", "exit_code": 1})
    assert made["parts"] == [{"stream": "stdout", "text": "out"}, {"stream": "stderr", "text": "err"}]
    assert (made["form"], made["summary"]) == ("output", "exit 1")
    assert view(custom("secret", "hidden"))["form"] == "hidden"
    failed = view(None, status="execution_failed", error="no\nsuch file")
    assert failed["summary"] == "execution_failed: no such file"
    notes = view({"kind": "text", "content": "x"}, truncated=True, outputHandle="out_1")["notes"]
    assert notes == ["output truncated, handle out_1"]


def test_hints_collapse_and_limit() -> None:
    value = {"kind": "text", "content": "x", "display": {"collapsed": True, "maxHeight": 7.9, "odd": 1}}
    assert (view(value)["collapsed"], view(value)["maxHeight"]) == (True, 7)
    assert view({"kind": "text", "content": "x", "display": {"maxHeight": 1e300}})["maxHeight"] == 10_000


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("image/png", "aGk=", "data:image/png;base64,aGk="),
        ("image/png", "data:image/gif;base64,aG\nk=", "data:image/gif;base64,aGk="),
        ("image/svg+xml", "aGk=", ""),
        ("text/html", "aGk=", ""),
        ("image/png", "data:image/svg+xml;base64,aGk=", ""),
        ("image/png", "data:text/html,<script>", ""),
        ("image/png", 'x" onerror="alert(1)', ""),
        ("image/png", "A" * 3 * MIB, ""),
        ("", "aGk=", ""),
    ],
)
def test_only_pictures_of_pixels_are_pictures(kind: str, data: str, shown: str) -> None:
    made = view(custom(data, "image", mimeType=kind))
    assert made.get("src", "") == shown
    assert made["form"] == ("image" if shown else "text")


def test_what_a_command_left_behind_stands_apart_from_the_notes() -> None:
    left = [{"kind": "k", "severity": "critical", "text": "a\nb", "paths": []}]
    data = {"toolName": "t", "status": "success", "leftovers": left, "protectedCreated": ["/w/.envrc"]}
    made = event_with_view(Event("toolResult", data))["view"]
    assert made["notes"] == []
    assert made["leftovers"] == [
        {"severity": "critical", "text": "left behind (critical): a\\nb"},
        {"severity": "warning", "text": "protected file created: /w/.envrc"},
    ]


def cyclic() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


@pytest.mark.parametrize(
    "value", ["s", {"a": 1}, {"kind": "x"}, cyclic(), 10**400, b"\xff", float("nan"), object(), {1, 2}]
)
def test_u20_whatever_a_tool_returns_is_shown(value: Any) -> None:
    made = of_tool(value)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["form"] in {"text", "tree"}


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
HINTS = st.fixed_dictionaries(
    {},
    optional={
        "preferredView": st.sampled_from(
            ["text", "markdown", "code", "diff", "table", "tree", "image", "raw", "hidden"]
        )
        | ANY
    },
)
VALUES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["text", "diff", "file_list", "file_content", "json", "exec.result", "a.b"]) | ANY},
    optional=dict.fromkeys(("content", "data", "path", "modified", "original", "files", "count", "summary"), ANY)
    | {"display": HINTS, "stdout": ANY},
)


@settings(derandomize=True)
@given(VALUES | ANY, ANY, ANY, ANY)
def test_no_value_at_all_breaks_a_frame(value: Any, args: Any, denials: Any, left: Any) -> None:
    told = {"denials": denials, "leftovers": left, "protectedCreated": left}
    event = Event("toolResult", {"toolName": "t", "status": "success", "value": value, "args": args, **told})
    made = event_with_view(event)
    assert "form" in made["view"]
    json.dumps(made, allow_nan=False).encode()


def test_an_event_of_many_megabytes_costs_little_and_keeps_its_ends(is_long: bool) -> None:
    """Fifty with --long, else five: more than any limit."""
    size = 50 if is_long else 5
    for value in (
        {"kind": "text", "content": "a" * (size * MIB) + "END"},
        {"kind": "json", "data": {str(n): "x" * 1000 for n in range(size * 1000)}},
        {"kind": "json", "data": [[n] * 10 for n in range(size * 10_000)]},
        {"kind": "x.y", "data": "# a\n\n" * size * 200_000 + "END", "display": {"preferredView": "markdown"}},
        {"kind": "exec.result", "stdout": "\x1b[0m" * size * 200_000 + "END"},
    ):
        event = Event(
            "toolResult", {"toolName": "t", "status": "success", "value": value, "durationMs": 1, "tail": "END"}
        )
        made = event_with_view(event)
        assert len(encode_json(made)) < 1.2 * MIB
        assert made["view"]["cut"]
        assert made["event"]["data"]["tail"] == "END"


def test_an_approval_keeps_head_and_tail_and_says_that_it_was_cut() -> None:
    command = "echo " + "a" * 200_000 + "; rm -rf x"
    data = {
        "requestId": "r",
        "payload": command,
        "args": {"command": command},
        "diff": "+" * 300_000 + "END",
        "why": "w",
    }
    made = event_with_view(Event("approvalRequired", data))
    assert made["view"]["cut"] is True
    assert made["event"]["data"]["payload"].startswith("echo aaa")
    assert made["event"]["data"]["payload"].endswith("; rm -rf x")
    assert made["event"]["data"]["diff"].endswith("END")
    short = event_with_view(Event("approvalRequired", {"requestId": "r", "payload": "ls"}))["view"]
    assert short.pop("card")["sections"][0] == {
        "kind": "text",
        "member": "payload",
        "title": "",
        "text": "",
        "rows": [],
    }
    assert short == {"cut": False}


def test_messages() -> None:
    made = event_with_view(Event("message", {"message": {"role": "assistant", "content": "**hi** <script>"}}))
    assert made["view"] == {"html": "<p><strong>hi</strong> &lt;script&gt;</p>"}
    assert event_with_view(Event("message", {"message": {"role": "user", "content": "**hi**"}}))["view"] == {}
    assert event_with_view(Event("message", {"message": "odd"}))["view"] == {}
    long = event_with_view(Event("message", {"message": {"role": "assistant", "content": "word " * 200_000 + "END"}}))
    assert long["view"]["cut"] and "END" in long["view"]["html"] and len(encode_json(long)) < MIB


def test_diff_content() -> None:
    made = event_with_view(
        Event("diffContent", {"requestId": "r", "path": "/w/a", "modified": "b\n", "original": "a\n", "isNew": False})
    )
    assert (made["view"]["added"], made["view"]["removed"]) == (1, 1)
    assert "-a\n+b\n" in made["view"]["diff"]


def test_what_fits_is_given_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "x" * 1000], "b": {"c": "é\u202e"}}
    assert bounded_json(value) == (value, False)


@settings(derandomize=True)
@given(ANY, st.integers(1_000, 3_000))
def test_whatever_is_bounded_fits_and_is_json(value: Any, total: int) -> None:
    small, _ = bounded_json(value, SizeLimits(text=40, items=5, nodes=100, total=total))
    written = json.dumps(small, allow_nan=False, ensure_ascii=False)
    unescaped = re.sub(r"\\u[0-9a-f]{4}|\\.", "?", written)  # characters are counted, not how JSON writes them
    assert len(unescaped) <= total + 100  # the marks of what was left out come on top
    assert json.loads(written) == small


def test_lists_that_hold_each_other_are_small_in_memory_and_endless_to_write_down() -> None:
    nested: Any = "x"
    for _ in range(60):
        nested = [nested, nested]
    small, cut = bounded_json({"nested": nested, "end": "END"})
    assert cut and len(encode_json(small)) < MIB and small["end"] == "END"


def test_a_marker_says_how_much_is_missing() -> None:
    assert both_ends("a" * 50 + "b" * 50, 20) == ("a" * 10 + "\n… 80 characters …\n" + "b" * 10, True)
    assert bounded_json(list(range(1000)), SizeLimits(items=4))[0] == [0, 1, "… 996 more …", 998, 999]
    assert bounded_json({str(n): n for n in range(9)}, SizeLimits(items=3))[0] == {
        "0": 0,
        "1": 1,
        "2": 2,
        "…": "… 6 more …",
    }


def test_an_approval_card_shows_every_argument_whole() -> None:
    """Threat: padding beside an argument pushes the middle of it out of the card that somebody approves."""
    hidden = "x" * 9_000 + " ; rm -rf / ; " + "y" * 9_000
    request = {
        "requestId": "r",
        "tool": "new__tool",
        "type": "definition",
        "description": "d",
        "payload": "its definition",
        "risk": "high",
        "riskReasons": [],
        "why": "new",
        "effects": ["net x"],
        "choices": [],
        "args": {"script": hidden, "pad": "p" * 60_000, "more": "q" * 60_000},
    }
    view = event_with_view(Event("approvalRequired", request))["view"]
    rows = [row["text"] for section in view["card"]["sections"] for row in section["rows"]]
    assert any("rm -rf /" in row for row in rows) and view["cut"] is False
    many = {**request, "args": {f"a{number}": "v" * 3_000 for number in range(300)}}
    assert event_with_view(Event("approvalRequired", many))["view"]["cut"] is True


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("http://127.83.12.201:3000/", "link"),
        ("http://127.0.0.1:3000/", "tree"),
        ("http://127.0.9.1:3000/", "tree"),
        ("http://127.83.12.201:3000/steal", "tree"),
        ("http://127.83.12.201.evil.test:80/", "tree"),
        ("https://evil.test/", "tree"),
        ("javascript:alert(1)", "tree"),
        ("http://127.83.12.201:3000/\n", "tree"),
    ],
)
def test_a_published_port_is_a_link_to_this_machine_and_nothing_else_is(url: str, form: str) -> None:
    value = {"kind": "port.published", "port": 3000, "url": url, "reached_by": "Every program of this computer."}
    shown = view(value)
    assert shown["form"] == form
    assert ("url" in shown) is (form == "link")
