"""The tables of wrappers and of offered rules, as data.

How each regular wrapper reads its own options: which take a value, which a script, what comes before. And what a rule
that a card offered covers beyond its own words: options and operands of ordinary commands, and the subcommands of which
no such rule is offered, or one that is kept for good.
"""

from __future__ import annotations

import re
from typing import Literal

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import names


@dataclass(frozen=True, slots=True)
class WrapperGrammar:
    """The options that take a value, those whose value is a script, and how many operands come before."""

    short: str = ""
    long: frozenset[str] = frozenset()
    before: int = 0
    script_short: str = ""
    script_long: str = ""
    joined: bool = False  # the rest is joined and given to a shell
    directory: frozenset[str] = frozenset()  # the options whose value is the working directory


GRAMMARS: dict[str, WrapperGrammar] = {
    **dict.fromkeys(names("nohup setsid builtin unbuffer dbus-launch cross-env eatmydata firejail"), WrapperGrammar()),
    "sudo": WrapperGrammar(
        "CDghpRrTtUu",
        names(
            "--user --group --host --prompt --chdir --close-from --role --type --other-user --chroot --command-timeout"
        ),
        directory=names("-D --chdir"),
    ),
    "doas": WrapperGrammar("aCu"),
    "pkexec": WrapperGrammar("", names("--user")),
    "nice": WrapperGrammar("n", names("--adjustment")),
    "ionice": WrapperGrammar("cnpPu", names("--class --classdata --pid --pgid --uid")),
    "stdbuf": WrapperGrammar("ioe", names("--input --output --error")),
    "timeout": WrapperGrammar("ks", names("--kill-after --signal"), before=1),
    "time": WrapperGrammar("fo", names("--format --output")),
    "watch": WrapperGrammar("nq", names("--interval --equexit"), joined=True),
    "exec": WrapperGrammar("a"),
    "eval": WrapperGrammar(joined=True),
    "flock": WrapperGrammar(
        "wE", names("--wait --timeout --conflict-exit-code"), 1, script_short="c", script_long="--command"
    ),
    "unshare": WrapperGrammar(
        "SGRw",
        names("--map-user --map-group --map-users --map-groups --root --wd --setuid --setgid --propagation"),
        directory=names("-w --wd"),
    ),
    "nsenter": WrapperGrammar("tSG", names("--target --setuid --setgid")),
    "script": WrapperGrammar(
        "EIOBTmo",
        names("--echo --log-in --log-out --log-io --log-timing --logging-format --output-limit"),
        1,
        script_short="c",
        script_long="--command",
    ),
    "taskset": WrapperGrammar("", before=1),
    "chrt": WrapperGrammar("TPD", names("--sched-runtime --sched-period --sched-deadline"), before=1),
    "setpriv": WrapperGrammar("", names("--reuid --regid --groups --inh-caps --bounding-set --securebits")),
    "prlimit": WrapperGrammar("p", names("--pid")),
    "strace": WrapperGrammar("aeEIoOpPsSuUXb", names("--trace --output --attach --user --env --signal")),
    "ltrace": WrapperGrammar("aAeFlnopsuwxX", names("--output --library")),
    "systemd-run": WrapperGrammar("pEuMHG", names("--unit --property --description --slice --setenv --uid --gid")),
    "dbus-run-session": WrapperGrammar("", names("--config-file --dbus-daemon")),
    "systemd-inhibit": WrapperGrammar("", names("--what --who --why --mode")),
    "fakeroot": WrapperGrammar("lsib"),
    "repeat": WrapperGrammar(before=1),
    "xvfb-run": WrapperGrammar(
        "enfspw", names("--error-file --server-num --auth-file --server-args --xauth-protocol --wait")
    ),
    "rlwrap": WrapperGrammar("abcCDefgHlmMOpPqsStwz"),
    "cpulimit": WrapperGrammar("lpePc", names("--limit --pid --exe --path --cpu")),
    "numactl": WrapperGrammar("CNmipP", names("--physcpubind --cpunodebind --membind --interleave --preferred")),
    "choom": WrapperGrammar("np", names("--adjust --pid")),
    "runcon": WrapperGrammar("rtul", names("--role --type --user --range"), before=1),
    "faketime": WrapperGrammar("pf", before=1),
    "ssh-agent": WrapperGrammar("aEOPt"),
    "cross-env-shell": WrapperGrammar(joined=True),
    "env-cmd": WrapperGrammar("efr", names("--environments --file --rc-file")),
    "dotenv": WrapperGrammar("efvc", names("--env --file")),
    "caffeinate": WrapperGrammar("tw"),
    "torsocks": WrapperGrammar("uaPp"),
    **dict.fromkeys(("proxychains", "proxychains4"), WrapperGrammar("f")),
    "proot": WrapperGrammar("rbqwkv", names("--rootfs --bind --qemu --pwd --cwd"), directory=names("-w --pwd --cwd")),
    "systemd-nspawn": WrapperGrammar("DMuibE", names("--directory --machine --user --image --bind --setenv")),
    "chpst": WrapperGrammar("uUbemdofcrtnl"),
    **dict.fromkeys(("sg", "newgrp"), WrapperGrammar("", before=1, script_short="c")),
    "xterm": WrapperGrammar("", names("-T -title -geometry -fn -fa -fs -bg -fg")),
}

