"""Scripted models: every word is written down beforehand. For tests, demos and embedders; the name says `scripted`.

`scripted:demo.yaml` reads a file of turns; each request takes the next one, retries and summaries included:

    context_window: 8000        # optional, as are the next two
    max_output_tokens: 1000
    native_calls: false         # the worker then uses the XML format
    turns:                      # or `workers: {main: [...], analyzer: [...]}`, each run of a worker from its first turn
      - expect: hello           # a text or texts that the last message must contain; else the request fails, saying so
        think: The person greets me.
        say: Hello! I will look.
        calls:
          - {tool: read_file, args: {path: /workspace/a.txt}, id: call_1}     # `args` as text: sent as raw JSON
        chunks: 3               # pieces that `think` and `say` arrive in, 1 unless given
        pause: 0.2              # seconds before each piece
        until: go               # the last piece, and what follows it, waits for this file beside the script
        usage: {input: 120, output: 30, cached: 100}                          # estimated from the texts unless given
        finish: length          # stop (unless given), length, refused
      - say: Half an ans
        fail: {status: 503, retry_after: 1}   # after what it says; without status: the connection breaks off
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Final

from golem_forge.agent.budget import estimate_request, estimate_tokens, media_tokens
from golem_forge.agent.files.worker_file import read_inside
from golem_forge.agent.model.interface import (
    AssistantMessage,
    Completed,
    Finish,
    Message,
    ModelError,
    ModelEvent,
    Request,
    ResultsMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    UsageSoFar,
    UserMessage,
    requested_calls,
)
from golem_forge.config import validation
from golem_forge.config.validation import ConfigProblems, MappingSchema, list_of, map_of, one_of, refuse
from golem_forge.config.yaml_file import YamlPath, parse_yaml, read_bytes
from golem_forge.core.calls import MediaPart
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import clip, nearest_hint

_RETRYABLE: Final = (408, 429)
_SHOWN: Final = 200
_LOOKS_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCall:
    tool: str
    args: Any = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailure:
    status: int = 0
    """HTTP status; 0 means that the connection breaks off."""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    say: str = ""
    think: str = ""
    calls: Sequence[TurnCall] = ()
    expect: tuple[str, ...] = ()
    chunks: int = 1
    pause: float = 0.0
    until: Callable[[], Awaitable[object]] | None = None
    """Awaited once, before the last piece; without a text, before the calls or the failure."""
    fail: TurnFailure | None = None
    usage: TokenUsage | None = None
    finish: Finish = Finish.STOP
    where: str = ""
    """`demo.yaml:12`, for the message when `expect` is not met."""


class ScriptedModel:
    """Plays turns. `next_turn` is given each request and says what comes back."""

    def __init__(
        self,
        name: str,
        next_turn: Callable[[Request], Turn],
        *,
        context_window: int | None = None,
        max_output_tokens: int = 4096,
        calls_natively: bool = True,
    ) -> None:
        self.name = name
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self.calls_natively = calls_natively
        self._next_turn = next_turn

    def skip_turns(self, count: int) -> None:
        """The session goes on here after another process played so many turns."""
        if isinstance(self._next_turn, _TurnSequence):
            self._next_turn.played = count

    def takes(self, media_type: str) -> bool:
        return True

    def media_tokens(self, part: MediaPart) -> int:
        return media_tokens(part)

    async def aclose(self) -> None:
        """Does nothing."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        turn = self._next_turn(request)
        last = _text_of(request.messages[-1]) if request.messages else ""
        for wanted in turn.expect:
            if wanted not in last:
                where, seen = turn.where or self.name, clip(last, _SHOWN)
                raise ModelError(f"{where}: expected {wanted!r} in the last message, which is {seen!r}", code="SCRIPT")
        usage = turn.usage or TokenUsage(
            input=estimate_request(request),
            output=estimate_tokens(turn.say) + estimate_tokens(turn.think) + sum(20 for _ in turn.calls),
        )
        yield UsageSoFar(usage=TokenUsage(input=usage.input, cached=usage.cached))
        pieces: list[ThinkingDelta | TextDelta] = [ThinkingDelta(piece) for piece in _pieces(turn.think, turn.chunks)]
        pieces += [TextDelta(piece) for piece in _pieces(turn.say, turn.chunks)]
        for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
            await asyncio.sleep(turn.pause)
            if not left and turn.until is not None:
                await turn.until()
            yield piece
        if not pieces and turn.until is not None:
            await turn.until()
        if turn.fail is not None:
            raise self._failure(turn.fail)
        asked = [(call.id, call.tool, call.args) for call in turn.calls]
        message = AssistantMessage(
            text=turn.say,
            thinking=turn.think,
            calls=requested_calls(asked, history=request.messages, finish=turn.finish),
            model=self.name,
        )
        yield Completed(message=message, usage=usage, finish=turn.finish)

    def _failure(self, fail: TurnFailure) -> ModelError:
        if not fail.status:
            return ModelError(f"{self.name}: the connection broke off", retryable=True)
        retryable = fail.status in _RETRYABLE or fail.status >= 500
        return ModelError(f"{self.name} answered {fail.status}", retryable=retryable, retry_after=fail.retry_after)


