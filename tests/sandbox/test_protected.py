"""The tables of protected and secret names."""

from __future__ import annotations

from tests.tables import table

from golem_forge.core.effects import Mark
from golem_forge.sandbox import protected
from golem_forge.sandbox.protected import PROTECTED_NAMES, is_plain_anywhere, is_secret_name, marks

PROTECTED = [
    ".git/hooks",
    ".git/hooks/pre-commit",
    "a/b/.git/hooks/x",
    ".GIT/Hooks/x",
    ".git/config",
    ".git/config.worktree",
    "sub/.git/CONFIG",
    ".git/modules/a/hooks",
    ".git/modules/a/b/hooks/post-checkout",
    ".git/modules/a/config",
    ".git/modules/x/modules/y/config",
    ".forge",
    ".forge/rules.yaml",
    "deep/.forge/a/b",
    "forge.yaml",
    "sub/forge.yaml",
    "Forge.YAML",
    "main.worker",
    "agents/coder.worker",
    ".gitconfig",
    ".gitmodules",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".inputrc",
    ".envrc",
    ".ripgreprc",
    ".mcp.json",
    "a/.mcp.json",
    ".vscode/tasks.json",
    ".vscode",
    ".idea/x",
    ".husky/pre-commit",
    ".ssh/config",
    ".gnupg/x",
    ".config/fish/config.fish",
    "home/.config/systemd/user/x.service",
    ".config/autostart/a.desktop",
    ".claude/settings.json",
    "a/.Cursor/rules/x.mdc",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".windsurf/hooks.json",
    ".opencode/plugin/x.ts",
    ".kiro/hooks/x",
    ".zed/settings.json",
    ".helix/languages.toml",
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vim/coc-settings.json",
    ".dir-locals.el",
    ".dir-locals-2.el",
    "app.code-workspace",
    "sub/App.Code-Workspace",
    ".zlogout",
    ".npmrc",
    "packages/a/.NPMRC",
]
OBEYED = [
    ".github/workflows/ci.yml",
    "a/.GitHub/Workflows/ci.yml",
    ".github/actions/x/action.yml",
    ".forgejo/workflows/x.yml",
    ".circleci/config.yml",
    ".gitlab-ci.yml",
    "sub/.gitlab-ci.yml",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".lefthook-local.toml",
    ".githooks/pre-commit",
    ".cargo/config.toml",
    ".cargo/config",
    "rust-toolchain.toml",
    ".yarnrc.yml",
    ".yarnrc",
    ".yarn/releases/yarn-4.cjs",
    ".pnpmfile.cjs",
    ".eslintrc.cjs",
    ".eslintrc.json",
    ".mocharc.yml",
    ".mise.toml",
    "mise.toml",
    ".config/mise/config.toml",
    ".tool-versions",
    ".python-version",
    ".pdbrc",
    ".gdbinit",
    ".lldbinit",
    ".pylintrc",
    ".mypy.ini",
    ".coveragerc",
    ".flake8",
    ".Rprofile",
    ".RData",
    ".bazelrc",
    ".irbrc",
    ".pryrc",
    ".iex.exs",
    ".rvmrc",
    ".latexmkrc",
    ".bundle/config",
    ".mvn/extensions.xml",
    ".pythonrc.py",
    ".ycm_extra_conf.py",
    "docker-compose.override.yml",
    "x.pth",
    "src/deep/er/A.PTH",
    "sitecustomize.py",
    "src/sitecustomize.pyc",
    "lib/usercustomize/__init__.py",
    "sitecustomize.cpython-311-x86_64-linux-gnu.so",
    "golem_forge/__init__.py",
    "golem_forge.py",
    "Golem_Forge/cli/main.py",
]
NOT_OBEYED = [
    "a.txt",
    "Makefile",
    "GNUmakefile",
    "conftest.py",
    "pyproject.toml",
    "package.json",
    "src/golem_forge/__init__.py",
    "golem_forge.md",
    "golem_forge-0.1.dist-info/METADATA",
    "sitecustomize.md",
    "mysitecustomize.py",
    ".github/dependabot.yml",
    ".github/x",
    "github/workflows/x",
    ".cargo/registry/x",
    ".gitignore",
    ".editorconfig",
    ".#conf.py",
    "rc",
    "srcrc",
    ".venv/lib/python3.11/site-packages/x.pth",
    "venv/lib/python3.11/site-packages/sitecustomize.py",
    "node_modules/a/usercustomize.py",
    ".tox/py/x.pth",
    "AGENTS.md",
]
INSTRUCTIONS = [
    "AGENTS.md",
    "sub/agents.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "GEMINI.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules/a.md",
    ".github/copilot-instructions.md",
    ".github/instructions/py.instructions.md",
    ".github/prompts/x.prompt.md",
    ".agents/skills/x/SKILL.md",
]
PLAIN = [
    "a.txt",
    ".git",
    ".git/index",
    ".git/HEAD",
    ".git/configs",
    ".git/hooksx",
    "hooks/pre-commit",
    "config",
    ".git/modules/a/HEAD",
    "git/hooks/x",
    "x.git/hooks/y",
    "forge.yml",
    "worker",
    "main.workers",
    ".bashrcx",
    "bashrc",
    ".config/git/config",
    ".config/nvim/init.lua",
    ".github/x",
    "vscode/a",
]
SECRET = [
    ".env",
    ".ENV",
    "a/.env",
    ".env.local",
    ".env.production",
    ".env.example.local",
    "cert.pem",
    "a/b/server.key",
    "x.p12",
    "x.pfx",
    "x.keystore",
    "x.kdbx",
    "X.PEM",
    "id_rsa",
    "id_rsa_work",
    "id_rsa.bak",
    ".ssh/id_ed25519",
    "id_ed25519",
    "id_ecdsa_sk",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".aws/credentials",
    ".aws",
    ".ssh/known_hosts",
    ".ssh/id_rsa.pub",
    ".gnupg/x",
    ".kube/config",
    ".docker/config.json",
    "credentials.json",
    "service-account.json",
    "service-account-prod.json",
    "a/Service-Account1.json",
]
NOT_SECRET = [
    "env",
    ".envrc",
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.local.example",
    "a.txt",
    "id_rsa.pub",
    "id_ed25519_work.pub",
    "my_id_rsa",
    "pem",
    "key",
    "keys/a",
    ".kube/other",
    "config",
    ".docker/x",
    "config.json",
    "credentials.yaml",
    "service-accounts.yaml",
    "serviceaccount.json",
    ".environment",
    ".env/bin/python",
    "x.pem.txt",
    "aws/credentials",
]


