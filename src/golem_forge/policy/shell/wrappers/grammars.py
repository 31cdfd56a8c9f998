"""How each regular wrapper reads its own options, as data: which take a value, which a script, what comes before."""

from __future__ import annotations

import re
from dataclasses import dataclass

from golem_forge.policy.shell.names import names


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options that take a value, those whose value is a script, and how many operands come before."""

    short: str = ""
    long: frozenset[str] = frozenset()
    before: int = 0
    script_short: str = ""
    script_long: str = ""
    joined: bool = False  # the rest is joined and given to a shell
    directory: frozenset[str] = frozenset()  # the options whose value is the working directory


GRAMMARS: dict[str, Grammar] = {
    "sudo": Grammar(
        "CDghpRrTtUu",
        names(
            "--user --group --host --prompt --chdir --close-from --role --type --other-user --chroot --command-timeout"
        ),
        directory=names("-D --chdir"),
    ),
    "doas": Grammar("aCu"),
    "pkexec": Grammar("", names("--user")),
    "nice": Grammar("n", names("--adjustment")),
    "ionice": Grammar("cnpPu", names("--class --classdata --pid --pgid --uid")),
    "nohup": Grammar(),
    "setsid": Grammar(),
    "stdbuf": Grammar("ioe", names("--input --output --error")),
    "timeout": Grammar("ks", names("--kill-after --signal"), before=1),
    "time": Grammar("fo", names("--format --output")),
    "watch": Grammar("nq", names("--interval --equexit"), joined=True),
    "builtin": Grammar(),
    "exec": Grammar("a"),
    "eval": Grammar(joined=True),
    "flock": Grammar(
        "wE", names("--wait --timeout --conflict-exit-code"), 1, script_short="c", script_long="--command"
    ),
    "unshare": Grammar(
        "SGRw",
        names("--map-user --map-group --map-users --map-groups --root --wd --setuid --setgid --propagation"),
        directory=names("-w --wd"),
    ),
    "nsenter": Grammar("tSG", names("--target --setuid --setgid")),
    "script": Grammar(
        "EIOBTmo",
        names("--echo --log-in --log-out --log-io --log-timing --logging-format --output-limit"),
        1,
        script_short="c",
        script_long="--command",
    ),
    "taskset": Grammar("", before=1),
    "chrt": Grammar("TPD", names("--sched-runtime --sched-period --sched-deadline"), before=1),
    "setpriv": Grammar("", names("--reuid --regid --groups --inh-caps --bounding-set --securebits")),
    "prlimit": Grammar("p", names("--pid")),
    "strace": Grammar("aeEIoOpPsSuUXb", names("--trace --output --attach --user --env --signal")),
    "ltrace": Grammar("aAeFlnopsuwxX", names("--output --library")),
    "systemd-run": Grammar("pEuMHG", names("--unit --property --description --slice --setenv --uid --gid")),
    "unbuffer": Grammar(),
    "dbus-run-session": Grammar("", names("--config-file --dbus-daemon")),
    "systemd-inhibit": Grammar("", names("--what --who --why --mode")),
    "fakeroot": Grammar("lsib"),
    "repeat": Grammar(before=1),
    "xvfb-run": Grammar("enfspw", names("--error-file --server-num --auth-file --server-args --xauth-protocol --wait")),
    "rlwrap": Grammar("abcCDefgHlmMOpPqsStwz"),
    "cpulimit": Grammar("lpePc", names("--limit --pid --exe --path --cpu")),
    "numactl": Grammar("CNmipP", names("--physcpubind --cpunodebind --membind --interleave --preferred")),
    "choom": Grammar("np", names("--adjust --pid")),
    "runcon": Grammar("rtul", names("--role --type --user --range"), before=1),
    "faketime": Grammar("pf", before=1),
    "ssh-agent": Grammar("aEOPt"),
    "dbus-launch": Grammar(),
    "cross-env": Grammar(),
    "cross-env-shell": Grammar(joined=True),
    "env-cmd": Grammar("efr", names("--environments --file --rc-file")),
    "dotenv": Grammar("efvc", names("--env --file")),
    "caffeinate": Grammar("tw"),
    "eatmydata": Grammar(),
    "torsocks": Grammar("uaPp"),
    "proxychains": Grammar("f"),
    "proxychains4": Grammar("f"),
    "firejail": Grammar(),
    "proot": Grammar("rbqwkv", names("--rootfs --bind --qemu --pwd --cwd"), directory=names("-w --pwd --cwd")),
    "systemd-nspawn": Grammar("DMuibE", names("--directory --machine --user --image --bind --setenv")),
    "chpst": Grammar("uUbemdofcrtnl"),
    "sg": Grammar("", before=1, script_short="c"),
    "newgrp": Grammar("", before=1, script_short="c"),
    "xterm": Grammar("", names("-T -title -geometry -fn -fa -fs -bg -fg")),
}

LOADER = Grammar("", names("--library-path --preload --audit --inhibit-rpath --argv0 --glibc-hwcaps-mask"))
LOADER_NAME = re.compile(r"ld(-linux|-musl|64|32)?[\w.-]*\.so[.\d]*")
SETARCH = names("setarch linux32 linux64 i386 i486 i586 i686 x86_64 aarch64 arm uname26")
SSH_VALUED = "BbcDEeFIiJLlmOopPQRSWw"
CHROOT = Grammar("", names("--userspec --groups"), before=1)
XARGS = Grammar(
    "adEILnPs",
    names("--arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var"),
)
PARALLEL = Grammar(
    "ajnNLISPsCEd",
    names("--jobs --max-args --max-replace-args --arg-file --sshlogin --delay --joblog --timeout --colsep --workdir"),
    directory=names("--workdir --wd"),
)
ENV = Grammar("uCaP", names("--unset --chdir --argv0"), directory=names("-C --chdir"))
# Long options known to take no value; after any other one the next word may be its value or the command.
PLAIN_LONG = names(
    "--help --version --verbose --ignore-environment --null --debug --foreground --preserve-status --fork --ctty --wait"
    " --no-run-if-empty --exit --interactive --open-tty --show-limits --keep-order --dry-run --line-buffer --group"
    " --ungroup --bar --progress --eta --halt-on-error --preserve-env --non-interactive --login --stdin --shell"
    " --background --exclusive --shared --nonblock --unlock --close --no-fork --quiet --append --flush --return"
    " --color --differences --errexit --chgexit --beep --precise --no-title --exec --portability --map-root-user"
    " --user --mount --net --pid --ipc --uts --cgroup --mount-proc --skip-chdir --list --command"
)
SU = Grammar("gGsTw", names("--group --supp-group --shell --whitelist-environment --user"))

_GIT_RUNS = {"foreach": "submodule", "run": "bisect"}
