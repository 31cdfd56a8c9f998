"""Prefixes: which are banned, which are offered (A52)."""

from __future__ import annotations

from tests.tables import table

from golem_forge.policy.shell.patterns import is_banned_prefix, is_offered_prefix, is_saved_prefix, prefix_choices


@table(
    "text",
    [
        "", "bash", "sh", "zsh", "dash", "ksh", "bash -c", "sh -lc", "python", "python3", "python3.12", "python -c",
        "python3 -m",
        "perl -e", "node -e", "ruby -e", "node", "deno", "php", "busybox", "env", "sudo", "doas", "su", "nice",
        "ionice", "nohup",
        "setsid", "stdbuf", "timeout", "timeout 5", "time", "watch", "command", "builtin", "exec", "eval", "trap",
        "xargs",
        "xargs -n1", "parallel", "find", "flock", "flock f", "chroot", "chroot d", "unshare", "ssh", "ssh host",
        "script", "sudo -u root",
        "sudo bash", "env A=1", "env python -c", "timeout 5 git", "git", "rm", "mv", "cp", "chmod", "chown", "dd",
        "awk", "sed", "pip",
        "npm", "npx", "yarn", "pnpm", "uv", "uvx", "cargo", "go", "make", "docker", "kubectl", "terraform", "aws",
        "gcloud", "scp",
        "rsync", "curl", "wget", "tee", "forge", "npm run", "python -m pip", "/usr/bin/python3 -c", "rm -rf",
        "git -C", "docker run",
        "uv run",
        # what informs in one program runs what follows in another
        "bash -h", "sh -V", "docker run -h", "docker run --rm", "python3 - --help", "node --version", "env --help",
        "sudo -h", "xargs --version", "timeout -h", "npm run --help", "npm -s run", "python3 -W ignore",
        "bash -o pipefail", "bash --rcfile f", "perl -I lib",
        # programs that run others
        "vim", "nvim -u", "vi", "emacs -Q", "gdb", "lldb", "R", "ssh -v", "osascript", "less", "man", "tmux", "screen",
        "tar", "zip", "psql", "sqlite3", "java", "gradle", "just", "ninja", "cmake", "podman", "helm", "ansible",
        "systemd-run", "at", "crontab", "strace", "perf", "valgrind", "expect", "gcc", "/usr/bin/vim",
    ],
)  # fmt: skip
def test_banned(text: str) -> None:
    assert is_banned_prefix(tuple(text.split()))


@table(
    "text",
    ["git log", "npm run build", "python -m pytest", "docker compose ps", "pytest", "cargo test", "make test", "ls",
    "bash x.sh",
     "python x.py", "git --version", "git --help", "timeout 5 pytest", "env A=1 pytest", "go test",
     "sudo -u x pytest", "rm build",
     "bash -c ls"],
)  # fmt: skip
def test_not_banned(text: str) -> None:
    assert not is_banned_prefix(tuple(text.split()))


