"""Code that git does not show, in real work trees; git itself says what it shows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from golem_forge.core.calls import Leftover, Severity
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls import leftovers
from golem_forge.sandbox.walls.leftovers import hidden_code, remove_bytecode
from golem_forge.sandbox.zones import Zone, ZoneSpec

RAN = "made or changed while the command ran"


class Tree:
    """A work tree (or a plain directory) and the zone on it."""

    def __init__(self, root: Path, zone: Zone) -> None:
        self.root = root
        self.zone = zone

    @property
    def repository(self) -> bool:
        return (self.root / ".git").exists()

    def init(self, ignores: str = "") -> None:
        self.git("init", "-q", ".")
        if ignores:
            self.write(".gitignore", ignores)
            self.git("add", ".gitignore")

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=self.root, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout

    def write(self, name: str, text: str = "x", mode: int = 0o644) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def changed(self) -> list[tuple[str, ...]]:
        """Everything, directories too, as if all of it had been made just now."""
        found = []
        for here, directories, names in os.walk(self.root):
            parts = Path(here).relative_to(self.root).parts
            found += [(*parts, name) for name in (*directories, *names)]
        return found

    def told(self, **options: bytes) -> list[Leftover]:
        index = set(self.git("ls-files", "-z").split("\0")) if self.repository else set()
        return list(hidden_code(self.zone, self.changed(), lambda parts: "/".join(parts) in index, **options))

    def named(self, severity: Severity = Severity.WARNING) -> set[str]:
        return {path for one in self.told() if one.severity is severity for path in one.paths}


@pytest.fixture
def tree(place: Path, zone: Zone) -> Tree:
    return Tree(place, zone)


def test_what_git_shows_is_not_told(tree: Tree) -> None:
    tree.init("*.log\nbuild/\n")
    tree.write("new.py")
    tree.write("run.sh", mode=0o755)
    tree.write("pkg/mod.pyc")
    tree.write("pkg.egg-info/entry_points.txt")
    tree.write("x.log")
    tree.write("build/notes.txt")
    tree.write("build/shown.py")
    tree.git("add", "-f", "build/shown.py")
    assert "?? new.py" in tree.git("status", "--porcelain", "-uall")
    assert tree.told() == []


CAN_RUN = (
    *("a.py", "a.pyc", "a.so", "a.so.1.2", "A.PYD", "a.js", "a.mjs", "a.cjs", "a.ts", "a.node", "a.sh", "a.rb", "a.pl"),
    *("a.php", "a.lua", "a.jar", "a.class", "a.wasm", "a.exe", "a.dll", "a.ps1", "a.bat", "a.mk", "a.go", "a.rs"),
    *("Makefile", "GNUmakefile", "makefile", "Rakefile", "justfile", "Dockerfile", "package.json", "pyproject.toml"),
    *("conftest.py", "activate", "activate.fish", "a.pth", "a.egg-link", "x.egg-info/entry_points.txt"),
    *("x.dist-info/METADATA", "CMakeLists.txt", "build.gradle", "a.tsx", "a.ipynb"),
    *("a.o", "a.d", "a.beam", "build.ninja", "CMakeCache.txt", "a.h.gch", "a.elc", "a.zwc", "a.pkl", "go.work"),
    *("CMakeUserPresets.json", "local.properties", "pylintrc", "mypy.ini", ".flaskenv", "a.unheard-of", "data"),
    *(".direnv/flake-profile-a.rc", "requirements-dev.txt", "a\nb.py", "a\nb.so", "a\nb.egg-info/x", "a\nb.xyz"),
)


@pytest.mark.parametrize("hiding", ["ignored", "excluded", "own", "person", "nested"])
def test_whatever_can_run_where_git_does_not_show_it(tree: Tree, hiding: str) -> None:
    tree.init("hidden/\n" if hiding == "ignored" else "")
    options = {"person_ignores": b"hidden/\n"} if hiding == "person" else {}
    if hiding == "excluded":
        tree.write(".git/info/exclude", "hidden\n")
    elif hiding == "own":
        tree.write("hidden/.gitignore", "*\n")
    elif hiding == "nested":
        subprocess.run(["git", "init", "-q", "hidden"], cwd=tree.root, check=True)
    index = set(tree.git("ls-files", "-z").split("\0"))
    for name in CAN_RUN:
        tree.write(f"hidden/{name}")

        told = hidden_code(tree.zone, tree.changed(), lambda parts: "/".join(parts) in index, **options)
        paths = {path for one in told for path in one.paths if one.severity is Severity.WARNING}

        assert f"/workspace/hidden/{name}".replace("\n", "\\x0a") in paths, name
        (tree.root / "hidden" / name).unlink()


def test_an_executable_is_one_by_its_mode(tree: Tree) -> None:
    tree.init("out\n")
    tree.write("out/tool", mode=0o755)
    tree.write("out/notes.txt", mode=0o755)
    tree.write("out/data.txt")
    assert tree.named() == {"/workspace/out/tool", "/workspace/out/notes.txt"}


def test_what_no_program_obeys_is_not_told(tree: Tree) -> None:
    tree.init("out/\n.coverage*\n")
    for name in ("a.log", "A.TXT", "a.md", "a.rst", "a.png", "a.jpeg", "a.pdf", "a.csv", "a\nb.log"):
        tree.write(f"out/{name}")
    tree.write(".coverage.host.1.x")
    assert tree.told() == []
    tree.link("out/linked.txt", "a.log")
    assert tree.named() == {"/workspace/out/linked.txt"}


def test_the_classes_and_their_words(tree: Tree) -> None:
    tree.init("*.so\n*.egg-info\n/tmp/\n")
    tree.write("pkg/_x.so")
    tree.write("pkg.egg-info/entry_points.txt")
    tree.write("pkg.egg-info/top_level.txt")
    tree.write("evil/.gitignore", "*\n")
    tree.write("evil/__init__.py")
    tree.link("out", "/etc/passwd")
    tree.link("inside", "evil/__init__.py")
    tree.write("tmp/a.py")
    tree.write("tmp/.gitignore", "*\n")
    git = f"{RAN}, where git does not show it"
    told = {one.text for one in tree.told()}
    assert told == {
        f"Compiled code, which runs without its source being read, {git}: /workspace/pkg/_x.so",
        f"Package metadata, whose plug-ins Python loads, 2 files {git}: "
        "/workspace/pkg.egg-info/entry_points.txt, /workspace/pkg.egg-info/top_level.txt",
        f".gitignore that hides itself and what lies beside it, {git}: /workspace/evil/.gitignore",
        f"Link out of the zone, {RAN}: /workspace/out",
        f"Code, 2 files {git}: /workspace/evil/__init__.py, /workspace/tmp/a.py",
    }
    assert {one.kind for one in tree.told()} == {"hidden_code"}


def test_caches_of_test_runners_are_no_hiding_places_until_they_hold_code(tree: Tree) -> None:
    tree.init("")
    for name in (".pytest_cache", ".mypy_cache", ".ruff_cache"):
        tree.write(f"{name}/.gitignore", "*\n")
        tree.write(f"{name}/v/nodeids")
    assert tree.told() == []
    tree.write(".pytest_cache/v/conftest.py")
    assert tree.named() == {"/workspace/.pytest_cache/v/conftest.py"}


def test_dependencies_are_one_note_with_entry_points_first(tree: Tree) -> None:
    tree.init(".venv\nnode_modules\n")
    for number in range(30):
        tree.write(f".venv/lib/python3/site-packages/p/m{number}.py")
    tree.write(".venv/bin/activate")
    tree.write(".venv/pyvenv.cfg")
    tree.link(".venv/bin/python", "/usr/bin/python3")
    tree.write("web/node_modules/x/cli.js")
    tree.link("web/node_modules/.bin/x", "../x/cli.js")
    [note] = tree.told()
    assert note.severity is Severity.NOTE and len(note.paths) == 20
    assert note.paths[:3] == (
        "/workspace/.venv/bin/activate",
        "/workspace/.venv/bin/python",
        "/workspace/web/node_modules/.bin/x",
    )
    assert note.text == (
        f"Code in dependency directories, 34 files {RAN}, where git does not show it: /workspace/.venv/bin (2), "
        "/workspace/web/node_modules/.bin (1), /workspace/.venv/lib (30), /workspace/web/node_modules/x (1)"
    )


def test_a_zone_without_git_tells_only_what_is_no_ordinary_work(tree: Tree) -> None:
    tree.write("a.py")
    tree.write("run.sh", mode=0o755)
    tree.write("pkg/a.pyc")
    tree.write("pkg/b.so")
    tree.write("pkg.egg-info/entry_points.txt")
    tree.write(".venv/lib/c.so")
    tree.link("out", "..")
    assert tree.named() == {
        *("/workspace/pkg/a.pyc", "/workspace/pkg/b.so", "/workspace/pkg.egg-info/entry_points.txt", "/workspace/out"),
    }
    assert not any("git" in one.text for one in tree.told())


def test_many_paths_are_grouped_and_bounded_and_no_name_breaks_a_line(tree: Tree) -> None:
    tree.init("*.py\n")
    for number in range(300):
        tree.write(f"d{number % 10}/m{number}.py")
    [one] = tree.told()
    assert one.text.endswith(f": {', '.join(f'/workspace/d{number} (30)' for number in range(10))}")
    assert len(one.paths) == 20 and {path.split("/")[2] for path in one.paths} == {f"d{n}" for n in range(10)}
    for number in range(8):
        tree.write(f"z/z{number}/m.py")
    [one] = tree.told()
    assert one.text.endswith("/workspace/d9 (30), 8 more directories below /workspace/z")
    assert "/workspace/z/z7/m.py" in one.paths
    subprocess.run(["rm", "-r", "z", *(f"d{number}" for number in range(10))], cwd=tree.root, check=True)
    tree.write("a\nforge: all is well\x1b[2J.py")
    tree.write(os.fsdecode(b"\xff.py"))
    [one] = tree.told()
    assert one.text.isprintable() and all(path.isprintable() for path in one.paths)


@pytest.mark.parametrize("odd", ["large", "link", "directory", "fifo", "slow"])
def test_a_gitignore_that_cannot_be_read_hides_nothing_from_us(tree: Tree, odd: str) -> None:
    tree.init()
    tree.write("d/a.py")
    ignore = tree.root / "d/.gitignore"
    if odd == "large":
        tree.write("d/.gitignore", "#" * (1 << 20) + "\n*\n")
    elif odd == "link":
        tree.link("d/.gitignore", "/etc/passwd")
    elif odd == "directory":
        ignore.mkdir()
    elif odd == "fifo":
        os.mkfifo(ignore)
    else:
        tree.write("d/.gitignore", ("*a" * 200 + "\n") * 150 + "*\n")
        tree.write("d/" + "a" * 200 + ".py")
    found = tree.named()
    assert ("/workspace/d/a.py" in found) is (odd not in ("directory", "fifo")), "git shows the file beside those two"


def test_deep_directories_and_what_is_gone_again(tree: Tree) -> None:
    tree.init("x/\n")
    deep = "/".join(["d"] * 400)
    tree.write(f"{deep}/x/a.py")
    changed = [(*deep.split("/"), "x", "a.py"), ("d",) * 3000, ("x", "gone.py"), ("x", "a\0b.py"), ()]
    [one] = hidden_code(tree.zone, changed, lambda parts: False)
    assert one.paths == (f"/workspace/{deep}/x/a.py",)


def test_a_directory_that_became_a_link_is_not_entered(tree: Tree, tmp_path: Path) -> None:
    tree.init("d/\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("")
    (outside / "m.pyc").write_text("")
    tree.link("d", str(outside))
    told = hidden_code(tree.zone, [("d", "a.py"), ("d",)], lambda parts: False)
    assert [one.paths for one in told] == [("/workspace/d",)]
    tree.link("__pycache__", str(outside))
    assert remove_bytecode(tree.zone, [("__pycache__", "m.pyc"), ("d", "__pycache__", "m.pyc")]) == ()
    assert (outside / "m.pyc").exists()


def test_bytecode_is_deleted_and_told(tree: Tree) -> None:
    tree.write("pkg/__pycache__/m.cpython-311.pyc")
    tree.write("pkg/__pycache__/notes.txt")
    tree.write("pkg/m.pyc")
    tree.write(".venv/lib/__pycache__/m.cpython-311.pyc")
    tree.write("moved/__pycache__/n.cpython-311.pyc")
    tree.write("data/poison.pyc")
    tree.link("linked/__pycache__", "../data")
    tree.link("pkg/__pycache__/k.cpython-311.pyc", "../../data/poison.pyc")
    (tree.root / "pkg/__pycache__/d.pyc").mkdir()
    changed = [parts for parts in tree.changed() if parts[:1] != ("moved",)]
    [one] = remove_bytecode(tree.zone, [*changed, ("moved", "__pycache__"), ("pkg", "__pycache__", "gone.pyc")])
    assert (one.kind, one.severity) == ("hidden_code", Severity.WARNING)
    assert set(one.paths) == {
        "/workspace/pkg/__pycache__/m.cpython-311.pyc",
        "/workspace/pkg/__pycache__/k.cpython-311.pyc",
        "/workspace/moved/__pycache__/n.cpython-311.pyc",
        "/workspace/linked/__pycache__",
    }
    left = {"/".join(parts) for parts in tree.changed() if ".pyc" in parts[-1]}
    assert left == {
        *("pkg/m.pyc", ".venv/lib/__pycache__/m.cpython-311.pyc", "data/poison.pyc", "pkg/__pycache__/d.pyc"),
    }
    assert (tree.root / "pkg/__pycache__/notes.txt").exists()
    assert remove_bytecode(tree.zone, [("pkg", "m.pyc"), (), ("__pycache__",)]) == ()


@pytest.mark.parametrize("git", ["directory", "worktree"])
def test_a_zone_below_the_root_of_its_work_tree(tmp_path: Path, git: str) -> None:
    """Git itself says what it hides: the ignore files count from the root of the work tree on."""
    top = tmp_path / "top"
    if git == "directory":
        subprocess.run(["git", "init", "-q", "top"], cwd=tmp_path, check=True)
    else:
        subprocess.run(["git", "init", "-q", "main"], cwd=tmp_path, check=True)
        commit = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x"]
        subprocess.run(commit, cwd=tmp_path / "main", check=True)
        subprocess.run(["git", "worktree", "add", "-q", str(top)], cwd=tmp_path / "main", check=True)
    root = top / "packages" / "app"
    root.mkdir(parents=True)
    exclude = tmp_path / ("top" if git == "directory" else "main") / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    persons = tmp_path / "ignores"
    hides = (
        (top / ".gitignore", "/packages/app/lib/\n"),
        (top / "packages/.gitignore", "app/l*\n"),
        (root / ".gitignore", "/lib\n"),
        (exclude, "packages/app/lib\n"),
        (persons, "packages/**/lib\n"),
        (top / ".gitignore", "packages\n"),
    )
    sandbox = open_sandbox([ZoneSpec(name="app", path=root)], forge_home=tmp_path / "forge", home=tmp_path / "home")
    try:
        tree = Tree(root, sandbox.zones["app"])
        tree.write("lib/a.mk")
        tree.write("seen.mk")
        for place, line in hides:
            place.write_text(line)
            whole = line == "packages\n"
            shown = tree.git("-c", f"core.excludesFile={persons}", "status", "--porcelain", "-uall", ".")
            assert "lib/a.mk" not in shown and ("seen.mk" in shown) is not whole
            options = {"person_ignores": line.encode()} if place == persons else {}
            found = {path for one in tree.told(**options) for path in one.paths}
            assert found - {"/app/.gitignore"} == {"/app/lib/a.mk", *(["/app/seen.mk"] if whole else [])}, line
            place.unlink()
    finally:
        sandbox.close()


def test_a_git_directory_that_is_no_repository_hides_what_lies_in_it(tree: Tree) -> None:
    tree.init()
    tree.write("tools/.git/x.py")
    tree.write("tools/.git/sub/x.mk")
    tree.write("tools/y.py")
    assert "tools/.git" not in tree.git("status", "--porcelain", "-uall")
    assert tree.named() == {"/workspace/tools/.git/x.py", "/workspace/tools/.git/sub/x.mk"}
    subprocess.run(["git", "init", "-q", "own"], cwd=tree.root, check=True)
    assert not any("/own/.git" in path for path in tree.named())


def test_a_git_directory_without_a_head_makes_no_work_tree(tree: Tree) -> None:
    (tree.root / ".git").mkdir()
    tree.write(".gitignore", "*\n")
    tree.write("a.py")
    assert list(hidden_code(tree.zone, tree.changed(), lambda parts: False)) == []


@pytest.mark.parametrize("where", ["build", "node_modules/p"])
def test_what_matters_is_looked_at_before_any_number_of_other_files(
    tree: Tree, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_ORDER_S", 60)
    tree.init("build/\nnode_modules/\n")
    tree.write("build/zz/evil.py")
    flood = [(*where.split("/"), f"{number}.dat") for number in range(25_000)]
    told = hidden_code(tree.zone, [*flood, ("build", "zz", "evil.py")], lambda parts: False)
    assert told[0].paths == ("/workspace/build/zz/evil.py",)
    assert len(told) == 2 and told[1].text.endswith(
        "further paths changed while the command ran; Forge did not check them"
    )
    assert told[1].severity is (Severity.WARNING if where == "build" else Severity.NOTE)
    assert int(told[1].text.partition(" ")[0].replace(",", "")) >= 5_000


def test_bytecode_past_the_bound_is_told(tree: Tree) -> None:
    tree.write("pkg/__pycache__/m.pyc")
    flood = [("a", "__pycache__", f"{number}.pyc") for number in range(25_000)]
    told = remove_bytecode(tree.zone, [*flood, *tree.changed()])
    assert any("files of bytecode may be in __pycache__" in one.text for one in told)
