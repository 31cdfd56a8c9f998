"""The hooks of a session: those of the person, and those of a trusted program with the files they run from.

`prepare_hooks` takes the program as it was read and gives the HookSet of a session. What a program's hook names is read
once, at the session's start, compared with what trust covers, and kept as a snapshot: a model that changes such a file
in a zone changes no hook of a session that runs. Raises ConfigError where the files changed while they were read.
"""

from __future__ import annotations

import os
from pathlib import Path

from golem_forge.agent.trust import import_folders, scan_command
from golem_forge.config.hooks_block import Hook, command_words
from golem_forge.config.program import Program
from golem_forge.config.trust import TrustStore
from golem_forge.core.errors import ConfigError
from golem_forge.policy.hooks import HookSet, ReadyHook
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome


def prepare_hooks(program: Program, trust: TrustStore, home: ForgeHome, *, dry: bool = False) -> HookSet | None:
    """None: there are none. `dry`: nothing is written, and none of them can run."""
    if not program.hooks:
        return None
    return HookSet(tuple(_ready(each, program, trust, home, dry=dry) for each in program.hooks))


def _ready(hook: Hook, program: Program, trust: TrustStore, home: ForgeHome, *, dry: bool) -> ReadyHook:
    if hook.own or dry:
        return ReadyHook(hook=hook)
    files, _ = scan_command(program.root, hook.run)
    if not files:
        return ReadyHook(hook=hook)
    if not trust.trusted_with(program.root, files):
        raise ConfigError(f"{hook.origin}: a file that the hook '{hook.name}' names changed just now; start again")
    executable = [name for name in files if os.access(program.root / name, os.X_OK)]
    snapshot = ContentStore(home).put(files, executable=executable)
    named = [word for word in command_words(hook.run) or () if os.path.isfile(program.root / word)]
    folders = dict.fromkeys(folder for word in named for folder in import_folders(program.root, Path(word)))
    return ReadyHook(hook=hook, snapshot=snapshot, folders=tuple(folders))
