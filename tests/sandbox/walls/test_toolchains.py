"""Toolchains people already have are found by variable, by place and from PATH, and never more than that is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.sandbox.walls import toolchains
from golem_forge.sandbox.walls.toolchains import VisibleToolchains, find_toolchains


class Machine:
    """A person's home with things installed in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home" / "me"
        self.home.mkdir(parents=True)
        self.forge = self.home / ".forge"
        self.forge.mkdir()
        self.environ: dict[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

    def make(self, *names: str) -> Path:
        """Directories end in `/`; everything else is a file."""
        for name in names:
            path = self.home / name
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("canary-4711\n")
        return self.home / names[0]

    def on_path(self, *entries: str | Path) -> None:
        self.environ["PATH"] = ":".join([*map(str, entries), self.environ["PATH"]])

    def find(self, **more: object) -> VisibleToolchains:
        return find_toolchains(self.environ, self.home, forge_home=self.forge, **more)  # type: ignore[arg-type]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_empty_home_shows_nothing_and_keeps_the_system_path(machine: Machine) -> None:
    found = machine.find()
    assert (found.directories, found.variables, found.masked, found.refused) == ((), {}, (), ())
    assert found.path == ("/usr/local/bin", "/usr/bin", "/bin")


def test_directories_of_the_path_are_shown_alone_and_in_order(machine: Machine) -> None:
    own = machine.make(".local/bin/", ".local/share/private/")
    other = machine.make("opt/tool/bin/", "opt/tool/secret/")
    machine.environ["PATH"] = f"{other}:/usr/bin::relative:./x:{own}:{own}:{machine.home}/missing:/bin"
    found = machine.find(shipped="/somewhere/rg")
    assert found.path == (str(other), "/usr/bin", str(own), "/bin", "/usr/local/bin", "/somewhere/rg")
    assert set(found.directories) == {str(own), str(other)}


def test_without_toolchains_only_the_system_is_left(machine: Machine) -> None:
    machine.on_path(machine.make(".pyenv/shims/", ".pyenv/libexec/pyenv").parent / "shims")
    docs = machine.make("docs/")
    found = machine.find(extra_read=[str(docs)], only_system=True)
    assert found.path == ("/usr/local/bin", "/usr/bin", "/bin")
    assert (found.directories, found.declared, found.variables) == ((str(docs),), (str(docs),), {})


PLACES = {
    "PYENV_ROOT": (".pyenv/versions/3.12.1/bin/", ".pyenv"),
    "RUSTUP_HOME": (".rustup/toolchains/stable/bin/", ".rustup"),
    "CARGO_HOME": (".cargo/registry/", ".cargo"),
    "NVM_DIR": (".nvm/versions/node/v20/bin/", ".nvm"),
    "FNM_DIR": (".local/share/fnm/node-versions/v20/installation/bin/", ".local/share/fnm"),
    "VOLTA_HOME": (".volta/bin/", ".volta"),
    "ASDF_DATA_DIR": (".asdf/shims/", ".asdf"),
    "MISE_DATA_DIR": (".local/share/mise/installs/", ".local/share/mise"),
    "UV_PYTHON_INSTALL_DIR": (".local/share/uv/python/cpython-3.12/bin/", ".local/share/uv/python"),
    "GOMODCACHE": ("go/pkg/mod/", "go/pkg/mod"),
    "SDKMAN_DIR": (".sdkman/candidates/java/current/bin/", ".sdkman"),
}


@table("variable", PLACES)
def test_a_manager_at_its_usual_place_is_shown_and_its_variable_set(tmp_path: Path, variable: str) -> None:
    machine = Machine(tmp_path / variable)
    made, root = PLACES[variable]
    machine.make(made, "Documents/")
    found = machine.find()
    assert found.variables == {variable: str(machine.home / root)}
    assert found.directories == (str(machine.home / root),)


@table("variable", PLACES)
def test_a_manager_named_by_its_variable_wins_over_the_usual_place(variable: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path / variable)
    made, root = PLACES[variable]
    machine.make(made)
    elsewhere = tmp_path / variable / "elsewhere"
    (elsewhere / "registry").mkdir(parents=True)
    machine.environ[variable] = str(elsewhere)
    found = machine.find()
    assert found.variables[variable] == str(elsewhere)
    assert set(found.directories) == {str(elsewhere), str(machine.home / root)}


@table(
    ("proof", "entry", "variable"),
    [
        ("libexec/pyenv", "plugins/pyenv-virtualenv/shims/", "PYENV_ROOT"),
        ("settings.toml", "toolchains/nightly/bin/", "RUSTUP_HOME"),
        ("nvm.sh", "versions/node/v22.1.0/bin/", "NVM_DIR"),
        ("bin/volta-shim", "bin/", "VOLTA_HOME"),
        ("installs/", "shims/", "ASDF_DATA_DIR"),
        ("installs/", "installs/node/22/bin/", "MISE_DATA_DIR"),
        ("candidates/", "candidates/java/current/bin/", "SDKMAN_DIR"),
        ("Cellar/", "bin/", "HOMEBREW_PREFIX"),
    ],
)
def test_a_manager_is_recognised_from_a_path_entry(tmp_path: Path, proof: str, entry: str, variable: str) -> None:
    machine = Machine(tmp_path / variable)
    machine.make(f"../../apps/x/{proof}", f"../../apps/x/{entry}")
    root = tmp_path / variable / "apps" / "x"
    machine.on_path(root / entry)
    found = machine.find()
    assert found.variables[variable] == str(root)
    shown = [str(root)] if variable != "HOMEBREW_PREFIX" else [str(root / "Cellar"), str(root / "bin")]
    assert list(found.directories) == shown


def test_a_path_entry_without_proof_is_shown_alone(machine: Machine, tmp_path: Path) -> None:
    machine.make("../../apps/x/bin/", "../../apps/x/settings/")
    machine.on_path(tmp_path / "apps/x/bin")
    assert machine.find().directories == (str(tmp_path / "apps/x/bin"),)


def test_tools_of_uv_and_pipx_follow_their_links(machine: Machine) -> None:
    program = machine.make(".local/share/uv/tools/ruff/bin/ruff", ".local/share/pipx/venvs/black/bin/black")
    machine.make(".local/bin/", ".local/share/pipx/logs/")
    (machine.home / ".local/bin/ruff").symlink_to(program)
    machine.on_path(machine.home / ".local/bin")
    assert set(machine.find().directories) == {
        str(machine.home / ".local/bin"),
        str(machine.home / ".local/share/uv/tools"),
        str(machine.home / ".local/share/pipx/venvs"),
    }


def test_what_npm_installed_for_everybody_follows_its_links(machine: Machine) -> None:
    """With a prefix of one's own, as `npm config set prefix ~/.npm-global` makes it."""
    program = machine.make(".npm-global/lib/node_modules/pnpm/bin/pnpm.cjs", ".npm-global/etc/npmrc")
    machine.make(".npm-global/bin/")
    (machine.home / ".npm-global/bin/pnpm").symlink_to(program)
    machine.on_path(machine.home / ".npm-global/bin")
    assert set(machine.find().directories) == {
        str(machine.home / ".npm-global/bin"),
        str(machine.home / ".npm-global/lib/node_modules"),
    }


def test_conda_go_and_java_are_handed_on_where_they_can_be_seen(machine: Machine) -> None:
    base = machine.make("miniconda3/", "miniconda3/conda-meta/", "miniconda3/envs/web/bin/", "miniconda3/.condarc")
    machine.make("sdk/go/bin/go", "sdk/go/pkg/tool/", "hidden/java/")
    machine.on_path(base / "envs/web/bin", machine.home / "sdk/go/bin")
    machine.environ |= {
        "CONDA_PREFIX": str(base / "envs/web"),
        "GOROOT": str(machine.home / "sdk/go"),
        "JAVA_HOME": str(machine.home / "hidden/java"),
    }
    found = machine.find()
    assert found.variables == {"CONDA_PREFIX": str(base / "envs/web"), "GOROOT": str(machine.home / "sdk/go")}
    assert found.directories == (str(base), str(machine.home / "sdk/go"))
    assert found.masked == (str(base / ".condarc"),)


def test_a_chosen_version_is_handed_on_with_its_manager_only(machine: Machine) -> None:
    machine.environ |= {"PYENV_VERSION": "3.12.1", "RUSTUP_TOOLCHAIN": "nightly", "SOME_SECRET": "canary-4711"}
    machine.make(".pyenv/versions/")
    assert machine.find().variables == {"PYENV_ROOT": str(machine.home / ".pyenv"), "PYENV_VERSION": "3.12.1"}


def test_cargo_without_fetched_crates_keeps_its_own_home(machine: Machine) -> None:
    machine.on_path(machine.make(".cargo/bin/"))
    assert machine.find().variables == {}


def test_credentials_in_shown_directories_are_masked(machine: Machine) -> None:
    machine.make(".cargo/registry/", ".cargo/credentials.toml", ".cargo/credentials", ".cargo/config.toml")
    machine.make(".local/bin/", ".local/bin/.npmrc", ".local/bin/.env", ".local/bin/run", ".local/bin/deploy.key")
    machine.on_path(machine.home / ".local/bin")
    names = {os.path.relpath(path, machine.home) for path in machine.find().masked}
    assert names == {
        *(".cargo/credentials", ".cargo/credentials.toml"),
        *(".local/bin/.npmrc", ".local/bin/.env", ".local/bin/deploy.key"),
    }


def test_the_hook_of_pyenv_that_writes_shims_after_an_install_is_not_there(machine: Machine) -> None:
    """Its root is read-only inside: the hook would fail, and with it a `pip install` that succeeded."""
    machine.on_path(machine.make(".pyenv/shims/", ".pyenv/pyenv.d/exec/pip-rehash/pip", ".pyenv/libexec/pyenv").parent)
    machine.on_path(machine.home / ".pyenv" / "shims")
    assert machine.find().masked == (str(machine.home / ".pyenv/pyenv.d/exec/pip-rehash"),)


def test_credentials_are_masked_wherever_links_lead_to_them(machine: Machine, tmp_path: Path) -> None:
    real = tmp_path / "data" / "cargo"
    (real / "registry").mkdir(parents=True)
    (real / "credentials.toml").write_text("canary-4711")
    (real / "token-file").write_text("canary-4711")
    (real / "credentials").symlink_to(real / "token-file")
    (real / ".netrc").symlink_to(tmp_path / "out-of-sight")
    (tmp_path / "out-of-sight").write_text("canary-4711")
    (machine.home / ".cargo").symlink_to(real)
    names = ("credentials.toml", "token-file")
    assert set(machine.find().masked) == {
        str(root / name) for root in (machine.home / ".cargo", real) for name in names
    }


def test_what_must_not_be_shown_is_refused_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    machine.make(".ssh/bin/", ".aws/", ".forge/store/bin/", "other/.gnupg/", "other/bin/")
    (machine.home / "to-home").symlink_to(machine.home)
    (machine.home / "to-forge").symlink_to(machine.forge)
    entries: list[str | Path] = [
        machine.home,
        machine.home.parent,
        machine.home / ".ssh",
        machine.home / ".ssh/bin",
        machine.home / ".aws",
        machine.home / ".forge/store/bin",
        machine.home / "other",
        machine.home / "to-home",
        machine.home / "to-forge",
        machine.home / "to-forge/store/bin",
        "/",
        "/proc/1",
        "/etc",
    ]
    machine.on_path(*entries)
    found = machine.find()
    assert found.directories == ()
    assert found.path == ("/usr/local/bin", "/usr/bin", "/bin")
    refused = dict(found.refused)
    assert set(refused) == set(map(str, entries))
    assert refused[str(machine.home)] == "is or contains the home directory"
    assert "FORGE_HOME" in refused[str(machine.home / "to-forge")]
    assert "keys" in refused[str(machine.home / "other")]


def test_a_variable_that_names_the_home_shows_and_sets_nothing(machine: Machine) -> None:
    machine.environ |= {"PYENV_ROOT": str(machine.home), "CONDA_PREFIX": "/", "NVM_DIR": "relative"}
    found = machine.find()
    assert (found.directories, found.variables) == ((), {})
    assert {directory for directory, _ in found.refused} == {str(machine.home), "/"}


def test_declared_directories_follow_the_same_rules(machine: Machine, tmp_path: Path) -> None:
    docs = machine.make("docs/")
    missing = str(machine.home / "missing")
    found = machine.find(extra_read=[str(docs), str(machine.home), missing])
    assert (found.directories, found.declared) == ((str(docs),), (str(docs),))
    assert dict(found.refused)[missing] == "is not a directory"
    assert str(docs) not in found.path


def test_links_are_shown_where_they_are_spelled_and_where_they_lead(machine: Machine, tmp_path: Path) -> None:
    real = tmp_path / "data" / "pyenv"
    (real / "versions").mkdir(parents=True)
    (machine.home / ".pyenv").symlink_to(real)
    linked = tmp_path / "builds" / "3.13"
    (linked / "bin").mkdir(parents=True)
    (real / "versions" / "dev").symlink_to(linked)
    (real / "versions" / "home").symlink_to(machine.home)
    found = machine.find()
    assert set(found.directories) == {str(machine.home / ".pyenv"), str(real), str(linked)}
    assert found.variables == {"PYENV_ROOT": str(machine.home / ".pyenv")}


def test_zones_are_on_the_path_of_commands_alone_and_never_shown_again(machine: Machine, tmp_path: Path) -> None:
    zone = tmp_path / "work"
    for name in (".venv/bin", "libexec", "shims"):
        (zone / name).mkdir(parents=True)
    (zone / "libexec/pyenv").write_text("")
    (tmp_path / "link").symlink_to(zone / ".venv")
    (zone / "out").symlink_to(machine.make("elsewhere/"))
    in_zone = [str(zone / ".venv/bin"), str(zone / "shims"), str(tmp_path / "link/bin"), str(zone / "out")]
    machine.on_path(*in_zone, tmp_path)
    machine.environ |= {"JAVA_HOME": str(zone / ".venv"), "PYENV_ROOT": str(zone)}
    system = ("/usr/local/bin", "/usr/bin", "/bin")
    found = machine.find(zones=[str(zone)])
    assert found.directories == ()
    assert (found.command_path, found.path) == ((*in_zone, *system), system)
    assert found.command_variables == {"JAVA_HOME": str(zone / ".venv"), "PYENV_ROOT": str(zone)}
    assert found.variables == {}
    for_less = machine.find(changed=[str(zone), str(tmp_path)])  # a worker without the zone; around a home is no zone
    assert for_less.path == system and for_less.variables == {}


def test_without_the_zones_python_there_is_forges_own(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchains, "ALWAYS", ())
    base = machine.make("python/bin/python3").parents[1]
    (base / "bin/python3").chmod(0o755)
    (tmp_path / "zone/bin").mkdir(parents=True)
    machine.environ["PATH"] = str(tmp_path / "zone/bin")
    monkeypatch.setattr(sys, "base_prefix", str(base))
    found = machine.find(zones=[str(tmp_path / "zone")])
    assert (found.path, found.directories) == ((str(base / "bin"),), (str(base),))
    assert found.command_path == (str(tmp_path / "zone/bin"),)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "zone"))
    assert machine.find(zones=[str(tmp_path / "zone")]).path == ()


