"""Opening a model by name. Takes `provider:name`, the program's settings and the environment; gives a Model.

Refuses, with ModelError: a missing key (naming its variable), a missing library (naming what to install). With
ConfigError: a name that means nothing, a script that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from golem_forge.config.run_settings import ProviderSettings
from golem_forge.core.errors import ConfigError
from golem_forge.workers.models.layer import Model, ModelError
from golem_forge.workers.models.names import NO_SETTINGS, PROVIDERS, key_variable, missing_key, split_model

INSTALL: Final = "pip install 'golem-forge[models]'"


def open_model(
    model: str,
    *,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    script_root: Path,
    worker: str = "main",
    confined: bool = False,
) -> Model:
    """`worker` names the part of a script that is played; scripts are looked up in `script_root`, and with `confined`
    (a stranger's program named it) they must be inside it."""
    provider, name = split_model(model)
    if provider == "scripted":
        from golem_forge.workers.models.scripted import open_script

        return open_script(name, root=script_root, worker=worker, confined=confined)
    if missing := missing_key(model, settings, environ):
        raise ModelError(missing, code="MODEL_KEY_MISSING")
    base_url = settings.get(provider, NO_SETTINGS).base_url or PROVIDERS[provider].base_url
    if not base_url:
        example = f"models: {{{provider}: {{base_url: …}}}}"
        raise ConfigError(f"model {model!r} needs an address: write `{example}` in forge.yaml")

    variable = key_variable(provider, settings)
    try:
        from golem_forge.workers.models.providers.opening import open_provider
    except ModuleNotFoundError as error:
        raise ModelError(f"{error.name} is not installed: {INSTALL}", code="MODEL_LIBRARY_MISSING") from None
    return open_provider(provider, name, base_url=base_url, key=environ.get(variable, "") if variable else "")
