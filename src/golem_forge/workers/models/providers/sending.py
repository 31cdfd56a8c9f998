"""Our request in the words of the library: tools, instructions, and the conversation so far. Pure.

Raises ModelError for an attachment without bytes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from golem_forge.core.verdict import Status
from golem_forge.workers.messages import AssistantMessage, ResultsMessage, UserMessage
from golem_forge.workers.models.layer import ModelError, Request, ToolOffer
from golem_forge.workers.models.media import is_text

_NO_INPUT: Final = "[no input]"
"""Providers refuse a message without content; a worker may allow one."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_OUTCOMES: Final = {
    Status.SUCCESS: "success",
    Status.APPROVAL_DENIED: "denied",
    Status.POLICY_DENIED: "denied",
    Status.SANDBOX_DENIED: "denied",
    Status.INTERRUPTED: "interrupted",
}
"""Everything else is `failed`."""


def parameters(request: Request) -> ModelRequestParameters:
    system = [theirs.InstructionPart(content=request.system)] if request.system else []
    return ModelRequestParameters(
        function_tools=[_definition(offer) for offer in request.tools], instruction_parts=system
    )


def _definition(offer: ToolOffer) -> ToolDefinition:
    # Not strict: strict mode rewrites schemas, and what the model was shown must be what the one path validates.
    return ToolDefinition(
        name=offer.name, description=offer.description, parameters_json_schema=dict(offer.schema), strict=False
    )


def translated(request: Request, provider: str) -> list[theirs.ModelMessage]:
    result: list[theirs.ModelMessage] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            if message.text or message.thinking or message.calls:
                result.append(_said(message, provider))
        else:
            parts = _results(message) if isinstance(message, ResultsMessage) else [_prompt(message, request)]
            result.append(theirs.ModelRequest(parts=parts))
    return result


def _said(message: AssistantMessage, provider: str) -> theirs.ModelResponse:
    """As the provider itself had it (signatures of its thinking included), if it is the same one and nothing was
    changed since; else rebuilt from what everybody understands."""
    raw = message.raw
    if isinstance(raw, dict) and raw.get("provider") == provider and not message.interrupted:
        try:
            (kept,) = theirs.ModelMessagesTypeAdapter.validate_python([raw["response"]])
        except (ValueError, KeyError):
            kept = None
        if isinstance(kept, theirs.ModelResponse) and _tells(kept) == (
            message.text,
            [(call.id, _wire_name(call.name)) for call in message.calls],
        ):
            return kept
    parts: list[theirs.ModelResponsePart] = [theirs.TextPart(content=message.text)] if message.text else []
    parts += [
        theirs.ToolCallPart(tool_name=_wire_name(call.name), args=call.args, tool_call_id=call.id)
        for call in message.calls
    ]
    return theirs.ModelResponse(parts=parts or [theirs.TextPart(content="[no answer]")])


def _tells(response: theirs.ModelResponse) -> tuple[str, list[tuple[str, str]]]:
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    calls = [(part.tool_call_id, part.tool_name) for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    return text, calls


def _prompt(message: UserMessage, request: Request) -> theirs.UserPromptPart:
    if not message.attachments:
        return theirs.UserPromptPart(content=message.text or _NO_INPUT)
    content: list[Any] = [message.text] if message.text else []
    for attached in message.attachments:
        if request.attachment is None:
            raise ModelError(f"attachment {attached.name!r} has no bytes to send", code="ATTACHMENT_MISSING")
        data: bytes = request.attachment(attached.digest)
        if is_text(attached.media_type):
            content.append(f"Attached file {attached.name} ({attached.media_type}):\n{data.decode('utf-8', 'replace')}")
        else:
            content.append(f"Attached file {attached.name} ({attached.media_type}):")
            content.append(theirs.BinaryContent(data=data, media_type=attached.media_type))
    return theirs.UserPromptPart(content=content)


def _results(message: ResultsMessage) -> list[theirs.ModelRequestPart]:
    parts: list[theirs.ModelRequestPart] = [
        theirs.ToolReturnPart(
            tool_name=_wire_name(result.name),
            content=result.text,
            tool_call_id=result.id,
            outcome=_OUTCOMES.get(result.status, "failed"),  # type: ignore[arg-type]
        )
        for result in message.results
    ]
    return [*parts, theirs.UserPromptPart(content=message.note)] if message.note else parts


def _wire_name(name: str) -> str:
    """A model may ask for what no tool can be named; sent back like that, a provider refuses the whole conversation."""
    return name if _PLAIN_NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"
