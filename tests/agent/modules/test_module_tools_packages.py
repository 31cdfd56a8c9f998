"""Tools of an installed package: found by import path or entry point, imported only in a host (W14)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.files.worker_file import parse_worker
from golem_forge.agent.modules.exports import ExportError, toolset_tools
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError
from golem_forge.tools.tool import Tool

WEB = '''
from golem_forge import tool
from acme_words import WORD

@tool
def search(query: str) -> str:
    """Searches."""
    return f"{WORD} {query}"

@tool(needs_approval=False)
def fetch() -> str:
    return __file__

tools = [search, fetch]

def build():
    return tools

class Web:
    name = "web"
    config = None

    def get_tools(self, ctx):
        return tools
'''
KEYED = """
from pydantic import BaseModel
from golem_forge import tool

class Keyed:
    name = "keyed"

    class config(BaseModel, extra="forbid"):
        region: str
        limit: int = 3

    def get_tools(self, ctx):
        @tool(needs_approval=False)
        def where() -> str:
            return f"{ctx.config.region} {ctx.config.limit}"

        return [where]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with an installed distribution `acme-tools`, on Python's path as `pip install --target` leaves it."""
    site = tmp_path / "installed"
    for name, text in {
        "acme_tools/__init__.py": "from acme_tools.web import tools as everything\n",
        "acme_tools/web.py": WEB,
        "acme_tools/keyed.py": KEYED,
        "acme_words.py": "WORD = 'found'\n",
        "acme_tools-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.2\n",
        "acme_tools-1.2.dist-info/entry_points.txt": "[golem_forge.toolsets]\nweb = acme_tools.web:Web\nlist = "
        "acme_tools.web:build\n[console_scripts]\nacme = acme_tools:main\n",
        "acme_tools-1.2.dist-info/top_level.txt": "acme_tools\nacme_words\n",
        "acme_tools-1.2.dist-info/RECORD": "acme_tools/__init__.py,,\nacme_tools/web.py,,\nacme_tools/keyed.py,,\n"
        "acme_words.py,,\n",
    }.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(site))
    yield site
    assert not [name for name in sys.modules if name.startswith("acme_")]  # never imported in this process


def external(place: Any, **block: Any) -> Any:
    return place.modules(place.worker(external={"package": "acme-tools", **block}))


@pytest.mark.parametrize(
    "block",
    [
        {"entry_point": "web"},
        pytest.param({"entry_point": "list"}, marks=pytest.mark.long),
        {"import": "everything"},
    ],
)
async def test_w14_a_toolset_a_list_and_what_gives_one(
    place: Any, call: Any, package: Path, asked: Any, block: dict[str, str]
) -> None:
    modules = external(place, **block)
    tools = await modules.load()
    assert [tool.name for tool in tools] == ["search", "fetch"]
    ask = asked({"approved": True})
    path = place.path(tools, ask=ask)
    assert (await call(path, "search", query="this")).text == "found this"
    assert (await call(path, "fetch")).text.startswith("/opt/forge/python/")
    assert [request.tool for request in ask] == ["search"]


async def test_a_toolset_has_keys_of_its_own(place: Any, call: Any, package: Path) -> None:
    tools = await external(place, **{"import": "acme_tools.keyed:Keyed"}, config={"region": "eu"}).load()
    assert (await call(place.path(tools), "where")).text == "eu 3"
    text = """---
name: main
toolsets:
  external:
    package: acme-tools
    import: acme_tools.keyed:Keyed
    config:
      limit: many
      regoin: eu
---
"""
    worker = parse_worker(place.write("main.worker", text).read_bytes(), "main.worker", place.root / "main.worker")
    with pytest.raises(ConfigError) as refused:
        await place.modules(worker).load()
    assert refused.value.problems == (
        "main.worker:7: toolsets.external.config.region: Field required",
        "main.worker:8: toolsets.external.config.limit: Input should be a valid integer, unable to parse string as an "
        "integer",
        "main.worker:9: toolsets.external.config.regoin: unknown key; did you mean 'region'?",
    )


