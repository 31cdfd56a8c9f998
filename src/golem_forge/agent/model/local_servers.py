"""Model servers of one's own: found at their usual ports, and asked what their models can do.

`find_local_servers` gives who listens on this machine (Ollama, LM Studio, llama.cpp, vLLM). `read_facts` asks the
server that gets a model's requests for the context length and the abilities of that model; what it does not say stays
unknown. Neither raises; both block, for a bounded time.

Threat: any process of this machine may listen on the port of a local server, and what it answers is text of others.
Discovery asks the loopback address alone, redirects are not followed, answers are bounded, a name that is not printable
or too long is left out, and a number that makes no sense counts as not said.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.agent.model.selection import PROVIDERS
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex

LOCAL_HOST: Final = "127.0.0.1"
LOCAL_PORTS: Final = (
    ("Ollama", 11434, "/api/tags"),
    ("LM Studio", 1234, "/v1/models"),
    ("llama.cpp", 8080, "/v1/models"),
    ("vLLM", 8000, "/v1/models"),
)
"""Usual local servers: name, port, and the path that lists their models."""
MAX_NAMES: Final = 500
MAX_ANSWER: Final = 8 << 20
_PROBE_SECONDS: Final = 0.5
_FACTS_SECONDS: Final = 2.0
"""Timeout for all questions about one model."""
_NAME: Final = regex(r"[\w.:/@+-]{1,200}")
_LEAST_CONTEXT: Final = 512
_MOST_CONTEXT: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    title: str
    provider: str
    base_url: str
    models: tuple[str, ...]


def find_local_servers() -> list[LocalServer]:
    """Model servers on the usual ports of this machine, all asked at once. Blocks for half a second at most."""
    with ThreadPoolExecutor(max(1, len(LOCAL_PORTS))) as pool:
        found = list(pool.map(lambda each: _local_models(each[1], each[2]), LOCAL_PORTS))
    servers = []
    for (title, port, _), names in zip(LOCAL_PORTS, found, strict=True):
        if names is not None:
            provider = "ollama" if title == "Ollama" else "openai-compatible"
            base_url = PROVIDERS[provider].base_url or f"http://{LOCAL_HOST}:{port}/v1"
            servers.append(LocalServer(title=title, provider=provider, base_url=base_url, models=tuple(names)))
    return servers


def _local_models(port: int, path: str) -> list[str] | None:
    """Returns the models of a local server; None if nothing there lists models."""
    return model_names(_ask(f"http://{LOCAL_HOST}:{port}{path}", seconds=_PROBE_SECONDS))


def _ask(url: str, *, seconds: float, key: str = "", body: Any = None) -> Any:
    """The JSON that a server answers; None: it does not."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"accept": "application/json", "content-type": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request("GET" if sent is None else "POST", parts.path, sent, headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER + 1) if answer.status == http.client.OK else b""
            return json.loads(text) if 0 < len(text) <= MAX_ANSWER else None
        finally:
            connection.close()
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None


