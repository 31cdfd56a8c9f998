"""Provider models through pydantic-ai's model classes: the only module that imports pydantic_ai (a second of start-up).

`open_provider` makes the client of a provider, with the SDK's own retries off, so that one attempt is one request on
the wire; it raises ModelError (MODEL_LIBRARY_MISSING) where an SDK is missing. PydanticAIModel sends our requests and
yields our events; a paused answer is continued a bounded number of times; it raises ModelError and nothing else. The
library's Agent is not used and no tool is handed to it to execute.

A response counts as complete only when the provider said why it ended: a stream that just stops, however cleanly or
early, and a page instead of a stream are retryable ModelErrors; so is a provider that says nothing for
`request_timeout` seconds. Text attachments go to every provider as text; other types where the provider takes them.

Threat: an error text of a provider may contain the key; it is removed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from golem_forge.agent.budget import estimate_request, estimate_tokens, media_tokens
from golem_forge.agent.model.interface import (
    SCHEMA_REFUSED,
    AssistantMessage,
    Completed,
    Finish,
    ModelError,
    ModelEvent,
    Request,
    ResponseLimit,
    ResultsMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    UsageSoFar,
    UserMessage,
    requested_calls,
)
from golem_forge.agent.model.selection import OWN_SERVERS
from golem_forge.agent.model.setup import ServerFacts, read_facts
from golem_forge.config.run_block import GenerationSettings, ProviderSettings
from golem_forge.core.calls import MediaPart
from golem_forge.core.decisions import Status
from golem_forge.core.errors import EXTRAS, ConfigError, error_name, install_command
from golem_forge.core.images import fit_picture
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.net.tls import client_tls

_CONNECT_SECONDS: Final = 10
_TRANSPORT_GRACE: Final = 5
"""Seconds by which the HTTP client is more patient than we are: the message is ours."""
_PROFILE: Final = ModelProfile(supports_inline_system_prompts=True)
"""Else the library tells some models that `<system>` inside a user turn has authority, which is where tool results go,
and rewrites such words in what people typed. Forge never sends a system message in the middle."""
_NO_KEY: Final = "no-key"
"""The OpenAI SDK insists on a key; servers that need none ignore it."""


_content_type: ContextVar[str] = ContextVar("content type of the response that is being read", default="")


async def _note_content_type(response: httpx2.Response) -> None:
    """Stores the content type for later errors. It is not refused here: some servers stream events under
    another type.
    """
    _content_type.set(response.headers.get("content-type", ""))


def open_provider(
    provider: str, name: str, *, key: str, base_url: str, settings: ProviderSettings, generation: GenerationSettings
) -> PydanticAIModel:
    request_timeout = settings.request_timeout
    http = httpx2.AsyncClient(
        timeout=httpx2.Timeout(request_timeout + _TRANSPORT_GRACE, connect=_CONNECT_SECONDS),
        event_hooks={"response": [_note_content_type]},
        verify=client_tls(),
    )
    try:
        inner = _their_model(provider, name, base_url, key, http)
        check_generation(f"{provider}:{name}", inner, generation, own_server=provider in (*OWN_SERVERS, *_PLAIN_CHAT))
        model = PydanticAIModel(provider, name, inner, http=http, key=key, settings=settings, generation=generation)
        if provider in OWN_SERVERS:
            model.facts = read_facts(provider, base_url, name, key)
        return model
    except ImportError as error:
        library = error.name or "see its cause"
        extra = provider if provider in EXTRAS else "models"
        text = f"the library of provider {provider!r} is not installed ({library}); it comes with the extra `{extra}`: "
        text += install_command(*dict.fromkeys(("models", extra)))
        raise ModelError(text, code="MODEL_LIBRARY_MISSING") from error
    except ConfigError:
        raise
    except exceptions.UserError as error:
        raise ConfigError(
            f"{provider}:{name}: {_shorten_message(_ACCOUNTS.get(provider) or str(error), key)}"
        ) from error
    except Exception as error:  # whatever a provider's library raises where there is no login
        text = f"{provider}:{name} cannot be opened ({error_name(error)})"
        raise ModelError(f"{text}. {_ACCOUNTS.get(provider, '')}".rstrip(), code="MODEL_KEY_MISSING") from error


def _their_model(provider: str, name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    made = _their_provider(provider, base_url, key, http)
    profile = _PROFILE
    if provider in _MAX_TOKENS and not _reasons_as_openai(name):
        from pydantic_ai.profiles.openai import OpenAIModelProfile

        profile = merge_profile(_PROFILE, OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False))
    if provider in _PLAIN_CHAT:  # Chat Completions: the format that everybody who says OpenAI-compatible means
        from pydantic_ai.models.openai import OpenAIChatModel

        return OpenAIChatModel(name, provider=made, profile=profile)
    kind: Any = type(infer_model(f"{provider}:{name}", provider_factory=lambda _: made))
    return cast(TheirModel, kind(name, provider=made, profile=profile))


def _reasons_as_openai(name: str) -> bool:
    """OpenAI's own reasoning models, which a gateway may serve: they refuse `max_tokens`."""
    from pydantic_ai.profiles.openai import openai_model_profile

    profile: Any = openai_model_profile(name.rpartition("/")[2])
    return bool(profile.get("openai_supports_reasoning"))


