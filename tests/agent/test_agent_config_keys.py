"""W6: for every key of a worker file and of forge.yaml a changed value changes what happens.

The keys are read off the shapes that check the files, so a new key without a case fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.config_keys import hook_keys, mcp_keys, program_keys, ui_keys, wall_keys, worker_keys
from tests.agent.config_keys.ground import Case, Ground

from golem_forge.agent.files import worker_file
from golem_forge.config import program as program_file
from golem_forge.config.validation import MappingSchema

PROGRAM = program_keys.CASES | wall_keys.CASES | mcp_keys.CASES | ui_keys.CASES | hook_keys.CASES
KEYS = {f"worker {key}": case for key, case in worker_keys.CASES.items()} | {
    f"program {key}": case for key, case in PROGRAM.items()
}
CASES = {case: ", ".join(key for key, its in KEYS.items() if its is case) for case in KEYS.values()}


def keys_of(check: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of everything a check accepts; `*` for a name of the person's, `[]` for an item of a list."""
    if isinstance(check, MappingSchema):
        same = len(check.keys) > 1 and len({id(each) for each in check.keys.values()}) == 1
        inner = check.keys if not (same and isinstance(next(iter(check.keys.values())), MappingSchema)) else None
        if inner is None:  # one shape for every name: the providers
            yield from keys_of(next(iter(check.keys.values())), f"{path}.*")
        for key, below in (inner or {}).items():
            yield from keys_of(below, f"{path}.{key}" if path else key)
        return
    kind = getattr(check, "__name__", "")
    item = check.__closure__[0].cell_contents if kind in ("check_list", "check_map") else None
    if kind == "check_map":
        yield from keys_of(item, f"{path}.*")
    elif isinstance(item, MappingSchema):
        yield from keys_of(item, f"{path}[]")
    else:
        yield path


def test_w6_every_key_of_a_worker_file_has_a_case() -> None:
    assert set(keys_of(worker_file._SHAPE)) == set(worker_keys.CASES)


def test_w6_every_key_of_forge_yaml_has_a_case() -> None:
    assert set(keys_of(program_file._SCHEMA)) == set(PROGRAM)


@pytest.mark.parametrize("assert_effect", CASES, ids=CASES.values())
async def test_w6_a_changed_value_changes_what_happens(assert_effect: Case, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()

    await assert_effect(Ground(root))
