"""What a caller reads, from streams and endings as processes give them."""

from __future__ import annotations

from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.sandbox.process.launch import Capture
from golem_forge.sandbox.process.monitor import WALLS_CHANGED, ExitStatus
from golem_forge.sandbox.walls.walls import Aftermath
from golem_forge.tools.context import ToolContext
from golem_forge.usertools.manifest import OutputFormat
from golem_forge.usertools.run import output
from golem_forge.usertools.run.output import EXCERPT_LIMIT, FinishedRun, finish_run

from .run_ground import manifest


class Kept:
    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def find(self, handle, worker, *, any_session=False):
        return None

    def keep_pieces(self, pieces, worker):
        self.texts.append(b"".join(pieces))
        return f"out_{len(self.texts)}"


def capture(data: bytes | str) -> Capture:
    made = Capture()
    made.append(data if isinstance(data, str) else data.decode("utf-8", "surrogateescape"))
    made.finish()
    return made


async def shaped(out: bytes | str = b"", err: bytes | str = b"", kept: Kept | None = None, **keys):
    ending = {name: keys.pop(name) for name in ("exit_code", "signal", "code") if name in keys}
    after = keys.pop("after", Aftermath())
    ran = FinishedRun(
        manifest=manifest(**keys),
        ending=ExitStatus(**({"exit_code": 0} | ending)),
        out=capture(out),
        err=capture(err),
        after=after,
        seconds=0.25,
        timeout=PATIENCE,
    )
    return await finish_run(ran, ToolContext(outputs=kept))


GIF = b"GIF89a" + (3).to_bytes(2, "little") + (5).to_bytes(2, "little")


async def test_a_picture_that_is_printed_is_a_content_block_beside_what_else_was_said():
    kept = Kept()
    done = await shaped(GIF, kept=kept)
    [picture] = done.result.content
    assert (picture["type"], picture["mimeType"]) == ("image", "image/gif") and not kept.texts
    done = await shaped(GIF, "two colours\n", kept=kept)
    said, picture = done.result.content
    assert said["text"] == done.result.text and "two colours" in said["text"] and picture["type"] == "image"
    [pdf] = (await shaped(b"%PDF-1.4 \xff", kept=kept)).result.content
    assert pdf["resource"]["mimeType"] == "application/pdf"
    for plain in (b"GIF89a", b"a " + GIF, b"RIFF of words", b"\xff\xfeA"):
        assert (await shaped(plain, kept=kept)).result.content == (), plain


async def test_a_picture_that_is_withheld_is_no_content_block():
    assert (await shaped(GIF, code=WALLS_CHANGED, exit_code=None)).result.content == ()


async def test_sections_stand_on_lines_of_their_own():
    done = await shaped("no newline", "nor here", exit_code=2)
    assert done.result.text.splitlines() == [
        "tool 'probe' failed with exit code 2",
        "Exit code: 2",
        "Stdout:",
        "no newline",
        "Stderr:",
        "nor here",
    ]
    assert (await shaped(exit_code=1)).result.text == "tool 'probe' failed with exit code 1\nExit code: 1"
    only = await shaped(err="e\n", exit_code=1)
    assert "Stdout:" not in only.result.text and only.result.text.endswith("Stderr:\ne\n")


@table(
    ("code", "words"),
    [
        ("MEMORY_LIMIT", "sandbox.limits.memory"),
        ("PROCESS_LIMIT", "sandbox.limits.processes"),
        ("CPU_LIMIT", "sandbox.limits.cpu_s"),
        ("OUTPUT_LIMIT", "sandbox.limits.output"),
    ],
)
async def test_a_limit_says_which(code, words):
    done = await shaped("so far", code=code, exit_code=None, signal=9)
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, code)
    assert words in done.error and "so far" in done.result.text


async def test_output_is_withheld_when_walls_did_not_hold():
    kept = Kept()
    done = await shaped("canary", "canary", kept, code="WALLS_CHANGED", signal=9, exit_code=None)
    assert done.code == "WALLS_CHANGED" and "canary" not in str(done) and not kept.texts
    assert "withheld" in done.result.text


async def test_an_ending_nobody_knows_of():
    done = await shaped(exit_code=None)
    assert done.status is Status.EXECUTION_FAILED and done.result.value["exit_code"] is None
    assert done.result.text == "tool 'probe' ended; how is not known"


