"""forge.yaml and config.yaml keys about running workers, `--set`, and what strangers may not say (W6, W7, W15, W48)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.program import Program, load_program
from golem_forge.config.run_block import (
    PROVIDER_NAMES,
    ApprovalMode,
    BudgetLimits,
    DelegationLimits,
    Price,
    ProviderSettings,
    RunSettings,
)
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome


def load(root: Path, home: ForgeHome, *overrides: str, trusted: bool = True) -> Program:
    return load_program(root, home, trusted=lambda _: trusted, overrides=overrides)


def problems(root: Path, home: ForgeHome, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(root, home, *overrides)
    return caught.value.problems


def test_defaults(root: Path, home: ForgeHome) -> None:
    assert load(root, home).run == RunSettings()
    assert RunSettings().entry == "main.worker" and RunSettings().worker_paths == ("workers",)
    assert RunSettings().delegation == DelegationLimits(max_depth=5, max_parallel=4)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("entry: a.worker", "entry", "a.worker"),
        ("model: anthropic:x", "model", "anthropic:x"),
        ("models: {openai: {base_url: http://localhost:1/v1}}", "models", {"openai": "http://localhost:1/v1"}),
        ("worker_paths: [a, b/c]", "worker_paths", ("a", "b/c")),
        ("delegation: {max_depth: 2}", "delegation", DelegationLimits(max_depth=2)),
        ("budget: {max_cost_usd: 0.5}", "budget", BudgetLimits(max_cost_usd=0.5)),
        ("pricing: {'a:b': {input: 1, output: 0}}", "pricing", {"a:b": Price(input=1, output=0)}),
    ],
)
def test_each_key_arrives_from_either_file_W6(root: Path, home: ForgeHome, text: str, field: str, value: Any) -> None:
    if field == "models":
        value = {name: ProviderSettings(base_url=url) for name, url in value.items()}
    home.config.write_text(text + "\n")
    assert getattr(load(root, home).run, field) == value
    home.config.unlink()
    (root / "forge.yaml").write_text(f"# first\n{text}\n")
    run = load(root, home).run
    assert getattr(run, field) == value != getattr(RunSettings(), field)
    assert run.origins == {field: "forge.yaml:2"}


def test_the_program_over_the_person_key_by_key(root: Path, home: ForgeHome) -> None:
    home.config.write_text(
        "model: openai:p\nmodels: {openai: {key_env: MINE}, ollama: {base_url: http://h/v1}}\n"
        "budget: {max_tokens: 10, max_requests: 3}\npricing: {m: {input: 1, output: 1}}\n"
    )
    (root / "forge.yaml").write_text(
        "models: {openai: {base_url: https://p/v1}}\nbudget: {max_tokens: 50}\n"
        "pricing: {n: {input: 2, output: 2, cached: 1}}\n"
    )
    run = load(root, home).run
    assert run.model == "openai:p"
    assert run.models == {
        "openai": ProviderSettings(base_url="https://p/v1", key_env="MINE"),
        "ollama": ProviderSettings(base_url="http://h/v1"),
    }
    assert run.budget == BudgetLimits(max_tokens=50, max_requests=3)
    assert run.pricing.keys() == {"m", "n"} and run.pricing["n"].cached == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {opnai: {}}", "forge.yaml:1: models.opnai: unknown key 'opnai'; did you mean 'openai'?"),
        ("models: {openai: {url: x}}", "models.openai.url: unknown key 'url'"),
        ("models: {openai: {base_url: localhost}}", "expected an address like https://host/v1"),
        ("models: {openai: {base_url: 'https://u:p@h/v1'}}", "expected an address like https://host/v1"),
        ("entry: 3", "entry: expected a text, got 3"),
        ("worker_paths: workers", "worker_paths: expected a list, got 'workers'"),
        ("delegation: {max_dept: 2}", "delegation.max_dept: unknown key 'max_dept'; did you mean 'max_depth'?"),
        ("delegation: {max_parallel: 0}", "delegation.max_parallel: expected a whole number above 0, got 0"),
        ("budget: {max_tokens: -5}", "budget.max_tokens: expected a whole number above 0, got -5"),
        ("pricing: {'a:b': {input: 1}}", "pricing.a:b: 'output' is missing"),
        ("pricing: {'a:b': {input: x, output: 1}}", "pricing.a:b.input: expected USD per million tokens"),
        ("mcp: {server: {}}", "mcp.server: unknown key 'server'; did you mean 'servers'?"),
        ("tools: {defer_over: 3}", "tools.defer_over: unknown key 'defer_over'; did you mean 'defer_above'?"),
        ("ui: {wep: {}}", "ui.wep: unknown key 'wep'; did you mean 'web'?"),
        ("ui: {web: {port: 80}}", "ui.web.port: expected a port from 1024 to 65535, got 80"),
        ("ui: {web: {notify: 1}}", "ui.web.notify: expected true or false, got 1"),
    ],
)
def test_every_key_is_strict_W7(root: Path, home: ForgeHome, text: str, said: str) -> None:
    (root / "forge.yaml").write_text(text + "\n")
    [found] = problems(root, home)
    assert found.startswith("forge.yaml:1: ") and said in found, found


def test_a_key_written_where_its_variable_belongs_is_not_repeated(root: Path, home: ForgeHome) -> None:
    (root / "forge.yaml").write_text("models: {openai: {key_env: canary-secret-key}}\n")
    [found] = problems(root, home)
    assert "never the key itself" in found and "canary" not in found


def test_a_stranger_sends_nothing_elsewhere_and_spends_no_more_W15(root: Path, home: ForgeHome) -> None:
    home.config.write_text("budget: {max_tokens: 100}\nmodels: {openai: {key_env: MINE}}\n")
    (root / "forge.yaml").write_text(
        "models: {openai: {base_url: http://localhost:1/v1}}\n"
        "pricing: {'a:b': {input: 0, output: 0}}\n"
        "budget: {max_tokens: 1000, max_requests: 7}\n"
        "model: openai:x\n"
        "sandbox: {zones: {workspace: {path: .}, config: {path: '~/.config'}}}\n"
    )
    program = load(root, home, trusted=False)
    assert program.run.models == {"openai": ProviderSettings(key_env="MINE")}
    assert program.run.pricing == {}
    assert program.run.budget == BudgetLimits(max_tokens=100, max_requests=7)
    assert program.run.model == "openai:x"
    assert program.withheld_zones == {"config"}
    assert [line.strip() for line in program.notice.splitlines()[1:]] == [
        "forge.yaml:5: zone 'config': its directory is outside the program",
        "forge.yaml:3: budget.max_tokens: above your own",
        "forge.yaml:1: models.openai",
        "forge.yaml:2: pricing.a:b",
    ]
    assert load(root, home).run.models["openai"].base_url == "http://localhost:1/v1"
    assert load(root, home).withheld_zones == frozenset()


def test_set_is_forge_yaml_said_on_the_command_line_W48(root: Path, home: ForgeHome) -> None:
    (root / "forge.yaml").write_text("approval: {mode: strict, timeout: 5}\nworker_paths: [a]\n")
    program = load(
        root,
        home,
        *("approval.mode=auto_deny", "delegation.max_depth=2", "worker_paths=[b, c]", "model=openai:gpt-4.1"),
        'pricing."openai:gpt-4.1".input=2',
        'pricing."openai:gpt-4.1".output=8',
    )
    assert program.mode() == Setting(ApprovalMode.AUTO_DENY, "--set approval.mode")
    assert program.approval.timeout == Setting(5.0, "forge.yaml:1")
    assert program.run.delegation.max_depth == 2 and program.run.worker_paths == ("b", "c")
    assert program.run.pricing == {"openai:gpt-4.1": Price(input=2, output=8)}
    assert program.run.origins["model"] == "--set model"


def test_set_without_a_file(root: Path, home: ForgeHome) -> None:
    program = load(root, home, "budget.max_tokens=5", "approval.tools.x=preApproved", trusted=False)
    assert program.file is None and program.run.budget.max_tokens == 5
    assert program.approval.tools["x"].value is Verdict.PRE_APPROVED, "the person's own word"


def test_set_is_the_persons_word_in_an_untrusted_program(root: Path, home: ForgeHome) -> None:
    home.config.write_text("approval: {mode: interactive}\nbudget: {max_tokens: 5}\n")
    (root / "forge.yaml").write_text("models: {openai: {key_env: THEIRS}}\n")
    program = load(
        root,
        home,
        "approval.mode=approve_all",
        "models.ollama.base_url=http://h/v1",
        "budget.max_tokens=9",
        trusted=False,
    )
    assert program.mode().value is ApprovalMode.APPROVE_ALL
    assert program.run.models.keys() == {"ollama"} and program.run.budget.max_tokens == 9


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "approval.mode=bogus",
            "--set approval.mode: expected one of interactive, strict, contained, plan, approve_all, auto_deny, got",
        ),
        ("aproval.mode=strict", "--set aproval.mode: aproval: unknown key 'aproval'; did you mean 'approval'?"),
        ("approval.mode", "--set approval.mode: expected key.path=value, like --set approval.mode=strict"),
        ("=x", "--set =x: expected key.path=value"),
        ("a..b=x", "--set a..b=x: expected key.path=value"),
        ("model=[", "--set model=[: the value is not YAML; put it in quotes"),
        ("model.x=1", "--set model.x: 'model' has no keys below it"),
        ("budget.max_tokens=many", "--set budget.max_tokens: expected a whole number above 0"),
    ],
)
def test_set_is_checked_like_the_file_W48(root: Path, home: ForgeHome, override: str, said: str) -> None:
    (root / "forge.yaml").write_text("model: openai:x\n")
    [found] = problems(root, home, override)
    assert found.startswith(said), found


def test_the_providers_of_config_are_those_there_are() -> None:
    from golem_forge.agent.model.selection import PROVIDERS

    assert tuple(PROVIDERS) == PROVIDER_NAMES
