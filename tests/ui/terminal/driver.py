"""A small runtime over the real bus, RuntimeUI and terminal adapter: each line the person types is a scene to play.

Every action the UI sends is noted, one JSON line each, in the file NOTES names. The file CLOCK says what time it is for
the keyboard: `+1.5` that it is so many seconds ahead, `100.0` that it stands still, and then every time is noted that
the silence is over and a question gets the keyboard or not (`quiet`). Every key is noted once it was heard (`key`).
PAUSE: the seconds before the next question is drawn, for what must come before it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from golem_forge.events.bus import create_ui_event_bus
from golem_forge.events.runtime_ui import InputUnavailable, create_runtime_ui
from golem_forge.ui.terminal import adapter, create_event_cli_adapter
from golem_forge.ui.terminal.keyboard import KeyTiming

ACTIONS = ("userInput", "approvalResponse", "formResponse", "command", "interrupt", "manualToolInvoke")


def field(name: str, kind: str, *, required: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "label": name.title(), "type": kind, "required": required, "description": "", **more}


REMOTES = [{"value": name, "label": name} for name in ("origin", "upstream")]
PIN = field("pin", "secret", required=True)
BRANCH_FIELDS = [
    field("branch", "text", required=True, description="Target branch"),
    field("remote", "select", default="origin", options=REMOTES),
    field("force", "boolean", default=False),
]
NESTED_FIELDS = [
    field("tags", "list", item=field("tags", "text", required=True)),
    field(
        "owner",
        "group",
        required=True,
        fields=[field("name", "text", required=True), field("age", "number", min=0, max=150)],
    ),
    PIN,
]
TOOLS = [
    {"name": "git_push", "label": "Push", "description": "Push commits", "fields": BRANCH_FIELDS},
    {"name": "log_in", "label": "Log in", "description": "Log in", "fields": [PIN]},
]


class ToldTime(KeyTiming):
    """By the file CLOCK, which is looked at again and again: nobody waits for a silence that is over there."""

    def __init__(self, file: Path) -> None:
        super().__init__(self.now)
        self._file = file
        self.runs = file.read_text().startswith("+")

    def now(self) -> float:
        return float(self._file.read_text()) + (time.monotonic() if self.runs else 0)

    @property
    def seconds_left(self) -> float:
        return min(super().seconds_left, 0.02)


class Runtime:
    def __init__(self) -> None:
        self.bus = create_ui_event_bus("session-1")
        self.ui = create_runtime_ui(self.bus)
        self.signal = asyncio.Event()
        self.notes = Path(os.environ["NOTES"])
        self.go = Path(f"{self.notes}.go")
        self.adapter: Any = create_event_cli_adapter(
            self.bus,
            trace_level=os.environ.get("TRACE", "normal"),
            home=Path(os.environ["DRIVER_HOME"]),
            zone_listing=lambda directory: {"/": ["work/", "scratch/"], "/work/": ["notes.md", "src/"]}.get(
                directory or "/work/", []
            ),
            session_ids=lambda: ["20260101-abc"],
            model_names=lambda: ["test:model", "openai:", "openai-compatible:"],
            rule_ids=lambda: ["0123abcd"],
        )
        self.adapter.offer_files(self.files)

    async def files(self) -> list[str]:
        return ["/work/notes.md", "/work/src/nuts.py", "/work/src/two words.txt"]

    def note(self, kind: str, **data: Any) -> None:
        with self.notes.open("a") as file:
            file.write(json.dumps({"type": kind, "at": time.time(), **data}) + "\n")

    async def converse(self) -> int:
        for kind in ACTIONS:
            self.bus.on(kind, lambda event: self.note(event.type, source=event.source, **dict(event.wire)))
        self.bus.on("interrupt", lambda event: self.signal.set())
        self.bus.on("command", lambda event: self.command(str(event.wire["text"])))
        await self.adapter.initialize()
        screen = self.adapter._screen
        screen.keyboard._silence = told = ToldTime(Path(os.environ["CLOCK"]))
        self.adapter._leaving._clock = told.now
        screen.app.key_processor.after_key_press += lambda _: self.note("key")
        if not told.runs:
            self.note_silences(screen.keyboard)
        try:
            if os.environ.get("SLOW_START"):
                await self.gate()
            self.bus.emit(
                "sessionStarted",
                {
                    "worker": "main",
                    "model": "test:model",
                    "mode": "x",
                    "approvalMode": "ask",
                    "zones": [],
                    "resumed": False,
                },
            )
            self.bus.emit("manualToolsAvailable", {"tools": TOOLS})
            for scene in sys.argv[1:]:
                await self.play(scene)
            while True:
                try:
                    said = await self.ui.get_user_input("you>")
                except InputUnavailable:
                    break
                self.signal = asyncio.Event()
                self.ui.show_message(role="user", content=said.content)
                await self.play(said.content)
            return int(self.adapter.exit_code)
        finally:
            await self.adapter.shutdown()

    def note_silences(self, keyboard: Any) -> None:
        decide = keyboard._arm_when_quiet

        def noted() -> None:
            decide()
            if keyboard._due is None:  # else it waits on
                self.note("quiet")

        keyboard._arm_when_quiet = noted

    async def play(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        scene = getattr(self, f"scene_{name}", None)
        if scene is None:
            self.ui.show_message(role="assistant", content=f"heard: {text}")
            return
        playing = asyncio.ensure_future(scene(rest))
        stopped = asyncio.ensure_future(self.signal.wait())
        await asyncio.wait({playing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            playing.cancel()
            leaving = asyncio.ensure_future(self.adapter.exit_requested.wait())
            await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            playing.cancel()
            await asyncio.wait({playing})
            self.ui.show_status(type="warning", message="turn interrupted")
        elif playing.exception() is not None:
            raise playing.exception()  # type: ignore[misc]
        stopped.cancel()

    def command(self, text: str) -> None:
        if text == "/form":
            self.later = asyncio.ensure_future(self.scene_form("", source="command"))
            return
        if text == "/run":
            self.ui.show_tool_started("c2", "own_tool", {}, "human")
            self.result("c2", "own_tool", "success", value={"kind": "text", "content": "the person's own"})
            return
        if text == "/mode next":
            self.ui.show_status(type="info", message="Now: contained.", code="APPROVAL_MODE", mode="contained")
            return
        if text == "/prefill":
            prompt = "[prompt 'greet' of the MCP server 'docs']\n/exit now, please"
            later = asyncio.get_running_loop().call_soon
            later(lambda: self.ui.show_status(type="info", message=prompt, code="prefill"))
            return
        self.ui.show_status(type="info", message=f"command done: {text}", code="command")

    def stream(self, delta: str, *, done: bool = False, channel: str = "text", id: str = "r1", **more: Any) -> None:
        self.bus.emit("streaming", {"requestId": id, "delta": delta, "done": done, "channel": channel, **more})

    # ---- scenes

    async def scene_stream(self, rest: str) -> None:
        id = f"r{time.monotonic_ns()}"
        self.stream("I wonder", channel="thinking", id=id)
        self.stream("", channel="thinking", id=id, done=True)
        self.note("streamed")
        self.stream("# Heading\n\nFirst **bold** par", id=id)
        await self.gate()
        self.stream("agraph.\n\n- one\n- two\n\n```python\nprint('hi')\n", id=id)
        self.stream("```\n\nThe last 界 line", id=id)
        self.stream("", done=True, id=id)
        whole = (
            "# Heading\n\nFirst **bold** paragraph.\n\n- one\n- two\n\n```python\nprint('hi')\n```\n\nThe last 界 line"
        )
        self.ui.show_message(role="assistant", content=whole)

    async def gate(self) -> None:
        """Until the test lets it go on."""
        while not self.go.exists():
            await asyncio.sleep(0.01)
        self.go.unlink()

    async def scene_discard(self, rest: str) -> None:
        self.stream("One block.\n\nHalf of anoth", id="gone")
        await self.gate()
        self.stream("", done=True, discarded=True, id="gone")
        self.stream("The real answer.", id="kept")
        self.stream("", done=True, id="kept")

    async def scene_forever(self, rest: str) -> None:
        self.stream("streaming on and on", id=f"r{time.monotonic_ns()}")
        await asyncio.Event().wait()

    async def scene_tool(self, rest: str) -> None:
        self.ui.show_tool_started("c1", "slow_tool", {"n": 1})
        self.ui.show_progress("c1", 3, 10, "copying")
        self.bus.emit("toolOutput", {"toolCallId": "c1", "stream": "stdout", "delta": "line one\nline two\x1b[31m\n"})
        await self.gate()
        self.result("c1", "slow_tool", "success", value={"kind": "text", "content": "tool said so"})

    def result(self, id: str, tool: str, status: str, **more: Any) -> None:
        wire = {"toolCallId": id, "toolName": tool, "args": {}, "status": status, "durationMs": 12.0, "decision": None}
        self.bus.emit("toolResult", {**wire, "truncated": False, **more})

    async def scene_flood(self, rest: str) -> None:
        for number in range(200):
            self.ui.show_status(type="info", message=f"flood {number}")
        print("printed by other code")
        logging.getLogger("other").warning("logged by other code")

    def card(self, **more: Any) -> dict[str, Any]:
        return {
            "type": "command",
            "description": "Run: a command",
            "tool": "exec_command",
            "args": {"cmd": "echo hello"},
            "payload": "echo hello",
            "effects": ["exec echo"],
            "risk": "high",
            "riskReasons": [],
            "why": "rule r1 asks",
            "choices": [
                {"id": "exact:session", "label": "this exact command", "scope": "session"},
                {
                    "id": "prefix:always",
                    "label": "echo",
                    "scope": "always",
                    "rule": "argv [echo]",
                    "file": "remembered.yaml",
                },
            ],
            "fingerprint": os.urandom(8).hex(),
            "argsKey": "k",
            "previouslyDenied": 0,
            "waiting": 1,
            "warnings": [],
            "workerPath": [],
            **more,
        }

    async def ask(self, **more: Any) -> None:
        check = more.pop("check_edit", None)
        answer = await self.ui.request_approval(self.card(**more), cancel=self.signal, check_edit=check)
        self.note("answered", **answer)
        self.ui.show_message(role="assistant", content=f"card: {json.dumps(answer, sort_keys=True)}")

    async def scene_card(self, rest: str) -> None:
        await self.ask()

    async def scene_write(self, rest: str) -> None:
        """A change that asks, and its result."""
        diff = "--- a/work/notes.md\n+++ b/work/notes.md\n@@ -1,2 +1,2 @@\n-one\n+three\n two\n"
        await self.ask(diff=diff, type="file_write", tool="write_file", toolCallId="w1")
        self.ui.show_tool_started("w1", "write_file", {"path": "notes.md"})
        value = {"path": "/work/notes.md", "original": "one\ntwo\n", "modified": "three\ntwo\n", "isNew": False}
        self.result("w1", "write_file", "success", value={"kind": "diff", "bytesWritten": 10, **value})

    async def scene_output(self, rest: str) -> None:
        """A long one, of a call that nobody was asked about."""
        text = "".join(f"row {number} of the output\n" for number in range(100))
        self.result("o1", "report", "success", value={"kind": "text", "content": text})

    async def scene_own(self, rest: str) -> None:
        await self.ask(caller="human")

    async def scene_trust(self, rest: str) -> None:
        await self.ask(type="trust", tool="", choices=[])

    async def scene_long(self, rest: str) -> None:
        words = " ".join(f"word{number}" for number in range(60))
        await self.ask(payload=f"echo {words}; rm -rf the_end", args={"cmd": "x"})

    async def scene_diff(self, rest: str) -> None:
        diff = "--- /work/a\n+++ /work/a\n@@ -1,100 +1,100 @@\n" + "\n".join(f"+line {n}" for n in range(100))
        await self.ask(diff=diff, type="file_write", tool="write_file")

    async def scene_choice(self, rest: str) -> None:
        """A form without fields that says what y and n mean."""
        answer = await self.ui.request_form(
            source="forge", title="How shall it work?", message="", fields=[], accept="on its own", decline="ask first"
        )
        self.note("chosen", **answer)
        self.ui.show_message(role="assistant", content=f"chosen: {answer['action']}")

    async def scene_changed(self, rest: str) -> None:
        """A turn whose calls changed files."""
        for call, path in (("c1", "/work/a"), ("c2", "/work/b")):
            files = [{"path": path, "verb": "changed", "added": 2, "removed": 1, "selected": True}]
            data = {"callId": call, "tool": "write_file", "turn": 1, "files": files, "count": 1, "logHash": "0"}
            self.bus.emit("filesChanged", {**data, "added": 2, "removed": 1})
        self.ui.show_message(role="assistant", content="It is written.")

    async def scene_three(self, rest: str) -> None:
        await asyncio.gather(
            *(self.ask(payload=f"echo number {n}", args={"cmd": f"echo number {n}"}) for n in (1, 2, 3))
        )

    async def scene_covered(self, rest: str) -> None:
        """What the first answer remembers covers the second, too."""

        async def first() -> None:
            await self.ask(payload="echo number 1", args={"cmd": "echo number 1"})
            self.ui.withdraw_approval("second", approved=True, by="memory")

        await asyncio.gather(first(), self.ask(requestId="second", payload="echo number 2", args={"cmd": "x"}))

    async def scene_denied(self, rest: str) -> None:
        await asyncio.gather(self.ask(), self.scene_form(""))

    async def scene_chatty(self, rest: str) -> None:
        """What the first call prints pushes the second card out of sight."""

        async def first() -> None:
            await self.ask(payload="echo number 1", args={"cmd": "echo number 1"})
            await self.gate()
            await self.scene_flood("")

        await asyncio.gather(first(), self.ask(payload="echo number 2", args={"cmd": "echo number 2"}))

    async def scene_elsewhere(self, rest: str) -> None:
        asking = asyncio.ensure_future(self.ask(requestId="fixed"))
        await self.gate()
        self.bus.emit("approvalResponse", {"requestId": "fixed", "approved": True}, source="browser")
        await asking

    async def scene_later(self, rest: str) -> None:
        """A question that comes when the test says so."""
        await self.gate()
        await (self.scene_form("") if rest == "form" else self.ask())

    async def scene_first_elsewhere(self, rest: str) -> None:
        """Two cards; the first one is answered by another UI."""
        first = asyncio.ensure_future(self.ask(requestId="first"))
        second = asyncio.ensure_future(self.ask(requestId="second", payload="echo second", args={"cmd": "echo second"}))
        await self.gate()
        self.bus.emit("approvalResponse", {"requestId": "first", "approved": False}, source="browser")
        await asyncio.gather(first, second)

    async def scene_prefilled(self, rest: str) -> None:
        """Forge itself puts text into the line while a card has the keyboard."""
        asking = asyncio.ensure_future(self.ask())
        await self.gate()
        self.ui.show_status(type="info", message="a prompt of a server", code="prefill")
        await asking

    async def scene_late(self, rest: str) -> None:
        """The loop is busy while the person types; the card comes after."""
        self.note("busy")
        while not self.go.exists():
            time.sleep(0.01)
        await self.ask()

    async def scene_edit(self, rest: str) -> None:
        def check(args: Any) -> dict[str, str]:
            return {"branch": "no such branch"} if args.get("branch") == "bad" else {}

        args = {"branch": "main", "remote": "origin", "force": False}
        await self.ask(tool="git_push", args=args, payload=json.dumps(args), fields=BRANCH_FIELDS, check_edit=check)

    async def scene_form(self, rest: str, source: str = "tool") -> None:
        fields = NESTED_FIELDS if rest == "nested" else BRANCH_FIELDS
        form = {"source": source, "title": "Push", "message": "Where to?", "fields": fields, "workerPath": []}
        answer = await self.ui.request_form(form)
        self.note("filled", **answer)
        self.ui.show_message(role="assistant", content="form is over")

    async def scene_crash(self, rest: str) -> None:
        raise RuntimeError("the runtime crashed")

    async def scene_hang(self, rest: str) -> None:
        """Ignores interrupts."""
        self.note("hangs")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.adapter.exit_requested.is_set():
                    raise

    async def scene_child(self, rest: str) -> None:
        child = await asyncio.create_subprocess_exec("sleep", "600", stdin=asyncio.subprocess.DEVNULL)
        self.note("child", pid=child.pid)
        await child.wait()
        self.ui.show_message(role="assistant", content="child is gone")


if __name__ == "__main__":
    if "PAUSE" in os.environ:
        for each in ("_NEXT_S", "_ENDING_S"):
            setattr(adapter, each, float(os.environ["PAUSE"]))
    sys.exit(asyncio.run(Runtime().converse()))
