"""What could not be brought back under real walls: readable, unchanged, not renamed away; everything else as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.sandbox.walls.model import RefusalReason, UncoveredPath

from .house import House, init


@pytest.fixture
def big(house: House) -> Path:
    (house.workspace / "data/deep").mkdir(parents=True)
    for name in ("data/deep/big.bin", "data/deep/other", "top.iso"):
        (house.workspace / name).write_text("kept")
    (house.workspace / "uploads").mkdir()
    (house.workspace / "uploads/a").write_text("kept")
    return house.workspace


NOT_KEPT = (
    ("workspace", UncoveredPath(("data", "deep", "big.bin"), "40 MiB")),
    ("workspace", UncoveredPath(("top.iso",), "11 GB")),
    ("workspace", UncoveredPath(("uploads",), "3 GB", directory=True)),
    ("workspace", UncoveredPath(("gone",), "1 GB")),
    ("elsewhere", UncoveredPath(("data",), "1 GB")),
)


def test_it_is_read_only_and_stays_where_it_is(house: House, big: Path) -> None:
    ran = house.run(
        "cat data/deep/big.bin uploads/a; echo; echo x > data/deep/big.bin; rm -f top.iso; echo x > uploads/b;"
        " mv data d; mv data/deep e; mv uploads u; rm -rf data; ln -sf /x top.iso; rm -rf uploads; ls",
        not_kept=NOT_KEPT,
    )

    assert ran.text.startswith("keptkept\n")
    assert (big / "data/deep/big.bin").read_text() == (big / "top.iso").read_text() == "kept"
    assert [path.name for path in (big / "uploads").iterdir()] == ["a"]
    assert not (big / "data/deep/other").exists()  # what was named by nobody is the command's to delete
    whys = {one["target"]: one["why"] for one in ran.after.denials}
    assert whys["/workspace/data/deep/big.bin"] == "it could not be undone: 40 MiB"
    assert whys["/workspace/uploads/b"] == "it could not be undone: 3 GB"


def test_without_it_the_same_command_may(house: House, big: Path) -> None:
    walls = house.walls()
    assert house.run("rm -rf data top.iso", walls, not_kept=NOT_KEPT).code != 0
    assert house.run("rm -rf data top.iso", walls).code == 0
    assert not (big / "data").exists()


def test_a_plan_is_made_anew_when_it_appears_or_goes(house: House, big: Path) -> None:
    walls = house.walls()
    gone = (("workspace", UncoveredPath(("new.bin",), "1 GB")),)
    assert house.run("echo made > new.bin", walls, not_kept=gone).code == 0
    assert house.run("echo x > new.bin", walls, not_kept=gone).code != 0
    (big / "new.bin").unlink()
    assert house.run("echo again > new.bin", walls, not_kept=gone).code == 0


def test_protected_names_in_it_stay_protected_and_secrets_hidden(house: House, big: Path) -> None:
    init(big / "data")
    (big / "data/.env").write_text("CANARY=1")
    ran = house.run(
        "cat data/.env; touch data/.git/hooks/x; touch data/deep/y; touch z",
        not_kept=(("workspace", UncoveredPath(("data",), "9 GB", directory=True)),),
    )
    assert "CANARY" not in ran.text
    assert not (big / "data/.git/hooks/x").exists() and not (big / "data/deep/y").exists() and (big / "z").exists()


def test_the_plan_names_the_reason(house: House, big: Path) -> None:
    from golem_forge.core.effects import Verb
    from golem_forge.sandbox.walls.model import Job

    planned = house.walls()._planner.planned(Job(argv=(), not_kept=NOT_KEPT))
    refusal = planned.plan.refusal("/workspace/uploads/a", Verb.WRITE)
    assert refusal is not None and (refusal.why, refusal.detail) == (RefusalReason.NOT_KEPT, "3 GB")
    assert planned.plan.refusal("/workspace/uploads/a", Verb.READ) is None
