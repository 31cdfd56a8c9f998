"""What a model is sent of Forge's own tools: short, about parameters that exist, and without loss of one."""

from __future__ import annotations

import json

from tests.tables import table

from golem_forge.agent.tool_inventory import TOOLKIT
from golem_forge.toolsets.tool_search import MODEL_TEXTS, RARE, model_text, short_schema
from golem_forge.usertools.native_tools import CREATE_TOOL_NAME, RUN_TOOL_NAME

LISTED = sorted(MODEL_TEXTS.keys() & TOOLKIT.keys())


def test_every_name_is_a_tool() -> None:
    assert set(MODEL_TEXTS) - {"tool_search"} <= set(TOOLKIT)
    assert set(TOOLKIT) | {CREATE_TOOL_NAME, RUN_TOOL_NAME} >= RARE


@table("name", LISTED)
def test_the_words_are_shorter_and_every_parameter_is_there(name: str) -> None:
    tool = TOOLKIT[name]
    sent = short_schema(tool)
    assert sent is not None
    assert list(sent["properties"]) == list(tool.input_schema["properties"])
    assert sent.get("required") == tool.input_schema.get("required")
    assert set(MODEL_TEXTS[name].parameters) <= set(sent["properties"])
    assert len(model_text(tool)) < len(tool.description)
    assert len(json.dumps(sent)) < len(json.dumps(tool.input_schema))


def test_a_tool_that_is_not_listed_keeps_its_own_words() -> None:
    tool = TOOLKIT["save_memory"]
    assert model_text(tool) == tool.description and short_schema(tool) is None