@table("path", PROTECTED)
def test_protected(path: str) -> None:
    assert Mark.PROTECTED_PATH in marks(path.split("/"))


@table("path", PLAIN)
def test_not_protected(path: str) -> None:
    assert Mark.PROTECTED_PATH not in marks(path.split("/"))


@table("path", SECRET)
def test_secret(path: str) -> None:
    assert Mark.SECRET_PATH in marks(path.split("/"))
    assert is_secret_name(path) and is_secret_name(f"./{path}") and is_secret_name(f"~/x//{path}")


@table("path", NOT_SECRET)
def test_not_secret(path: str) -> None:
    assert Mark.SECRET_PATH not in marks(path.split("/"))
    assert not is_secret_name(path) and not is_secret_name(f"/home/someone/{path}")


@table("path", OBEYED)
def test_obeyed(path: str) -> None:
    assert protected.is_obeyed(path.split("/"))
    assert protected.is_obeyed(path.split("/"), ("home", "someone", "vendor", "app"))


@table("path", NOT_OBEYED)
def test_not_obeyed(path: str) -> None:
    assert not protected.is_obeyed(path.split("/")) and not protected.is_obeyed(
        path.split("/"), ("golem_forge", "target")
    )


def test_a_zone_that_begins_inside_is_obeyed_whole() -> None:
    assert protected.is_obeyed(("ci.yml",), ("srv", "app", ".github", "workflows"))
    assert protected.is_obeyed(("workflows", "ci.yml"), ("srv", ".github")) and not protected.is_obeyed(
        (), (".circleci",)
    )