async def test_only_the_listed_tools_of_a_package_exist(place: Any, call: Any, package: Path) -> None:
    tools = await external(place, entry_point="web", tools=["search"]).load()
    assert [tool.name for tool in tools] == ["search"]
    assert (await call(place.path(tools), "fetch")).status is Status.TOOL_NOT_FOUND


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            {"entry_point": "wbe"},
            "has no entry point 'wbe' (did you mean 'web'?) in group golem_forge.toolsets. Found: list, web",
        ),
        (
            {"import": "acme_tools.web:Wbe"},
            "AttributeError: module 'acme_tools.web' has no attribute 'Wbe' (did you mean 'Web'?)",
        ),
        pytest.param(
            {"entry_point": "web", "tools": ["serch"]},
            "Tool 'serch' not found in entry point 'web' of acme-tools "
            "(did you mean 'search'?). Available exports: search, fetch",
            marks=pytest.mark.long,
        ),
        ({"package": "acme-absent", "entry_point": "web"}, "Package 'acme-absent' is not installed"),
    ],
)
async def test_w14_what_is_missing_is_named_with_what_there_is(
    place: Any, package: Path, block: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await external(place, **block).load()
    assert said in str(caught.value)


class Plain:
    def get_tools(self) -> list[Tool]:
        return [LOOK]


class Needy(Plain):
    def __init__(self, region: str, limit: int = 3) -> None: ...


LOOK = Tool("look", "Looks.", execute=lambda: "seen")


@pytest.mark.parametrize("given", [LOOK, [LOOK], Plain(), Plain, lambda: [LOOK]])
def test_an_import_may_be_a_tool_a_list_a_toolset_or_what_gives_one(given: Any) -> None:
    assert toolset_tools(given, (), "acme:it") == {"look": LOOK}


@pytest.mark.parametrize(
    ("given", "config", "said"),
    [
        (3, {}, "acme:it must be a Toolset, a list of Tools, or a function that returns either"),
        (
            Needy,
            {},
            "acme:it needs 'region', but Forge calls it without arguments; its `get_tools(ctx)` finds the block's keys "
            "in `ctx.config`",
        ),
        (Plain, {"a": 1}, "acme:it takes no config: the toolset has no model of its keys (`config`)"),
        ([LOOK], {"a": 1}, "acme:it takes no config: it is no toolset"),
    ],
)
def test_an_import_that_gives_no_tools_is_refused(given: Any, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ExportError) as refused:
        toolset_tools(given, (), "acme:it", config)
    assert str(refused.value) == said


async def test_another_version_is_another_definition(place: Any, package: Path) -> None:
    async def digest() -> str:
        (tool,) = await external(place, entry_point="web", tools=["search"]).load()
        return str(tool.definition_digest)

    first = await digest()
    assert await digest() == first
    (package / "acme_tools/web.py").write_text(WEB + "\n# changed\n")
    assert await digest() != first


async def test_a_package_linked_to_its_sources_shows_nothing_around_them(
    place: Any, call: Any, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "checkout"
    (sources / "acme_linked").mkdir(parents=True)
    (sources / "private.txt").write_text("canary-private")
    (sources / "acme_linked/__init__.py").write_text(
        "import os\nfrom golem_forge import tool\n@tool\ndef around() -> list[str]:\n"
        "    return sorted(os.listdir(os.path.dirname(os.path.dirname(__file__))))\n"
    )
    info = package / "acme_linked-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-linked\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(sources))
    tools = await place.modules(place.worker(external={"package": "acme-linked", "import": "around"})).load()
    assert (await call(place.path(tools), "around")).result.value["data"] == ["acme_linked"]


async def test_a_package_that_changed_meanwhile_is_not_imported_under_the_old_approval(
    place: Any, call: Any, package: Path
) -> None:
    """Threat: its sources lie where a model may write, and a further host would import other code (invariant 4)."""
    modules = external(place, entry_point="web", tools=["search"])
    path = place.path(await modules.load())
    assert (await call(path, "search", query="a")).text == "found a"
    (package / "acme_tools/web.py").write_text(WEB + "\nopen('/data/ran', 'w')\n")
    for host in modules.pools[0].hosts:
        await host.end()
    refused = await call(path, "search", query="b")
    assert refused.status is Status.EXECUTION_FAILED and "was changed" in refused.error
    assert not (place.root / "data" / "ran").exists()
