"""What Python programs use of Forge, pinned: names, keywords, defaults, methods, equality, exceptions, import paths.

`tests/test_golem_forge_names.py` says which names there are; `python/names.json` says what they are: kind, parameters
with defaults, and of a class those methods and attributes that the docs, the README or an example mention. More may be
there than is pinned. `python/modules.json` has the same for modules that the docs name by their path, and the paths
that only examples use. `python/records.json` says how the records compare, hash and print. After a wanted change:

    FORGE_UPDATE_PINNED=1 python -m pytest tests/compat/test_python_names.py
"""

from __future__ import annotations

import ast
import contextlib
import enum
import importlib
import importlib.metadata
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, is_typeddict

import pytest
from tests.compat.pinned import pinned
from tests.ready import run_in_process

import golem_forge
from golem_forge import toolsets

HERE = Path(__file__).parent / "python"
ROOT = Path(__file__).parents[2]
ABOUT_THE_INSIDE = {"architecture.md", "glossary.md", "threat-model.md"}
WRITTEN_BY_A_PROGRAM = "<!-- Written by scripts/write_reference.py"
TEXTS = [
    ROOT / "README.md",
    *(
        page
        for folder in ("docs", "docs/guides", "docs/concepts", "docs/reference")
        for page in sorted((ROOT / folder).glob("*.md"))
        if page.name not in ABOUT_THE_INSIDE and not page.read_text().startswith(WRITTEN_BY_A_PROGRAM)
    ),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


# ---- what a name is


def told(value: Any, shown: Callable[[str, str], bool]) -> dict[str, Any]:
    """`shown(class, name)`: whether an attribute of a class is a promise."""
    if isinstance(value, enum.EnumType):
        return {"kind": "enum", "values": {name: member.value for name, member in value.__members__.items()}}
    if is_typeddict(value):
        return {"kind": "mapping", "keys": sorted(value.__annotations__)}
    if inspect.isclass(value):
        return told_class(value, shown)
    if callable(value):
        return {"kind": "function", "takes": takes(value), **({"async": True} if is_async(value) else {})}
    if isinstance(value, Mapping):
        return {"kind": "mapping", "keys": list(value)}
    if isinstance(value, tuple):
        return {"kind": "tuple", "of": [getattr(each, "name", "") for each in value]}
    return {"kind": type(value).__name__}


def is_async(value: Any) -> bool:
    return inspect.iscoroutinefunction(value)


def takes(function: Callable[..., Any]) -> str:
    """`path, *, lines=None, mode='rw'`: without annotations, and without what a default looks like inside."""
    parameters = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else Default(each.default))
        for each in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))[1:-1]


class Default:
    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, enum.Enum) else value

    def __repr__(self) -> str:
        plain = self.value is None or isinstance(self.value, str | int | float | tuple)
        return repr(self.value) if plain else "…"


