"""What a run is told, and what it is not told without the redactor knowing it first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from golem_forge.core.errors import ToolFailed
from golem_forge.events.redaction import MAX_SECRET, Redactor
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.manifest import EnvVariable
from golem_forge.usertools.run import RunInfo, declared_values, tool_environment

from .run_ground import manifest


def test_values_are_secrets_before_anybody_has_them():
    redactor = Redactor()
    declared = manifest(env=(EnvVariable(name="TOKEN"), EnvVariable(name="PLAIN"), EnvVariable(name="ABSENT")))
    environ = {"TOKEN": "canary-4711", "PLAIN": "canary-plain", "OTHER": "canary-other"}
    assert declared_values(declared, environ, redactor) == {"TOKEN": "canary-4711", "PLAIN": "canary-plain"}
    assert redactor.text("canary-4711 canary-plain canary-other") == "[secret TOKEN] [secret PLAIN] canary-other"
    known = len(redactor.secrets)
    declared_values(declared, environ, redactor)
    assert len(redactor.secrets) == known


def test_a_required_variable_must_be_set_and_may_be_empty():
    declared = manifest(env=(EnvVariable(name="NEEDED", required=True),))
    with pytest.raises(ToolFailed, match=r"^environment variable NEEDED is not set$"):
        declared_values(declared, {}, None)
    assert declared_values(declared, {"NEEDED": ""}, Redactor()) == {"NEEDED": ""}


def test_what_cannot_be_hidden_is_not_handed_over_unless_it_is_plainly_no_secret():
    def values(name: str, value: str) -> dict[str, str]:
        return declared_values(manifest(env=(EnvVariable(name=name),)), {name: value}, Redactor())

    assert values("DEBUG", "1") == {"DEBUG": "1"}
    for name, value in (("API_TOKEN", "abc"), ("NOTES", "x" * (MAX_SECRET + 1))):
        with pytest.raises(ToolFailed, match=f"{name} cannot be kept out of output") as refused:
            values(name, value)
        assert value not in refused.value.message


def test_forges_own_words_are_not_overwritten():
    entry = ToolEntry(name="t", folder=Path("/nowhere"), manifest=manifest(name="t"), digest="sha256:0", files=())
    place = RunInfo(tool_dir="/forge/tool", session_id="s", call_id="c", timeout=0.5)
    before = time.time()
    told = tool_environment(entry, place, {"FORGE_TOOL_NAME": "evil", "OWN": "1"})
    assert told["FORGE_TOOL_NAME"] == "t" and told["OWN"] == "1" and "FORGE_WORKSPACE" not in told
    assert before < int(told["FORGE_DEADLINE"]) <= time.time() + 2
