"""Replay: a pipeline of AgentDojo's that plays a task's ground-truth calls on our stage instead of in its runtime.

The suite itself prepares the environment and judges the result (`run_task_with_pipeline`). A call the person denied
leaves no trace, as no effect came of it; the calls after it are played all the same, which is the worst case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from benchmarks.agentdojo.stage import Played, Stage
from golem_forge.core.decisions import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    task: str
    reached: bool
    """What the suite says: a user task is done, an injected goal is reached."""
    calls: tuple[Played, ...]

    @property
    def broken(self) -> list[str]:
        """Calls that neither ran well nor were denied by the person: the path got in the way."""
        fine = (Status.SUCCESS, Status.APPROVAL_DENIED)
        return [
            f"{self.task} {call.tool}: {call.outcome.text}" for call in self.calls if call.outcome.status not in fine
        ]


def replay(suite: Any, task: Any, stage: Stage, runner: asyncio.Runner, *, approve: bool) -> Replayed:
    stage.answers_yes = approve
    pipeline = _GroundTruth(task, stage, runner)
    reached, _ = suite.run_task_with_pipeline(pipeline, task, injection_task=None, injections={})
    return Replayed(task=f"{suite.name}/{task.ID}", reached=bool(reached), calls=tuple(pipeline.played))


class _GroundTruth(BasePipelineElement):  # type: ignore[misc]
    def __init__(self, task: Any, stage: Stage, runner: asyncio.Runner) -> None:
        self._task = task
        self._stage = stage
        self._runner = runner
        self.played: list[Played] = []

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Any = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> tuple[str, FunctionsRuntime, Any, Sequence[ChatMessage], dict[str, Any]]:
        self._stage.environment = env
        told: list[ChatMessage] = [*messages]
        calls = self._task.ground_truth(env)
        if self._stage.programs:
            asked = [(call.function, call.args) for call in calls]
            self.played = self._runner.run(self._stage.program(asked)) if asked else []
        else:
            self.played = [self._runner.run(self._stage.call(call.function, call.args)) for call in calls]
        for call, played in zip(calls, self.played, strict=True):
            if played.outcome.executed:
                told += _turn(call, played.outcome.text)
        told.append(_said(self._task.GROUND_TRUTH_OUTPUT))
        return query, runtime, env, told, extra_args or {}


def _turn(call: FunctionCall, text: str) -> list[ChatMessage]:
    content = [text_content_block_from_string(text)]
    result = ChatToolResultMessage(role="tool", content=content, tool_call=call, tool_call_id=None, error=None)
    return [_said("", [call]), result]


def _said(text: str, calls: list[FunctionCall] | None = None) -> ChatMessage:
    return ChatAssistantMessage(role="assistant", content=[text_content_block_from_string(text)], tool_calls=calls)
