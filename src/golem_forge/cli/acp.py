"""`forge acp`: this program's agent for an editor, over stdin and stdout; `forge acp install` writes its configuration.

Standard output carries frames of the protocol and nothing else: what anything prints goes to standard error, and so
does the log. The end of standard input, SIGTERM and SIGINT end every session and everything that runs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from golem_forge.cli.command import EXIT_OPTIONS, declare, exit_now, exit_overrides, fail, parser, print_error
from golem_forge.cli.mcp.install import (
    PRODUCTS,
    Product,
    ServeCommand,
    forge_command,
    in_home,
    in_settings,
    no_product,
    plain_entry,
    print_entry,
    print_products,
    write_entry,
)
from golem_forge.cli.models import run as run_models
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.errors import install_command
from golem_forge.core.signals import run_to_exit_code, stop_on_termination
from golem_forge.core.text import display_path
from golem_forge.net.stdio import own_pipes
from golem_forge.storage.home import forge_home

HELP: Final = """usage: forge acp [--worker FILE] [-m MODEL] [--approval MODE] [--set KEY.PATH=VALUE]…
       forge acp install [CLIENT] [--write]

An editor starts this command and speaks the Agent Client Protocol with it, over stdin and stdout. The editor then shows
sessions of Forge. A session belongs to the program in the editor's working directory or above it. Where there is no
program, Forge starts the built-in worker.

      --worker FILE           start this worker: a file, or the name of a worker of the program
  -m, --model PROVIDER:NAME   the model of every session (also FORGE_MODEL)
  -a, --approval MODE         interactive, strict, contained, plan, approve_all or auto_deny. An editor can
                              choose approve_all only if it is given here or in the configuration
      --set KEY.PATH=VALUE    a value of forge.yaml for every session (repeat for more)
      --device NAME           let commands use nvidia, dri, kvm or a node below /dev (repeat for more)
      --setup                 choose a model and a key, as `forge models setup` does; editors open a terminal for it
      --socket PATH           let commands reach this Unix socket of the host; each then asks (repeat for more)

`forge acp install` prints the configuration of an editor, or writes it.
The command ends when stdin ends, or with SIGTERM.
Exit: 0 ended, 1 failed, 2 usage."""


INSTALL_HELP: Final = """usage: forge acp install [CLIENT] [--write] [--name NAME]

Prints the configuration with which an editor starts `forge acp`, and the file for that configuration. Without CLIENT it
lists the editors that Forge knows.

  --write      merge it into that file; everything else in it stays
  --name NAME  under this name (default Golem Forge)