LOADER = WrapperGrammar("", names("--library-path --preload --audit --inhibit-rpath --argv0 --glibc-hwcaps-mask"))
LOADER_NAME = regex(r"ld(-linux|-musl|64|32)?[\w.-]*\.so[.\d]*")
SETARCH = names("setarch linux32 linux64 i386 i486 i586 i686 x86_64 aarch64 arm uname26")
SSH_VALUED = "BbcDEeFIiJLlmOopPQRSWw"
CHROOT = WrapperGrammar("", names("--userspec --groups"), before=1)
XARGS = WrapperGrammar(
    "adEILnPs",
    names("--arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var"),
)
PARALLEL = WrapperGrammar(
    "ajnNLISPsCEd",
    names("--jobs --max-args --max-replace-args --arg-file --sshlogin --delay --joblog --timeout --colsep --workdir"),
    directory=names("--workdir --wd"),
)
ENV = WrapperGrammar("uCaP", names("--unset --chdir --argv0"), directory=names("-C --chdir"))
# Long options known to take no value; after any other one the next word may be its value or the command.
PLAIN_LONG = names(
    "--help --version --verbose --ignore-environment --null --debug --foreground --preserve-status --fork --ctty --wait"
    " --no-run-if-empty --exit --interactive --open-tty --show-limits --keep-order --dry-run --line-buffer --group"
    " --ungroup --bar --progress --eta --halt-on-error --preserve-env --non-interactive --login --stdin --shell"
    " --background --exclusive --shared --nonblock --unlock --close --no-fork --quiet --append --flush --return"
    " --color --differences --errexit --chgexit --beep --precise --no-title --exec --portability --map-root-user"
    " --user --mount --net --pid --ipc --uts --cgroup --mount-proc --skip-chdir --list --command"
)
SU = WrapperGrammar("gGsTw", names("--group --supp-group --shell --whitelist-environment --user"))

GIT_RUNS = {"foreach": "submodule", "run": "bisect"}
"""Word that starts a command → subcommand of git it belongs to."""


# What follows these is a target of the project's, but more may follow it (`make test SHELL=…`): for the session only.
TASK_RUNNERS = names("make gmake just task rake gradle mvn")