def test_the_interpreter_of_a_real_virtual_environment_is_covered(machine: Machine, tmp_path: Path) -> None:
    """S31a: the environment's interpreter resolves into directories that are shown."""
    versions = machine.home / ".pyenv" / "versions"
    versions.mkdir(parents=True)
    (versions / "own").symlink_to(sys.base_prefix)
    python = versions / "own" / "bin" / Path(os.path.realpath(sys.executable)).name
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "work/.venv"], check=True, timeout=PATIENCE)
    found = machine.find()
    interpreter = os.path.realpath(tmp_path / "work/.venv/bin/python")
    assert any(interpreter.startswith(f"{directory}/") for directory in (*found.directories, "/usr"))
    step = str(tmp_path / "work/.venv/bin/python")
    while os.path.islink(step):  # every step of the way can be followed inside
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
        assert step.startswith((f"{tmp_path}/work/", "/usr/", *(f"{shown}/" for shown in found.directories)))


def test_an_activated_virtual_environment_is_shown_whole(machine: Machine) -> None:
    root = machine.make(".virtualenvs/v/", ".virtualenvs/v/bin/python", ".virtualenvs/v/pyvenv.cfg")
    machine.make(".virtualenvs/v/pip.conf", ".virtualenvs/other/pyvenv.cfg")
    machine.on_path(root / "bin")
    found = machine.find()
    assert found.directories == (str(root),)
    assert found.path[0] == str(root / "bin")
    assert found.variables == {}
    assert found.masked == (str(root / "pip.conf"),)