In any other client that takes a command, write: forge acp.
Exit: 0 done, 1 the file cannot be merged with, 2 usage, 4 no such editor."""

DEFAULT_NAME: Final = "Golem Forge"
_MOST_NAME: Final = 60


def run(words: list[str]) -> int:
    if words[:1] == ["install"]:
        return run_install(words[1:])
    modes = f"-a,--approval {'|'.join(ApprovalMode)}"
    reader = declare(
        parser("acp", HELP), "--worker FILE", "-m,--model NAME", modes, "--set PAIR…", "--setup", *EXIT_OPTIONS
    )
    asked = reader.parse_args(words)
    if asked.setup:
        return run_models(["setup"])
    if find_spec("acp") is None:
        return fail("acp", f"editors need the package agent-client-protocol: {install_command('acp')}", 1)
    if sys.stdin.isatty():
        return fail("acp", "an editor starts this; `forge acp install` says how, `forge` alone is for a terminal.", 2)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="forge acp: %(message)s")
    worker = asked.worker
    if worker is not None and os.path.isfile(worker):
        worker = os.path.abspath(worker)
    code = run_to_exit_code(_serve(worker, asked.model, asked.approval, [*asked.set, *exit_overrides(asked)]))
    if code == 0:
        exit_now()
    return code


async def _serve(worker: str | None, model: str | None, approval: str | None, overrides: list[str]) -> int:
    from golem_forge.ui.acp.agent import AgentOptions, EditorAgent

    options = AgentOptions(home=forge_home(), worker=worker, model=model, approval=approval, overrides=overrides)
    with own_pipes() as pipes:
        agent = EditorAgent(options, pipes)
        with stop_on_termination(agent.hang_up):
            await agent.run()
    return 0


# ---- install


def run_install(words: list[str]) -> int:
    reader = declare(parser("acp install", INSTALL_HELP), "CLIENT?", "--write", "--name NAME")
    reader.set_defaults(name=DEFAULT_NAME)
    asked = reader.parse_args(words)
    if not asked.name.strip() or len(asked.name) > _MOST_NAME or not asked.name.isprintable():
        reader.error(f"--name is a line of at most {_MOST_NAME} characters")
    root = Path.cwd()
    if asked.client is None:
        if asked.write:
            reader.error("--write needs a CLIENT")
        print_products(EDITORS, root)
        return 0
    if (product := EDITORS.get(asked.client)) is None:
        return no_product("acp install", asked.client, EDITORS)
    start, file = forge_command(["acp"]), product.file(root)
    if (written := _CODE.get(asked.client)) is not None:
        if asked.write:
            print_error("acp install", f"{display_path(file)} is a program. Add this to it by hand:")
        else:
            print(f"{product.title} runs this from {display_path(file)}:", file=sys.stderr)
        sys.stdout.write(written(asked.name, start))
        return 1 if asked.write else 0
    entry = product.entry(start)
    return (write_entry if asked.write else print_entry)("acp install", product, file, asked.name, entry)


def _lua(name: str, start: ServeCommand) -> str:
    """An adapter of CodeCompanion.nvim; the one that it extends needs no login."""
    command = ", ".join(map(json.dumps, (start.command, *start.args)))
    env = "".join(f"          env = {{ {key} = {json.dumps(value)} }},\n" for key, value in start.env.items())
    return (
        'require("codecompanion").setup({\n  adapters = {\n    acp = {\n      golem_forge = function()\n'
        '        return require("codecompanion.adapters").extend("opencode", {\n'
        f'          name = "golem_forge",\n          formatted_name = {json.dumps(name)},\n'
        f"          commands = {{ default = {{ {command} }} }},\n{env}"
        "        })\n      end,\n    },\n  },\n"
        '  interactions = { chat = { adapter = "golem_forge" } },\n})\n'
    )


def _elisp(name: str, start: ServeCommand) -> str:
    """Returns the Emacs Lisp entry for agent-shell."""
    params = " ".join(map(json.dumps, start.args))
    given = " ".join(json.dumps(f"{key}={value}") for key, value in start.env.items())
    env = f"\n                     :environment-variables '({given})" if given else ""
    shown = json.dumps(name)
    return (
        "(with-eval-after-load 'agent-shell\n  (add-to-list\n   'agent-shell-agent-configs\n"
        "   (agent-shell-make-agent-config\n    :identifier 'golem-forge\n"
        f"    :mode-line-name {shown}\n    :buffer-name {shown}\n"
        '    :shell-prompt "Forge> "\n    :shell-prompt-regexp "Forge> "\n'
        "    :client-maker (lambda (buffer)\n                    (acp-make-client\n"
        f"                     :command {json.dumps(start.command)}\n"
        f"                     :command-params '({params}){env}\n"
        "                     :context-buffer buffer)))))\n"
    )


EDITORS: Final[Mapping[str, Product]] = {
    "emacs": Product(title="Emacs, with agent-shell", file=in_home(".emacs.d", "init.el"), entry=plain_entry),
    "jetbrains": Product(
        title="JetBrains IDEs",
        file=in_home(".jetbrains", "acp.json"),
        key="agent_servers",
        entry=plain_entry,
        then="Choose it in the AI Chat tool window.",
    ),
    "neovim": Product(
        title="Neovim, with CodeCompanion", file=in_settings("nvim", "nvim", "init.lua"), entry=plain_entry
    ),
    "vscode": Product(
        title="VS Code, with ACP Client",
        file=in_settings("Code", "Code", "User", "settings.json"),
        key="acp.agents",
        entry=plain_entry,
        then="Choose it in the ACP Client panel.",
    ),
    "zed": Product(
        title="Zed",
        file=PRODUCTS["zed"].file,
        key="agent_servers",
        entry=lambda start: {"type": "custom", **plain_entry(start)},
        then="Open the agent panel and choose it for a new thread.",
    ),
}
_CODE: Final[Mapping[str, Callable[[str, ServeCommand], str]]] = {"emacs": _elisp, "neovim": _lua}
"""Editors that are set up by code of their own: nothing is merged into a program."""
