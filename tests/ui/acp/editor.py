"""An editor as `forge acp` meets it: frames over pipes, written and read by hand, and a program with a scripted model.

    with Editor(desk) as editor:
        session = editor.new()
        assert editor.prompt(session, "hello")["stopReason"] == "end_turn"

Permissions are answered by `editor.answers`: the kind of an option, a function of the request, or None for no answer.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from tests.deadlines import PATIENCE

MAIN = """\
---
name: main
toolsets:
  filesystem: {}
  exec: {}
  plan: {}
  workers: {allow: [helper], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
You help.
"""
HELPER = """\
---
name: helper
toolsets:
  exec: {walled: preApproved}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
You help the helper.
"""
FORGE_YAML = "model: scripted:script.yaml\n"
SCRIPT = """\
turns:
  - think: The person greets me.
    say: I look first.
    calls:
      - {tool: read_file, args: {path: /workspace/a.txt}}
      - {tool: update_plan, args: {plan: [{step: look, status: completed}, {step: write, status: in_progress}]}}
  - calls: [{tool: write_file, args: {path: /workspace/a.txt, content: "one\\nthree\\n"}}]
  - say: It is done.
    chunks: 3
"""
FILES = {"forge.yaml": FORGE_YAML, "main.worker": MAIN, "workers/helper.worker": HELPER, "script.yaml": SCRIPT}
FILES |= {"a.txt": "one\ntwo\n"}

Frame = dict[str, Any]


class Editor:
    def __init__(self, desk: Any, *words: str, name: str = "test editor", **capabilities: Any) -> None:
        self.root = desk.root
        self.process = desk.ready.start_with_input(["forge", "acp", *words], cwd=desk.root, env=desk.environ)
        self.frames: list[Frame] = []
        self.bad_lines: list[bytes] = []
        self.opened: list[str] = []
        """Sessions, by `new`."""
        self.answers: Any = "allow_once"
        self._numbers = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        info = {"name": name, "version": "1"}
        self.hello = self.request("initialize", protocolVersion=1, clientInfo=info, clientCapabilities=capabilities)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()
        assert self.bad_lines == [], "standard output carries frames only"

    def leave(self, within: float = PATIENCE) -> int:
        """Closes its end, as an editor that is quit."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        code = int(self.process.wait(within))
        self._reader.join(within)
        return code

    # ---- out

    def write(self, frame: Any) -> None:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, **params: Any) -> int:
        self._numbers += 1
        self.write({"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params})
        return self._numbers

    def notify(self, method: str, **params: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, **params: Any) -> Any:
        """Its result, or the error as it is."""
        return self.result(self.begin(method, **params))

    def result(self, number: int) -> Any:
        answer = self.until(lambda frame: frame.get("id") == number and "method" not in frame, f"answer {number}")
        return answer.get("result", answer)

    def new(self, **params: Any) -> str:
        answer = self.request("session/new", **({"cwd": str(self.root), "mcpServers": []} | params))
        assert "sessionId" in answer, answer
        self.opened.append(str(answer["sessionId"]))
        return self.opened[-1]

    def prompt(self, session: str, text: str, *blocks: Frame) -> Any:
        return self.result(self.begin_prompt(session, text, *blocks))

    def begin_prompt(self, session: str, text: str, *blocks: Frame) -> int:
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}, *blocks])

    def use_script(self, session: str, **files: str) -> None:
        """The next turns are those of this file, beside the program's own."""
        [(name, text)] = files.items()
        (self.root / f"{name}.yaml").write_text(text)
        value = f"scripted:{name}.yaml"
        answer = self.request("session/set_config_option", sessionId=session, configId="model", value=value)
        assert "configOptions" in answer, answer

    # ---- in

    def until(self, condition: Callable[[Frame], Any], what: str, within: float = PATIENCE) -> Frame:
        end = time.monotonic() + within
        with self._news:
            while True:
                if (found := next((frame for frame in self.frames if condition(frame)), None)) is not None:
                    return found
                left = end - time.monotonic()
                assert left > 0, f"not within {within} s: {what}; last frames: {self.frames[-3:]}"
                self._news.wait(left)

    def until_update(self, kind: str, **members: Any) -> Frame:
        def fits(frame: Frame) -> bool:
            update = frame.get("params", {}).get("update", {})
            return update.get("sessionUpdate") == kind and members.items() <= update.items()

        return self.until(fits, f"{kind} {members}")["params"]["update"]

    def updates(self, kind: str = "", session: str = "") -> list[Frame]:
        with self._news:
            sent = [frame["params"] for frame in self.frames if frame.get("method") == "session/update"]
        found = [each["update"] for each in sent if session in ("", each["sessionId"])]
        return [each for each in found if kind in ("", each["sessionUpdate"])]

    def text(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        return "".join(each["content"]["text"] for each in self.updates(kind, session))

    def asked(self) -> list[Frame]:
        with self._news:
            return [frame["params"] for frame in self.frames if frame.get("method") == "session/request_permission"]

    def forget(self) -> None:
        with self._news:
            self.frames.clear()

    def _read(self) -> None:
        for line in self.process.stdout:
            try:
                frame = json.loads(line)
            except ValueError:
                self.bad_lines.append(line)
                continue
            with self._news:
                self.frames.append(frame)
                self._news.notify_all()
            if frame.get("method") in ("session/request_permission", "elicitation/create"):
                self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        wanted = self.answers(frame) if callable(self.answers) else self.answers
        if wanted is None:
            return
        if isinstance(wanted, str):
            options = frame["params"]["options"]
            chosen = next(each["optionId"] for each in options if each["kind"] == wanted)
            wanted = {"outcome": {"outcome": "selected", "optionId": chosen}}
        with contextlib.suppress(OSError, ValueError):
            self.write({"jsonrpc": "2.0", "id": frame["id"], "result": wanted})
