"""What a tool module consists of: itself and the program files it imports, found without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.conftest import put

from golem_forge.agent.trust import import_folders, module_files
from golem_forge.core.errors import ConfigError


def found(root: Path, module: str = "tools.py") -> set[str]:
    return set(module_files(root, Path(module)))


def test_imports_are_followed_wherever_they_stand(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    put(
        tmp_path,
        "tools.py",
        f"open({str(witness)!r}, 'w')\nimport json, helper\nfrom pkg.sub import thing\n"
        "def f():\n    import late\n    __import__('named')\n",
    )
    for name in ("helper.py", "late.py", "named.py", "unused.py", "pkg/__init__.py", "pkg/other.py"):
        put(tmp_path, name)
    put(tmp_path, "pkg/sub.py", "from . import beside\nfrom .deep.er import x\n")
    put(tmp_path, "pkg/beside.py", "import tools\n")
    put(tmp_path, "pkg/deep/er.py")
    assert found(tmp_path) == {
        *("tools.py", "helper.py", "late.py", "named.py"),
        *("pkg/__init__.py", "pkg/sub.py", "pkg/beside.py", "pkg/deep/er.py"),
    }
    assert not witness.exists()
    assert next(iter(module_files(tmp_path, tmp_path / "tools.py"))) == "tools.py"


def test_a_module_below_the_root_sees_its_folder_and_the_root(tmp_path: Path) -> None:
    put(tmp_path, "team/tools.py", "import near, far\nfrom lib import *\n")
    for name in ("team/near.py", "far.py", "lib/__init__.py", "lib/one.py"):
        put(tmp_path, name)
    assert found(tmp_path, "team/tools.py") == {
        "team/tools.py",
        "team/near.py",
        "far.py",
        "lib/__init__.py",
        "lib/one.py",
    }
    assert import_folders(tmp_path, tmp_path / "team/tools.py") == ("team", "")
    assert import_folders(tmp_path, tmp_path / "tools.py") == ("",)


def test_a_module_with_a_syntax_error_is_still_covered(tmp_path: Path) -> None:
    put(tmp_path, "tools.py", "import helper\nhelper.py\n")
    put(tmp_path, "helper.py", "def broken(:\n")
    assert module_files(tmp_path, Path("tools.py"))["helper.py"] == b"def broken(:\n"
    put(tmp_path, "tools.py", "\0")
    assert found(tmp_path) == {"tools.py"}


@pytest.mark.parametrize("linked", ["tools.py", "helper.py", "pkg"])
def test_a_link_that_leads_outside_is_refused(tmp_path: Path, linked: str) -> None:
    root, outside = tmp_path / "app", tmp_path / "outside"
    put(root, "tools.py", "import helper, pkg.x\n")
    put(root, "helper.py")
    put(outside, "evil.py")
    put(outside, "x.py")
    (root / linked).unlink(missing_ok=True)
    (root / linked).symlink_to(outside / "evil.py" if linked != "pkg" else outside)
    with pytest.raises(ConfigError, match="link that leads outside the program"):
        module_files(root, Path("tools.py"))


def test_a_link_inside_the_program_counts_under_its_own_name(tmp_path: Path) -> None:
    put(tmp_path, "real/code.py", "A = 1\n")
    (tmp_path / "tools.py").symlink_to("real/code.py")
    assert module_files(tmp_path, Path("tools.py")) == {"tools.py": b"A = 1\n"}


@pytest.mark.parametrize("module", ["../x.py", "/etc/hostname", "missing.py"])
def test_what_is_not_in_the_program_is_refused(tmp_path: Path, module: str) -> None:
    put(tmp_path, "x.py")
    (tmp_path / "app").mkdir()
    with pytest.raises(ConfigError, match=r"outside the program|not found"):
        module_files(tmp_path / "app", Path(module))


def test_too_much_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "tools.py", "\n".join(f"import m{number}" for number in range(300)))
    for number in range(300):
        put(tmp_path, f"m{number}.py")
    with pytest.raises(ConfigError, match="at most 200 files"):
        module_files(tmp_path, Path("tools.py"))
