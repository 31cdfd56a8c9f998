"""The text box knows what the runtime knows: which lines are commands and what they are called. What is done while the
server is away is done once, or told."""

from __future__ import annotations

from typing import Any

from tests.ui.web.bench import Window, Windows, browsing

from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.agent.slash.parser import is_command

pytestmark = browsing

LINES = ["/help", "/", "/ x", "/  ", "hello", " /help", "/a/b is a path", "/x a/b", "/t\tx", "/x\ny", "//", "/é ö", ""]
TOOLS = [
    {
        "name": "git_push",
        "label": "Push",
        "fields": [{"name": "branch", "type": "text"}, {"name": "force", "type": "boolean"}],
    },
    {"name": "Help", "label": "A tool with a command's name", "fields": []},
    {
        "name": "paint",
        "fields": [{"name": "colour", "type": "select", "options": [{"value": "red"}, {"value": "rose"}]}],
    },
]
PROMPTS = [{"name": "docs__greet", "description": "A greeting", "fields": [{"name": "who", "type": "text"}]}]


async def test_commands_are_told_from_text_as_the_runtime_tells_them(functions: Window) -> None:
    named, told = await functions.run(
        """async (lines) => {
          const { COMMANDS, isCommand } = await import("/chat/completion.js");
          return [COMMANDS.map(([name]) => name), lines.map(isCommand)];
        }""",
        LINES,
    )
    assert set(named) == set(BUILT_IN_COMMANDS)
    assert told == [is_command(line) for line in LINES]


async def test_what_is_offered_while_a_command_is_typed(functions: Window) -> None:

    async def offered(text: str) -> Any:
        return await functions.run(
            """async ([text, known]) => {
              const { offers } = await import("/chat/completion.js");
              const found = offers(text, known);
              return [found.start, found.offers.map((one) => one.value)];
            }""",
            [text, {"tools": TOOLS, "prompts": PROMPTS, "servers": ["docs", "pets"], "files": FILES}],
        )

    assert await offered("/to") == [0, ["/tools", "/tool", "/tool Help"]]
    assert await offered("/GIT") == [0, ["/git_push"]]
    assert (await offered("/tool h"))[1] == ["Help"], "a tool with a command's name is reached as /tool NAME"
    assert "/tool Help" in (await offered("/"))[1]
    assert await offered("/git_push --b") == [10, ["--branch"]]
    assert await offered("/git_push --branch ") == [19, []], "whatever comes is the branch"
    assert await offered("/git_push --force ") == [18, ["--branch"]]
    assert await offered("/t paint --colour r") == [18, ["red", "rose"]]
    assert (await offered("/trace "))[1] == ["quiet", "summary", "normal", "debug"]
    assert await offered("say /help") == [0, []]
    assert await offered("/do") == [0, ["/docs__greet"]]
    assert await offered("/docs__greet ") == [13, ["--who"]]
    assert (await offered("/tool d"))[1] == [], "a prompt is no tool"
    assert (await offered("/help D"))[1] == ["docs__greet"]
    assert (await offered("/mcp reconnect "))[1] == ["docs", "pets"]
    assert await offered("see @crt") == [4, ["/w/cart.py", "/w/src/test_cart.py"]], "the shortest first"
    assert await offered("see @two") == [4, ['"/w/two words.txt"']]
    assert await offered("mail a@b") == [0, []] and (await offered("@zzz"))[1] == []


FILES = ["/w/src/test_cart.py", "/w/cart.py", "/w/two words.txt"]


async def test_a_notification_says_nothing_and_goes_away(windows: Windows) -> None:
    window = await windows.with_modules()
    told = await window.run(
        """async () => {
          const said = [];
          window.Notification = class {
            static permission = "granted";
            constructor(...words) { said.push(JSON.stringify(words)); window.latest = this; }
            close() { said.push("closed"); }
          };
          const { notifyNoMore, notifyWaiting } = await import("/notifications.js");
          const go = () => said.push("went");
          let hidden = false;
          Object.defineProperty(document, "hidden", { get: () => hidden });
          notifyWaiting(true, go); // somebody looks
          hidden = true;
          notifyWaiting(false, go); // the server does not want it
          Notification.permission = "default";
          notifyWaiting(true, go); // nobody allowed it
          Notification.permission = "granted";
          notifyWaiting(true, go);
          notifyNoMore(); // answered elsewhere
          notifyNoMore();
          notifyWaiting(true, go);
          latest.onclick();
          notifyWaiting(true, go);
          hidden = false;
          document.dispatchEvent(new Event("visibilitychange"));
          return said;
        }"""
    )
    shown = '["Forge waits for an answer",{"tag":"forge-waits"}]'
    assert told == [shown, "closed", shown, "closed", "went", shown, "closed"]


