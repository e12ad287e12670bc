"""`maxk push POLICY`: exports a trained policy with a model card, as a folder or to the Hugging Face hub.

    maxk push grpo/seed0 --folder my-policy      # writes the folder only; nothing leaves the machine
    maxk push grpo/seed0 --to me/my-policy       # uploads it to a private repository; --public makes it public

The card is made from the policy's scores and provenance (`maxk.reporting.card`); `provenance.json` has the full
provenance. The hub's token comes from HF_TOKEN or `hf auth login`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from maxk import config as configuration
from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.errors import UserError, suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", help="OBJECTIVE/seedN")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="REPO", help="hub repository such as me/my-policy; created if needed")
    where.add_argument("--folder", type=Path, help="write to this new folder and upload nothing")
    parser.add_argument("--public", action="store_true", help="create a public repository (default: private)")


def run(args: argparse.Namespace) -> None:
    config = configuration.load(args.config)
    if args.to is not None:
        _require_token()
    elif args.folder.exists():
        raise UserError(f"--folder {args.folder} exists; name a new folder")
    elif not args.folder.parent.is_dir():
        raise UserError(f"--folder {args.folder}: no folder {args.folder.parent}; make it, or name another folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary, "policy")
        write(config, args.policy, folder)
        if args.to is None:
            print(f"{args.policy} is in {folder}")
        else:
            print(f"{args.policy} is at {_upload(folder, args.to, args.policy, private=not args.public)}")


def write(config: Config, name: str, folder: Path) -> None:
    """Writes the folder: model, tokenizer, card and provenance. Raises UserError if the policy has no weights here."""
    from maxk.reporting import card
    from maxk.reporting.load import load

    known = [policy for policy in config.every_policy if policy != BASE]
    if name not in known:
        what = "the base policy is not trained" if name == BASE else f"no trained policy {name!r}{suggest(name, known)}"
        raise UserError(f"{what}; {_example(config)}")
    path = Path(config.layout.policy(name))
    if not path.exists():
        raise files.absent(path)
    policy = files.read_policy(path)
    if not Path(policy.model).is_dir():
        raise UserError(f"{policy.model}: no such folder, but {path} names it; delete {path} and train {name} again")
    base = files.read_policy(config.layout.policy(BASE))
    objective, _, seed = name.partition("/seed")
    alone = config.only([objective]).model_copy(update={"seeds": (int(seed),)})
    readme = card.text(config, policy, base, load(alone))
    shutil.copytree(policy.model, folder)
    files.write_text(folder / "README.md", readme)
    kept = {key: value for key, value in asdict(policy).items() if key != "model"}  # a path on this machine
    files.write_json(folder / "provenance.json", kept)


def _example(config: Config) -> str:
    """The policies that can be named, as part of an error."""
    objective = next(iter(config.every_objective), None)
    if objective is None:
        return "this experiment has no objectives, so it trains no policy"
    return f"give OBJECTIVE/seedN, such as {config.seeded(objective)[0]}"


def _require_token() -> None:
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise UserError("--to: HF_HUB_OFFLINE is set; unset it, or write a folder with --folder")
    if get_token() is None:
        raise UserError("--to: the hub needs a token; set HF_TOKEN or run `hf auth login`")


def _upload(folder: Path, repo: str, name: str, private: bool) -> str:
    """Uploads the folder; returns the repository's address. Raises UserError if the hub refuses or is unreachable."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    try:
        made = HfApi().create_repo(repo, private=private, exist_ok=True)
        HfApi().upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message=f"Policy {name}")
    except (httpx.HTTPError, HFValidationError, OSError) as error:
        raise UserError(f"--to {repo}: {' '.join(str(error).split())[:300]}") from None
    return str(made)
