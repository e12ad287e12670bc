"""The pocket base model: an exact tokenizer, a model that learns, an ordinary folder, the same for the same
seed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from maxk.artifacts import files
from maxk.config import Config, PretrainedBase, Tracking
from maxk.data.pocket import Corpus
from maxk.data.prompts import Prompt
from maxk.errors import UserError
from maxk.training import pretrain as module
from maxk.training.pretrain import pretrain

SMALL = PretrainedBase.model_validate(
    {
        "source": "pretrain",
        "corpus": {"size": 1500},
        "architecture": {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "vocabulary": 250},
        "steps": 60,
        "batch_size": 32,
        "learning_rate": 1e-2,
    }
)
PROMPT = Prompt(template="# {statement}\n")
UNSEEN = Corpus(size=400).pairs(123)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("base") / "model"
    return folder, pretrain(SMALL, PROMPT, folder)


@pytest.fixture(scope="module")
def tokenizer(made: tuple[Path, dict[str, Any]]) -> Any:
    return AutoTokenizer.from_pretrained(made[0])


def test_loss_falls(made: tuple[Path, dict[str, Any]]) -> None:
    steps, losses = zip(*made[1]["loss"], strict=True)
    assert steps == tuple(range(3, 61, 3))
    assert losses[-1] < 0.6 * losses[0]


def test_folder_is_an_ordinary_one_and_generates(made: tuple[Path, dict[str, Any]], tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(made[0])
    assert model.num_parameters() == made[1]["parameters"]
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )
    assert tokenizer.padding_side == "left"
    assert len(tokenizer) == made[1]["vocabulary"] == 250
    batch = tokenizer(["# sort, show\n", "# sort down, shift 2 left, show\n"], return_tensors="pt", padding=True)
    written = model.generate(**batch, max_new_tokens=8, do_sample=False)
    assert tokenizer.decode(written[0], skip_special_tokens=True).startswith("# sort, show\na = ")


def test_left_padding_does_not_change_what_the_model_says(made: tuple[Path, dict[str, Any]], tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(made[0])
    alone = tokenizer(["# sort\n"], return_tensors="pt")
    padded = tokenizer(["# sort\n", "# sort down, shift 2 left, show\n"], return_tensors="pt", padding=True)
    one, two = model.generate(**alone, max_new_tokens=6), model.generate(**padded, max_new_tokens=6)
    assert tokenizer.decode(one[0], skip_special_tokens=True) == tokenizer.decode(two[0], skip_special_tokens=True)


@given(st.sampled_from(UNSEEN))
def test_programs_and_prompts_survive_the_tokenizer(tokenizer: Any, pair: tuple[str, str]) -> None:
    statement, program = pair
    for text in (program, f"# {statement}\n", program + "\n"):
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


@settings(max_examples=100)
@given(st.text(alphabet="a =[]()xfor in%*+:\n12,", max_size=60))
def test_any_spacing_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    """Runs of spaces, spaces before brackets and blank lines: nothing is tidied up."""
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_texts_are_tokenized_as_a_whole(tokenizer: Any) -> None:
    texts = [text for statement, program in UNSEEN for text in (f"# {statement}\n", program, f"\n\n{program}\n", "")]
    assert module._ids(tokenizer, texts) == [tokenizer(text).input_ids for text in texts]


def test_no_token_spans_a_line_break(tokenizer: Any) -> None:
    line_break = tokenizer("\n").input_ids
    assert len(line_break) == 1
    assert tokenizer("x\ny").input_ids == [*tokenizer("x").input_ids, *line_break, *tokenizer("y").input_ids]


def test_model_learns_the_program_after_the_templated_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are prompt, program, end; labels are program, end; the rest carries no loss."""
    seen: list[module.Batch] = []

    def keep(_: Any, data: module.Batch, *__: Any) -> list[tuple[int, float]]:
        seen.append(data)
        return []

    monkeypatch.setattr(module, "_train", keep)
    pretrain(SMALL, PROMPT, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    [data] = seen
    for row, (statement, program) in enumerate(SMALL.corpus.pairs(SMALL.seed)[:50]):
        inputs, labels = data.inputs[row], data.labels[row]
        written = labels[labels != module.IGNORED]
        assert tokenizer.decode(written) == program + module.END
        whole = inputs[inputs != tokenizer.pad_token_id]
        assert tokenizer.decode(whole) == f"# {statement}\n{program}{module.END}"
        prompt_ids = tokenizer(f"# {statement}\n").input_ids  # the very ids that generation will start from
        assert inputs[: len(prompt_ids)].tolist() == prompt_ids


def test_every_pass_sees_every_pair_once_and_cuts_no_token() -> None:
    inputs = torch.arange(1, 101).unsqueeze(1).repeat(1, 12)
    labels = torch.full((100, 12), module.IGNORED)
    for row in range(100):
        labels[row, 2 : 4 + row % 9] = 7
    batches = module._batches(module.Batch(inputs, labels), 7)
    some, ids = [next(batches) for _ in range(15)], []
    for batch in some:
        ids += batch.inputs[:, 0].tolist()
        lengths = [4 + (int(row) - 1) % 9 for row in batch.inputs[:, 0]]
        assert batch.inputs.shape[1] == max(lengths)
    assert sorted(ids) == list(range(1, 101))


def test_seed_decides_every_byte(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Also what the process did with the global random state and the thread count before does not matter."""
    torch.manual_seed(999)
    before = torch.get_rng_state()
    again = pretrain(SMALL, PROMPT, tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), before)
    other = pretrain(SMALL.model_copy(update={"seed": 1}), PROMPT, tmp_path / "other")
    assert again == made[1] != other
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made[0] / name).read_bytes()
        assert (tmp_path / "other" / name).read_bytes() != (made[0] / name).read_bytes()


def test_two_processes_write_the_same_bits(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    first = _two_processes(SMALL, tmp_path)
    said, _ = first.communicate()
    assert said.splitlines()[-1] == str(made[1])
    assert (tmp_path / "model/model.safetensors").read_bytes() == (made[0] / "model.safetensors").read_bytes()


def test_more_processes_than_have_work_are_not_used(seconds: Config, tmp_path: Path) -> None:
    """As `snakemake --set-threads base=4` asks for; the line is in the job's log."""
    config = seconds.model_copy(
        update={"base": SMALL.model_copy(update={"steps": 2}), "tracking": Tracking(enabled=False)}
    )
    files.write_json(tmp_path / "config.json", config.model_dump(mode="json"))
    done = subprocess.run(
        [sys.executable, "-m", "maxk", "base", "--processes", "4", "--config", "config.json"],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "check": True},
    )
    assert "pretrain base: 2 of 4 processes are used\n" in done.stderr
    assert (tmp_path / config.layout.policy("base")).exists()


@pytest.mark.parametrize("killed", ["first", "second"])
def test_neither_process_outlives_the_other(tmp_path: Path, killed: str) -> None:
    first = _two_processes(SMALL.model_copy(update={"steps": 10**9}), tmp_path)
    while not (children := psutil.Process(first.pid).children()):
        assert first.poll() is None
        time.sleep(0.05)
    [second] = children
    (second if killed == "second" else first).kill()
    said, _ = first.communicate(timeout=60)
    second.wait(timeout=60)
    assert first.returncode
    assert ("the process of the second halves ended with -9" in said) == (killed == "second")


@pytest.mark.parametrize("asked", [False, True])
def test_a_second_process_that_has_ended_is_named(asked: bool, tmp_path: Path) -> None:
    """Before it is asked, and before it has read what it was asked: other errors of the pipe than at its end."""
    script = (
        "import psutil, sys, time, torch; from transformers import LlamaConfig, LlamaForCausalLM\n"
        "from maxk.training import pretrain\n"
        "def end():\n"
        "    second.kill()\n"
        "    while second.status() != psutil.STATUS_ZOMBIE: time.sleep(0.01)\n"
        "sizes = {'hidden_size': 8, 'intermediate_size': 8, 'num_hidden_layers': 1, 'num_attention_heads': 1}\n"
        "model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))\n"
        "batch = pretrain.Batch(torch.full((1, 4), 5), torch.full((1, 4), 6))\n"
        "with pretrain._in_another_process(model) as second_half:\n"
        "    [second] = psutil.Process().children()\n"
        "    second.suspend() if sys.argv[1] == 'True' else end()\n"
        "    rest = second_half(batch, 3)\n"
        "    end(); rest()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(asked)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "RuntimeError: the process of the second halves ended with -9"


def _two_processes(config: PretrainedBase, folder: Path) -> subprocess.Popen[str]:
    """Pretraining in a process that never called `backward`, as a job is."""
    script = (
        "import sys; from pathlib import Path; from maxk.config import PretrainedBase\n"
        "from maxk.data.prompts import Prompt; from maxk.training.pretrain import pretrain\n"
        "config, prompt = (kind.model_validate_json(sys.stdin.readline()) for kind in (PretrainedBase, Prompt))\n"
        "print(pretrain(config, prompt, Path('model'), processes=2))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
        **{"cwd": folder, "text": True},
    )
    assert process.stdin
    process.stdin.write(f"{config.model_dump_json()}\n{PROMPT.model_dump_json()}\n")
    process.stdin.flush()
    return process


def test_a_batch_of_one_sequence(tokenizer: Any) -> None:
    """The last of a pass may be; its second half is empty."""
    model = module.build_model(SMALL.architecture, tokenizer)
    data = module.Batch(torch.full((1, 9), 5), torch.full((1, 9), 6))
    [(step, loss)] = module._train(
        model,
        data,
        SMALL.model_copy(update={"steps": 1}),
        lambda steps: steps,
        lambda *half: lambda: module._backward(model, *half),
    )
    assert step == 1
    assert 3 < loss < 8  # about the logarithm of the vocabulary


def test_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(FileNotFoundError), module.atomic_folder(folder) as temporary:
        (temporary / "missing" / "weights").write_text("half")
    assert list(tmp_path.iterdir()) == []
    for content in ("old", "new"):
        with module.atomic_folder(folder) as temporary:
            (temporary / "weights").write_text(content)
    assert (folder / "weights").read_text() == "new"
    assert list(tmp_path.iterdir()) == [folder]


def test_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"prompt\.chat"):
        pretrain(SMALL, Prompt(chat=True), tmp_path / "model")
