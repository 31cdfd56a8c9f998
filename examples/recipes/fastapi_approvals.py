"""A FastAPI app that embeds a worker and asks its questions on a page of its own: `python fastapi_approvals.py`.

    pip install golem-forge fastapi uvicorn

Open the link that it prints. Without a key a function stands for the model; with `FORGE_MODEL=anthropic:<name>` and
its key (`pip install 'golem-forge[models]'`) a real one answers.

The page approves calls, so not everybody may reach it: every request must carry the key of the link. Put your own login
in its place before other people use it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, Field

from golem_forge import Worker, WorkerRuntime, create_runtime_ui, create_ui_event_bus, tool
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall

KEY = secrets.token_urlsafe()
SHOWN = 200  # lines that the page keeps
TICKETS = {7: "The printer is out of paper", 8: "How do I change my password?"}


# ---- the worker and its tools


@tool(needs_approval=False, read_only=True)
def open_tickets() -> dict[str, str]:
    """List the open tickets."""
    return {str(number): title for number, title in TICKETS.items()}


@tool
def close_ticket(number: int, answer: Annotated[str, "what the user reads"]) -> str:
    """Close a ticket with an answer to the user."""
    return f"closed {number}: {TICKETS.pop(number)}"


def words(request: Any) -> Turn | str:
    """Stands for a model: takes a request, gives what it would answer."""
    last = str(request.messages[-1])
    if "closed 7" in last:
        return "Ticket 7 is closed."
    if "denied" in last:
        return "Then ticket 7 stays open."
    return Turn(calls=(TurnCall(tool="close_ticket", args={"number": 7, "answer": "<b>There is paper again.</b>"}),))


# ---- the UI that Forge talks to: it keeps what the page shows


class PageUI:
    """Reads the runtime's events. `questions` are the open ones, by id; `lines` is what was said and done."""

    def __init__(self) -> None:
        self.bus = create_ui_event_bus()
        self.lines: list[str] = []
        self.questions: dict[str, dict[str, Any]] = {}
        self.changed = asyncio.Event()
        self._ends: list[Callable[[], None]] = []

    async def initialize(self) -> None:
        ui = create_runtime_ui(self.bus)
        self._ends = [
            ui.attach("page"),  # from now on questions wait for the page
            self.bus.on("approvalRequired", self._asked),
            self.bus.on("approvalResolved", self._resolved),
            self.bus.on("message", self._said),
            self.bus.on("toolResult", self._ran),
        ]
        ui.replay_open(self._asked)

    async def shutdown(self) -> None:
        for end in self._ends:
            end()

    def answer(self, question: str, approved: bool) -> bool:
        """False: nobody asks this any more."""
        if question not in self.questions:
            return False
        self.bus.emit("approvalResponse", {"requestId": question, "approved": approved}, source="page")
        return True

    def state(self) -> dict[str, Any]:
        return {"lines": self.lines, "question": next(iter(self.questions.values()), None)}

    def _asked(self, event: Any) -> None:
        card = event.wire
        shown = {"id": card["requestId"], "tool": card["tool"], "args": card["args"], "risk": card.get("risk", "")}
        self.questions[card["requestId"]] = shown
        self._tell()

    def _resolved(self, event: Any) -> None:
        self.questions.pop(event.wire["requestId"], None)
        self._tell()

    def _said(self, event: Any) -> None:
        message = event.data.message
        self._tell(f"{message['role']}: {message['content']}")

    def _ran(self, event: Any) -> None:
        self._tell(f"{event.wire['toolName']}: {event.wire['status']}")

    def _tell(self, line: str = "") -> None:
        self.lines = [*self.lines, line][-SHOWN:] if line else self.lines
        self.changed.set()
        self.changed = asyncio.Event()


# ---- the app


class Task(BaseModel):
    text: str = Field(min_length=1, max_length=4000)


class Answer(BaseModel):
    id: str
    approved: bool


def keyed(key: str = "") -> None:
    if not secrets.compare_digest(key.encode(), KEY.encode()):
        raise HTTPException(403, "open the link that the program printed")