def model_names(answer: Any) -> list[str] | None:
    """Reads a list of models in the usual shapes, `{data: [{id}]}` and `{models: [{name}]}`; None for another shape."""
    said = answer if isinstance(answer, dict) else {}
    listed = next((said[key] for key in ("data", "models") if isinstance(said.get(key), list)), None)
    if listed is None:
        return None
    names: list[str] = []
    for each in listed[:MAX_NAMES]:
        if not isinstance(each, dict):
            continue
        methods = each.get("supportedGenerationMethods")  # Google's list has models that cannot converse
        if isinstance(methods, list) and "generateContent" not in methods:
            continue
        name = each.get("id") or each.get("name")
        if isinstance(name, str) and _NAME.fullmatch(name := name.removeprefix("models/")):
            names.append(name)
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about a model; None where it does not say."""

    context: int | None = None
    sees: bool | None = None
    calls_tools: bool | None = None


def read_facts(provider: str, base_url: str, name: str, key: str = "") -> ServerFacts:
    """Every question goes to the address that gets the requests; the last ones are not asked once all is known."""
    address = base_url.rstrip("/")
    root = address.removesuffix("/v1")
    end = time.monotonic() + _FACTS_SECONDS
    found = ServerFacts()
    asked = _ollama_facts if provider == "ollama" else _compatible_facts
    for url, body, read in asked(address, root, name):
        left = end - time.monotonic()
        if left <= 0 or None not in (found.context, found.sees, found.calls_tools):
            break
        said = read(_ask(url, seconds=left, key=key, body=body), name)
        found = ServerFacts(
            context=found.context if found.context is not None else said.context,
            sees=found.sees if found.sees is not None else said.sees,
            calls_tools=found.calls_tools if found.calls_tools is not None else said.calls_tools,
        )
    return found


def _ollama_facts(address: str, root: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    yield f"{root}/api/ps", None, _ollama_loaded
    yield f"{root}/api/show", {"model": name}, _ollama_shown


def _compatible_facts(address: str, root: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    yield f"{address}/models", None, _listed
    yield f"{root}/props", None, _llama_props
    yield f"{root}/api/v0/models", None, _studio_listed


def _ollama_loaded(answer: Any, name: str) -> ServerFacts:
    """The context with which a model runs now: Ollama cuts what is longer, without a word."""
    return ServerFacts(context=_context(_entry(answer, "models", name).get("context_length")))


def _ollama_shown(answer: Any, name: str) -> ServerFacts:
    said = answer if isinstance(answer, dict) else {}
    set_to = regex(r"(?m)^num_ctx\s+(\d{1,9})\s*$").search(str(said.get("parameters", ""))[:10_000])
    able = said.get("capabilities")
    known = able if isinstance(able, list) else None
    return ServerFacts(
        context=_context(int(set_to[1])) if set_to else None,
        sees=None if known is None else "vision" in known,
        calls_tools=None if known is None else "tools" in known,
    )


def _listed(answer: Any, name: str) -> ServerFacts:
    """vLLM says `max_model_len`; others have other words for it. How long a model was trained says nothing of how long
    its server lets it be."""
    entry = _entry(answer, "data", name)
    lengths = (entry.get(key) for key in ("max_model_len", "context_length", "context_window", "max_context_length"))
    return ServerFacts(context=next((length for each in lengths if (length := _context(each))), None))


def _llama_props(answer: Any, name: str) -> ServerFacts:
    said = answer if isinstance(answer, dict) else {}
    settings, able = said.get("default_generation_settings"), said.get("modalities")
    return ServerFacts(
        context=_context(settings.get("n_ctx") if isinstance(settings, dict) else None),
        sees=bool(able.get("vision")) if isinstance(able, dict) else None,
    )


def _studio_listed(answer: Any, name: str) -> ServerFacts:
    """Reads an entry of LM Studio's own list."""
    entry = _entry(answer, "data", name)
    kind, able = entry.get("type"), entry.get("capabilities")
    return ServerFacts(
        context=_context(entry.get("loaded_context_length")),
        sees=kind == "vlm" if isinstance(kind, str) else None,
        calls_tools="tool_use" in able if isinstance(able, list) else None,
    )


def _entry(answer: Any, key: str, name: str) -> dict[str, Any]:
    """Returns the entry of this model in a list; empty if it is not listed."""
    listed = answer.get(key) if isinstance(answer, dict) else None
    entries = [each for each in listed[:MAX_NAMES] if isinstance(each, dict)] if isinstance(listed, list) else []
    named = (each for each in entries if name in (each.get("id"), each.get("name"), each.get("model")))
    return next(named, {})


def _context(said: Any) -> int | None:
    whole = isinstance(said, int) and not isinstance(said, bool)
    return said if whole and _LEAST_CONTEXT <= said <= _MOST_CONTEXT else None