async def test_a_limit_is_not_called_a_denial():
    denial = {"kind": "path", "target": "/etc/x", "access": "write", "why": "outside every zone", "widen": ""}
    after = Aftermath(denials=(denial,))
    assert (await shaped(code="TIMEOUT", exit_code=None, signal=15, after=after)).status is Status.TIMEOUT
    denied = await shaped(exit_code=1, after=after)
    assert denied.status is Status.SANDBOX_DENIED
    assert denied.error == "Blocked by the sandbox: write /etc/x (outside every zone)."
    assert denied.result.text.startswith("tool 'probe' failed with exit code 1\nExit code: 1\nBlocked by")


async def test_a_short_stream_is_whole_beside_a_long_one():
    kept = Kept()
    done = await shaped("long line\n" * 20_000, "short\n", kept)
    assert done.result.value["stderr"] == "short\n" and done.result.value["truncated"]
    assert "read_output handle=out_1]" in done.result.value["stdout"]
    assert len(done.result.text) < EXCERPT_LIMIT + 500
    assert kept.texts == [b"Stdout:\n" + b"long line\n" * 20_000 + b"Stderr:\nshort\n"]
    both = await shaped("o" * 100_000, "e" * 100_000, kept)
    assert len(both.result.text) < EXCERPT_LIMIT + 500 and kept.texts[-1].startswith(b"Stdout:\no")
    assert b"o\nStderr:\ne" in kept.texts[-1]


async def test_a_cut_divides_no_character():
    done = await shaped("é" * 40_000)
    assert "\ufffd" not in done.result.text and "whole output" not in done.result.text


async def test_one_stream_with_strange_bytes_is_kept_as_it_is():
    kept = Kept()
    done = await shaped(b"\xff\xfeA", b"", kept)
    assert (done.result.text, kept.texts, done.output_handle) == ("\ufffd\ufffdA", [b"\xff\xfeA"], "out_1")
    assert done.result.value["truncated"] is False
    await shaped("fine", "fine", kept)
    assert len(kept.texts) == 1


JSON = {"output": OutputFormat.JSON}


@table("text", ["[1, 2]", "3", '"é"', " {} \n", "null"])
async def test_any_json_value_is_structured_content(text):
    import json

    done = await shaped(text, **JSON)
    assert done.status is Status.SUCCESS and done.result.structured == json.loads(text) and done.result.text == text


@table(
    ("printed", "place"),
    [
        (b"", "line 1 column 1"),
        (b'{"a": 1,\n oops}', "line 2 column 2"),
        (b"1 2", "line 1 column 3"),
        (b'"a\xff"', "byte 2"),
        (b"[NaN]", "NaN"),
        (b"[1e400]", "a number that is too large"),
        (b"[" * 200_000, ""),
        (b"9" * 5000, ""),
        (b'"\\ud800"', "broken Unicode"),
        (b"[" * 300 + b"]" * 300, "too deep"),
    ],
)
async def test_what_is_no_json_names_its_place_and_is_kept(printed, place):
    done = await shaped(printed, **JSON)
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, "OUTPUT_INVALID")
    assert done.error.startswith("tool 'probe' did not print JSON") and place in done.error
    assert done.result.structured is None
    assert done.result.value["stdout"][:50] == printed.decode("utf-8", "replace")[:50]
    assert done.result.text.startswith(done.error + "\nExit code: 0")


async def test_what_does_not_match_the_schema_names_the_path():
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "integer"}}}}
    done = await shaped('{"items": [1, "x"]}', output_schema=schema, **JSON)
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, "OUTPUT_INVALID")
    assert done.error == (
        "tool 'probe' printed JSON that does not match its output_schema at $.items[1]: expected integer, got string"
    )
    assert '{"items": [1, "x"]}' in done.result.text


async def test_a_failure_is_not_read_as_json():
    done = await shaped('{"a": 1}', exit_code=1, **JSON)
    assert done.result.structured is None and done.error == "tool 'probe' failed with exit code 1"


async def test_large_json_is_checked_and_only_its_text_is_handed_on(monkeypatch):
    text = "[" + ",".join(["1234567"] * 60_000) + "]"
    done = await shaped(text, **JSON)
    assert done.status is Status.SUCCESS and done.result.structured is None and done.result.value["truncated"]
    monkeypatch.setattr(output, "MOST_JSON_READ", 1000)
    assert (await shaped(text, **JSON)).code == "OUTPUT_INVALID"