@table("path", INSTRUCTIONS)
def test_instructions(path: str) -> None:
    assert protected.is_instructions(path.split("/"))


def test_not_instructions() -> None:
    for path in ("README.md", "agents/a.md", "docs/claude/x.md", "CLAUDE.txt", ".github/x.md"):
        assert not protected.is_instructions(path.split("/"))


def test_only_what_lies_below_a_dependency_directory_is_in_it() -> None:
    for path in ("node_modules/a/b", "a/.VENV/x", "target/debug/x", "vendor/x", ".tox/a", "lib/site-packages/a"):
        assert protected.in_dependencies(path.split("/"))
    for path in ("target", "a/vendor", "src/a", "targets/x"):
        assert not protected.in_dependencies(path.split("/"))


def test_git_counts_when_it_is_a_file() -> None:
    assert marks(("a", ".Git"), git_is_file=True) == (Mark.PROTECTED_PATH,)
    assert marks((".git",)) == marks((".git", "index"), git_is_file=True) == marks(()) == ()


@table(
    ("path", "unprotect", "still"),
    [
        (".vscode/tasks.json", [".vscode"], False),
        (".vscode/tasks.json", [".VSCode/"], False),
        (".git/hooks/x", [".git/hooks"], False),
        (".git/config", [".git/hooks"], True),
        (".git/modules/a/config", [".git/modules/**/config"], False),
        (".forge/x", [".forge/**"], False),
        ("main.worker", ["*.worker"], False),
        (".vscode/.ssh/x", [".vscode"], True),
        (".git", [".git"], False),
    ],
)
def test_unprotect_takes_away_one_name(path: str, unprotect: list[str], still: bool) -> None:
    found = marks(path.split("/"), git_is_file=True, unprotect=unprotect)
    assert (Mark.PROTECTED_PATH in found) is still


def test_unprotect_does_not_make_a_secret_public() -> None:
    assert marks((".ssh", "id_rsa"), unprotect=[".ssh"]) == (Mark.SECRET_PATH,)


def test_every_protected_name_protects_something() -> None:
    for name in PROTECTED_NAMES:
        path = name.replace("*.", "x.").replace("**", "a").split("/")
        assert Mark.PROTECTED_PATH in marks(path, git_is_file=True)
        assert Mark.PROTECTED_PATH not in marks(path, git_is_file=True, unprotect=[name])


_EVERY_KIND = (
    *(name.replace("**", "x").replace("*", "x") for name in protected.PROTECTED_NAMES),
    *(".env", ".env.local", "a.pem", "b.KEY", ".aws", ".kube/config", ".docker/config.json", "id_rsa", "ID_ed25519"),
    *("service-account-1.json", "credentials.json", ".netrc", "x.kdbx", ".git/modules/a/hooks", "Forge.YAML"),
)


@table("name", _EVERY_KIND)
@table("below", ["", "/inner"])
def test_no_marked_path_passes_for_a_plain_one(name: str, below: str) -> None:
    path = f"a/{name}{below}"
    parts = path.split("/")
    if protected.marks(parts, git_is_file=True) or protected.marks(parts):
        assert not protected.is_plain(path)
    assert protected.is_plain("src/golem_forge/core/call.py")


def test_a_plain_name_is_marked_as_any_other_in_its_directory() -> None:
    known = {part for name in PROTECTED_NAMES for part in name.split("/")}
    known |= {".kube", ".docker", "config.json", "objects"}
    names = {one for part in known for one in (part, part.upper(), f"x{part}", part.strip("."), f"{part}.pem")} - {""}
    places = [(), *((one,) for one in known), *((".git", one) for one in known), (".git", "modules", "a", "b")]
    plain = sorted(filter(is_plain_anywhere, names))
    for above in places:
        expected = marks((*above, "-"), git_is_file=True)
        assert [name for name in plain if marks((*above, name), git_is_file=True) != expected] == [], above
    assert is_plain_anywhere("5f") and not is_plain_anywhere("config") and not is_plain_anywhere(".env")
