"""pydantic-ai's Agent on a FunctionModel: a whole run of tool calls, one per turn, over a model that takes no time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from benchmarks.subject import Function, args_of_turn

USAGE = RequestUsage(input_tokens=100, output_tokens=10)
"""Said by the model, so that nobody estimates it."""


def run_of(function: Function, calls: int) -> Callable[[object], Awaitable[object]]:
    """Each run starts with an empty history and ends with the words of the last result."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turns = sum(isinstance(message, ModelResponse) for message in messages)
        if turns < calls:
            return ModelResponse(parts=[ToolCallPart("add", args_of_turn(turns), tool_call_id=str(turns))], usage=USAGE)
        last = messages[-1].parts[0]
        assert isinstance(last, ToolReturnPart)
        return ModelResponse(parts=[TextPart(str(last.content))], usage=USAGE)

    agent = Agent(FunctionModel(respond), instructions="Add.")
    agent.tool_plain(name="add")(function)
    limits = UsageLimits(request_limit=None)

    async def run(_material: object) -> object:
        return (await agent.run("go", usage_limits=limits)).output

    return run
