"""The fold: whatever way the events of a session reach a page, it shows the same."""

from __future__ import annotations

from typing import Any

from tests.ui.web.bench import Window, Windows, browsing

from golem_forge.events.model import REGISTRY

pytestmark = browsing

Shown = dict[str, Any]


class Story:
    """Events as frames carry them, numbered as a session does it."""

    def __init__(self) -> None:
        self.frames: list[Shown] = []

    def say(self, kind: str, *, worker: str = "root", view: Shown | None = None, **data: Any) -> Shown:
        last = self.frames[-1]["event"]["seq"] if self.frames else 0
        seq = last + REGISTRY[kind].RECORDED
        stamp = f"2026-01-01T00:00:{seq % 60:02}.000Z"
        event = {"type": kind, "seq": seq, "ts": stamp, "sessionId": "s", "workerId": worker, "data": data}
        self.frames.append({"event": event, "view": view or {}})
        return self.frames[-1]

    def message(self, role: str, content: str, *, worker: str = "root") -> Shown:
        return self.say(
            "message", worker=worker, view={"html": f"<p>{content}</p>"}, message={"role": role, "content": content}
        )

    def streamed(self, request: str, delta: str, *, worker: str = "root", channel: str = "text", **more: Any) -> Shown:
        view = {"keep": 0, "html": f"<p>{delta}</p>"} if channel == "text" else {}
        data: dict[str, Any] = {"requestId": request, "delta": delta, "channel": channel, "done": False, **more}
        return self.say("streaming", worker=worker, view=view, **data)

    def started(self, call: str, **more: Any) -> Shown:
        return self.say("toolStarted", **{"toolCallId": call, "toolName": "read", "args": {}, "caller": "llm", **more})

    def result(self, call: str, status: str = "success", **more: Any) -> Shown:
        data: dict[str, Any] = {
            "toolCallId": call,
            "toolName": "read",
            "args": {},
            "status": status,
            "durationMs": 1,
            "decision": None,
        }
        return self.say("toolResult", **data, truncated=False, **more)

    def asked(self, request: str, tool: str = "exec_command") -> Shown:
        return self.say("approvalRequired", requestId=request, tool=tool, risk="high", choices=[])

    def answered(self, request: str, by: str = "terminal") -> Shown:
        return self.say("approvalResolved", requestId=request, approved=True, by=by, edited=False)


_FOLD = """async ([frames, script]) => {
  const { SessionStore } = await import("/store.js");
  const store = new SessionStore();
  const told = [];
  store.subscribe((change) => told.push(change));
  for (const frame of frames) store.take(frame);
  const items = () => [...store.items.values()];
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
  return await new AsyncFunction("store", "items", "told", "frames", script)(store, items, told, frames);
}"""


async def _fold(functions: Window, frames: list[Shown], script: str) -> Any:
    return await functions.run(_FOLD, [frames, script])


async def test_a_stream_and_its_message_are_one(functions: Window) -> None:
    story = Story()
    story.message("user", "go")
    story.streamed("r1", "I look", channel="thinking")
    story.streamed("r1", "Hel")
    story.streamed("r1", "Hello")
    story.streamed("r1", "", done=True)
    before = list(story.frames)
    story.message("assistant", "Hello")
    streaming = await _fold(functions, before, "return items().map(i => [i.key, i.kind, i.text ?? '', i.live ?? null])")
    assert streaming == [["m:1", "message", "go", None], ["s:r1", "stream", "HelHello", False]]
    whole = await _fold(
        functions, story.frames, "return items().map(i => [i.key, i.kind, i.text, i.html, i.thinking ?? ''])"
    )
    assert whole == [["m:1", "message", "go", "<p>go</p>", ""], ["s:r1", "message", "Hello", "<p>Hello</p>", "I look"]]


async def test_streams_of_several_workers_do_not_mix(functions: Window) -> None:
    story = Story()
    story.say("workerUpdate", workerId="w", name="child", task="", status="running", depth=1)
    story.streamed("r1", "root")
    story.streamed("r2", "child", worker="w")
    story.message("assistant", "child.", worker="w")
    story.message("assistant", "root.")
    story.streamed("r2", "late and lost", worker="w")
    found = await _fold(
        functions, story.frames, "return items().filter(i => i.kind !== 'notice').map(i => [i.key, i.worker, i.text])"
    )
    assert found == [["s:r1", "root", "root."], ["s:r2", "w", "child."]]