async def test_an_address_is_read_as_it_was_written(functions: Window) -> None:
    read = await functions.run(
        """async () => {
          const { address, route } = await import("/router.js");
          const odd = "a/b %#?é";
          return [
            route(address("tools", odd, "x/y"), ""),
            route(address("sessions", ""), "now"),
            route("", "now"), route("#/nonsense", "now"), route("#/s/x/evil", ""), route("", ""),
            route("#/%E0%A4%A", "now"),
          ].map((one) => [one.session, one.area, one.params]);
        }"""
    )
    assert read == [
        ["a/b %#?é", "tools", ["x/y"]],
        ["now", "sessions", []],
        ["now", "chat", []],
        ["now", "chat", []],
        ["x", "chat", []],
        ["", "sessions", []],
        ["now", "chat", []],
    ]


_HUNG = """async () => {
  const { Link } = await import("/socket.js");
  window.sockets = [];
  window.states = [];
  window.asked = 0;
  window.WebSocket = class {
    static OPEN = 1;
    constructor() { this.readyState = 1; sockets.push(this); }
    send() {}
    close() { this.readyState = 3; }
  };
  const refused = (signal) => new Promise((done) => {
    asked += 1;
    signal.addEventListener("abort", () => { asked -= 1; done(false); });
  });
  new Link("s", { seq: 0 }, { frame: () => {}, link: (state) => states.push(state), refused });
  sockets[0].onmessage({ data: '{"kind": "hello"}' });
}"""


async def test_a_server_that_hangs_before_it_said_everything_is_noticed_and_asked_once_at_a_time(
    windows: Windows,
) -> None:
    window = await windows.with_modules()
    await window.page.clock.install()
    await window.run(_HUNG)
    for _ in range(4):  # a ping, and ten seconds without an answer
        await window.page.clock.run_for(5_100)
    assert await window.run("() => states") == ["away"]
    for turn in range(60):  # five minutes, in which the person looks now and then
        await window.page.clock.run_for(5_100)
        if turn % 7 == 0:
            await window.run("() => window.dispatchEvent(new Event('focus'))")
        open_ones, asked = await window.run("() => [sockets.filter((one) => one.readyState === 1).length, asked]")
        assert open_ones <= 1 and asked <= 2
    assert await window.run("() => states") == ["away"] and await window.run("() => sockets.length") > 10


async def test_what_was_done_while_the_server_was_away(functions: Window) -> None:
    """Sent if it is still asked, told as too late if not, and nothing is ever done twice."""
    told = await functions.run(
        """async () => {
          const { Outbox } = await import("/socket.js");
          const questions = new Map(["open", "gone", "mine", "cut"].map((id) => [id, { state: "open" }]));
          const store = { questions, prompt: { requestId: "p1" } };
          const sent = [];
          const outbox = new Outbox(store, (frame) => { sent.push(frame); return true; });
          const answers = {};
          const put = (name, type, data) => outbox.put(type, data).then((answer) => { answers[name] = answer; });
          outbox.arrived();
          put("mine", "approvalResponse", { requestId: "mine", approved: true });
          put("ran", "manualToolInvoke", { toolName: "x", args: {} });
          outbox.left();
          put("open", "approvalResponse", { requestId: "open", approved: true });
          put("gone", "approvalResponse", { requestId: "gone", approved: true });
          put("cut", "approvalResponse", { requestId: "cut", approved: true });
          put("stop", "interrupt", {});
          put("said", "userInput", { requestId: "p0", content: "x" });
          const before = sent.length;
          questions.set("gone", { state: "resolved", resolved: { by: "terminal" } });
          questions.set("cut", { state: "resolved", resolved: { by: "interrupt" } });
          questions.set("mine", { state: "resolved", resolved: { by: "browser" } });
          outbox.arrived();
          for (const frame of sent.slice(before)) outbox.answered({ id: frame.id, ok: true });
          await new Promise((done) => setTimeout(done, 0));
          return [before, sent.slice(before).map((frame) => frame.type), answers];
        }"""
    )
    before, after, answers = told
    assert (before, after) == (2, ["approvalResponse", "interrupt"])
    assert answers["open"]["ok"] and answers["stop"]["ok"] and answers["mine"]["ok"]
    assert answers["gone"] == {"ok": False, "problem": "Too late: answered in terminal."}
    assert answers["cut"] == {"ok": False, "problem": "Too late: the turn was interrupted."}
    assert not answers["ran"]["ok"] and "Check whether it was done" in answers["ran"]["problem"]
    assert not answers["said"]["ok"]