def test_what_only_looks_like_an_environment_shows_no_more_than_its_path_entry(machine: Machine) -> None:
    named = machine.make("tool/scripts/", "tool/pyvenv.cfg")
    project = machine.make("project/bin/", "project/pyvenv.cfg", "project/.git/HEAD")
    plain = machine.make("plain/bin/")
    machine.make("bin/", "pyvenv.cfg")
    keys = machine.make("held/bin/", "held/pyvenv.cfg", "held/.ssh/id_ed25519")
    machine.on_path(named, project, plain, machine.home / "bin", keys)
    found = machine.find()
    assert set(found.directories) == {str(path) for path in (named, project, plain, machine.home / "bin", keys)}
    assert dict(found.refused) == {
        str(machine.home): "is or contains the home directory",
        str(keys.parent): "contains a directory of keys",
    }


def test_an_environment_in_a_zone_is_not_shown_again(machine: Machine, tmp_path: Path) -> None:
    zone = tmp_path / "zone"
    (zone / "bin").mkdir(parents=True)
    (zone / "pyvenv.cfg").write_text("home = /root\n")
    machine.on_path(zone / "bin")
    found = machine.find(zones=[str(zone)])
    assert (found.directories, found.command_path[0]) == ((), str(zone / "bin"))


def test_looking_goes_no_deeper_than_the_managers_own_directories(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start of a session looks: whatever is installed may be large, and is not walked through."""
    for made, _ in PLACES.values():
        machine.make(made)

    def listed() -> int:
        with monkeypatch.context() as spied:
            asked: list[object] = []
            for name in ("listdir", "scandir"):
                real = getattr(os, name)
                spied.setattr(os, name, lambda place, real=real: (asked.append(place), real(place))[1])
            machine.find()
        return len(asked)

    before = listed()
    for made, _ in PLACES.values():
        machine.make(*(f"{made}more{number}/deep/" for number in range(20)))
    assert 0 < listed() == before <= 3 * len(PLACES)


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs an interpreter of the system")
def test_an_activated_environment_keeps_its_prefix_inside_real_walls(house: Any) -> None:
    root = house.root / "home" / ".virtualenvs" / "v"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(root)], check=True, timeout=PATIENCE)
    packages = next(root.glob("lib/python3*/site-packages"))
    (packages / "mine.py").write_text("found = 'canary-4711'\n")
    walls = house.walls(environ={"PATH": f"{root}/bin:/usr/bin:/bin"})
    ran = house.run(f"python -c 'import sys, mine; print(sys.prefix, mine.found)'; touch {root}/x", walls)
    assert ran.text.startswith(f"{root} canary-4711\n")
    assert not (root / "x").exists()