async def test_no_trace_level_hides_what_a_command_left_behind(functions: Window) -> None:
    story = Story()
    for call, severity in (("c1", "note"), ("c2", "warning"), ("c3", "critical")):
        story.started(call)
        story.result(call, leftovers=[{"kind": "k", "severity": severity, "text": "t", "paths": []}])
    story.started("c4")
    story.result("c4", protectedCreated=["/workspace/.envrc"])
    found = await _fold(functions, story.frames, "return items().map(i => i.least)")
    assert found == ["normal", "summary", "quiet", "summary"]


async def test_a_question_from_before_the_session_stands_waits_on_and_one_of_an_earlier_run_does_not(
    functions: Window,
) -> None:
    """A server that wants to start asks before `sessionStarted`."""
    started = {"worker": "main", "model": "m", "mode": "chat", "approvalMode": "interactive", "zones": []}
    for resumed, waiting in ((False, ["r1"]), (True, [])):
        story = Story()
        story.asked("r1", tool="stock")
        story.say("sessionStarted", **started, resumed=resumed)
        found = await _fold(functions, story.frames, "return store.openQuestions().map(one => one.requestId)")
        assert found == waiting


async def test_an_answered_question_and_its_call_are_one(functions: Window) -> None:
    story = Story()
    story.asked("r1")["event"]["data"]["toolCallId"] = "c1"
    asked = list(story.frames)
    story.answered("r1")
    story.started("c1")
    story.result("c1")
    story.started("c2")
    script = """
      const keys = () => items().map(i => [i.key, store.questionOf(i)?.key ?? null]);
      const [question] = items();
      return [keys(), store.callOf(question)?.key ?? null];
    """
    assert await _fold(functions, asked, script) == [[["q:r1", None]], None]
    joined = [[["q:r1", None], ["t:c1", "q:r1"], ["t:c2", None]], "t:c1"]
    assert await _fold(functions, story.frames, script) == joined
    later = f"""
      const {{ SessionStore }} = await import("/store.js");
      const other = new SessionStore();
      for (const frame of frames.slice(1)) other.take(frame);
      other.takeEarlier(frames.slice(0, 1), false);
      store = other;
      items = () => [...other.items.values()];
      {script}
    """
    assert await _fold(functions, story.frames, later) == joined, "the question comes with an earlier page"


async def test_a_withdrawn_stream_is_gone_and_the_next_message_stands_alone(functions: Window) -> None:
    story = Story()
    story.streamed("r1", "half")
    story.streamed("r1", "", done=True, discarded=True)
    story.streamed("r2", "whole")
    story.started("c1")
    story.message("assistant", "after the call")
    found = await _fold(functions, story.frames, "return items().map(i => [i.key, i.kind])")
    assert found == [["s:r2", "stream"], ["t:c1", "call"], ["m:2", "message"]]


async def test_a_block_that_stays_is_kept_and_what_follows_it_replaced(functions: Window) -> None:
    story = Story()
    for keep, html in ((0, "<p>a</p><p>b</p>"), (1, "<p>B</p><p>c</p>"), (2, "<p>C</p>"), (2, "<p>D</p><p>E</p>")):
        story.say("streaming", requestId="r", delta="x", channel="text", done=False, view={"keep": keep, "html": html})
    shown = await functions.run(
        """async (frames) => {
          const { SessionStore } = await import("/store.js");
          const { speechView } = await import("/chat/speech.js");
          const store = new SessionStore();
          const ctx = { store, announce: () => {} };
          store.take(frames[0]);
          const one = speechView(store.items.get("s:r"), ctx);
          const first = one.node.querySelector(".words").firstChild;
          for (const frame of frames.slice(1)) { store.take(frame); one.update(store.items.get("s:r")); }
          const anew = speechView(store.items.get("s:r"), ctx);
          const words = (view) => view.node.querySelector(".words").innerHTML;
          return [words(one), words(anew), first === one.node.querySelector(".words").firstChild];
        }""",
        story.frames,
    )
    assert shown == ["<p>a</p><p>B</p><p>D</p><p>E</p>", "<p>a</p><p>B</p><p>D</p><p>E</p>", True]