# Subcommands that delete, overwrite, install or publish: a yes to one of them is a yes to that one.
ONE_BY_ONE: dict[str, frozenset[str]] = {
    "git": names(
        "rm mv clean reset restore checkout-index update-index update-ref gc prune reflog replace revert am apply"
        " cherry-pick clone init remote:add remote:remove remote:rename remote:set-url remote:update worktree:add"
        " worktree:remove stash:drop stash:clear stash:branch"
    ),
    "npm": names(
        "install i ci add update up upgrade uninstall remove rm un publish unpublish link init create rebuild"
    ),
    **dict.fromkeys(
        ("yarn", "pnpm", "bun"), names("add install i remove rm up upgrade update publish link create import dlx")
    ),
    **dict.fromkeys(("pip", "pip3"), names("install uninstall download wheel config cache")),
    "uv": names("add remove sync lock publish pip:install pip:uninstall pip:sync venv python self cache"),
    **dict.fromkeys(("poetry", "pdm", "hatch"), names("add remove install update publish self env config")),
    "bundle": names("install update add remove config init"),
    "pipx": names("install uninstall upgrade inject reinstall"),
    **dict.fromkeys(("conda", "mamba"), names("install create remove update env config")),
    "cargo": names("install uninstall add remove update publish yank run clean login owner"),
    "go": names("install get generate clean env mod:download mod:edit mod:init"),
    "deno": names("install add uninstall remove upgrade publish eval"),
    **dict.fromkeys(("gem", "composer", "brew", "apt", "apt-get", "dnf", "apk", "rustup"), names("*")),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"),
        names(
            "rm rmi kill stop restart pull push build cp commit create start load import save login update rename"
            " compose:up compose:down compose:rm compose:kill compose:stop compose:build compose:pull compose:push"
            " compose:cp compose:start compose:create system:prune container:prune container:rm container:run"
            " container:exec container:cp image:rm image:prune image:pull image:push image:build image:load volume:rm"
            " volume:prune volume:create network:rm network:prune network:create buildx:build builder:prune"
        ),
    ),
    "kubectl": names(
        "delete apply create replace patch edit scale drain cordon taint cp attach port-forward proxy set"
    ),
    **dict.fromkeys(("terraform", "tofu"), names("apply destroy import init taint state:rm state:mv state:push")),
    "helm": names("install upgrade uninstall delete rollback"),
    "systemctl": names("start stop restart reload enable disable mask unmask kill daemon-reload isolate edit reboot"),
    "gh": names(
        "pr:merge pr:close pr:checkout repo:delete repo:create repo:clone release:create release:delete auth:login"
        " auth:token secret:set alias:set extension:install api run:rerun run:cancel issue:close issue:delete"
        " gist:create"
    ),
}


# The only ones for which a rule for everything that begins alike is kept for good: the project's own checks, and
# programs that show something. Threat: whatever else is offered by its name alone may start other programs by an option
# or operand that nobody thought of, and such a rule outlives the session in which a person watched it.
SAVED_PROGRAMS = names(
    "pytest py.test unittest mypy pyright black isort flake8 pylint pycodestyle pydocstyle bandit yamllint eslint"
    " tsc prettier stylelint jest vitest rubocop rspec shellcheck shfmt hadolint markdownlint gofmt rustfmt"
    " clang-format stylua phpunit phpstan ls cat tac head tail wc nl cut paste tr grep egrep fgrep stat file du df"
    " diff cmp comm uniq basename dirname realpath readlink md5sum sha1sum sha256sum sha512sum cksum echo pwd true"
    " false whoami id uname which seq tree jq mkdir touch"
)
SAVED_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": names(
        "log status diff show blame shortlog describe rev-parse rev-list ls-files ls-tree cat-file add commit"
        " stash:list stash:show worktree:list remote:show"
    ),
    "ruff": names("check format"),
    "npm": names("test ls list outdated audit"),
    "yarn": names("test"),
    "pnpm": names("test ls list"),
    "cargo": names("check clippy test fmt build doc tree metadata"),
    "go": names("fmt doc version"),
    "docker": names("ps images logs inspect version info compose:ps compose:logs compose:images compose:ls"),
    "podman": names("ps images logs inspect version info compose:ps compose:logs"),
    "gh": names("pr:view pr:list pr:diff pr:status pr:checks issue:view issue:list run:view run:list"),
    **dict.fromkeys(("pip", "pip3"), names("list show freeze check")),
    "uv": names("pip:list pip:show tree"),
}

# Words of a subcommand that delete, change, install, publish, or run what is named after them. Where no table knows the
# program they are covered neither as its subcommand nor as a word after it: `gcloud compute instances delete`.
DESTROYING_WORDS = names(
    "delete del rm remove destroy drop purge prune uninstall erase wipe clear clean reset rollback install publish"
    " unpublish deploy undeploy upload push downgrade truncate flush nuke trash expunge evict dropall teardown"
    " overwrite"
)
"""A target or script with one of these words is covered only exactly as it was allowed, even if a project names it."""
CHANGING_WORDS = DESTROYING_WORDS | names(
    "strip terminate unlink restore undo revert kill stop restart reboot shutdown disable enable detach down up start"
    " upgrade update link init apply create add new set unset put patch replace edit write import load migrate rename"
    " repair rebuild reindex vacuum stamp squash seed bootstrap provision promote demote failover rotate renew cancel"
    " close submit post release bump register unregister lock unlock freeze archive unarchive resize insert upsert save"
    " move mv cp copy sync send transfer login logout token alias grant revoke scale drain merge clone fork checkout"
    # what runs something
    " run runner exec execute eval evaluate shell console repl cmd command script ssh invoke call spawn attach debug cc"
)