class FunctionScript(ScriptedModel):
    """A model whose answers come from a function of the request: a Turn, or the text it says."""

    def __init__(
        self, function: Callable[[Request], Turn | str], *, name: str = "scripted:function", **facts: Any
    ) -> None:
        def next_turn(request: Request) -> Turn:
            answer: Any = function(request)
            if not isinstance(answer, (Turn, str)):
                raise ModelError(f"{name}: the function must return a Turn or a text, not {answer!r}", code="SCRIPT")
            return Turn(say=answer) if isinstance(answer, str) else answer

        super().__init__(name, next_turn, **facts)


def open_script(name: str, *, root: Path, worker: str, confined: bool = False) -> ScriptedModel:
    """`name` is the path after `scripted:`, relative to `root`. ConfigError for a file that is no script."""
    data = read_inside(root, root / name, name) if confined else read_bytes(root / name, name)
    file = parse_yaml(data, name)
    problems = ConfigProblems(file)
    script = validation.check(_SCRIPT, file, problems)
    if ("turns" in file.value) == ("workers" in file.value):
        problems.add((), "a script has either `turns` or `workers`")
    problems.raise_if_any()
    path: YamlPath = ("turns",)
    if "workers" in script:
        if worker not in script["workers"]:
            hint = nearest_hint(worker, script["workers"], f"; workers: {', '.join(script['workers'])}")
            raise ConfigError(f"{file.at(('workers',))}: workers: no turns for worker {worker!r}{hint}")
        path = ("workers", worker)
    listed = script["turns"] if "turns" in script else script["workers"][worker]
    turns = [_turn(each, file.at((*path, index)), root) for index, each in enumerate(listed)]
    return ScriptedModel(
        f"scripted:{name}",
        _TurnSequence(turns, f"{name}, worker {worker!r}"),
        context_window=script.get("context_window"),
        max_output_tokens=script.get("max_output_tokens", 4096),
        calls_natively=script.get("native_calls", True),
    )


class _TurnSequence:
    def __init__(self, turns: list[Turn], whose: str) -> None:
        self._turns = turns
        self._whose = whose
        self.played = 0

    def __call__(self, request: Request) -> Turn:
        if self.played >= len(self._turns):
            raise ModelError(f"the script has only {len(self._turns)} turns ({self._whose})", code="SCRIPT")
        self.played += 1
        return self._turns[self.played - 1]


def _turn(data: Mapping[str, Any], where: str, root: Path) -> Turn:
    fields = dict(data)
    if "until" in fields:
        fields["until"] = partial(_file_exists, root / fields["until"])
    if "calls" in fields:
        fields["calls"] = tuple(TurnCall(**call) for call in fields["calls"])
    if "fail" in fields:
        fields["fail"] = TurnFailure(**fields["fail"])
    if "usage" in fields:
        fields["usage"] = TokenUsage(**fields["usage"])
    if "finish" in fields:
        fields["finish"] = Finish(fields["finish"])
    if "expect" in fields:
        fields["expect"] = tuple(fields["expect"])
    return Turn(**fields, where=where)


async def _file_exists(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it; looking takes microseconds
        await asyncio.sleep(_LOOKS_AGAIN_S)


def _pieces(text: str, chunks: int) -> Iterator[str]:
    size = -(-len(text) // max(1, chunks))
    for start in range(0, len(text), size or 1):
        yield text[start : start + size]


def _text_of(message: Message) -> str:
    if isinstance(message, ResultsMessage):
        return "\n".join([*(result.text for result in message.results), message.note])
    assert isinstance(message, (UserMessage, AssistantMessage))
    return message.text


def _whole(least: int) -> validation.Check:
    def check(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        usable = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return value if usable else refuse(problems, path, value, f"a whole number, at least {least}")

    return check


def _seconds(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 3600
    return float(value) if usable else refuse(problems, path, value, "seconds, 0 to 3600")


def _file_name(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, str) and PurePath(value).name == value
    return value if usable else refuse(problems, path, value, "the name of a file")


def _words(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, list):
        return list_of(validation.text)(value, path, problems)
    return [value] if isinstance(value, str) and value else refuse(problems, path, value, "a text or a list of texts")


def _arguments(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = value is None or isinstance(value, (dict, str))
    return value if usable else refuse(problems, path, value, "a mapping, or raw JSON as a text")


_TURN: Final = MappingSchema(
    {
        "say": validation.text,
        "think": validation.text,
        "calls": list_of(
            MappingSchema({"tool": validation.text, "args": _arguments, "id": validation.text}, required=("tool",))
        ),
        "expect": _words,
        "chunks": _whole(1),
        "pause": _seconds,
        "until": _file_name,
        "fail": MappingSchema({"status": _whole(400), "retry_after": _seconds}),
        "usage": MappingSchema({"input": _whole(0), "output": _whole(0), "cached": _whole(0)}),
        "finish": one_of(*(finish.value for finish in Finish)),
    }
)
_SCRIPT: Final = MappingSchema(
    {
        "turns": list_of(_TURN),
        "workers": map_of(list_of(_TURN)),
        "context_window": _whole(1),
        "max_output_tokens": _whole(1),
        "native_calls": validation.flag,
    }
)