class State:
    """What the requests share: one worker, one task at a time."""

    ui: PageUI
    runtime: WorkerRuntime
    task: asyncio.Task[Any] | None = None


state = State()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    state.ui = PageUI()
    worker = Worker(name="desk", instructions="You work at the help desk.")
    model = os.environ.get("FORGE_MODEL") or FunctionScript(words)
    async with WorkerRuntime(worker, model=model, tools=[open_tickets, close_ticket], ui_adapter=state.ui) as runtime:
        state.runtime = runtime
        yield
        runtime.interrupt()  # withdraws an open question and ends what runs
        if state.task:
            await asyncio.wait([state.task], timeout=5)


app = FastAPI(lifespan=lifespan, dependencies=[Depends(keyed)], docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE, headers={"Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"})


@app.get("/events")
async def events() -> StreamingResponse:
    async def stream() -> AsyncIterator[str]:
        while True:
            changed = state.ui.changed
            yield f"data: {json.dumps(state.ui.state())}\n\n"
            await changed.wait()

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.post("/tasks", status_code=202)
async def begin(task: Task) -> None:
    if state.task and not state.task.done():
        raise HTTPException(409, "the worker is still busy with the last task")
    state.task = asyncio.create_task(state.runtime.turn(task.text))


@app.post("/answers", status_code=204)
async def give_answer(answer: Answer) -> None:
    if not state.ui.answer(answer.id, answer.approved):
        raise HTTPException(409, "this question is not open any more")


# Text of a model goes into the page by textContent only: it never becomes markup.
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<title>Help desk</title>
<style>
  :root { color-scheme: light dark }
  body { font: 16px/1.5 system-ui; max-width: 40rem; margin: 2rem auto; padding: 0 1rem }
  #question { border: 1px solid; border-radius: .5rem; padding: 1rem; margin: 1rem 0 }
  pre { white-space: pre-wrap; overflow-wrap: anywhere }
  button { font: inherit; padding: .3rem 1rem; margin-right: .5rem }
  input { font: inherit; width: 100%; box-sizing: border-box; padding: .3rem }
</style>
<h1>Help desk</h1>
<ul id="lines" aria-live="polite"></ul>
<section id="question" hidden>
  <h2 id="asks"></h2>
  <pre id="args"></pre>
  <button id="approve">Approve once</button>
  <button id="deny">Deny</button>
</section>
<form id="form"><label>Task <input name="text" required maxlength="4000" autocomplete="off"></label></form>
<p id="problem" role="alert"></p>
<script>
  const key = location.search
  const at = (id) => document.getElementById(id)
  let open = null
  async function post(path, body) {
    const headers = { "content-type": "application/json" }
    const answer = await fetch(path + key, { method: "POST", headers, body: JSON.stringify(body) })
    at("problem").textContent = answer.ok ? "" : (await answer.json()).detail
  }
  new EventSource("/events" + key).onmessage = (event) => {
    const { lines, question } = JSON.parse(event.data)
    at("lines").replaceChildren(...lines.map((line) => {
      const item = document.createElement("li")
      item.textContent = line
      return item
    }))
    open = question
    at("question").hidden = !question
    if (question) {
      at("asks").textContent = `${question.tool} wants to run (risk: ${question.risk || "unknown"})`
      at("args").textContent = JSON.stringify(question.args, null, 2)
    }
  }
  at("approve").onclick = () => open && post("/answers", { id: open.id, approved: true })
  at("deny").onclick = () => open && post("/answers", { id: open.id, approved: false })
  at("form").onsubmit = (event) => {
    event.preventDefault()
    post("/tasks", { text: event.target.text.value })
    event.target.reset()
  }
</script>
</html>
"""


def main(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(f"open http://127.0.0.1:{listener.getsockname()[1]}/?key={KEY}", flush=True)
        # The access log would repeat the key; a page that stays open must not hold up the end.
        config = uvicorn.Config(app, access_log=False, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
