"""Where things stand inside walls, and how mounts are kept few."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.git.repository import git_identity
from golem_forge.sandbox.handles import DIRECTORY, Handle, best_opener
from golem_forge.sandbox.walls import changes, environment, layout
from golem_forge.sandbox.walls.changes import MountPoint
from golem_forge.sandbox.walls.model import PlannedZone, RefusalReason, Restriction, WallPlan
from golem_forge.sandbox.walls.restrictions import MOST_MOUNTS, within_budget
from golem_forge.sandbox.zones import AccessMode, Zone


def _zone(host: str, name: str = "workspace", *, at_host_path: bool = True) -> Zone:
    return Zone(
        name=name,
        mode=AccessMode.RW,
        write=Verdict.ASK,
        delete=Verdict.ASK,
        root=Handle(os.open("/", DIRECTORY)),
        host=host,
        at_host_path=at_host_path,
        opener=best_opener(),
    )


@table(
    ("host", "inside"),
    [
        ("/home/ada/project", "/home/ada/project"),
        ("/tmp/project", "/tmp/project"),
        ("/usr/src/project", "/usr/src/project"),
        ("/workspace", "/workspace"),
        ("/home", "/workspace"),
        ("/home/forge", "/workspace"),
        ("/home/forge/project", "/home/forge/project"),
        ("/tmp", "/workspace"),
        ("/etc", "/workspace"),
        ("/dev/shm/project", "/workspace"),
        ("/docs/project", "/workspace"),
        ("/workspace/inner", "/workspace"),
    ],
)
def test_a_zone_stands_at_its_host_path_unless_that_is_taken(host: str, inside: str) -> None:
    assert layout.zone_mount_point(_zone(host), ("workspace", "docs")) == inside
    assert layout.zone_mount_point(_zone(host, at_host_path=False), ("workspace",)) == "/workspace"


def test_the_root_is_closed_last() -> None:
    words = [
        mount.words for mount in layout.system_mounts(uid=1000, gid=1000) if isinstance(mount, layout.RawArguments)
    ]
    flat = [word for each in words for word in each]

    assert flat.index("/usr") < flat.index("/proc") < flat.index("/proc/sys") < flat.index("/home/forge")
    assert "--remount-ro" in flat and "/" not in flat
    assert layout.final_arguments("/x").words[:2] == ("--remount-ro", "/")


def _closed(*paths: str) -> dict[tuple[str, ...], Restriction]:
    return {
        tuple(path.split("/")): Restriction(parts=tuple(path.split("/")), why=RefusalReason.PROTECTED, directory=True)
        for path in paths
    }


class TestBudget:
    def test_each_directory_on_the_way_is_pinned(self) -> None:
        guard = within_budget("/w", _closed("a/b/.vscode", ".git/hooks", ".git/config"))

        assert guard is not None
        assert guard.pinned == ((".git",), ("a",), ("a", "b"))
        assert guard.notices == ()

    def test_the_deepest_go_first(self) -> None:
        paths = [f"deep/r{index}/x/.git/hooks" for index in range(20)] + [".git/hooks", ".git/config", "sub/.vscode"]

        guard = within_budget("/w", _closed(*paths))

        assert guard is not None
        assert {"/".join(one.parts) for one in guard.closed} == {".git/hooks", ".git/config", "sub/.vscode", "deep"}
        assert guard.pinned == ((".git",), ("sub",))
        assert "/w/deep is read-only" in guard.notices[0]

    def test_many_submodules_leave_the_repository_itself_writable(self) -> None:
        paths = [f".git/modules/m{index}/{name}" for index in range(20) for name in ("hooks", "config")]

        guard = within_budget("/w", _closed(*paths, ".git/hooks", ".git/config"))

        assert guard is not None
        assert {"/".join(one.parts) for one in guard.closed} == {".git/hooks", ".git/config", ".git/modules"}
        assert guard.pinned == ((".git",),)

    def test_up_to_forty(self) -> None:
        fits = within_budget("/w", _closed(*(f"d{index}/.vscode" for index in range(MOST_MOUNTS // 2))))

        assert fits is not None and fits.notices == () and len(fits.closed) + len(fits.pinned) == MOST_MOUNTS

    def test_beyond_everything_the_zone_is_closed(self) -> None:
        assert within_budget("/w", _closed(*(f"d{index}/e/.vscode" for index in range(500)))) is None


class TestPlan:
    plan = WallPlan(
        zones=(
            PlannedZone(
                name="w",
                host="/srv/w",
                base="/srv/w",
                writable=True,
                restrictions=(
                    Restriction(parts=(".git", "hooks"), why=RefusalReason.PROTECTED),
                    Restriction(parts=(".ssh",), why=RefusalReason.SECRET, masked=True),
                ),
                lifted=((".ssh", "config"),),
            ),
            PlannedZone(name="docs", host="/srv/docs", base="/docs", writable=False),
        ),
        private=layout.PRIVATE,
        readable=layout.SYSTEM,
    )

    @table(
        ("path", "verb", "why"),
        [
            ("/srv/w/a", Verb.WRITE, None),
            ("/w/.git/hooks/x", Verb.WRITE, RefusalReason.PROTECTED),
            ("/w/.git/hooks/x", Verb.READ, None),
            ("/w/.git/hookss", Verb.WRITE, None),
            ("/srv/w/.ssh/id", Verb.READ, RefusalReason.SECRET),
            ("/srv/w/.ssh/config", Verb.READ, None),
            ("/srv/w/.ssh/config", Verb.DELETE, RefusalReason.SECRET),
            ("/docs/a", Verb.WRITE, RefusalReason.ZONE),
            ("/docs/a", Verb.READ, None),
            ("/tmp/a", Verb.WRITE, None),
            ("/dev/null", Verb.WRITE, None),
            ("/usr/bin/x", Verb.READ, None),
            ("/usr/bin/x", Verb.WRITE, RefusalReason.OUTSIDE),
            ("/root/.ssh", Verb.READ, RefusalReason.OUTSIDE),
        ],
    )
    def test_refusals(self, path: str, verb: Verb, why: RefusalReason | None) -> None:
        refusal = self.plan.refusal(path, verb)

        assert (refusal.why if refusal else None) is why

    def test_targets_are_addresses(self) -> None:
        refusal = self.plan.refusal("/srv/w/.git/hooks/x", Verb.WRITE)

        assert refusal is not None
        assert (refusal.target, refusal.restricted) == ("/w/.git/hooks/x", "/w/.git/hooks")


class TestIdentity:
    def _said(self, tmp_path: Path, text: str, other: str = "") -> str:
        (tmp_path / ".gitconfig").write_text(text)
        (tmp_path / "config/git").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config/git/config").write_text(other)
        return git_identity(str(tmp_path), str(tmp_path / "config"))

    def test_name_and_email_only(self, tmp_path: Path) -> None:
        text = "[core]\n\thooksPath = /x\n[user]\n\tname = Ada L. ; me\n\temail = a@b.test\n\tsigningkey = K\n"
        text += "[include]\n\tpath = /y\n"

        assert self._said(tmp_path, text) == '[user]\n\tname = "Ada L."\n\temail = "a@b.test"\n'

    def test_the_person_s_own_file_wins_over_the_other(self, tmp_path: Path) -> None:
        assert self._said(tmp_path, "[user]\nname = A\n", "[user]\nname = B\nemail = b@c\n") == (
            '[user]\n\tname = "A"\n\temail = "b@c"\n'
        )

    @pytest.mark.parametrize(
        "name", ["x\\n[core]\\n\\tpager = sh", 'a" b', "[core] pager = sh", "\\\\", '"quoted # hash"', "tab\\tin"]
    )
    def test_no_name_becomes_more_than_a_name(self, tmp_path: Path, name: str) -> None:
        import subprocess

        said = self._said(tmp_path, f"[user]\nname = {name}\n")
        (tmp_path / "out").write_text(said)
        keys = subprocess.run(
            ["git", "config", "-f", str(tmp_path / "out"), "--name-only", "--list"], capture_output=True, text=True
        )
        assert keys.stdout in ("user.name\n", "") and keys.returncode == 0

    def test_a_comment_is_not_continued(self, tmp_path: Path) -> None:
        text = "[user]\n# ends in a backslash \\\nname = A\n"
        assert self._said(tmp_path, text) == '[user]\n\tname = "A"\n'

    def test_subsections_and_nothing_at_all(self, tmp_path: Path) -> None:
        assert self._said(tmp_path, '[user "other"]\nname = A\n') == ""
        assert git_identity(str(tmp_path / "none"), "/nowhere") == ""


class TestOutput:
    def test_both_forms_of_a_directory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = [("/", "/"), ("/data", "/@volume"), ("/data/mine", "/"), ("/data/mine", "/later")]
        monkeypatch.setattr(changes, "mount_points", lambda: [MountPoint(*each, "ext4") for each in table])
        zone = _zone("/data/mine/my app")

        text = environment.output_redactor([zone], None).text(
            "/data/mine/my app/a /later/my\\040app/b /data/mine/my\\040app/c /later /data/mine/my apple"
        )

        assert text == "/workspace/a /workspace/b /workspace/c /later /data/mine/my apple"

    def test_a_short_form_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = [("/", "/"), ("/home", "/")]
        monkeypatch.setattr(changes, "mount_points", lambda: [MountPoint(*each, "ext4") for each in table])

        made = environment.output_redactor([_zone("/home/app")], None)

        assert made.text("GET /app/x and /home/app/x") == "GET /app/x and /workspace/x"

    def test_the_session_s_own_is_not_changed(self) -> None:
        session = Redactor()
        session.add_secret("KEY", "canary-12345")

        made = environment.output_redactor([_zone("/srv/deep/app")], session)

        assert made.text("canary-12345 /srv/deep/app") == "[secret KEY] /workspace"
        assert session.text("/srv/deep/app") == "/srv/deep/app"