_ACCOUNTS: Final = {
    "bedrock": "Set AWS_DEFAULT_REGION, and log in as for other programs of AWS: `aws configure`, or "
    "AWS_BEARER_TOKEN_BEDROCK",
    "google-cloud": "Set GOOGLE_CLOUD_PROJECT (and GOOGLE_CLOUD_LOCATION), and log in as for other programs of Google "
    "Cloud: `gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS",
}
"""Advice for providers whose library finds no account."""
_PLAIN_CHAT: Final = ("openai-compatible", "groq", "huggingface", "xai")
"""The last three have libraries of their own, too; their servers speak this format as well, which needs none."""
_MAX_TOKENS: Final = (*OWN_SERVERS, "deepseek", "huggingface", "together", "zai")
"""Their limit of an answer is `max_tokens`. Ollama and llama-cpp-python pass over `max_completion_tokens` in silence:
the answer of a small model would have no end."""
_SAYS_EFFORT: Final = (*OWN_SERVERS, *_PLAIN_CHAT, "cerebras")
"""Their wire has `reasoning_effort`, which the library sends only if it is said by that name."""


def _their_provider(provider: str, base_url: str, key: str, http: httpx2.AsyncClient) -> Any:
    """Makes the library's provider object. Retries of SDKs that retry by themselves are off."""
    made: Any
    match provider:
        case "anthropic":
            from anthropic import AsyncAnthropic

            client: Any = AsyncAnthropic(api_key=key, base_url=base_url, http_client=http, max_retries=0)
            return infer_provider_class(provider)(anthropic_client=client)  # type: ignore[call-arg]
        case "google" | "google-cloud":
            made = infer_provider_class(provider)
            return made(api_key=key or None, base_url=base_url or None, http_client=http)
        case "bedrock":
            made = infer_provider_class(provider)(api_key=key or None, base_url=base_url or None)  # type: ignore[call-arg]
            made.client.meta.events.unregister("needs-retry.bedrock-runtime", unique_id="retry-config-bedrock-runtime")
            return made
        case "mistral":
            made = infer_provider_class(provider)
            return made(api_key=key, base_url=base_url, http_client=http)
        case "cohere":
            from cohere import AsyncClientV2

            client = AsyncClientV2(api_key=key, base_url=base_url, timeout=http.timeout.read)
            return infer_provider_class(provider)(cohere_client=client)  # type: ignore[call-arg]
        case "azure":
            whole = base_url if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/openai/v1"
            made = infer_provider_class(provider)
            made = made(azure_endpoint=whole, api_key=key, http_client=http)
            made.client.max_retries = 0
            return made
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key or _NO_KEY, base_url=base_url, http_client=http, max_retries=0)
    if provider != "openai":
        # The SDK reads these from the environment; they are meant for OpenAI, not for whoever speaks its format.
        client.organization = client.project = None
        client._custom_headers = {}
    if provider in _PLAIN_CHAT:
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        return OpenAICompatibleProvider(provider, openai_client=client)
    return infer_provider_class(provider)(openai_client=client)  # type: ignore[call-arg]


