"""maxk base: writes the base policy, which is pretrained here or taken from the hub or a folder.

Two processes halve the time of pretraining:

    maxk base --processes 2 --config results/config.json
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk import progress, tracking
from maxk.artifacts import environment, files, models
from maxk.artifacts.paths import BASE
from maxk.artifacts.records import Policy
from maxk.config import Config, HubBase, PretrainedBase
from maxk.data import hub, prompts
from maxk.errors import UserError
from maxk.stages.grade import up_to


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=up_to(4096, int),
        default=1,
        help="for pretraining; two take half the time and write the same bits, more are not used (default: 1)",
    )


def run(args: argparse.Namespace) -> None:
    config = configuration.load(args.config)
    folder = Path(config.layout.policy(BASE)).parent
    with files.lock(folder), tracking.stage(config, "base", policy=BASE) as run:
        settings = config.settings("base")
        run.params(settings)
        model, revision = _model(config, run, args.processes)
        lineage = {"settings": settings, "weights": _identity(config, model, revision)}
        policy = Policy(BASE, config.label(BASE), model, revision, lineage, _made_with(config))
        require_usable(config, policy)
        files.write_policy(config.layout.policy(BASE), policy)
        run.artifact(config.layout.policy(BASE))


def _model(config: Config, run: tracking.Run, processes: int) -> tuple[str, str | None]:
    if not isinstance(config.base, PretrainedBase):
        return config.base.model, _reachable(config.base)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # two threads learn the tokens more slowly than one
    environment.quiet_libraries()
    from maxk.training.pretrain import pretrain

    folder = Path(config.layout.policy(BASE)).parent / "model"
    steps = config.base.steps
    used = min(processes, config.base.processes)
    if used < processes:  # `snakemake --set-threads base=4`
        print(f"pretrain base: {used} of {processes} processes are used", file=sys.stderr)
    track = partial(progress.track, total=steps, label="pretrain base")
    curve = pretrain(config.base, config.prompt, folder, track, used)
    for step, loss in curve["loss"]:
        run.metrics({"loss": loss}, step=step)
    return str(folder), None


def opened(model: str, revision: str | None) -> tuple[Any, Any]:
    """Tokenizer and configuration of a model, so that a wrong name or a missing network is reported before any work.

    Raises UserError if they cannot be loaded, and for a folder without weights that are safe to read.
    """
    if Path(model).is_dir() and not any(Path(model).glob("*.safetensors")):
        raise UserError(
            f"base.model {model!r} has no *.safetensors; other weight files can run code when they are read, so "
            "convert them: load the model where you trust it and call save_pretrained"
        )
    environment.quiet_libraries()  # first, since the configuration's class imports transformers
    try:
        found = models.config(model, revision)
        return models.tokenizer(model, revision), found
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"base.model {model!r} cannot be loaded ({reason[:200]}); give a hub id or an existing folder, and check "
            "base.revision, HF_HUB_OFFLINE and HF_TOKEN"
        ) from None


def require_usable(config: Config, policy: Policy) -> None:
    """Raises UserError for a model that later stages cannot use: they would fail only once they hold a GPU."""
    from maxk import sampling

    tokenizer = models.tokenizer(policy.model, policy.revision)
    prompts.render("statement", config.prompt, tokenizer)
    sampling.require_supported(policy, config.sampling)
    sampling.stop_tokens(policy, tokenizer, config.sampling)
    own = models.context_length(models.config(policy.model, policy.revision))
    wanted = [("sampling.max_tokens", config.sampling.max_tokens, sampling.context_limit(policy, config.sampling))]
    wanted += [("training.max_tokens", config.training_of(one).max_tokens, own) for one in config.objectives]
    for key, tokens, limit in wanted:
        if limit is not None and tokens >= limit:
            raise UserError(
                f"{key}={tokens} leaves no room for a prompt: {policy.model} takes {limit} tokens in all; set a lower "
                "number"
            )


def _made_with(config: Config) -> dict[str, str]:
    """Versions, and for weights made here what they were computed on."""
    computed = {"device": environment.device()} if isinstance(config.base, PretrainedBase) else {}
    return {**environment.versions(), **computed}


def _identity(config: Config, model: str, revision: str | None) -> str:
    """Identifies weights that the settings do not determine: a digest of a folder, or the commit from the hub."""
    if isinstance(config.base, PretrainedBase):
        return "pretrained"
    return models.digest(model, config.layout.input_digests) or str(revision)


def _reachable(base: HubBase) -> str | None:
    """The commit that the hub serves and all later stages use; None for a folder."""
    _, found = opened(base.model, base.revision)
    commit = None if Path(base.model).is_dir() else str(found._commit_hash)
    if commit not in (None, base.revision):
        hub.warn_of_movable("base", base.model, base.revision or "main", commit)
    return commit