def _long_story() -> Story:
    story = Story()
    story.say(
        "sessionStarted", worker="main", model="m", mode="chat", approvalMode="interactive", zones=[], resumed=False
    )
    for turn in range(4):
        story.message("user", f"question {turn}")
        story.started(f"a{turn}")
        story.started(f"b{turn}", parentCallId=f"a{turn}")
        story.asked(f"q{turn}")
        story.answered(f"q{turn}")
        story.result(f"b{turn}", "execution_failed", error="no")
        story.result(f"a{turn}")
        story.say("workerUpdate", workerId=f"w{turn}", name="child", task="t", status="running", depth=1)
        story.message("assistant", f"child {turn}", worker=f"w{turn}")
        story.say("status", type="warning", message="careful")
        story.message("assistant", f"answer {turn}")
        story.say("usageUpdated", requestId="r", workerId="root", input=1, output=1, cached=0, cost=0.1, session={})
    story.say("sessionEnd", reason="completed")
    return story


async def test_a_page_that_loads_its_past_later_shows_the_same(functions: Window) -> None:
    """Cut at every event, and again in the middle of what is left."""
    story = _long_story()
    odd = await _fold(
        functions,
        story.frames,
        """
        const { SessionStore } = await import("/store.js");
        const facts = (one) => JSON.stringify([...one.items.values()].map((i) => [
          i.key, i.kind, i.text ?? null, i.result?.event.seq ?? null, i.failed ?? null, i.resolved?.by ?? null,
          i.least, i.depth ?? 0, i.lost ?? null]));
        const odd = [];
        for (let cut = 0; cut <= frames.length; cut++) {
          const one = new SessionStore();
          for (const frame of frames.slice(cut)) one.take(frame);
          for (const frame of frames.slice(cut)) one.take(frame);
          const half = cut >> 1;
          one.takeEarlier(frames.slice(half, cut), true);
          one.takeEarlier(frames.slice(0, half), false);
          if (facts(one) !== facts(store)) odd.push([cut, facts(one), facts(store)]);
        }
        return [odd.slice(0, 1), frames.length];
        """,
    )
    assert odd == [[], len(story.frames)]
    assert len(story.frames) > 40


async def test_a_question_lives_until_its_first_answer(functions: Window) -> None:
    story = Story()
    story.asked("q1")
    story.asked("q2", "write_file")
    story.asked("q1")  # with the errors of an edit
    again = story.frames[1]
    ask = "return [store.openQuestions().map(q => q.requestId), items().map(i => i.shown.event.seq)]"
    assert await _fold(functions, story.frames, ask) == [["q1", "q2"], [3, 2]]
    story.answered("q2")
    late = [*story.frames, again, {**again, "again": True}]
    assert await _fold(functions, late, ask) == [["q1"], [3, 2]]
    assert await _fold(functions, late, "return items().map(i => i.resolved?.by ?? null)") == [None, "terminal"]


async def test_what_nobody_asks_any_more_is_closed_and_opens_when_it_is_asked_again(functions: Window) -> None:
    story = Story()
    story.asked("q1")
    story.asked("q2")
    script = """
      store.settle(new Set(["q2"]), new Set());
      const open = () => store.openQuestions().map((q) => q.requestId);
      const after = [open()];
      store.take(frames[0]);
      after.push(open());
      return [after, items().map((i) => i.resolved?.gone ?? false), store.running];
    """
    assert await _fold(functions, story.frames, script) == [[["q2"], ["q1", "q2"]], [False, False], False]


async def test_levels_show_what_the_terminal_shows(functions: Window) -> None:
    story = _long_story()
    story.message("system", "you are")
    counts = await _fold(
        functions,
        story.frames,
        """
        const { LEVELS, isShown } = await import("/fold/items.js");
        return LEVELS.map((level) => {
          const kinds = {};
          for (const item of items()) if (isShown(item, level)) {
            const name = item.kind === "message" ? item.role : item.kind === "notice" ? item.type : item.kind;
            kinds[name] = (kinds[name] ?? 0) + 1;
          }
          return kinds;
        });
        """,
    )
    quiet, summary, normal, debug = counts
    assert quiet == {"question": 4, "assistant": 4}
    assert summary == {"question": 4, "assistant": 4, "user": 4, "status": 4, "call": 4, "ended": 1}
    assert normal == {**summary, "assistant": 8, "call": 8, "sessionStarted": 1, "workerUpdate": 4}
    assert debug == {**normal, "system": 1, "usageUpdated": 4}


