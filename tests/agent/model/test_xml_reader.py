"""XML calls out of a model's stream: W21 to W25, and that no chunking changes what is read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deadlines import within

from golem_forge.agent.model import xml_scanner
from golem_forge.agent.model.xml_reader import XmlReader, XmlResponse

SCHEMAS: dict[str, dict[str, Any]] = {
    "write": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "mode": {"enum": ["a", "w", 7]},
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "force": {"type": "boolean"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "anything": {},
        },
    },
    "edit": {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "numbers": {"type": "array", "items": {"type": "integer"}},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
            "options": {"type": "object", "additionalProperties": {"type": "integer"}},
            "where": {"$ref": "#/$defs/Where"},
        },
        "$defs": {
            "Edit": {"type": "object", "properties": {"old": {"type": "string"}, "times": {"type": "integer"}}},
            "Where": {"type": "object", "properties": {"line": {"type": "integer"}, "file": {"type": "string"}}},
        },
    },
    "git__status": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def read(*chunks: str) -> XmlResponse:
    reader = XmlReader(SCHEMAS)
    shown = [reader.feed(chunk) for chunk in chunks]
    result = reader.finish()
    assert "".join(shown) + result.rest == result.text
    return result


def call_of(arguments: str, tool: str = "write") -> Any:
    (call,) = read(f"<tool><tool_name>{tool}</tool_name><arguments>{arguments}</arguments></tool>").calls
    assert not call.problem, call.problem
    return call.args


def problem_of(text: str) -> str:
    (call,) = read(text).calls
    assert len(call.problem) <= 200
    return call.problem


# W21


def test_w21_a_call_without_server_name_is_local() -> None:
    (call,) = read("<tool><tool_name>write</tool_name><arguments><path>a</path></arguments></tool>").calls
    assert (call.name, call.server, call.args, call.problem) == ("write", "", {"path": "a"}, "")


def test_a_server_names_that_servers_tool_and_never_a_local_one() -> None:
    (call,) = read("<tool><server_name>git</server_name><tool_name>status</tool_name></tool>").calls
    assert (call.name, call.server, call.args) == ("git__status", "git", {})
    (call,) = read("<tool><server_name>evil</server_name><tool_name>write</tool_name></tool>").calls
    assert (call.name, call.server) == ("evil__write", "evil")
    (call,) = read("<tool><server_name> local </server_name><tool_name>write</tool_name></tool>").calls
    assert (call.name, call.server) == ("write", "")


@pytest.mark.parametrize(
    "text", ["plain", "a < b > c", "<tools>x</tools>", "</tool> <tol> <too", "<", "<tool", "<Tool></Tool>", ""]
)
def test_w21_text_without_the_tag_is_unchanged(text: str) -> None:
    assert read(text) == XmlResponse(text=text, calls=(), rest=read(text).rest, written=text)


def test_w21_a_call_without_a_name_is_refused() -> None:
    assert problem_of("<tool><arguments><path>a</path></arguments></tool>") == "tool call without tool_name"
    assert problem_of("<tool><tool_name> </tool_name></tool>") == "tool call without tool_name"
    assert problem_of("<tool></tool>") == "tool call without tool_name"


@pytest.mark.parametrize(
    "text",
    [
        "<tool>write</tool_name><arguments><path>a</path></arguments></tool>",
        "<tool>write</tool><arguments><path>a</path></arguments></tool>",
        "<tool>\nwrite\n</tool>\n<arguments>\n<path>a</path>\n</arguments>\n</tool>",
        '<tool> write </tool><arguments>{"path": "a"}</arguments></tool>',
    ],
)
def test_a_name_with_half_of_its_tags_is_a_name(text: str) -> None:
    for cut in range(len(text)):
        (call,) = read(text[:cut], text[cut:]).calls
        assert (call.name, call.args, call.problem) == ("write", {"path": "a"}, ""), text[:cut]


def test_a_bare_name_may_be_a_whole_call() -> None:
    result = read("<tool>write</tool> then <tool>edit</tool><tool>write</tool_name></tool>\n<tool>edit</tool>")
    assert [(call.name, call.args, call.problem) for call in result.calls] == [
        ("write", {}, ""),
        ("edit", {}, ""),
        ("write", {}, ""),
        ("edit", {}, ""),
    ]
    assert result.text == "then \n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool>write</tool><argum", "tool call without </tool>"),
        ("<tool>write</tool><arguments><path>a</path>", "tool call without </tool>"),
        ("<tool>write a file</tool>", "tool call without tool_name"),
        ("<tool>write</tool_name>edit</tool_name></tool>", "</tool_name> where </tool> was expected"),
        ("<tool>write</tool><arguments></arguments>edit</tool>", "text between the elements"),
        ("<tool>x<server_name>git</server_name></tool>", "tool call without tool_name"),
    ],
)
def test_what_is_no_bare_name_is_refused(text: str, problem: str) -> None:
    assert problem in problem_of(text)


# Results that the model made up


@pytest.mark.parametrize("behind", ["<tool_result>\nL1: 1\n", '<tool_result id="1">x</tool_result>', "<tool_result"])
def test_a_result_behind_a_call_ends_the_message(behind: str) -> None:
    call = "<tool><tool_name>edit</tool_name></tool>"
    text = f"So: {call}\n{behind} and {call}"
    for cut in range(len(text)):
        result = read(text[:cut], text[cut:], " more")
        assert (result.text, result.written, result.made_up) == ("So: \n", f"So: {call}\n", True)
        assert [call.name for call in result.calls] == ["edit"]


@pytest.mark.parametrize(
    "text", ["<tool_result>5</tool_result>", "a <tool_res", "```\n<tool_result>\n```\n<tool_results"]
)
def test_a_result_without_a_call_is_text(text: str) -> None:
    assert read(text) == XmlResponse(text=text, calls=(), rest=read(text).rest, written=text)


def test_a_result_in_a_fence_behind_a_call_is_text() -> None:
    result = read("<tool><tool_name>edit</tool_name></tool>\n```\n<tool_result>\n```\nend")
    assert (result.text, result.made_up) == ("\n```\n<tool_result>\n```\nend", False)


# W22


def test_w22_ampersands_outside_cdata_are_read_as_written_and_references_decoded() -> None:
    args = call_of("<path>?a=1&b=2</path><content>a && b &lt;i&gt; &#60;&#x3C; &nbsp; &amp;lt; &quot;&apos;</content>")
    assert args == {"path": "?a=1&b=2", "content": "a && b <i> << &nbsp; &lt; \"'"}


@pytest.mark.parametrize("odd", ["&#0;", "&#xD800;", "&#1114112;", "&#x110000;", "&#;", "&;", "&", "&am", "&#8;"])
def test_references_to_what_is_no_character_stay_as_written(odd: str) -> None:
    assert call_of(f"<path>x{odd}</path>") == {"path": f"x{odd}"}


def test_w22_cdata_is_exact() -> None:
    args = call_of("<content>\n <![CDATA[ a &amp;&amp; </tool> <b> ]]>\n</content><path>p</path>")
    assert args == {"content": " a &amp;&amp; </tool> <b> ", "path": "p"}
    assert call_of("<content><![CDATA[x]]]]><![CDATA[>y]]></content>") == {"content": "x]]>y"}
    assert call_of("<content><![CDATA[a]]> &lt; <![CDATA[b]]></content>") == {"content": "a < b"}
    assert call_of("<content><![CDATA[]]]></content>") == {"content": "]"}


def test_a_lone_less_than_is_text() -> None:
    assert call_of("<content>1 < 2 <= 3 << 4 <3</content>") == {"content": "1 < 2 <= 3 << 4 <3"}


# W23


def test_w23_held_back_tags_are_never_lost_and_nothing_of_a_call_is_shown() -> None:
    reader = XmlReader(SCHEMAS)
    chunks = ["Some text <", "tool><tool_name>write</tool_name>", "</to", "ol> tail"]
    shown = [reader.feed(chunk) for chunk in chunks]
    result = reader.finish()
    assert shown == ["Some text ", "", "", " tail"]
    assert result.text == "Some text  tail"
    assert [call.name for call in result.calls] == ["write"]


def test_a_prefix_that_came_to_nothing_is_shown() -> None:
    reader = XmlReader(SCHEMAS)
    assert reader.feed("a <to") == "a "
    assert reader.feed("tal>") == "<total>"
    assert reader.feed("<too") == ""
    assert reader.finish().rest == "<too"


def test_w23_every_call_counts_in_order_and_the_text_around_is_kept() -> None:
    text = "a <tool><tool_name>write</tool_name></tool> b <tool><tool_name>edit</tool_name></tool> c"
    result = read(text)
    assert result.text == "a  b  c"
    assert [call.name for call in result.calls] == ["write", "edit"]
    assert result.calls[0].id != result.calls[1].id
    assert result.written == text


# W24


def test_w24_an_unclosed_call_is_no_call() -> None:
    text = f"before <tool><tool_name>write</tool_name><arguments><content>{'x' * 500}"
    result = read(text)
    assert result.text == "before "
    (call,) = result.calls
    assert call.problem.startswith("tool call without </tool>: <tool>") and len(call.problem) <= 200
    assert call.name == "write" and result.written == text


@pytest.mark.parametrize("piece", [70_000, 12 * 1024 * 1024])
def test_w24_a_call_over_ten_mebibytes_is_no_call_and_is_not_kept(piece: int) -> None:
    text = f"a<tool><tool_name>write</tool_name><arguments><content>{'x' * 11_534_336}</content></arguments></tool>b"
    result = read(*(text[at : at + piece] for at in range(0, len(text), piece)))
    (call,) = result.calls
    assert call.problem == "tool call over 10 MiB" and call.args == {}
    assert result.text == "ab"
    assert len(result.written) < 300


def test_a_call_just_under_the_limit_is_one_in_characters_of_any_width() -> None:
    assert call_of(f"<content>{'é' * 5_000_000}</content>")["content"] == "é" * 5_000_000
    assert "10 MiB" in problem_of(f"<tool><tool_name>write</tool_name><arguments>{'é' * 5_300_000}</arguments></tool>")


@pytest.mark.parametrize(
    "text",
    [
        "```\n<tool><tool_name>write</tool_name></tool>\n```",
        "```xml\n<tool></tool>\n``` \nafter",
        "1. see\n   ~~~~ xml\n   <tool></tool>\n   ~~~\n   <tool></tool>\n   ~~~~",
        "```<tool>``` is how",
        "````\n```\n<tool></tool>\n```\n````",
        "```\n<tool></tool> never closed",
        "```\r\n<tool></tool>\r\n```\r\n",
        "> ```\n> <tool><tool_name>write</tool_name></tool>\n> ```\nas above",
        "> > ~~~ xml\n>> <tool></tool>\n> > <tool></tool>",
        "- ```\n  <tool></tool>\n  ```",
        "1. > ```\n   > <tool></tool>\n   > ```\n2. done",
        "```\n> ```\n<tool></tool>\n```",
        "Write `<tool><tool_name>write</tool_name></tool>` to write",
        "> `<tool></tool>`\n\n* `<tool></tool>`",
        "``a ` <tool></tool> b``",
        "`` not closed, `<tool></tool>` is",
        "`over\n<tool></tool>\nlines`",
        "`a` `<tool>`",
    ],
)
def test_w24_a_tool_in_a_code_fence_is_text(text: str) -> None:
    result = read(text)
    assert (result.text, result.calls) == (text, ())
    assert read(*text).text == text and read(*text).calls == ()


@pytest.mark.parametrize(
    "text",
    [
        "```\ncode\n```\n<tool><tool_name>write</tool_name></tool>",
        "``<tool><tool_name>write</tool_name></tool>",
        "```inline``` <tool><tool_name>write</tool_name></tool>",
        "x ```\n<tool><tool_name>write</tool_name></tool>",
        "~~~\n```\n~~~\n<tool><tool_name>write</tool_name></tool>",
        "> ```\n> code\n<tool><tool_name>write</tool_name></tool>",
        "> ```\n> code\n\n<tool><tool_name>write</tool_name></tool>",
        "> ```\n> code\n> ```\n> <tool><tool_name>write</tool_name></tool>",
        "- ```\n  code\n  ```\n<tool><tool_name>write</tool_name></tool>",
        "`a` <tool><tool_name>write</tool_name></tool> `b`",
        "a ` alone\n\n<tool><tool_name>write</tool_name></tool> and `code`",
        "a ` alone <tool><tool_name>write</tool_name></tool>",
        "- a ` alone\n- <tool><tool_name>write</tool_name></tool> `",
        "\\`<tool><tool_name>write</tool_name></tool>\\`",
        "` <tool><tool_name>write</tool_name><arguments><content>a\n\n`b`</content></arguments></tool>",
    ],
)
def test_after_or_without_a_fence_a_tool_is_a_call(text: str) -> None:
    assert [call.name for call in read(text).calls] == ["write"]
    assert [call.name for call in read(*text).calls] == ["write"]


# W25 and types


@pytest.mark.parametrize(
    "written",
    [
        "<edits><edit><old>007</old><times> 2 </times></edit><edit><old>b</old><times>3</times></edit></edits>",
        "<edits><old>007</old><times>2</times></edits><edits><old>b</old><times>3</times></edits>",
        '<edits>[{"old": "007", "times": 2}, {"old": "b", "times": 3}]</edits>',
    ],
)
def test_w25_arrays_of_objects_have_the_types_of_the_schema(written: str) -> None:
    assert call_of(written, "edit") == {"edits": [{"old": "007", "times": 2}, {"old": "b", "times": 3}]}


def test_arrays_in_each_form() -> None:
    assert call_of("<edits><old>a</old></edits>", "edit") == {"edits": [{"old": "a"}]}
    assert call_of("<tags>a</tags><tags>b</tags>", "edit") == {"tags": ["a", "b"]}
    assert call_of("<tags>\n<tag>a</tag>\n<tag>b</tag>\n</tags>", "edit") == {"tags": ["a", "b"]}
    assert call_of("<tags>a</tags>", "edit") == {"tags": ["a"]}
    assert call_of("<tags></tags>", "edit") == {"tags": []}
    assert call_of("<tags/>", "edit") == {"tags": []}
    assert call_of('<tags>["a", "b"]</tags>', "edit") == {"tags": ["a", "b"]}
    assert call_of('<tags><![CDATA[["a"]]]></tags>', "edit") == {"tags": ['["a"]']}
    assert call_of("<numbers><n>1</n><n>2</n></numbers>", "edit") == {"numbers": [1, 2]}


def test_objects_nest_and_their_free_members_have_their_type() -> None:
    assert call_of("<options><a>1</a><b>2</b></options>", "edit") == {"options": {"a": 1, "b": 2}}
    assert call_of("<where><line>3</line><file>007</file></where>", "edit") == {"where": {"line": 3, "file": "007"}}
    assert call_of("<where/>", "edit") == {"where": {}}
    assert call_of('<where>{"line": 3}</where>', "edit") == {"where": {"line": 3}}


def test_types_come_from_the_schema_never_from_the_look() -> None:
    args = call_of("<path>007</path><size> 7 </size><ratio>1e3</ratio><force> TRUE </force><mode>7</mode>")
    assert args == {"path": "007", "size": 7, "ratio": 1000.0, "force": True, "mode": 7}
    assert call_of("<note>null</note><limit>null</limit><anything>5</anything>") == {
        "note": "null",
        "limit": None,
        "anything": "5",
    }
    assert call_of("<unknown>5</unknown>", "nobody knows this tool") == {"unknown": "5"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("<size>7x</size>", 'write: size: expected integer, got "7x"'),
        ("<size>7.5</size>", "write: size: expected integer"),
        ("<force>yes</force>", 'write: force: expected boolean, got "yes"'),
        ("<ratio>1e9999</ratio>", "write: ratio: expected number"),
        ("<path>a</path><path>b</path>", "write: path: given 2 times"),
        ("<content><b>x</b></content>", "write: content: expected string, got elements"),
        ("text <path>a</path>", "write: text between elements"),
        ("{not json", "write: arguments are neither elements nor JSON: "),
        ("[1]", "write: arguments must be a JSON object, got array"),
        ("[" * 100_000, "write: arguments are JSON that cannot be read"),
        ('{"path": "a", "path": "b"}', "write: arguments are JSON that cannot be read: a key twice"),
        ('{"options": {"a": 1, "a": 2}}', "write: arguments are JSON that cannot be read: a key twice"),
    ],
)
def test_what_does_not_fit_is_told_by_field(arguments: str, problem: str) -> None:
    text = f"<tool><tool_name>write</tool_name><arguments>{arguments}</arguments></tool>"
    assert problem_of(text).startswith(problem)


def test_arguments_may_be_one_json_object() -> None:
    assert call_of('{"size": 7, "path": "a < b &amp; c"}') == {"size": 7, "path": "a < b & c"}
    assert call_of('<![CDATA[{"path": "<b>&amp;"}]]>') == {"path": "<b>&amp;"}
    assert call_of("") == {} and call_of(" \n ") == {}


# What is refused


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ('<!DOCTYPE x [<!ENTITY y "z">]>', "comments, DTDs and entities"),
        ("<!-- hidden -->", "comments, DTDs and entities"),
        ("<?php echo 1 ?>", "processing instructions"),
        ('<path type="x">a</path>', "a < that begins no plain tag"),
        ("<a></b>", "</b> where </a> was expected"),
        ("</arguments>", "</arguments> where </tool> was expected"),
        ("<path>x</path>", "<path> in a tool call; arguments go inside <arguments>"),
        ("<tool_name>b</tool_name>", "tool call with more than one tool_name"),
        ("loose", "text between the elements"),
        ("<a>" * 70, "tool call nested more than 64 levels deep"),
        ("<a/>" * 1_001, "tool call of more than 1000 elements"),
        ("<" + "a" * 200 + ">", "a < that begins no plain tag"),
    ],
)
def test_refused_and_the_text_behind_the_call_goes_on(
    inside: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert xml_scanner.MAX_ELEMENTS == 100_000
    monkeypatch.setattr(xml_scanner, "MAX_ELEMENTS", 1_000)
    result = read(f"<tool><tool_name>write</tool_name>{inside}</tool> tail")
    (call,) = result.calls
    assert problem in call.problem
    assert call.args == {} and call.name == "write"
    assert result.text == " tail"


def test_an_argument_named_tool_does_not_end_the_call() -> None:
    assert call_of("<tool>x</tool><path>p</path>") == {"tool": "x", "path": "p"}


def test_a_broken_call_does_not_swallow_or_run_the_next_one() -> None:
    result = read("<tool><tool_name>write</tool> and <tool><tool_name>edit</tool_name></tool>")
    assert [bool(call.problem) for call in result.calls] == [True, False]
    assert result.text == " and "


# Any chunking


_PIECES = st.sampled_from(
    [
        *("<tool>", "</tool>", "<tool_name>write</tool_name>", "<arguments>", "</arguments>", "<path>", "</path>"),
        *("<![CDATA[", "]]>", "]", "]]", "&", "&#6", "0;", "<", ">", "```", "\n", "`", "~~~", " ", "x", "<!--", "<?"),
        *("<tool><tool_name>write</tool_name><arguments><size>7</size></arguments></tool>", "<size>1</size>", "\r\n"),
        *("é", "a&amp;b", "> ", "- ", "1. ", "\\", "\n\n"),
    ]
)


def _comparable(result: XmlResponse) -> Any:
    return result.text, result.written, [(c.name, c.args, c.problem, c.server) for c in result.calls]


@given(pieces=st.lists(_PIECES, max_size=30), cuts=st.lists(st.integers(0, 400), max_size=40))
def test_any_chunking_gives_the_same(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    whole = _comparable(read(text))
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    assert _comparable(read(*(text[a:b] for a, b in pairwise(edges)))) == whole
    assert _comparable(read(*text)) == whole


@given(text=st.text(alphabet=st.sampled_from("<tol>/`~\n ab&"), max_size=60))
def test_without_a_call_the_text_is_what_was_written(text: str) -> None:
    result = read(*text)
    assert result.written == text
    if not result.calls:
        assert result.text == text


@pytest.mark.parametrize(
    "unit",
    [
        *("<", "&", "]", "`", "<![CDATA[", "~~~\n", "<tool></tool>", "<a ", "`<tool>"),
        *(pytest.param(unit, marks=pytest.mark.long) for unit in ("<tool", "<a", "</", "<a></a>", "`` <tool>\n")),
    ],
)
def test_time_is_linear(unit: str, is_long: bool) -> None:
    """What repeats the beginning of every token, outside and inside a call, in one piece and in small ones."""
    text = unit * ((80_000 if is_long else 40_000) // len(unit))
    with within(5):
        for prefix in ("", "<tool><tool_name>write</tool_name><arguments><path>"):
            read(prefix + text)
            read(prefix, *(text[at : at + 997] for at in range(0, len(text), 997)))


def test_a_call_with_a_wrong_value_keeps_what_was_written() -> None:
    """It does not run; the log shows the same arguments as for a native call."""
    (call,) = read("<tool><tool_name>write</tool_name><arguments><size>many</size></arguments></tool>").calls
    assert call.args == {"size": "many"} and "expected integer" in call.problem