_DEFAULT_OUTPUT: Final = 16_384
_LARGE_OUTPUT: Final = ("openai", "google", "openrouter", "azure", "google-cloud")
_OTHER_OUTPUT: Final = 8_192
"""Output limit for providers with many kinds of models, some of which refuse more."""
_SMALL_OUTPUT: Final = 4_096
"""Output limit for Anthropic models with an unknown limit (all allow this) and for local ones."""
_LOCAL: Final = ("ollama", "openai-compatible", "vllm")
"""Often served with a window of 8k or less, of which a larger answer would leave nothing for the question."""
_MAX_CONTINUATIONS: Final = 10
_SETTING_NAMES: Final = {
    "effort": "thinking",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output": "max_tokens",
    "stop": "stop_sequences",
}
"""Ours → the library's, which has the name of each provider for it."""
_SAMPLING: Final = ("temperature", "top_p")
_THINKING_BUDGETS: Final = {"low": 2_048, "medium": 8_192, "high": 16_384}
"""Tokens, of models of Anthropic and Cohere that know no effort but a budget, which is part of the output."""
_LEAST_THINKING: Final = 1_024


def check_generation(model: str, inner: TheirModel, said: GenerationSettings, *, own_server: bool) -> None:
    """Raises ConfigError that names what this model does not take: the library would leave it out in silence.
    `own_server`: what it takes is known to nobody, so everything is sent."""
    profile: Any = inner.profile
    refused = {*inner.unsupported_settings, *profile.get("openai_unsupported_model_settings", ())}
    always = profile.get("thinking_always_enabled", False)
    if not (own_server or always or profile.get("supports_thinking", False)):
        refused.add("thinking")
    if profile.get("anthropic_disallows_sampling_settings") or profile.get("bedrock_disallows_sampling_settings"):
        refused.update(_SAMPLING)
    names = [name for name in said.said if _SETTING_NAMES[name] in refused]
    if names:
        _refuse_settings(model, names, "")
    asked = said.effort is not None
    efforts = profile.get("openai_reasoning_efforts", ())
    may_not = "none" in efforts or profile.get("openai_supports_reasoning_effort_none", False)
    reasons = asked or always or not may_not or profile.get("thinking_enabled_by_default", False)
    beside = [name for name in said.said if name in _SAMPLING]
    if beside and ((profile.get("openai_supports_reasoning") and reasons) or ("claude" in model and asked)):
        _refuse_settings(model, beside, " while it reasons")


def _refuse_settings(model: str, names: list[str], when: str) -> None:
    keys = " and ".join(f"`{name}`" for name in names)
    away = " ".join(f"{name}=default" for name in names)
    raise ConfigError(
        f"{model} does not take {keys}{when}: leave it out of `model_settings`, or choose another model "
        f"(for this session: /model {model} {away})"
    )