@dataclass(frozen=True, slots=True)
class CoveredForm:
    """The words that a rule from a card covers beyond its own: these options, in full or as letters of a cluster (`:`
    ends the cluster with a value), and these operands. A word that begins with `@` names a file of more words and is
    never covered.
    """

    options: frozenset[str]
    operands: Literal["any", "files", "nouns", "names", "none"] = "any"
    script_options: frozenset[str] = frozenset()  # options of a script that the project names, after `--`
    leads: bool = True  # the choice that the card shows first
    apart: bool = False  # the program looks for the values of a cluster in the words after it


def _form(
    options: str,
    operands: Literal["any", "files", "nouns", "names", "none"] = "any",
    *,
    script_options: str = "",
    leads: bool = True,
    apart: bool = False,
) -> CoveredForm:
    return CoveredForm(names(options), operands, names(script_options), leads, apart)


_PYTEST = _form(
    "-q -v -x -s -l -k: -m: -n: -r: --quiet --verbose --exitfirst --maxfail --tb --lf --last-failed --ff --failed-first"
    " --nf --new-first --sw --stepwise --co --collect-only --durations --durations-min --no-header --no-summary"
    " --disable-warnings --showlocals --color --strict-markers --strict-config --runxfail --setup-show --timeout --cov"
    " --no-cov --dist --numprocesses --fixtures --markers"
)
# No option that names a file, a module, a plug-in or a report: `eslint --format ./x.js` and `rspec -r x` load code.
_CHECKER_OPTIONS = (
    "-q -v -l --quiet --verbose --check --diff --fix --write --list-different --color --no-color --strict --statistics"
    " --select --ignore --line-length --target-version --max-line-length --max-warnings --ext --pretty"
    " --ignore-missing-imports --show-error-codes --no-error-summary --check-only --coverage --ci --runInBand --bail"
    " --silent --run --watch=false --watchAll=false --testNamePattern --passWithNoTests --severity"
)
_CHECKER = _form(_CHECKER_OPTIONS)
_TASK = _form(
    "-j: -k -s -n -B -q --jobs --keep-going --silent --quiet --dry-run --just-print --always-make --info --stacktrace"
    " --offline --continue --no-print-directory --output-sync",
    "none",
)
_SCRIPT = _form("-s --silent --if-present", script_options=_CHECKER_OPTIONS)
_CARGO = _form(
    "-q -v -p: -j: --all --workspace --release --package --lib --bins --bin --tests --test --all-targets --all-features"
    " --no-default-features --features --quiet --verbose --locked --offline --frozen --no-run --no-deps --doc --check"
    " --nocapture --test-threads --exact --ignored --show-output --keep-going -- -D: -W: -A:"
)
_GO = _form(
    "-v -run -count -race -cover -short -timeout -bench -benchmem -failfast -parallel -shuffle -json -skip -cpu -list"
)
_DOCKER_SHOW = _form("-a -q -f: -n: --all --quiet --format --filter --no-trunc")
_DOCKER_LOGS = _form("-n: -t --tail --since --until --timestamps --details")  # its `-f` follows for ever
COVERED_FORMS: dict[tuple[str, ...], CoveredForm] = {
    **dict.fromkeys((("pytest",), ("py.test",)), _PYTEST),
    **{
        (name,): _CHECKER
        for name in names(
            "mypy pyright black isort flake8 pylint pycodestyle pydocstyle bandit yamllint eslint prettier stylelint"
            " jest vitest rubocop rspec shellcheck shfmt hadolint markdownlint gofmt rustfmt clang-format stylua"
            " phpunit phpstan unittest"
        )
    },
    **{
        ("ruff", name): _form(_CHECKER_OPTIONS + " --output-format --extend-select --no-cache --preview --show-fixes")
        for name in ("check", "format")
    },
    ("tsc",): _form(_CHECKER_OPTIONS + " -p: -b --project --build --noEmit --skipLibCheck --incremental"),
    **{(name,): _TASK for name in TASK_RUNNERS},
    ("mvn",): _form("-q -B -o -e --quiet --batch-mode --offline --errors", "none"),  # its `-s` names a file of settings
    **{(name, *rest): _SCRIPT for name in ("npm", "yarn", "pnpm", "bun") for rest in (("test",), ("run",))},
    ("npm", "audit"): _form("--json", "none"),
    **{("cargo", name): _CARGO for name in ("check", "clippy", "test", "fmt", "build", "doc")},
    **{("go", name): _GO for name in ("test", "vet", "build")},
    ("go", "mod", "tidy"): _form("-v"),
    ("go", "fmt"): _form("-x -n"),
    **{(name, command): _DOCKER_SHOW for name in ("docker", "podman") for command in ("ps", "images")},
    **{(name, "logs"): _DOCKER_LOGS for name in ("docker", "podman")},
    ("git", "add"): _form("-A -u -v -n -N --all --update --verbose --dry-run --intent-to-add --"),
    ("git", "commit"): _form("-m: -a -q -v -s --message --all --quiet --verbose --signoff --no-edit --allow-empty --"),
    ("git", "checkout", "-b"): _form("-q --quiet", "names"),
    ("git", "switch"): _form("-c: -q --create --quiet --guess --no-guess", "names"),
    ("git", "stash", "push"): _form("-m: -u -q -k --message --include-untracked --quiet --keep-index --"),
    **{("git", "stash", name): _form("-q --quiet --index", "names") for name in ("pop", "apply")},
    ("git", "fetch"): _form("-q -v -p -t --all --prune --tags --quiet --verbose --depth", "names", leads=False),
    ("git", "pull"): _form("-q -v --ff-only --no-rebase --quiet --verbose", "names", leads=False),
    ("git", "push"): _form("-q -v -u -n --set-upstream --quiet --verbose --dry-run", "names", leads=False),
    ("git", "merge"): _form("-q -v --ff-only --no-ff --no-edit --abort --quiet", "names", leads=False),
    ("tree",): _form(
        "-a -d -f -i -s -h -p -D -t -r -C -n -L: -I: -P: --dirsfirst --noreport --gitignore --du --prune", apart=True
    ),
    ("tail",): _form("-n: -c: -q -v -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 --lines --bytes --quiet --silent --verbose", "files"),
    ("mkdir",): _form("-p -v --parents --verbose"),
    ("touch",): _form("-a -m -c --no-create"),
    ("file",): _form("-b -i -k -L -h -z -p -r -s -N -0 --brief --mime --mime-type --mime-encoding --uncompress"),
    ("uniq",): _form("-c -d -u -i", "none"),  # the second operand is written
}
"""Rows by the first words of the command; runners before them (`python -m`, `npx`, `uv run`) are left out."""
_SHOWING_OPTIONS = (
    "-a -q -v -n: --all --quiet --verbose --json --namespace --no-color --help --outdated --format --limit --state"
    " --depth"
)
ANY_SUBCOMMAND = _form(_SHOWING_OPTIONS, "nouns", leads=False)
"""Used for programs that have no row of their own."""
ANY_SHOWING = _form(_SHOWING_OPTIONS, leads=False)
"""Used for subcommands that only show something."""
ANY_GIT = _form("-q -v --quiet --verbose", "names", leads=False)
"""Used for subcommands of git that have no row of their own."""
COVERED_OPERANDS = {
    "any": regex(r"[^@].*|", re.DOTALL),
    "files": regex(r"[^@+].*|", re.DOTALL),  # no option of old: `tail +1f` follows for ever
    "nouns": regex(r"(?!@)[^=]*", re.DOTALL),  # no `SHELL=x`, and none of `CHANGING_WORDS`
    "names": regex(r"[A-Za-z0-9_][A-Za-z0-9_./@{}-]*"),  # no `ext::sh …`, no `+ref`, no `:ref`
    "none": regex(r"[0-9]+"),
}