def told_class(value: type, shown: Callable[[str, str], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "exception" if issubclass(value, BaseException) else "class"}
    if issubclass(value, BaseException):
        found["is also"] = [each.__name__ for each in value.__mro__[1:] if is_known(each)]
    if shown(value.__name__, ""):
        found["takes"] = takes(value)
    for name in sorted(attributes(value)):
        if not shown(value.__name__, name):
            continue
        held = inspect.getattr_static(value, name, None)
        if isinstance(held, classmethod | staticmethod):
            found[f".{name}"] = f"{type(held).__name__}({takes(getattr(value, name))})"
        elif inspect.isfunction(held):
            found[f".{name}"] = f"{'async ' if is_async(held) else ''}method({takes(held)})"
        else:
            found[f".{name}"] = "attribute"
    return found


def is_known(kind: type) -> bool:
    return kind.__module__ == "builtins" or kind.__name__ in golem_forge.__all__


def attributes(value: type) -> set[str]:
    """In the class, or in its instances as far as the class says so."""
    names = set(dir(value)) - set(dir(BaseException if issubclass(value, BaseException) else object))
    for each in value.__mro__:
        names |= set(inspect.get_annotations(each)) | set(each.__dict__.get("__slots__", ()))
        with contextlib.suppress(KeyError, OSError, TypeError):  # generated, or not Python's
            names |= set(re.findall(r"\bself\.([a-z]\w*)\b[^=\n]*=[^=]", inspect.getsource(vars(each)["__init__"])))
    return {name for name in names if not name.startswith("_")}


OTHER_THINGS = {
    *("function", "home", "input", "keep", "lines", "loop", "memory", "output", "parts", "pending", "remote", "resume"),
    *("rules", "serve", "servers", "settled", "show", "switch", "tree", "user_tools", "walls"),
}
"""Words of the docs that are attributes too, but of something else there."""


@pytest.fixture(scope="module")
def mentioned() -> Callable[[str, str], bool]:
    """Whether the docs call a class, or mention an attribute: `outcome.text`, `aclose()`."""
    shown_to_people = (*TEXTS, *(file for file in EXAMPLES if "conformance" not in file.parts))
    texts = "\n".join(file.read_text(encoding="utf-8") for file in shown_to_people)
    called = set(re.findall(r"\b([A-Z]\w+)\(", texts))
    used = set(re.findall(r"[.`]([a-z]\w*)\b", texts)) - OTHER_THINGS

    def shown(kind: str, name: str) -> bool:
        return name in used if name else kind in called

    return shown


def assert_held_to(found: dict[str, Any], promised: dict[str, Any]) -> None:
    """What is promised is there as it was; more may be there."""
    gone = {name: what for name, what in promised.items() if name not in found}
    assert gone == {}
    for name, what in promised.items():
        now = {part: found[name].get(part) for part in what}
        assert now == what, name


def everything(module: Any, mentioned: Callable[[str, str], bool]) -> dict[str, Any]:
    return {name: told(getattr(module, name), mentioned) for name in sorted(module.__all__)}


def always(kind: str, name: str) -> bool:
    return True


def test_every_public_name_is_what_it_was(mentioned: Callable[[str, str], bool]) -> None:
    promised = pinned(HERE / "names.json", everything(golem_forge, mentioned))
    assert_held_to(everything(golem_forge, always), promised)
    assert set(promised) == set(golem_forge.__all__)


def test_every_name_of_the_toolsets_is_what_it_was(mentioned: Callable[[str, str], bool]) -> None:
    promised = pinned(HERE / "toolsets.json", everything(toolsets, mentioned))
    assert_held_to(everything(toolsets, always), promised)
    assert set(promised) == set(toolsets.__all__)


def test_every_native_tool_is_defined_as_it_was() -> None:
    """As every caller sees it."""
    found = {
        tool.name: {
            "description": tool.description,
            "input": tool.input_schema,
            "output": tool.output_schema,
            "annotations": dict(tool.annotations or {}),
            "mode": str(tool.mode),
            "label": tool.label,
            "category": tool.category,
        }
        for tool in golem_forge.TOOL_LIST
    }
    assert found == pinned(HERE / "native_tools.json", found)


def test_a_name_of_the_design_documents_is_told_what_it_is_here() -> None:
    for wrong, words in {
        "getLLMTools": "; here it is get_llm_tools",
        "create_tool": "",
        "isNamedTool": "; isinstance(value, NamedTool) says it",
    }.items():
        with pytest.raises(AttributeError) as error:
            getattr(golem_forge, wrong)
        assert str(error.value) == f"module 'golem_forge' has no attribute {wrong!r}{words}"


# ---- modules that are named by their path


def imports(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("golem_forge."):
            yield from ((str(node.module), each.name) for each in node.names)


def named_in_texts() -> set[tuple[str, str]]:
    """Imports in the code of the docs, and `golem_forge.module.Name` in their sentences."""
    found = set()
    for text in (file.read_text(encoding="utf-8") for file in TEXTS):
        for module, names in re.findall(r"^from (golem_forge\.[\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
            found |= {(module, name) for name in names.split(", ")}
        for path in re.findall(r"`(golem_forge(?:\.\w+)+)\b", text):
            module, _, name = path.rpartition(".")
            found.add((module, name) if is_module(module) and module != "golem_forge" else (path, ""))
    return {(module, name) for module, name in found if not name or not is_module(f"{module}.{name}")} | {
        (f"{module}.{name}", "") for module, name in found if name and is_module(f"{module}.{name}")
    }


def is_module(path: str) -> bool:
    try:
        importlib.import_module(path)
    except ImportError:
        return False
    return True


LOGGER = "golem_forge.policy.base"
"""Named in the docs as a logger, not as a module."""


def by_module(mentioned: Callable[[str, str], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module, name in sorted(named_in_texts()):
        if module not in (LOGGER, "golem_forge.getLLMTools"):
            held = found.setdefault(module, {})
            if name:
                held[name] = told(getattr(importlib.import_module(module), name), mentioned)
    return found


def test_paths_that_the_docs_name_can_be_imported(mentioned: Callable[[str, str], bool]) -> None:
    for module, promised in pinned(HERE / "modules.json", by_module(mentioned)).items():
        place = importlib.import_module(module)
        assert_held_to({name: told(getattr(place, name), always) for name in promised}, promised)


def test_paths_that_examples_use_can_be_imported() -> None:
    used = sorted({each for file in EXAMPLES for each in imports(file.read_text(encoding="utf-8"))})
    found: dict[str, list[str]] = {}
    for module, name in used:
        found.setdefault(module, []).append(name)
    promised = pinned(HERE / "example_paths.json", found)
    for paths in (promised, found):
        for module, names in paths.items():
            place = importlib.import_module(module)
            assert [name for name in names if not (hasattr(place, name) or is_module(f"{module}.{name}"))] == [], module


def test_the_logger_that_the_docs_name(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    def broken(args: dict[str, Any]) -> bool:
        raise LookupError("nothing")

    tool = golem_forge.Tool("odd", "Odd.", execute=lambda: "", needs_approval=broken)
    session = golem_forge.open_session(tools=[tool])
    outcome = asyncio.run(session.call("odd", {}))
    assert outcome.status is golem_forge.Status.POLICY_DENIED
    assert "LookupError" in outcome.error
    assert [one.name for one in caplog.records if "approval check of 'odd'" in one.getMessage()] == [LOGGER]


# ---- the package


def test_commands_and_groups_of_entry_points() -> None:
    ours = importlib.metadata.distribution("golem-forge").entry_points
    assert sorted((each.group, each.name) for each in ours) == [("console_scripts", "forge")]


def test_a_package_offers_toolsets_in_this_group(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, own_home: Path
) -> None:
    """The group is written in other people's packages; the refusal names it."""
    (tmp_path / "forge.yaml").write_text("entry: main\n")
    external = "{package: pytest, entry_point: none}"
    (tmp_path / "main.worker").write_text(f"---\nname: main\ntoolsets:\n  external: {external}\n---\nBe brief.\n")
    env = {**os.environ, "FORGE_HOME": str(own_home)}
    assert run_in_process(capfd, "trust", "--yes", cwd=tmp_path, env=env).returncode == 0
    said = run_in_process(capfd, "call", "none", cwd=tmp_path, env=env)
    assert "has no entry point 'none' in group golem_forge.toolsets. Found: none" in said.stderr


# ---- records


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case enum.Enum():
            return next(each for each in type(value) if each is not value)
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case tuple():
            return (*value, "x")
        case Mapping():
            return {**value, "x": 1}
        case Path():
            return value / "x"
        case _:
            return "x"


def behaves(make: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    one, same = make(**given), make(**given)
    fields = [name for name in inspect.signature(make).parameters if hasattr(one, name)]
    filled = {name: getattr(one, name) for name in fields}
    one, same = make(**filled), make(**filled)  # ids that are made anew are the same in both
    differs, counts = [], []
    for name in fields:
        try:
            other = make(**filled | {name: another(filled[name])})
        except (TypeError, ValueError, AttributeError, golem_forge.ConfigError):
            continue
        (counts if other == one else differs).append(name)
    return {
        "equal": one == same and one is not same,
        "differs by": differs,
        "equal whatever": counts,
        "hash": how_hashed(one, same),
        "changing a field": attempt(lambda: setattr(one, fields[0], filled[fields[0]])),
        "adding one": attempt(lambda: setattr(one, "no_such_field", 1)),
        "printed": re.findall(r"(?:^|, |\()(\w+)=", flat(repr(same))),
        "called": repr(same).partition("(")[0],
    }


def how_hashed(one: Any, same: Any) -> str:
    try:
        return "equal" if hash(one) == hash(same) else "its own"
    except TypeError:
        return "none"


def attempt(act: Callable[[], object]) -> str:
    try:
        act()
    except AttributeError:
        return "AttributeError"
    except TypeError:
        return "TypeError"
    return "works"


def flat(text: str) -> str:
    """The outermost parentheses with what stands in them, without those inside."""
    while (shorter := re.sub(r"(?<=[\w({\[=, ])(\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\])(?=.)", "", text)) != text:
        text = shorter
    return text


def records() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    from golem_forge.agent.run_result import RunStatus

    call = golem_forge.ToolCall("add", {"a": 1}, id="c1")
    return {
        "ApprovalRequest": (
            golem_forge.ApprovalRequest,
            {
                name: "text" if name != "args" else {"a": 1}
                for name, each in inspect.signature(golem_forge.ApprovalRequest).parameters.items()
                if each.default is each.empty
            },
        ),
        "Outcome": (golem_forge.Outcome, {"call": call, "tool": "add", "status": golem_forge.Status.SUCCESS}),
        "RunResult": (golem_forge.RunResult, {"success": True, "status": RunStatus("completed"), "response": "yes"}),
        "ToolCall": (golem_forge.ToolCall, {"name": "add", "args": {"a": 1}, "id": "c1"}),
        "ToolResult": (golem_forge.ToolResult, {"value": {"kind": "text", "text": "yes"}}),
        "Worker": (golem_forge.Worker, {"name": "main", "instructions": "Be brief."}),
        "ZoneSpec": (golem_forge.ZoneSpec, {"name": "workspace", "path": Path("/nowhere")}),
    }


def test_how_records_compare_hash_and_print() -> None:
    found = {name: behaves(make, given) for name, (make, given) in records().items()}
    assert found == pinned(HERE / "records.json", found)


def test_an_event_equals_one_that_says_the_same_and_hides_its_data() -> None:
    bus = golem_forge.create_ui_event_bus()
    heard: list[golem_forge.Event] = []
    bus.on("*", heard.append)
    bus.emit("status", {"type": "info", "message": "a secret"})
    (event,) = heard
    assert event == golem_forge.Event.from_json(event.to_json())
    assert repr(event) == "Event('status', seq=1)"
    assert repr(event.data) == "Status(type='info', message='a secret', code=None, mode=None)"
    assert attempt(lambda: setattr(event.data, "message", "b")) == "AttributeError"
    for each in (event, event.data):
        with pytest.raises(TypeError, match="unhashable"):
            hash(each)


def test_tools_are_themselves_and_nothing_else() -> None:
    one, other = (golem_forge.Tool("add", "Add.", execute=lambda: "") for _ in range(2))
    assert one != other
    assert len({one, other}) == 2
    assert repr(one) == "Tool('add', source='custom', mode='llm')"
    assert golem_forge.NamedTool is golem_forge.Tool


def test_words_are_texts_and_another_word_is_told_the_nearest() -> None:
    for kind, given, words in (
        (golem_forge.Verdict, "asks", "verdict 'asks' is not one of preApproved, ask, blocked; did you mean 'ask'?"),
        (golem_forge.Risk, "hihg", "risk 'hihg' is not one of low, medium, high, critical; did you mean 'high'?"),
        (golem_forge.Caller, 1, "caller 1 is not one of llm, human, mcp, tool"),
        (golem_forge.Status, "done", "'done' is not a valid Status"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            kind(given)
        assert all(isinstance(each, str) and str(each) == each.value for each in kind)