class PydanticAIModel:
    def __init__(
        self,
        provider: str,
        name: str,
        inner: TheirModel,
        *,
        http: httpx2.AsyncClient,
        key: str,
        settings: ProviderSettings,
        generation: GenerationSettings,
    ) -> None:
        self.name = f"{provider}:{name}"
        self._provider = provider
        self._inner = inner
        self._http = http
        self._key = key
        self._request_timeout = settings.request_timeout
        self._media = settings.media
        self._generation = generation
        self.facts = ServerFacts()
        """What its own server says of it."""

    @property
    def context_window(self) -> int | None:
        return self.facts.context or self._inner.context_window

    @property
    def max_output_tokens(self) -> int:
        if self._generation.max_output is not None:
            return self._generation.max_output
        if self._provider in _LOCAL:
            return _SMALL_OUTPUT
        if self._provider != "anthropic":
            return _DEFAULT_OUTPUT if self._provider in _LARGE_OUTPUT else _OTHER_OUTPUT + self._thinking_budget
        known: Any = self._inner.profile.get("anthropic_max_output_tokens")
        return min(known, _DEFAULT_OUTPUT + self._thinking_budget) if isinstance(known, int) else _SMALL_OUTPUT

    @property
    def _thinking_budget(self) -> int:
        """0: the model knows efforts, or none was said."""
        profile: Any = self._inner.profile
        claude = self._provider == "anthropic" or profile.get("bedrock_thinking_variant") == "anthropic"
        if profile.get(f"{self._provider}_supports_adaptive_thinking") or not (claude or self._provider == "cohere"):
            return 0
        return _THINKING_BUDGETS.get(self._generation.effort or "", 0)

    @property
    def calls_natively(self) -> bool:
        said = self.facts.calls_tools
        return bool(self._inner.profile.get("supports_tools", True)) if said is None else said

    def takes(self, media_type: str) -> bool:
        return takes_media_type(self._provider, media_type)

    def takes_in_results(self, media_type: str) -> bool:
        """Whether the model accepts this media type in tool results; only types that it is known to accept."""
        kinds = self._media
        if kinds is None and self.facts.sees:
            kinds = ("image",)
        elif kinds is None and self._provider == "bedrock" and _SEES_ON_BEDROCK.search(self.name):
            kinds = ("image", "pdf")
        return result_takes(self._provider, media_type, kinds)

    def media_tokens(self, part: MediaPart) -> int:
        return media_tokens(part, self._provider) if self.takes_in_results(part.media_type) else 0

    async def aclose(self) -> None:
        await self._http.aclose()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        heard = False
        try:
            offered = request_parameters(request)
            messages = self._inner.prepare_messages(
                translate_messages(request, self._provider, self.takes_in_results), offered
            )
            settings = self._settings(request)
            whole: theirs.ModelResponse | None = None
            flood = ResponseLimit(self.name)
            for _ in range(_MAX_CONTINUATIONS):
                _content_type.set("")
                async with AsyncExitStack() as opened:
                    asking = model_request_stream(
                        self._inner, messages, model_settings=settings, model_request_parameters=offered
                    )
                    async with asyncio.timeout(self._request_timeout):
                        stream = await opened.enter_async_context(asking)
                    events = aiter(stream)
                    counted = TokenUsage()
                    while (event := await self._next_event(events)) is not None:
                        heard = True
                        flood.add(event_text(event))
                        yield event_delta(event) or TextDelta("")  # a call is being written
                        if (so_far := usage_from(stream.usage)) != counted:
                            counted = so_far
                            yield UsageSoFar(usage=counted)
                    whole = join_responses(whole, finished_response(stream, self.name))
                if whole.state != "suspended":
                    yield completed_from(whole, request, provider=self._provider, model=self.name)
                    return
                # The provider paused a long answer; it goes on when it is sent its own beginning.
                await asyncio.sleep(self._inner.continuation_delay(whole) or 0)
                messages = [*messages, whole]
            raise ModelError(f"{self.name} paused its answer {_MAX_CONTINUATIONS} times and did not finish it")
        except ModelError:
            raise
        except TimeoutError as error:
            patience = f"{self._request_timeout:g} s without an answer (`models.{self._provider}.request_timeout`)"
            raise ModelError(f"{self.name}: {patience}", retryable=True) from error
        except Exception as error:
            if not heard and not isinstance(error, exceptions.ModelHTTPError) and _is_no_stream():
                raise _unreadable_response(self.name) from error
            raise model_error(error, name=self.name, key=self._key) from error

    async def _next_event(self, events: AsyncIterator[Any]) -> Any:
        """Returns the next event; None at the end. Pings of a provider are no events."""
        async with asyncio.timeout(self._request_timeout):
            return await anext(events, None)

    def _settings(self, request: Request) -> ModelSettings:
        said = {_SETTING_NAMES[name]: value for name, value in self._generation.said.items()}
        settings: Any = ModelSettings(**said)  # type: ignore[typeddict-item]
        settings["cache"] = True  # the loop sends the same beginning again and again; where a provider wants a mark
        if "stop_sequences" in said:
            settings["stop_sequences"] = list(said["stop_sequences"])
        if request.stop and self._provider in _LOCAL:
            settings["stop_sequences"] = [*settings.get("stop_sequences", ()), *request.stop]
        if request.max_output_tokens is not None:
            settings["max_tokens"] = request.max_output_tokens
        elif self._provider == "anthropic":  # the API requires a number; others have their own maximum
            settings["max_tokens"] = self.max_output_tokens
        effort = self._generation.effort
        if effort is not None and self._provider in _SAYS_EFFORT:
            settings["openai_reasoning_effort"] = effort
        if (budget := min(self._thinking_budget, settings.get("max_tokens", 0) // 2)) and self._provider != "cohere":
            del settings["thinking"]
            thinking = {"type": "enabled", "budget_tokens": budget}
            if budget >= _LEAST_THINKING and self._provider == "anthropic":
                settings["anthropic_thinking"] = thinking
            elif budget >= _LEAST_THINKING:
                settings["bedrock_additional_model_requests_fields"] = {"thinking": thinking}
        if self._provider == "openai":
            settings["openai_store"] = False  # the history is ours; the provider need not keep a second one
        return cast(ModelSettings, settings)


_NO_INPUT: Final = "[no input]"
"""Providers refuse a message without content; a worker may allow one."""
_PLAIN_NAME: Final = regex(r"[A-Za-z0-9_-]{1,128}")
_OUTCOMES: Final = {
    Status.SUCCESS: "success",
    Status.APPROVAL_DENIED: "denied",
    Status.POLICY_DENIED: "denied",
    Status.SANDBOX_DENIED: "denied",
    Status.INTERRUPTED: "interrupted",
}
"""Every other status is `failed`."""


def request_parameters(request: Request) -> ModelRequestParameters:
    system = [theirs.InstructionPart(content=request.system)] if request.system else []
    # Not strict: strict mode rewrites schemas, and the model must be shown the shape that the one path validates.
    tools = [
        ToolDefinition(
            name=each.name, description=each.description, parameters_json_schema=dict(each.schema), strict=False
        )
        for each in request.tools
    ]
    return ModelRequestParameters(function_tools=tools, instruction_parts=system)


def translate_messages(
    request: Request, provider: str, takes: Callable[[str], bool] = lambda media_type: False
) -> list[theirs.ModelMessage]:
    """`takes`: whether a picture, sound or file of this type in a result is sent; else only its line of text."""
    result: list[theirs.ModelMessage] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            if message.text or message.thinking or message.calls:
                result.append(_assistant_message(message, provider))
        else:
            if isinstance(message, ResultsMessage):
                parts = _result_parts(message, request, takes)
            else:
                parts = [_prompt_part(message, request, takes)]
            result.append(theirs.ModelRequest(parts=parts))
    return result


def _assistant_message(message: AssistantMessage, provider: str) -> theirs.ModelResponse:
    """Returns the provider's own message (with the signatures of its thinking) if the provider is the same and nothing
    was changed; else one rebuilt from the common parts.
    """
    raw = message.raw
    if isinstance(raw, dict) and raw.get("provider") == provider and not message.interrupted:
        try:
            (kept,) = theirs.ModelMessagesTypeAdapter.validate_python([raw["response"]])
        except (ValueError, KeyError):
            kept = None
        if isinstance(kept, theirs.ModelResponse) and _text_and_calls(kept) == (
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


def _text_and_calls(response: theirs.ModelResponse) -> tuple[str, list[tuple[str, str]]]:
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    calls = [(part.tool_call_id, part.tool_name) for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    return text, calls


def _prompt_part(message: UserMessage, request: Request, takes: Callable[[str], bool]) -> theirs.UserPromptPart:
    sent = _sent_media(message.media, request, takes)
    if not message.attachments and not sent:
        return theirs.UserPromptPart(content=message.text or _NO_INPUT)
    content: list[Any] = [message.text] if message.text else []
    for attached in message.attachments:
        if request.attachment is None:
            raise ModelError(f"attachment {attached.name!r} has no bytes to send", code="ATTACHMENT_MISSING")
        data: bytes = request.attachment(attached.digest)
        if is_text_type(attached.media_type):
            content.append(f"Attached file {attached.name} ({attached.media_type}):\n{data.decode('utf-8', 'replace')}")
        else:
            content.append(f"Attached file {attached.name} ({attached.media_type}):")
            content.append(theirs.BinaryContent(data=data, media_type=attached.media_type))
    return theirs.UserPromptPart(content=[*content, *sent])


def _result_parts(
    message: ResultsMessage, request: Request, takes: Callable[[str], bool]
) -> list[theirs.ModelRequestPart]:
    parts: list[theirs.ModelRequestPart] = [
        theirs.ToolReturnPart(
            tool_name=_wire_name(result.name),
            content=[result.text, *sent] if (sent := _sent_media(result.media, request, takes)) else result.text,
            tool_call_id=result.id,
            outcome=_OUTCOMES.get(result.status, "failed"),  # type: ignore[arg-type]
        )
        for result in message.results
    ]
    return [*parts, theirs.UserPromptPart(content=message.note)] if message.note else parts


def _sent_media(
    media: Iterable[MediaPart], request: Request, takes: Callable[[str], bool]
) -> list[theirs.BinaryContent]:
    """What of the pictures, sounds and files the model takes, is still there, and fits."""
    sent = []
    for part in media:
        data = request.media(part.handle) if request.media is not None and takes(part.media_type) else None
        fitting = fit_picture(data, part) if data is not None else None
        if fitting is not None:
            # Named by its handle, which the text has: the same bytes in every request.
            sent.append(theirs.BinaryContent(data=fitting[0], media_type=fitting[1], identifier=part.handle))
    return sent


def _wire_name(name: str) -> str:
    """A model may ask for what no tool can be named; sent back like that, a provider refuses the whole conversation."""
    return name if _PLAIN_NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


_FINISHES: Final = {"length": Finish.LENGTH, "content_filter": Finish.REFUSED}


def event_delta(event: Any) -> TextDelta | ThinkingDelta | None:
    """The first piece of a part comes with its start. Kinds of events that are new to us say nothing here."""
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
            return TextDelta(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
            return ThinkingDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)) if text:
            return ThinkingDelta(text)
        case _:
            return None


def event_text(event: Any) -> str:
    """Returns the text that an event of any kind adds to the response."""
    if isinstance(event, theirs.PartStartEvent):
        part: Any = event.part
        found = part.args if isinstance(part, theirs.ToolCallPart) else getattr(part, "content", "")
    elif isinstance(event, theirs.PartDeltaEvent):
        delta: Any = event.delta
        found = delta.args_delta if isinstance(delta, theirs.ToolCallPartDelta) else delta.content_delta
    else:
        return ""
    return found if isinstance(found, str) else ""


def finished_response(stream: StreamedResponse, name: str) -> theirs.ModelResponse:
    response = stream.get()
    reason = (response.provider_details or {}).get("finish_reason")
    if response.state == "suspended":
        return response
    if (reason is None and response.finish_reason != "content_filter") or response.state != "complete":
        raise ModelError(f"{name}: the response broke off before its end", retryable=True)
    if response.finish_reason == "error":
        raise ModelError(f"{name}: the provider gave up on the response ({reason})", retryable=True)
    return response


def join_responses(before: theirs.ModelResponse | None, after: theirs.ModelResponse) -> theirs.ModelResponse:
    if before is None:
        return after
    return replace(after, parts=[*before.parts, *after.parts], usage=before.usage + after.usage)


def usage_from(usage: RequestUsage) -> TokenUsage:
    return TokenUsage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


def completed_from(response: theirs.ModelResponse, request: Request, *, provider: str, model: str) -> Completed:
    """The message with the calls it asks for, each under an id that this history does not have yet."""
    finish = _FINISHES.get(response.finish_reason or "stop", Finish.STOP)
    asked = [part for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    calls = requested_calls(
        ((part.tool_call_id, part.tool_name, part.args) for part in asked), history=request.messages, finish=finish
    )
    new_ids = {id(part): call.id for part, call in zip(asked, calls, strict=True)}
    kept = replace(
        response,
        parts=[
            replace(part, tool_call_id=new_ids[id(part)]) if isinstance(part, theirs.ToolCallPart) else part
            for part in response.parts
        ],
    )
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    thinking = "".join(part.content for part in response.parts if isinstance(part, theirs.ThinkingPart))
    counted = usage_from(response.usage)
    if not counted.total:
        # A request that nobody counted would slip through every budget.
        counted = TokenUsage(input=estimate_request(request), output=estimate_tokens(text + thinking) + 20 * len(calls))
    message = AssistantMessage(
        text=text,
        thinking=thinking,
        calls=calls,
        model=model,
        raw={
            "provider": provider,
            "response": theirs.ModelMessagesTypeAdapter.dump_python([kept], mode="json")[0],
        },
    )
    return Completed(message=message, usage=counted, finish=finish)


_MAX_MESSAGE: Final = 300
_ABOUT_SCHEMAS: Final = regex(r"schema|grammar|function[ _]declaration|\btools?[.\[]\d|\$defs|\$ref", re.IGNORECASE)
_EVENT_STREAM: Final = "text/event-stream"
_MEDIA_TYPE: Final = regex(r"[\w!#$&^.+-]{1,60}/[\w!#$&^.+-]{1,60}")


def _media_type() -> str:
    found = _MEDIA_TYPE.match(_content_type.get().strip())
    return found.group().lower() if found else ""


def _is_no_stream() -> bool:
    """Whether a response came and says itself that it is something else."""
    return _media_type() not in ("", _EVENT_STREAM)


def _unreadable_response(name: str) -> ModelError:
    """A response of which nothing could be read: empty, a page of somebody in between, a server of another kind."""
    kind = _media_type()
    text = f"{name}: the response holds no answer ({f'content type {kind}' if kind else 'no content type'})"
    if kind != _EVENT_STREAM:
        text += "; expected a stream of events: look at base_url and at any proxy on the way"
    return ModelError(text, retryable=True)


def model_error(error: Exception, *, name: str, key: str) -> ModelError:
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    code = "CONTEXT_EXCEEDED" if isinstance(error, exceptions.ModelContextWindowExceededError) else ""
    if isinstance(error, exceptions.ModelAPIError):
        whole = _provider_message(error)
        said = _shorten_message(whole or type(error).__name__, key)
        refused = isinstance(error, (exceptions.ModelRequestRejectedError, exceptions.ModelQuotaExceededError))
        retryable = status in (408, 429) or status >= 500 if status else not refused
        if not code and status in (400, 422, 500) and _ABOUT_SCHEMAS.search(whole):
            code, retryable = SCHEMA_REFUSED, False
        what = f"answered {status}" if status else "failed"
        text, after = f"{name} {what}: {said}", error.retry_after
        return ModelError(text, retryable=retryable, retry_after=after, code=code, http_status=status)
    if isinstance(error, (httpx2.TransportError, httpx2.StreamError, OSError)):
        return ModelError(f"{name}: the connection failed ({type(error).__name__})", retryable=True)
    if isinstance(error, exceptions.UnexpectedModelBehavior) and not isinstance(error, exceptions.ContentFilterError):
        return _unreadable_response(name)
    if isinstance(error, exceptions.AgentRunError | exceptions.UserError):
        return ModelError(f"{name} does not accept this request: {_shorten_message(str(error), key)}")
    # What a foreign exception says may hold anything; its type says enough to look further.
    return ModelError(f"{name}: the request failed inside the model library ({type(error).__name__})")


def _shorten_message(said: str, key: str) -> str:
    """Removes the key and cuts between words: half of a secret could not be redacted later."""
    if key:
        said = said.replace(key, "[redacted]")
    if len(said) <= _MAX_MESSAGE:
        return said
    return f"{said[:_MAX_MESSAGE].rpartition(' ')[0]} …"


def _provider_message(error: exceptions.ModelAPIError) -> str:
    found: Any = error.body
    while isinstance(found, dict) and not isinstance(found.get("message"), str):
        found = found.get("error")
    text = found["message"] if isinstance(found, dict) else found if isinstance(found, str) else ""
    if not text and not isinstance(error, exceptions.ModelHTTPError):
        text = error.message
    return cast(str, text)


_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF: Final = ("application/pdf",)
_TAKEN: Final[dict[str, tuple[str, ...]]] = {
    "anthropic": _IMAGES + _PDF,
    "openai": _IMAGES + _PDF,
    "google": (*_IMAGES, *_PDF, "audio/", "video/"),
    "openrouter": _IMAGES + _PDF,
    "bedrock": _IMAGES + _PDF,
    "google-cloud": (*_IMAGES, *_PDF, "audio/", "video/"),
}
"""Media types of attachments; one that ends in `/` stands for all of its kind. Others are sent pictures."""
_KINDS: Final = {"image": _IMAGES, "pdf": _PDF, "audio": ("audio/wav", "audio/mpeg")}
"""The values of `models.<provider>.media`."""
_MORE_SOUNDS: Final = ("audio/ogg", "audio/flac", "audio/aac", "audio/aiff")
"""Google's models take these, too."""
_SEES_ON_BEDROCK: Final = regex(r"claude|nova-(?!micro)")
_KNOWN_TO_SEE: Final = {
    "anthropic": ("image", "pdf"),
    "openai": ("image", "pdf"),
    "google": ("image", "pdf", "audio"),
    "openrouter": ("image",),
    "azure": ("image",),
    "google-cloud": ("image", "pdf", "audio"),
}
"""Media that all current models of a provider accept. A server of one's own may hold a text-only model."""


def result_takes(provider: str, media_type: str, said: tuple[str, ...] | None) -> bool:
    """`said`: `models.<provider>.media`, which wins."""
    kinds = _KNOWN_TO_SEE.get(provider, ()) if said is None else said
    more = _MORE_SOUNDS if provider in ("google", "google-cloud") and "audio" in kinds else ()
    return media_type in more or any(media_type in _KINDS[kind] for kind in kinds)


_TEXT: Final = ("application/json", "application/xml", "application/yaml", "application/toml", "application/javascript")


def is_text_type(media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return plain.startswith("text/") or plain in _TEXT or plain.endswith(("+json", "+xml"))


def takes_media_type(provider: str, media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return is_text_type(plain) or any(
        plain.startswith(known) if known.endswith("/") else plain == known for known in _TAKEN.get(provider, _IMAGES)
    )
