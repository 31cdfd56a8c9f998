"""A tool's picture reaches a model that can see, as that provider's own part; a person and other models get a line."""

from __future__ import annotations

import io
import json
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.user_tools import Bench
from tests.deadlines import PATIENCE
from tests.ui.web.bench import chromium_path
from tests.wire.server import WireCall, WireRequest, WireServer, WireTurn

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.images import image_size

Desks = Callable[..., Any]
KEY = "canary-key-0451"


@pytest.fixture
def desk(desk_here: Desks) -> Desks:
    return desk_here


def png(width: int, height: int) -> bytes:
    """A real picture, all of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\x40\x80\xc0" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURE = png(64, 48)
WRITTEN = b64encode(PICTURE).decode()
LOOKING = """\
---
name: main
toolsets:
  filesystem: {}
  custom: {module: ./tools.py, tools: [screenshot], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace}]}
---
Look.
"""
TOOLS = f"""\
from golem_forge import ToolResult

def screenshot() -> ToolResult:
    "Takes a picture."
    said = {{"type": "text", "text": "Here it is."}}
    return ToolResult.from_mcp({{"content": [said, {{"type": "image", "data": "{WRITTEN}", "mimeType": "image/png"}}]}})
"""
FORGE = "sandbox: {zones: {workspace: {path: ., mode: rw}}}\n"
MODELS = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai": "openai:gpt-5",
    "openrouter": "openrouter:some/model",
    "google": "google:gemini-3-pro-preview",
    "openai-compatible": "openai-compatible:local",
}


def pictures_in(request: WireRequest) -> list[str]:
    """The base64 of every picture in a request, by each format's own part."""
    found = []

    def look(part: Any) -> None:
        if isinstance(part, list):
            for each in part:
                look(each)
        elif isinstance(part, dict):
            if part.get("type") == "image":  # Anthropic
                found.append(part["source"]["data"])
            elif part.get("type") == "image_url":  # Chat Completions
                found.append(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
            elif part.get("type") == "input_image":  # Responses
                found.append(part["image_url"].removeprefix("data:image/png;base64,"))
            elif isinstance(part.get("inline_data"), dict):  # Gemini
                found.append(part["inline_data"]["data"])
            else:
                for each in part.values():
                    look(each)

    look(request.body)
    return found


def place_for(desk: Desks, server: WireServer, provider: str, more: str = "", files: Any = None) -> Any:
    place = desk({"main.worker": LOOKING, "tools.py": TOOLS, "forge.yaml": FORGE, **(files or {})}, WIRE_KEY=KEY)
    place.home.mkdir()
    block = f"{{base_url: '{server.base_url(provider)}', key_env: WIRE_KEY{more}}}"
    (place.home / "config.yaml").write_text(f"models: {{{provider}: {block}}}\n")
    place.trust()
    return place


def shown(desk: Desks, provider: str, tool: str = "screenshot", more: str = "", **args: Any) -> WireServer:
    """The server that was asked before and after the call."""
    with WireServer([WireTurn(calls=(WireCall(name=tool, args=args),)), WireTurn(say="A blue one.")]) as server:
        place = place_for(desk, server, provider, more)
        (place.root / "blue.png").write_bytes(PICTURE)
        ran = place.forge("run", "-m", MODELS[provider], "what do you see?")
        assert (ran.code, ran.out) == (0, "A blue one.\n"), ran.err
    return server


@pytest.mark.parametrize("provider", ["openai", "openrouter", "google"])
def test_a_picture_goes_to_a_model_that_sees_as_its_providers_own_part(desk: Desks, provider: str) -> None:
    if provider == "google":
        pytest.importorskip("google.genai")
    first, second = shown(desk, provider).requests
    assert pictures_in(first) == [] and pictures_in(second) == [WRITTEN]
    text = json.dumps(second.body, ensure_ascii=False)
    assert "Here it is." in text and "64 × 48" in text and "[image image/png]" not in text


def test_a_picture_is_kept_for_a_resume_and_goes_with_its_session(desk: Desks) -> None:
    call = WireCall(name="screenshot", args={})
    with WireServer([WireTurn(calls=(call,)), WireTurn(say="A blue one."), WireTurn(say="Still blue.")]) as server:
        place = place_for(desk, server, "anthropic")
        asked = {"A blue one.\n": ("what do you see?",), "Still blue.\n": ("--resume", "last", "and now?")}
        for said, words in asked.items():
            ran = place.forge("run", "-m", MODELS["anthropic"], *words)
            assert (ran.code, ran.out) == (0, said), ran.err
    first, second, resumed = server.requests
    assert pictures_in(first) == [] and pictures_in(second) == pictures_in(resumed) == [WRITTEN]
    [result] = [each for each in place.records() if each.get("more", {}).get("media")]
    [part] = result["more"]["media"]
    assert (part["mediaType"], part["size"], part["width"]) == ("image/png", len(PICTURE), 64)
    assert part["handle"] in json.dumps(second.body), "the model can name it"
    [kept] = list((place.home / "output").rglob(part["handle"]))
    assert kept.stat().st_mode & 0o777 == 0o600
    assert place.forge("sessions", "delete", "last", "--yes").code == 0
    assert not kept.exists()


def test_a_model_that_only_reads_gets_a_line_with_the_handle(desk: Desks) -> None:
    server = shown(desk, "openai-compatible")
    assert pictures_in(server.requests[1]) == []
    text = json.dumps(server.requests[1].body, ensure_ascii=False)
    assert f"[image/png, 64 × 48, {len(PICTURE)} bytes, handle out_" in text


def test_what_a_model_takes_can_be_said(desk: Desks) -> None:
    server = shown(desk, "openai-compatible", more=", media: [image]")
    assert pictures_in(server.requests[1]) == [WRITTEN]


def test_and_taken_away(desk: Desks) -> None:
    server = shown(desk, "anthropic", more=", media: []")
    assert pictures_in(server.requests[1]) == []


def refuse_or(turns: list[WireTurn], pictures: list[bytes], status: int = 400) -> Callable[[WireRequest], WireTurn]:
    """A provider that refuses a request with one of these pictures."""
    left, broken = iter(turns), {b64encode(each).decode() for each in pictures}
    refusal = WireTurn(status=status, error="Could not process image")
    return lambda request: refusal if broken & set(pictures_in(request)) else next(left)


def look_at(name: str) -> WireTurn:
    return WireTurn(calls=(WireCall(name="read_file", args={"path": name}),))


@pytest.mark.parametrize("status", [400, 404])
def test_a_picture_that_is_refused_stays_a_line_and_others_still_go(desk: Desks, status: int) -> None:
    """A file that is broken after its header, or a model that does not see behind a provider whose models do."""
    broken = PICTURE[:60] + b"broken"
    turns = [look_at("broken.png"), look_at("blue.png"), WireTurn(say="Blue.")]
    with WireServer(refuse_or(turns, [broken], status)) as server:
        place = place_for(desk, server, "anthropic")
        (place.root / "broken.png").write_bytes(broken)
        (place.root / "blue.png").write_bytes(PICTURE)
        ran = place.forge("run", "-t", "normal", "-m", MODELS["anthropic"], "look")
    assert ran.code == 0 and ran.out == "Blue.\n", ran.err
    assert "Could not process image; asked again without" in ran.err
    assert [pictures_in(each) for each in server.requests] == [[], [b64encode(broken).decode()], [], [WRITTEN]]
    assert "/workspace/broken.png: [image/png, 64 × 48" in json.dumps(server.requests[3].body, ensure_ascii=False)


def test_a_refusal_that_is_not_about_a_picture_is_told_as_it_is(desk: Desks) -> None:
    refused = WireTurn(status=400, error="your account is closed")
    with WireServer([look_at("blue.png"), refused, refused, WireTurn(say="never")]) as server:
        place = place_for(desk, server, "anthropic")
        (place.root / "blue.png").write_bytes(PICTURE)
        ran = place.forge("run", "-m", MODELS["anthropic"], "look")
    assert ran.code == 5 and "your account is closed" in ran.err and len(server.requests) == 3


def test_a_model_that_writes_its_calls_as_xml_sees_too(desk: Desks) -> None:
    call = "<tool><tool_name>screenshot</tool_name><arguments></arguments></tool>"
    with WireServer([WireTurn(say=call), WireTurn(say="Blue.")]) as server:
        place = place_for(desk, server, "openai-compatible", ", media: [image]")
        place.write(**{"main.worker": LOOKING.replace("name: main\n", "name: main\ntool_format: xml\n")})
        place.trust()
        ran = place.forge("run", "-m", MODELS["openai-compatible"], "look")
    assert (ran.code, ran.out) == (0, "Blue.\n"), ran.err
    assert pictures_in(server.requests[1]) == [WRITTEN]


@pytest.mark.walls
def test_what_a_user_tool_prints_is_seen_if_it_is_a_picture(desk: Desks) -> None:
    """A tool that draws prints what it drew, as programs do: `dot -Tpng`, `sys.stdout.buffer.write(png)`."""
    source = f"import base64, sys\nsys.stdout.buffer.write(base64.b64decode('{WRITTEN}'))\n"
    with WireServer([WireTurn(calls=(WireCall(name="draw", args={}),)), WireTurn(say="Blue.")]) as server:
        place = place_for(desk, server, "anthropic", files={"main.worker": LOOKING.replace("filesystem", "user_tools")})
        place.write(**{"draw.py": source})
        new = ("tools", "new", "draw", "--description", "Draws it", "--source", "draw.py")
        for words in (new, ("tools", "activate", "draw", "--yes")):
            assert (ran := place.forge(*words)).code == 0, ran.err
        ran = place.forge("run", "-t", "normal", "-a", "approve_all", "-m", MODELS["anthropic"], "draw")
        printed = place.forge("call", "draw", "--approval", "approve_all")
    assert (ran.code, ran.out) == (0, "Blue.\n"), ran.err
    assert pictures_in(server.requests[1]) == [WRITTEN]
    assert f"image/png, 64 × 48, {len(PICTURE)} bytes, handle out_" in ran.err
    assert printed.code == 0 and f"[image/png, 64 × 48, {len(PICTURE)} bytes, handle out_" in printed.out, printed


def test_a_picture_goes_under_its_own_type_whatever_its_name_says(desk: Desks) -> None:
    with WireServer([look_at("blue.jpg"), WireTurn(say="Blue.")]) as server:
        place = place_for(desk, server, "anthropic")
        (place.root / "blue.jpg").write_bytes(PICTURE)
        assert place.forge("run", "-m", MODELS["anthropic"], "look").code == 0
    assert '"media_type": "image/png"' in json.dumps(server.requests[1].body)


def test_read_file_shows_a_picture_to_a_model_that_sees(desk: Desks) -> None:
    server = shown(desk, "anthropic", tool="read_file", path="blue.png")
    assert pictures_in(server.requests[1]) == [WRITTEN]
    assert "/workspace/blue.png: [image/png, 64 × 48" in json.dumps(server.requests[1].body, ensure_ascii=False)


def pdf(*pages: str) -> bytes:
    """A real PDF of one line a page."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (len(pages), b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 24 Tf 40 100 Td ({text}) Tj ET".encode()
        font = b"<< /Font << /F1 3 0 R >> >>"
        where = b"/MediaBox [0 0 400 200] /Contents %d 0 R" % (5 + 2 * number)
        objects.append(b"<< /Type /Page /Parent 2 0 R /Resources %s %s >>" % (font, where))
        objects.append(b"<< /Length %d >> stream\n%s\nendstream" % (len(drawn), drawn))
    written, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj %s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(written))
    return written + head + table + trailer


def read_as_pdf(desk: Desks, data: bytes, provider: str = "anthropic", **args: Any) -> WireRequest:
    """The request that carries the result of reading a PDF."""
    call = WireCall(name="read_file", args={"path": "paper.pdf", **args})
    with WireServer([WireTurn(calls=(call,)), WireTurn(say="Read.")]) as server:
        place = place_for(desk, server, provider)
        (place.root / "paper.pdf").write_bytes(data)
        ran = place.forge("run", "-m", MODELS[provider], "read it")
        assert (ran.code, ran.out) == (0, "Read.\n"), ran.err
    return server.requests[1]


@pytest.mark.walls
@pytest.mark.parametrize(("provider", "seen"), [("anthropic", 2), ("openai-compatible", 0)])
def test_read_file_of_a_pdf_gives_text_and_pages_to_look_at(desk: Desks, provider: str, seen: int) -> None:
    pytest.importorskip("pypdfium2")
    request = read_as_pdf(desk, pdf("Dear reader", "Yours truly"), provider)
    text = json.dumps(request.body, ensure_ascii=False)
    assert "L1: [page 1]\\nL2: Dear reader\\nL3: [page 2]\\nL4: Yours truly" in text
    assert "[page 2 as a picture] [image/png, 1200 × 600" in text
    pictures = [b64decode(each) for each in pictures_in(request)]
    assert len(pictures) == seen, "only for a model that sees"
    assert all(image_size(each) == (1200, 600) for each in pictures)
    if pictures:
        image = pytest.importorskip("PIL.Image")
        with image.open(io.BytesIO(pictures[0])) as drawn:
            colours = {pixel for _, pixel in drawn.convert("L").getcolors()}
        assert {0, 255} <= colours, "black letters on a white page"


@pytest.mark.walls
def test_a_long_pdf_is_read_by_lines_with_the_pages_they_are_on(desk: Desks) -> None:
    pytest.importorskip("pypdfium2")
    request = read_as_pdf(desk, pdf(*(f"Sheet {number}" for number in range(1, 31))), offset=39, limit=4)
    text = json.dumps(request.body, ensure_ascii=False)
    assert "L39: [page 20]\\nL40: Sheet 20\\nL41: [page 21]\\nL42: Sheet 21" in text
    assert "Sheet 22" not in text and "continue with offset=43" in text
    assert "[page 20 as a picture]" in text and "[page 21 as a picture]" in text and len(pictures_in(request)) == 2


@pytest.mark.walls
def test_a_pdf_that_cannot_be_read_goes_as_it_is_and_says_why(desk: Desks) -> None:
    pytest.importorskip("pypdfium2")
    broken = {"empty.pdf": b"%PDF-1.4\nnothing of one\n", "noise.pdf": b"%PDF-1.7\n" + bytes(range(256)) * 64}
    calls = tuple(WireCall(name="read_file", args={"path": name}) for name in broken)
    with WireServer([WireTurn(calls=calls), WireTurn(say="Read.")]) as server:
        place = place_for(desk, server, "openai-compatible")
        for name, data in broken.items():
            (place.root / name).write_bytes(data)
        ran = place.forge("run", "-m", MODELS["openai-compatible"], "read them")
    assert (ran.code, ran.out) == (0, "Read.\n"), ran.err
    text = json.dumps(server.requests[1].body, ensure_ascii=False)
    assert text.count("Its text cannot be read here: it is damaged.") == 2 and "application/pdf" in text


@pytest.mark.walls
async def test_without_its_library_a_pdf_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.toolsets.pdf._LIBRARY", ("a_library_that_nobody_has",))
    bench = Bench(tmp_path)
    (bench.workspace / "paper.pdf").write_bytes(pdf("Dear reader"))
    async with bench.session() as session:
        outcome = await session.call("read_file", {"path": "paper.pdf"})
    assert outcome.ok and "install its reader with: pip install 'golem-forge[pdf]'" in outcome.text
    assert outcome.media[0].media_type == "application/pdf"


@pytest.mark.walls
@pytest.mark.browser
async def test_a_screenshot_of_a_browsers_server_arrives_as_a_picture(
    mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server process in walls drives a real Chromium; the model is sent what that one drew."""
    if not (chromium := chromium_path()):
        pytest.skip("this machine has no chromium: see build/missing-parts")
    image = pytest.importorskip("PIL.Image")
    bench = mcp_bench
    bench.yaml({"browser": bench.ours("browser.py", chromium)})
    (bench.workspace / "page.html").write_text("<body style='margin:0; background:#4080c0'>")
    bench.trust()
    bench.approve()
    monkeypatch.setenv("WIRE_KEY", KEY)
    look = WireCall(name="browser__screenshot", args={"file": "/workspace/page.html"})
    with WireServer([WireTurn(calls=(look,)), WireTurn(say="A blue page.")]) as server:
        block = f"{{base_url: '{server.base_url('anthropic')}', key_env: WIRE_KEY}}"
        (bench.home.path / "config.yaml").write_text(f"models: {{anthropic: {block}}}\n")
        async with WorkerRuntime(
            directory=bench.workspace, home=bench.home.path, model=MODELS["anthropic"], approval_mode="approve_all"
        ) as runtime:
            result = await runtime.turn("how does page.html look?")
    assert result.response == "A blue page.", result
    text = json.dumps(server.requests[1].body, ensure_ascii=False)
    assert "The page as it looks now." in text and "[image/png, 320 × 200" in text, text[-3000:]
    [picture] = pictures_in(server.requests[1])
    with image.open(io.BytesIO(b64decode(picture))) as drawn:
        assert drawn.size == (320, 200) and drawn.convert("RGB").getpixel((160, 100)) == (0x40, 0x80, 0xC0)


def test_a_picture_that_is_too_large_is_made_smaller_and_stays_the_same_bytes(desk: Desks) -> None:
    pytest.importorskip("PIL")
    with WireServer(
        [
            WireTurn(calls=(WireCall(name="read_file", args={"path": "wide.png"}),)),
            WireTurn(calls=(WireCall(name="list_files", args={}),)),
            WireTurn(say="Wide."),
        ]
    ) as server:
        place = place_for(desk, server, "anthropic")
        (place.root / "wide.png").write_bytes(png(4000, 500))
        ran = place.forge("run", "-m", MODELS["anthropic"], "look")
        assert (ran.code, ran.out) == (0, "Wide.\n"), ran.err
    [sent] = pictures_in(server.requests[1])
    assert pictures_in(server.requests[2]) == [sent]
    assert len(sent) < len(b64encode(png(4000, 500)))
    assert "4000 × 500" in json.dumps(server.requests[1].body, ensure_ascii=False)


def test_a_person_and_a_program_see_the_handle(desk: Desks) -> None:
    place = desk({})
    (place.root / "blue.png").write_bytes(PICTURE)
    answered = json.loads(place.forge("call", "--json", "read_file", "--path", "blue.png").out)
    [part] = answered["media"]
    assert part["mediaType"] == "image/png" and part["handle"].startswith("out_")
    shown = place.forge("call", "read_output", "--handle", part["handle"])
    assert WRITTEN[:40] in shown.out


@pytest.mark.parametrize(("term", "begins"), [("xterm-kitty", "\x1b_Ga=T,f=100,q=2"), ("xterm-256color", "")])
def test_a_terminal_that_can_shows_the_picture_and_no_other_is_sent_one(desk: Desks, term: str, begins: str) -> None:
    with WireServer([WireTurn(calls=(WireCall(name="screenshot", args={}),)), WireTurn(say="Blue.")] * 2) as server:
        place = place_for(desk, server, "anthropic")
        env = place.environ | {"TERM": term}
        words = ("run", "-m", MODELS["anthropic"], "-a", "approve_all")
        child = place.ready.expecting(
            words, cwd=str(place.root), env=env, encoding="utf-8", timeout=PATIENCE, echo=False
        )
        child.expect("main on")
        child.send("look\r")
        child.expect_exact(f"{begins},c=7,r=3,m=0;{WRITTEN}\x1b\\" if begins else "Blue.")  # drawn beside the answer
        seen = child.before + child.after
        child.send("/exit\r")
        child.expect(pexpect.EOF)
        seen += child.before
    assert ("\x1b_G" in seen) is bool(begins) and "\x1b]1337" not in seen and "\x1bPq" not in seen