@table(
    ("text", "expected"),
    [
        ("pytest -q tests/a.py", "pytest"),  # A52
        ("python3 -c x", None),  # A52
        ("git log --oneline", "git log"),
        ("npm run build -- --x", "npm run build"),
        ("npm test", "npm test"),
        ("python -m pytest -q", "python -m pytest"),
        ("docker compose ps -a", "docker compose ps"),
        ("docker ps", "docker ps"),
        ("cargo test --all", "cargo test"),
        ("make", None),
        ("make test", "make test"),
        ("vim a.txt", None),
        ("gdb -batch ./a.out", None),
        ("emacs -nw a", None),
        ("R CMD check .", None),
        ("ssh host ls", None),
        ("osascript x.scpt", None),
        ("tar -cf a.tar b", None),
        ("sqlite3 a.db .tables", None),
        ("cmake --build build", None),
        ("docker run alpine sh", None),
        ("docker exec c sh", None),
        ("kubectl exec pod -- sh", None),
        ("kubectl get pods", "kubectl get"),
        ("uv run python x.py", None),
        ("uv tool run black", None),
        ("npx tsc -p .", "npx tsc"),
        ("npx node x.js", None),
        ("bundle exec rspec", "bundle exec rspec"),
        ("poetry run bash", None),
        ("git rebase -x y", None),
        ("git difftool HEAD", None),
        ("git commit -m x", "git commit"),
        ("gh pr view 3", "gh pr view"),
        ("uv run pytest", "uv run pytest"),
        ("git", None),
        ("git -C d log", None),
        ("npm run", None),
        ("npm run -s", None),
        ("rm a", None),
        ("cp a b", None),
        ("python x.py", None),
        ("python", None),
        ("python -m", None),
        ("python -m pip install x", None),
        ("bash x.sh", None),
        ("bash -c ls", None),
        ("sudo ls", None),
        ("/lib/ld-linux-aarch64.so.1 /bin/ls", None),
        ("setarch -R ls", None),
        ("timeout 5 pytest", None),
        ("find . -newer x", None),
        ("./run.sh a", None),
        ("/usr/bin/git log -3", "/usr/bin/git log"),
        ("node x.js", None),
        ("ruff check .", "ruff check"),
        ("npx tsc --noEmit", "npx tsc --noEmit"),
        ("npx tsc -p . --noEmit", None),
        ("cargo +nightly test", None),
    ],
)
def test_choices(text: str, expected: str | None) -> None:
    choices = prefix_choices(tuple(text.split()))
    assert choices == ([] if expected is None else [tuple(expected.split())])
    assert not any(is_banned_prefix(choice) for choice in choices)


@table(
    ("text", "offered", "saved"),
    [
        ("vim a.txt", False, False),
        ("gdb ./a.out", False, False),
        ("ssh host ls", False, False),
        ("make test", True, False),
        ("gradle test --info", True, False),
        ("cargo test", True, True),
        ("npm run build", True, True),
        ("python x.py", True, False),
        ("git log", True, True),
        ("docker run alpine", False, False),
        ("uv run python x.py", True, False),
        ("uv run bash", False, False),
    ],
)
def test_what_a_model_may_suggest(text: str, offered: bool, saved: bool) -> None:
    prefix = tuple(text.split())
    assert (is_offered_prefix(prefix), is_saved_prefix(prefix)) == (offered, saved)


def test_only_what_is_known_is_kept_for_good() -> None:
    """What runs others may have any name; so a rule for all that begins alike outlives the session only if listed."""
    runs_others = (
        "csh tcsh ksh93 yash nu xonsh elvish vim.basic vim.tiny emacs-nox gdb-multiarch original-awk guile-3.0 gcc-12"
        " clang-15 x86_64-linux-gnu-gcc python3.12-dbg rlwrap hyperfine direnv ssh-agent xterm env-cmd split"
        " docker-compose gulp pry mono wine octave-cli cpulimit numactl xvfb-run systemd-nspawn ip sg newgrp sudoedit"
        " mise asdf pyenv nix-shell concurrently cross-env tig fzf nc gnuplot pdflatex"
    )
    for program in runs_others.split():
        assert prefix_choices((program, "x")) == [], program
        assert not is_saved_prefix((program,)) and not is_saved_prefix((program, "x")), program
    for text in (
        "no-such-program", "nix run x", "cargo run", "dotnet run", "rustup run", "opam exec", "rails runner",
        "go generate", "gh alias set", "git filter-repo", "svn diff", "hg log", "npx some-package", "python -m http",
    ):  # fmt: skip
        assert not is_saved_prefix(tuple(text.split())), text
    for text in (
        "pytest", "git log", "npm run build", "python -m pytest", "docker compose ps", "cargo check", "uv run pytest",
        "npx tsc", "/usr/bin/git log", "gh pr view",
    ):  # fmt: skip
        assert is_saved_prefix(tuple(text.split())), text


def test_no_words_no_choice() -> None:
    assert prefix_choices(()) == []
