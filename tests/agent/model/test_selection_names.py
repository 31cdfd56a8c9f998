"""Naming and choosing a model."""

from __future__ import annotations

import pytest

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.selection import (
    PROVIDERS,
    check_compatible,
    choose_child_model,
    choose_model,
    missing_key,
    no_model_message,
    split_model,
)
from golem_forge.config.run_block import ProviderSettings
from golem_forge.core.errors import ConfigError

PLAIN = Worker(name="w")


def test_the_first_colon_splits() -> None:
    """W3."""
    assert split_model("openrouter:openai/gpt-4o:free") == ("openrouter", "openai/gpt-4o:free")
    assert split_model("anthropic:claude") == ("anthropic", "claude")


@pytest.mark.parametrize("model", ["claude", "anthropic:", ":claude", "", "anthropic: "])
def test_what_is_no_name_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="is not `provider:name`"):
        split_model(model)


def test_an_unknown_provider_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as failed:
        split_model("antropic:claude", where="forge.yaml:3")
    text = str(failed.value)
    assert text.startswith("forge.yaml:3: unknown model provider 'antropic'; did you mean 'anthropic'?")
    assert all(name in text for name in [*PROVIDERS][:7]) and "`forge models` names the others" in text


def test_globs_ignore_case_and_are_listed_when_none_matches() -> None:
    """W3."""
    worker = Worker(name="w", compatible_models=("Anthropic:*", "openai:gpt-5*"))
    check_compatible(worker, "anthropic:claude-x")
    check_compatible(worker, "openai:GPT-5-mini")
    check_compatible(PLAIN, "openai:x")
    with pytest.raises(ConfigError, match=r"'openai:x'.*compatible_models: Anthropic:\*, openai:gpt-5\*"):
        check_compatible(worker, "openai:x")


def test_flag_beats_environment_beats_worker_beats_program() -> None:
    """W20."""
    worker = Worker(name="w", model="openai:worker", shown_path="w.worker", lines={"model": 3})
    said = {"flag": "openai:flag", "environ": {"FORGE_MODEL": "openai:env"}, "worker": worker}

    def chosen(**changes: object) -> tuple[str, str]:
        found = choose_model(**{**said, "program_model": "openai:program", "builtin": False, **changes})  # type: ignore[arg-type]
        return found.model, found.said_by

    assert chosen() == ("openai:flag", "--model")
    assert chosen(flag="") == ("openai:env", "FORGE_MODEL")
    assert chosen(flag="", environ={}) == ("openai:worker", "w.worker:3")
    assert chosen(flag="", environ={}, worker=PLAIN) == ("openai:program", "forge.yaml")
    assert chosen(flag="", environ={}, worker=PLAIN, program_model="") == ("", "")


def test_a_sub_worker_keeps_its_own_model_or_takes_its_callers() -> None:
    """W20: nothing of the command line reaches it."""
    assert choose_child_model(Worker(name="c", model="openai:own"), "openai:flag").model == "openai:own"
    assert choose_child_model(PLAIN, "openai:flag").model == "openai:flag"


def test_the_built_in_worker_takes_the_first_provider_with_a_key() -> None:
    """W20: bare `forge` with only one key set."""

    def chosen(environ: dict[str, str], builtin: bool = True) -> tuple[str, str]:
        found = choose_model(flag="", environ=environ, worker=PLAIN, program_model="", builtin=builtin)
        return found.model.partition(":")[0], found.said_by

    assert chosen({"OPENAI_API_KEY": "canary"}) == ("openai", "OPENAI_API_KEY")
    assert chosen({"OPENAI_API_KEY": "canary", "ANTHROPIC_API_KEY": "canary"})[0] == "anthropic"
    assert chosen({"OPENAI_API_KEY": ""}) == ("", "")
    assert chosen({"OPENAI_API_KEY": "canary"}, builtin=False) == ("", "")


def test_without_a_model_it_says_what_would_work_here() -> None:
    """The key alone does not choose for a worker of one's own, but it says what to type."""
    assert "key variables: ANTHROPIC_API_KEY, OPENAI_API_KEY" in no_model_message({}, {})
    said = no_model_message({}, {"OPENAI_API_KEY": "canary-1"})
    assert "(OPENAI_API_KEY is set: try `--model openai:gpt-6.1-sol`)" in said and "canary" not in said
    work = {"openai": ProviderSettings(key_env="WORK_KEY")}
    assert "WORK_KEY is set" in no_model_message(work, {"WORK_KEY": "canary-1", "OPENAI_API_KEY": ""})


def test_a_model_said_somewhere_is_checked_there() -> None:
    with pytest.raises(ConfigError, match=r"^FORGE_MODEL: unknown model provider 'gork'"):
        choose_model(flag="", environ={"FORGE_MODEL": "gork:1"}, worker=PLAIN, program_model="", builtin=False)
    with pytest.raises(
        ConfigError, match=r"^forge.yaml:3: model: unknown model provider 'opnai'; did you mean 'openai'"
    ):
        choose_model(
            flag="", environ={}, worker=PLAIN, program_model="opnai:1", builtin=False, program_origin="forge.yaml:3"
        )


def test_a_missing_key_names_its_variable() -> None:
    other = {"openai": ProviderSettings(key_env="WORK_KEY")}
    assert "ANTHROPIC_API_KEY" in missing_key("anthropic:x", {}, {})
    assert missing_key("anthropic:x", {}, {"ANTHROPIC_API_KEY": "canary"}) == ""
    assert "WORK_KEY" in missing_key("openai:x", other, {"OPENAI_API_KEY": "canary"})
    assert missing_key("openai:x", other, {"WORK_KEY": "canary"}) == ""
    assert missing_key("ollama:x", {}, {}) == missing_key("scripted:x", {}, {}) == ""
