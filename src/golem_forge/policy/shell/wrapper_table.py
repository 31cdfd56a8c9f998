"""How each regular wrapper reads its own options, as data: which take a value, which a script, what comes before."""

from __future__ import annotations

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