async def test_nothing_that_an_event_holds_can_break_the_page(windows: Windows) -> None:
    """Every type, with every value of its data replaced by every odd thing, folded and drawn."""
    names = {name: sorted(field.wire for field in kind.FIELDS) for name, kind in REGISTRY.items()}
    window = await windows.with_modules()
    odd = await window.run(
        """async (names) => {
          const { SessionStore } = await import("/store.js");
          const { itemView } = await import("/chat/item_view.js");
          const values = [null, 7, "x", [], [null], {}, { a: { b: 1 } }, true, [["x"]], "__proto__"];
          const odd = [];
          console.error = (what) => odd.push(String(what?.stack ?? what));
          const ctx = { level: () => "debug", announce() {}, act: async () => ({ ok: true }), go() {}, settings: {},
            session: { id: "s", state: "live", answerable: true }, api: { path: String.raw, get: async () => ({}) } };
          let drawn = 0;
          for (const value of values) {
            const store = new SessionStore();
            let seq = 0;
            for (const [type, fields] of [...Object.entries(names), ...Object.entries(names), ["nobodyKnows", ["a"]]])
              try {
                const data = Object.fromEntries(fields.map((name) => [name, value]));
                store.take({ event: { type, seq: ++seq, ts: "", workerId: value, data }, view: value });
                const named = { ...data, requestId: "r", toolCallId: "c" };
                store.take({ event: { type, seq: ++seq, ts: "", workerId: "w", data: named } });
              } catch (error) { odd.push(`${type} ${JSON.stringify(value)}: ${error.stack}`); }
            for (const item of store.items.values()) { itemView(item, { ...ctx, store }).update(item); drawn++; }
          }
          return [odd.slice(0, 5), drawn > 100];
        }""",
        names,
    )
    assert odd == [[], True]


async def test_ten_thousand_events_keep_the_page_small_and_in_place(windows: Windows) -> None:
    window = await windows.with_modules()
    found = await window.run(
        """async () => {
          const { SessionStore } = await import("/store.js");
          const { Feed } = await import("/chat/feed.js");
          const { h } = await import("/dom.js");
          const list = h("ol", null);
          const scroller = h("div", { class: "scroller" }, list);
          scroller.style.height = "400px";
          document.querySelector("main").append(scroller);
          const store = new SessionStore();
          let drawn = 0;
          const view = (item) => (drawn++, { node: h("li", { "data-key": item.key }, item.text), update() {} });
          const on = { view, level: () => "normal", earlier: async () => {}, moved() {} };
          const feed = new Feed(scroller, list, store, on);
          store.subscribe((change) => feed.changed(change));
          const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
          const say = (seq, content) => store.take(
            { event: { type: "message", seq, ts: "", workerId: "r", data: { message: { role: "user", content } } } });
          const top = (node) => node.getBoundingClientRect().top;
          for (let seq = 1; seq <= 10000; seq++) say(seq, `m${seq}`);
          await frame();
          const first = drawn;
          const counts = [list.children.length];
          const last = list.lastElementChild.textContent;
          let moved = 0;
          for (let turn = 0; turn < 12; turn++) {
            scroller.scrollTop = 200;
            const eye = [...list.children].find((one) => one.getBoundingClientRect().bottom > top(scroller));
            const before = top(eye);
            await frame(); await frame();
            moved = Math.max(moved, Math.abs(top(eye) - before));
            counts.push(list.children.length);
          }
          const up = list.firstElementChild.textContent;
          say(10001, "new");
          await frame();
          const stayed = list.firstElementChild.textContent === up;
          feed.show("m:10001");
          feed.toEnd();
          await frame();
          const [most, end, kept] = [Math.max(...counts), list.lastElementChild.textContent, store.items.size];
          return { first, most, last, moved, stayed, end, kept, more: store.more };
        }"""
    )
    assert found["most"] <= 300
    assert found["kept"] <= 3000
    assert found["more"] is True
    assert (found["last"], found["end"], found["stayed"]) == ("m10000", "new", True)
    assert found["moved"] < 2, "what the eye was on jumped"
    assert found["first"] <= 600, "what nobody would see was not drawn"
