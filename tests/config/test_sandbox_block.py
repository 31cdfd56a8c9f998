"""The keys about walls: sizes and switches, what adds up, and what a program may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.agent.session_plan import zone_specs
from golem_forge.config.program import Program, load_program
from golem_forge.config.sandbox_block import GIB, MIB, ResourceLimits, WallSettings
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome


class Places:
    def __init__(self, tmp_path: Path) -> None:
        self.home = ForgeHome(tmp_path / "forge-home")
        self.home.ensure()
        self.root = tmp_path / "app"
        self.root.mkdir()

    def load(self, project: str = "", person: str = "", *, trusted: bool = True) -> Program:
        if project:
            (self.root / "forge.yaml").write_text(project)
        if person:
            self.home.config.write_text(person)
        return load_program(self.root, self.home, trusted=lambda _: trusted)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_without_a_word_everything_is_the_default(places: Places) -> None:
    assert places.load().walls == WallSettings() == places.load("approval: {}\n").walls


def test_every_limit_can_be_written(places: Places) -> None:
    program = places.load(
        "sandbox:\n"
        "  limits:\n"
        "    timeout_s: 2.5\n"
        "    memory: 512MiB\n"
        "    processes: 20\n"
        "    cpu_s: 30\n"
        "    file_size: 1.5 GiB\n"
        "    open_files: 64\n"
        "    output: 4096\n"
    )
    assert program.walls.limits == ResourceLimits(
        timeout_s=2.5, memory=512 * MIB, processes=20, cpu_s=30, file_size=GIB * 3 // 2, open_files=64, output=4096
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sandbox:\n  limts: {}\n", "forge.yaml:2: sandbox.limts: unknown key 'limts'; did you mean 'limits'?"),
        (
            "sandbox:\n  limits:\n    memry: 1\n",
            "forge.yaml:3: sandbox.limits.memry: unknown key 'memry'; did you mean",
        ),
        ("sandbox: {limits: {memory: 512MB}}\n", "a size like 512MiB or 2GiB, got '512MB'"),
        ("sandbox: {limits: {memory: -1}}\n", "expected a number of bytes above 0"),
        ("sandbox: {limits: {memory: 0MiB}}\n", "expected a number of bytes above 0"),
        ("sandbox: {limits: {memory: true}}\n", "expected a number of bytes above 0"),
        ("sandbox: {limits: {memory: 999999999999TiB}}\n", "expected a number of bytes above 0"),
        ("sandbox: {limits: {processes: 2.5}}\n", "sandbox.limits.processes: expected a whole number above 0, got 2.5"),
        ("sandbox: {limits: {timeout_s: soon}}\n", "sandbox.limits.timeout_s: expected a number above 0"),
        ("sandbox: {toolchains: of}\n", "sandbox.toolchains: expected one of on, off ('off'?), got 'of'"),
        ("sandbox: {toolchains: false}\n", "expected one of on, off, got false"),
        ("sandbox: {walls: none}\n", "sandbox.walls: expected one of on, off"),
        ("sandbox: {read: /srv}\n", "sandbox.read: expected a list, got '/srv'"),
        (
            "sandbox:\n  zones:\n    a: {path: ., at_host_path: no}\n",
            "forge.yaml:3: sandbox.zones.a.at_host_path: expected true or false, got 'no'",
        ),
        (
            "sandbox:\n  zones:\n    a: {path: ., at_hostpath: true}\n",
            "unknown key 'at_hostpath'; did you mean 'at_host_path'?",
        ),
    ],
)
def test_errors_name_file_line_and_key(places: Places, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        places.load(text)
    [problem] = caught.value.problems
    assert problem.startswith("forge.yaml:") and expected in problem


def test_the_program_goes_over_the_person_key_by_key_and_reading_adds_up(places: Places, own_home: Path) -> None:
    program = places.load(
        "sandbox: {read: [../shared, /srv/docs], toolchains: on, limits: {memory: 4GiB, processes: 9}}\n",
        "sandbox: {read: [/srv/docs, ~/notes], toolchains: off, limits: {memory: 1GiB, cpu_s: 5}}\n",
    )
    assert program.walls.read == ("/srv/docs", str(own_home / "notes"), str(places.root.parent / "shared"))
    assert program.walls.toolchains is True
    assert program.walls.limits == ResourceLimits(memory=4 * GIB, processes=9, cpu_s=5)
    assert (program.unused, program.notice) == ((), "")


def test_an_untrusted_program_can_only_tighten_walls(places: Places) -> None:
    program = places.load(
        "sandbox:\n"
        "  read: [/srv/docs]\n"
        "  toolchains: on\n"
        "  limits:\n"
        "    memory: 4GiB\n"
        "    processes: 9\n"
        "    cpu_s: 6\n"
        "    timeout_s: 10\n",
        "sandbox: {read: [/srv/mine], toolchains: off, limits: {cpu_s: 5}}\n",
        trusted=False,
    )
    assert program.walls == WallSettings(
        read=("/srv/mine",), toolchains=False, limits=ResourceLimits(processes=9, cpu_s=5, timeout_s=10.0)
    )
    assert program.unused == (
        "forge.yaml:2: sandbox.read",
        "forge.yaml:3: sandbox.toolchains: on",
        "forge.yaml:5: sandbox.limits.memory",
        "forge.yaml:7: sandbox.limits.cpu_s",
    )
    assert "`forge trust`" in program.notice


def test_an_untrusted_program_may_do_without_toolchains(places: Places) -> None:
    program = places.load("sandbox: {toolchains: off}\n", trusted=False)
    assert (program.walls.toolchains, program.unused) == (False, ())


@pytest.mark.parametrize("trusted", [True, False])
def test_no_program_switches_walls_off(places: Places, trusted: bool) -> None:
    program = places.load("approval: {}\nsandbox:\n  walls: off\n", trusted=trusted)
    assert program.walls.off is False
    assert program.notice == (
        "forge.yaml:3: sandbox.walls is ignored: only your own config.yaml or the command line can switch walls off."
    )
    assert program.unused == ()


def test_the_person_switches_walls_off_and_no_program_on(places: Places) -> None:
    assert places.load(person="sandbox: {walls: off}\n").walls.off is True
    program = places.load("sandbox: {walls: on}\n")
    assert program.walls.off is True and "sandbox.walls is ignored" in program.notice
    assert places.load(person="sandbox: {walls: on}\n").walls.off is False


def test_a_zone_says_where_it_stands_inside_walls(places: Places) -> None:
    program = places.load("sandbox:\n  zones:\n    a: {path: ., at_host_path: false}\n")
    assert [zone.at_host_path for zone in program.zones] == [False]
    assert [spec.at_host_path for spec in zone_specs(program)] == [False]
    assert places.load("approval: {}\n").zones[0].at_host_path is True


def test_a_stranger_does_not_move_the_persons_zone_to_its_host_path(places: Places) -> None:
    program = places.load(
        "sandbox: {zones: {workspace: {path: ., at_host_path: true}}}\n",
        f"sandbox: {{zones: {{workspace: {{path: {places.root}, at_host_path: false}}}}}}\n",
        trusted=False,
    )
    assert program.zones[0].at_host_path is False
