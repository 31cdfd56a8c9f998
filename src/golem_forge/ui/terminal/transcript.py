"""The transcript of the terminal: streamed answers block by block as Markdown, running calls live, all else as lines.

Complete blocks are printed above for good; the unfinished one stays in the live part. A block ends at a blank line
followed by text at the margin, or at the end of a code fence. A message whose text was streamed, or that this terminal
sent itself, is not shown again. Text of another worker begins with that worker's name. `CallFolds` folds finished calls
to one line. rich is imported on first use.

Threat: the text is the model's. Control characters are escaped before it is parsed as Markdown and again afterwards,
because Markdown can spell them (`&#x202e;`, `<http://x/%1b[2J>`). Links are written out with their address, never as
terminal hyperlinks; HTML is text. A block that is too large is shown as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

from golem_forge.core.regex import regex
from golem_forge.events.serialization import Event
from golem_forge.ui.render.card import answer_line, approval_card, asked_because, full_card
from golem_forge.ui.render.lines import DISPLAY_CUT, Line, one_line, width_of, wrapped_lines
from golem_forge.ui.render.reports import session_line, walls_lines
from golem_forge.ui.render.results import answered_result, text_body, whole_result
from golem_forge.ui.terminal.tty import Activity, StyledLine, ansi, safe_prose, safe_text
from golem_forge.ui.trace import TraceFormatter, TraceLevel

if TYPE_CHECKING:
    from markdown_it.token import Token

_MAX_KEPT: Final = 30
_MAX_OPEN: Final = 200
_SHOWS_ALL: Final = " · Ctrl+O shows all"
_START: Final = "start"
_CONFINED: Final = ("full", "landlock")


class FoldingScreen(Protocol):
    @property
    def width(self) -> int: ...
    def say(self, lines: Iterable[StyledLine], key: str = "") -> None: ...
    def fold(self, key: str, lines: Iterable[StyledLine]) -> None: ...
    def can_fold(self, key: str) -> bool: ...


class CallFolds:
    """Cards and results that the terminal folds to one line. A call ends with its result in the place of its first
    line; one whose card was answered, in the place of card and answer, too. The start of a session becomes one line
    once the walls are known. The last cards and results that were folded or cut are kept; Ctrl+O shows the newest of
    them whole, pressed again the one before it. Folding changes what is on the screen and nothing else: the journal has
    all of it."""

    def __init__(self, screen: FoldingScreen, here: str) -> None:
        self._screen = screen
        self._here = here
        self._cards: dict[str, Mapping[str, Any]] = {}
        """The request of a card by its id, until it is answered."""
        self._answered: dict[str, Mapping[str, Any]] = {}
        """The request by its call, from the answer to the result."""
        self.answers: dict[str, str] = {}
        """How a card was answered, by its call, until the call has a result."""
        self._kept: deque[tuple[Mapping[str, Any] | None, Mapping[str, Any]]] = deque(maxlen=_MAX_KEPT)
        self._shown = 0
        """How many of them, from the newest on, were shown again."""
        self._start: Line = []
        self._running: dict[str, str] = {}
        """Call whose first line is shown → its worker, while nothing that belongs below that line was shown."""

    # ---- events

    def take(self, event: Event) -> None:
        """Cards and their answers; called before they are drawn."""
        wire = event.wire
        if event.type == "approvalRequired" and wire.get("toolCallId"):
            self._cards[str(wire["requestId"])] = wire
        elif event.type == "approvalResolved" and (request := self._cards.pop(str(wire["requestId"]), None)):
            call = str(request["toolCallId"])
            said = answer_line(request, wire, here=self._here)[0][1]
            self.answers[call] = "approved once" if said == "approved" else said
            self._answered[call] = request
            while len(self.answers) > _MAX_OPEN:  # of calls that never had a result
                oldest = next(iter(self.answers))
                del self.answers[oldest], self._answered[oldest]

    def key_of(self, wire: Mapping[str, Any]) -> str:
        """Returns the key that groups the lines of an event; empty if they are not grouped."""
        call = str(wire.get("toolCallId") or "")
        return call if call in self.answers or call in self._running else ""

    def started(self, wire: Mapping[str, Any], worker: str) -> None:
        """The line of the call is replaced by its result; not where calls inside it stand below that line."""
        self._running.pop(str(wire.get("parentCallId") or ""), None)
        self._running[str(wire["toolCallId"])] = worker
        while len(self._running) > _MAX_OPEN:
            del self._running[next(iter(self._running))]

    def worker_came(self, parent: str) -> None:
        """Ends the grouping of a call when its sub-worker starts, because the sub-worker's output follows it."""
        self._running = {call: worker for call, worker in self._running.items() if worker != parent}

    def draw_result(self, wire: Mapping[str, Any], rows: list[Line]) -> None:
        """The lines of a result, folded where its card was answered, and kept where they are not all of it."""
        call = self.key_of(wire)
        self._running.pop(call, None)
        cut = [at for at, row in enumerate(rows) if any(DISPLAY_CUT in text for _, text in row)]
        for at in cut:
            rows[at] = [*rows[at], ("dim", _SHOWS_ALL)]
        if call or cut:
            self._kept.append((self._answered.pop(call, None), wire))
            self._shown = 0
        if call:
            self.answers.pop(call, None)
            self._screen.fold(call, rows)
        else:
            self._screen.say(rows)

    def draw_start(self, event: Event, rows: list[Line]) -> None:
        """`sessionStarted` and `wallsReport` as one line, where the walls lack nothing and nothing is open in them."""
        wire = event.wire
        if event.type == "sessionStarted":
            self._start = session_line(wire) if rows else []
            self._screen.say(rows, _START)
        elif rows and self._start and wire.get("level") in _CONFINED and not (wire.get("missing") or wire.get("exits")):
            walls = walls_lines(wire)[0][0][1]
            if self._screen.can_fold(_START):
                rows = wrapped_lines([[*self._start, ("dim", f" · {walls}")]], self._screen.width)
                self._screen.fold(_START, rows)
            else:
                self._screen.say(rows)
        else:
            self._screen.say(rows)

    # ---- again

    def show(self, say: Callable[[Iterable[StyledLine]], None]) -> None:
        if not self._kept:
            say([[("dim", "Nothing is folded.")]])
            return
        self._shown = self._shown % len(self._kept) + 1
        request, result = self._kept[-self._shown]
        more = " · Ctrl+O shows the one before" if self._shown < len(self._kept) else ""
        name = one_line(result.get("toolName", ""))
        say([[("title", f"── {name}, again, {self._shown} of {len(self._kept)}"), ("dim", more)]])
        if request is None:
            say(wrapped_lines(whole_result(result), self._screen.width))
            return
        card = {**request, "choices": []}  # what could have been remembered is over
        say([*approval_card(card, width=self._screen.width)[:1], *full_card(card)])
        say([[("dim", asked_because(request.get("why", "")))]])
        say(wrapped_lines(answered_result(result), self._screen.width))


