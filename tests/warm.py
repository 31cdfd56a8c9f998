"""What a process imports and makes once, before it is forked into those that run commands or tests.

Nearly all the time of a command was the same imports again and again, and what libraries make when they are first used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import pkgutil
import sys
from pathlib import Path

_ELSEWHERE = (".run.client", ".run.shown", ".__main__")
"""Programs that run inside the walls, and entry points."""
_HUGE = 2 << 20
_COLLAPSE = 25
"""MADV_COLLAPSE: the kernel puts small pages together at once."""
_THEIRS = (
    *("pydantic.main", "pydantic.fields", "jsonschema_rs", "ruamel.yaml", "sqlite3", "asyncio", "subprocess"),
    *("prompt_toolkit.patch_stdout", "prompt_toolkit.shortcuts", "rich.console", "rich.markdown", "rich.syntax"),
    *("pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "pydantic_ai.providers.openai_compatible"),
    *("openai.resources.responses.responses", "openai.resources.chat.completions.completions"),
    *("pydantic_ai.providers.openai", "pydantic_ai.models.openrouter", "pydantic_ai.models.google", "PIL.Image"),
    *("pydantic_ai.providers.google", "google.genai.client"),
    *("genai_prices.data", "prompt_toolkit.input.vt100", "pygments.lexers.python"),
    *("anyio._backends._asyncio", "encodings.idna", "encodings.utf_8_sig", "psycopg", "procrastinate"),
    *("opentelemetry.sdk.trace.export", "opentelemetry.sdk.metrics.export"),
    *(f"opentelemetry.exporter.otlp.proto.http.{each}_exporter" for each in ("trace", "metric")),
)
"""What Forge itself imports only where it is needed: the clients of the models are most of a command's time."""
_MODELS = ("anthropic:claude-sonnet-5-5", "openai:gpt-5", "openai-compatible:local", "google:gemini-3-pro-preview")


def warm_up() -> None:
    """Of Forge and of the libraries it uses."""
    _import_all()
    _make_lazy_parts()
    _ask_models()


def _import_all() -> None:
    import golem_forge

    found = (module.name for module in pkgutil.walk_packages(golem_forge.__path__, "golem_forge."))
    for name in (*_THEIRS, *(name for name in found if not any(part in name for part in _ELSEWHERE))):
        with contextlib.suppress(Exception):  # said by the command that needs it
            importlib.import_module(name)


def _make_lazy_parts() -> None:
    """What a command makes when it first needs it: methods of records, patterns, models of native tools."""
    from golem_forge.core.regex import regex
    from golem_forge.toolsets import TOOL_LIST

    lazy_pattern = type(regex(""))
    for name, module in list(sys.modules.items()):
        for made in list(vars(module).values()) if name.startswith("golem_forge") else ():
            if isinstance(made, lazy_pattern):
                _ = made.groups
            elif isinstance(made, type) and "__lazy_fields__" in vars(made):
                for method in ("__init__", "__eq__", "__hash__"):
                    getattr(made, method)
    for tool in TOOL_LIST:
        _ = tool.input, tool.input_schema


def _ask_models() -> None:
    """One question to each client of a model, here: their libraries make the classes for an answer when the first one
    comes, which takes longer than all the rest of a command. A command whose client still makes them says the same."""
    from tests.wire.server import WireCall, WireServer, WireTurn

    from golem_forge.agent.model.interface import Request, UserMessage
    from golem_forge.agent.model.selection import open_model
    from golem_forge.config.run_block import ProviderSettings

    async def ask(name: str, server: WireServer) -> None:
        provider = name.partition(":")[0]
        settings = ProviderSettings(base_url=server.base_url(provider), key_env="KEY")
        model = open_model(name, settings={provider: settings}, environ={"KEY": "x"}, script_root=Path("/"))
        async for _ in model.stream(Request(system="", messages=(UserMessage(text="Hello"),))):
            pass
        await model.aclose()

    for name in _MODELS:
        turn = WireTurn(say="Hello", calls=(WireCall(name="a", args={}),))
        with contextlib.suppress(Exception), WireServer([turn]) as server:  # said by the command that needs it
            asyncio.run(ask(name, server))


def make_pages_huge() -> None:
    """A fork copies the table of pages, fifty thousand small ones: half of what `forge --version` took. Where the
    kernel has no huge pages, everything stays as it is."""
    library = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *file = line.split()
        if rights.startswith("rw") and file in ([], ["[heap]"]):
            begin, end = (int(number, 16) for number in place.split("-"))
            begin += -begin % _HUGE
            if end - begin >= _HUGE:
                library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t((end - begin) // _HUGE * _HUGE), _COLLAPSE)