_MAX_REMEMBERED: Final = 50


class _ChannelStream:
    """One channel (text or thinking) of a request."""

    def __init__(self, channel: str, worker: str) -> None:
        self.channel = channel
        self.worker = worker
        self.blocks = BlockStream()
        self.printed = False


class Transcript:
    def __init__(self, put: Callable[[str], None], width: Callable[[], int], *, colour: bool) -> None:
        self._put = put
        self._width = width
        self._colour = colour
        self._streams: dict[tuple[str, str], _ChannelStream] = {}
        self._done: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        self._last_worker = ""
        self.names: dict[str, str] = {}
        """Sub-workers by id."""

    @property
    def width(self) -> int:
        return self._width()

    @property
    def streaming(self) -> bool:
        return any(stream.blocks.pending.strip() for stream in self._streams.values())

    def take(self, wire: Mapping[str, Any], worker: str) -> None:
        request, channel = str(wire["requestId"]), str(wire["channel"])
        if wire.get("discarded"):
            self._withdraw(request)
            return
        if channel == "text":
            self._finish((request, "thinking"))
        key = (request, channel)
        stream = self._streams.get(key)
        if stream is None:
            if not wire["delta"] and wire.get("whole") is None:
                return
            stream = self._streams[key] = _ChannelStream(channel, worker)
        self._feed(key, stream, wire)
        if wire["done"]:
            self._finish(key)

    def message(self, content: str, worker: str) -> None:
        """An assistant's message as a whole; of one that was just streamed, what it has besides (`[interrupted]`)."""
        text = content.strip()
        if not text or text in self._done:
            return
        if self._done and self._done[-1] and text.startswith(f"{self._done[-1]}\n"):
            text = text[len(self._done[-1]) :].strip("\n")
        self._done.append(text)
        self._print_name(worker)
        self._put(render_markdown(text, self._width(), colour=self._colour) + "\n")

    def finish_all(self) -> None:
        """A turn ended: what was left open stays readable."""
        for key in list(self._streams):
            self._finish(key)

    def finish_of(self, worker: str) -> None:
        """A worker goes on to something else: its words stand before that."""
        for key in [key for key, stream in self._streams.items() if stream.worker == worker]:
            self._finish(key)

    def live_lines(self, width: int, rows: int) -> list[StyledLine]:
        """The unfinished blocks; of a long one its last rows."""
        lines: list[StyledLine] = []
        streams = [stream for stream in self._streams.values() if stream.blocks.pending.strip()]
        for stream in streams:
            style = "thinking" if stream.channel == "thinking" else ""
            name = self.names.get(stream.worker, "")
            if name and (len(streams) > 1 or name != self._last_worker):
                lines.append([("dim", f"{safe_text(name)} ›")])
            pending = safe_prose(stream.blocks.pending.strip("\n")[-(width * rows + 1) :])
            lines += [[(style, row)] for row in _last_rows(pending, width, max(rows // len(streams), 2))]
        return lines

    def _feed(self, key: tuple[str, str], stream: _ChannelStream, wire: Mapping[str, Any]) -> None:
        whole = wire.get("whole")
        if whole is None:
            blocks: list[str] | None = stream.blocks.feed(str(wire["delta"]))
        else:
            blocks = stream.blocks.replace(str(whole))
            if blocks is None:
                self._put(ansi([[("dim", "(this text replaces the text above:)")]], colour=self._colour))
                stream = self._streams[key] = _ChannelStream(stream.channel, stream.worker)
                blocks = stream.blocks.feed(str(whole))
        for block in blocks or ():
            self._print_block(stream, block)

    def _finish(self, key: tuple[str, str]) -> None:
        stream = self._streams.pop(key, None)
        if stream is None:
            return
        if rest := stream.blocks.finish():
            self._print_block(stream, rest)
        if stream.channel == "text":
            self._done.append(stream.blocks.text.strip())

    def _withdraw(self, request: str) -> None:
        """Prints that an unfinished answer no longer counts; printed text cannot be removed."""
        streams = [self._streams.pop((request, channel), None) for channel in ("thinking", "text")]
        if any(stream is not None and stream.blocks.text.strip() for stream in streams):
            above = any(stream is not None and stream.printed for stream in streams)
            which = "the unfinished answer above does not count" if above else "an unfinished answer"
            self._put(ansi([[("warn", f"✗ withdrawn: {which}")]], colour=self._colour))

    def _print_block(self, stream: _ChannelStream, block: str) -> None:
        self._print_name(stream.worker)
        stream.printed = True
        if stream.channel == "thinking":
            lines = wrapped_lines([[("thinking", line)] for line in safe_prose(block).split("\n")], self._width())
            self._put(ansi(lines, colour=self._colour) + "\n")
        else:
            self._put(render_markdown(block, self._width(), colour=self._colour) + "\n")

    def _print_name(self, worker: str) -> None:
        name = self.names.get(worker, "")
        if name != self._last_worker:
            self._last_worker = name
            self._put(ansi([[("dim", f"{safe_text(name) or 'main'} ›")]], colour=self._colour))


def _last_rows(text: str, width: int, rows: int) -> list[str]:
    shown: list[str] = []
    for line in reversed(text.split("\n")):
        needed = max(-(-width_of(line) // max(width, 1)), 1)
        if needed > rows:
            room = rows * width - 1
            while line and width_of(line) > room:
                line = line[max((width_of(line) - room) // 2, 1) :]
            shown += ["…" + line] if line else []
            break
        shown.append(line)
        rows -= needed
        if not rows:
            break
    return shown[::-1]


_QUESTION_TYPES: Final = frozenset({"approvalRequired", "approvalResolved", "formRequired", "formResolved"})
"""Events that are drawn as questions."""


class EventRenderer:
    def __init__(
        self,
        formatter: TraceFormatter,
        transcript: Transcript,
        activity: Activity,
        say: Callable[..., None],
        folds: CallFolds,
    ) -> None:
        self._formatter = formatter
        self._transcript = transcript
        self._activity = activity
        self._say = say
        self._folds = folds
        formatter.answers = folds.answers
        formatter.display.brief = True
        formatter.display.pretty = lambda text, view, language: pretty_lines(text, view, language, transcript.width)
        self._sent: deque[str] = deque(maxlen=20)
        self.follows = False
        """The session runs elsewhere: what is typed here does not end its words."""

    def sent(self, text: str) -> None:
        self._sent.append(text)

    def draw(self, event: Event) -> None:
        wire, kind = event.wire, event.type
        detailed = self._formatter.level in (TraceLevel.NORMAL, TraceLevel.DEBUG)
        if kind in _QUESTION_TYPES or wire.get("code") == "prefill":  # that one is in the input line
            return
        if kind == "streaming" and detailed:
            self._transcript.take(wire, event.worker_id)
        elif kind == "message" and self._is_drawn(wire["message"], event.worker_id, detailed):
            return
        elif kind in ("toolProgress", "toolOutput"):
            (self._activity.progressed if kind == "toolProgress" else self._activity.add_output)(wire)
        else:
            self._update(event)
            rows = self._formatter.format(event)
            if kind == "toolResult" and self._formatter.level is TraceLevel.NORMAL:
                self._folds.draw_result(wire, rows)
            elif kind in ("sessionStarted", "wallsReport"):
                self._folds.draw_start(event, rows)
            else:
                self._say(rows, self._folds.key_of(wire))

    def _is_drawn(self, message: Mapping[str, Any], worker: str, detailed: bool) -> bool:
        """Draws an answer as Markdown. False: the message is left to the formatter."""
        role, content = message.get("role"), str(message.get("content", ""))
        if role == "user" and content in self._sent:
            self._sent.remove(content)
            return True
        if role == "assistant" and detailed:
            self._transcript.message(content, worker)
            return True
        return False

    def _update(self, event: Event) -> None:
        kind, wire = event.type, event.wire
        if kind == "toolStarted":
            self._transcript.finish_of(event.worker_id)
            self._folds.started(wire, event.worker_id)
            self._activity.started(wire, self._transcript.names.get(event.worker_id, ""))
        elif kind == "toolResult":
            self._activity.ended(str(wire["toolCallId"]))
        elif kind == "workerUpdate" and wire["depth"] > 0:
            self._transcript.names[str(wire["workerId"])] = str(wire["name"])
            self._folds.worker_came(str(wire.get("parentId") or ""))
        elif kind == "sessionEnd" or (kind in ("interrupt", "inputPrompt") and not self.follows):
            self._transcript.finish_all()


_FENCE: Final = regex(r" {0,3}(`{3,}|~{3,})")


class BlockStream:
    def __init__(self) -> None:
        self.text = ""
        """Everything fed so far."""
        self._taken = 0
        self._begin_block()

    @property
    def pending(self) -> str:
        return self.text[self._taken :]

    @property
    def taken(self) -> str:
        """The text that was returned as blocks."""
        return self.text[: self._taken]

    def feed(self, delta: str) -> list[str]:
        """Adds text and returns the blocks that it completed."""
        may_end = "\n" in delta or self.text[-1:] in ("", "\n")
        self.text += delta
        return self._complete() if may_end else []

    def finish(self) -> str:
        """Ends the stream and returns the rest."""
        rest = self.pending
        self._taken = len(self.text)
        return rest.strip("\n") if rest.strip() else ""

    def replace(self, whole: str) -> list[str] | None:
        """The text as it is instead. None: what was given out already differs from it, start anew."""
        if not whole.startswith(self.taken):
            return None
        self.text = whole
        self._begin_block()
        return self._complete()

    def _complete(self) -> list[str]:
        blocks = []
        while (end := self._block_end()) is not None:
            block = self.text[self._taken : end].strip("\n")
            self._taken = end
            self._begin_block()
            if block.strip():
                blocks.append(block)
        return blocks

    # ---- the first block that was not given out yet

    def _begin_block(self) -> None:
        self._read = self._taken
        """Up to here its lines were looked at: a long block is read once, not again for each piece of it."""
        self._fence = ""
        self._started = self._blank = False

    def _block_end(self) -> int | None:
        """Returns where the block ends, with its blank lines; None if it has not ended."""
        while self._read < len(self.text):
            end = self.text.find("\n", self._read) + 1
            line = self.text[self._read : end or len(self.text)]
            if self._blank and line.strip() and not line[0].isspace():
                return self._read
            if not end:
                return None
            self._read = end
            if self._is_last(line):
                return end
        return None

    def _is_last(self, line: str) -> bool:
        """Whether this whole line closes the block's fence."""
        opened = _FENCE.match(line)
        if self._fence:
            return bool(opened and opened.group(1).startswith(self._fence) and not line.strip().strip(self._fence[0]))
        if not line.strip():
            self._blank = self._blank or self._started
        else:
            self._started, self._blank = True, False
            self._fence = opened.group(1) if opened else ""
        return False


_MAX_MARKDOWN: Final = 16 * 1024
"""Laying out takes the screen's own thread: tables, brackets and code take up to a second for so many characters."""


def render_markdown(text: str, width: int, *, colour: bool) -> str:
    shown = safe_prose(text)
    if len(shown) > _MAX_MARKDOWN:
        return shown.strip("\n") + "\n"
    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=max(width, 10),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
    )
    console.print(_markdown(shown))
    return "\n".join(line.rstrip(" ") for line in out.getvalue().split("\n")).strip("\n") + "\n"


_COLOURS: Final = ("red", "green", "yellow", "blue", "magenta", "cyan")


def pretty_lines(text: str, view: str, language: str, width: int) -> list[Line]:
    """Text that a tool wants to be shown as `markdown` or as `code`. Too much of it is shown as it is, cut."""
    shown = safe_prose(text)
    if len(shown) > _MAX_MARKDOWN:
        return text_body(text, "code" if view == "code" else "")
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console(width=max(width - 4, 10), color_system="standard", force_terminal=True, legacy_windows=False)
    if view == "code":
        what: Any = Syntax(shown, language or "text", theme="ansi_dark", background_color="default", word_wrap=True)
    else:
        what = _markdown(shown)
    rows = console.render_lines(what, pad=False)
    lines: list[StyledLine] = [[(_style_of(part.style), part.text) for part in row if part.text] for row in rows]
    while lines and not "".join(text for _, text in lines[-1]).strip():
        lines.pop()
    return cast("list[Line]", [line or [("", "")] for line in lines])


def _style_of(style: Any) -> str:
    """A style of rich in the words of the terminal."""
    if style is None:
        return ""
    words = [name for name in ("bold", "dim", "italic") if getattr(style, name)]
    colour = style.color.name.removeprefix("bright_") if style.color is not None else ""
    return " ".join([*words, *([colour] if colour in _COLOURS else [])])


def _markdown(text: str) -> Any:
    from markdown_it import MarkdownIt

    markdown = _markdown_type()("", hyperlinks=False, code_theme="ansi_dark")
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    _make_safe(markdown.parsed)
    return markdown


@cache
def _markdown_type() -> type[Any]:
    """rich's, with a dot behind the number of an item, as it was written: `1. one`, not `1 one`."""
    from rich.markdown import ListItem, Markdown
    from rich.segment import Segment

    class NumberedItem(ListItem):
        def render_number(self, console: Any, options: Any, number: int, last_number: int) -> Iterator[Segment]:
            width = len(str(last_number)) + 3
            style = console.get_style("markdown.item.number", default="none")
            lines = console.render_lines(
                self.elements, options.update(width=options.max_width - width), style=self.style
            )
            for place, line in enumerate(lines):
                yield Segment(" " * width if place else f"{number}.".rjust(width - 1) + " ", style)
                yield from line
                yield Segment("\n")

    class DottedMarkdown(Markdown):
        elements: ClassVar = {**Markdown.elements, "list_item_open": NumberedItem}

    return DottedMarkdown


def _make_safe(tokens: Iterable[Token]) -> None:
    for token in tokens:
        token.content = safe_prose(token.content)
        token.attrs = {
            name: safe_prose(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _make_safe(token.children or ())


def warm_up() -> None:
    """Loads the libraries, so that the first block does not wait for them."""
    render_markdown("`x`\n\n```python\nx = 1\n```", 40, colour=True)
