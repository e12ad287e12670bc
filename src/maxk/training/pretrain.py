"""Pretraining of the pocket base model: a tokenizer and a small Llama decoder, trained on a generated corpus.

The model learns prompt → program → end of sequence; the prompt's tokens carry no loss, because the model never has to
write statements. Everything runs on one thread: at this size more threads cost CPU time without any speed-up, and one
thread makes a seed repeatable. The result is an ordinary Hugging Face folder.

    maxk base --config results/config.json
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

from maxk.config import Architecture, PretrainedBase
from maxk.data import prompts
from maxk.data.prompts import Prompt
from maxk.errors import UserError

PAD, END, UNKNOWN = SPECIAL_TOKENS = ("<pad>", "<end>", "<unknown>")
WARMUP = 0.05  # fraction of the steps
BETAS, WEIGHT_DECAY, MAX_GRAD_NORM = (0.9, 0.95), 0.1, 1.0
CONTEXT = 512  # context length in tokens; prompts and programs of the corpus need 85
IGNORED = -100  # label of a token without loss
CURVE_POINTS = 20
POOL = 16  # batches

Track = Callable[[Iterable[int]], Iterable[int]]


class Batch(NamedTuple):
    """Token ids, padded on the right, and the labels of the program's tokens; both [sequences, length]."""

    inputs: torch.Tensor
    labels: torch.Tensor


def pretrain(
    config: PretrainedBase, prompt: Prompt, folder: Path, track: Track = lambda steps: steps
) -> dict[str, Any]:
    """Trains the base model into `folder`, which appears complete or not at all, and returns metrics.

    `loss` in the metrics is a curve of (step, mean loss in nats per program token since the previous point).
    """
    if prompt.chat:
        raise UserError("prompt.chat: a base with source: pretrain has no chat template; set it to false")
    pairs = [
        (prompts.render(statement, prompt, None), program) for statement, program in config.corpus.pairs(config.seed)
    ]
    tokenizer = learn_tokenizer(pairs, config.architecture.vocabulary)
    with _single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = build_model(config.architecture, tokenizer)
        curve = _train(model, _encode(tokenizer, pairs), config, track)
    with atomic_folder(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return {"loss": curve, "parameters": model.num_parameters(), "vocabulary": len(tokenizer)}


# -------------------------------------------------------------------------------------------------- tokenizer
def learn_tokenizer(pairs: Iterable[tuple[str, str]], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-pair tokens learned line by line: a token may span several words of a line but no line break.

    The alphabet is the bytes of the corpus, spaces and line breaks included, so decoding reproduces every text over it
    exactly.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=[], show_progress=False
    )
    tokenizer.train_from_iterator((text for pair in pairs for text in pair), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",  # for generation: every prompt ends where its completion begins
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]) -> Batch:
    """Every pair as prompt, program, end; prompt and program are tokenized separately, as in generation."""
    heads, tails = (_ids(tokenizer, texts) for texts in zip(*pairs, strict=True))
    end = tokenizer.eos_token_id  # looked up once: each look-up takes a while
    rows = [[*head, *tail, end] for head, tail in zip(heads, tails, strict=True)]
    starts, ends = (np.array([len(ids) for ids in side])[:, None] for side in (heads, rows))
    position = np.arange(ends.max())
    inputs = np.full((len(rows), len(position)), tokenizer.pad_token_id)
    inputs[position < ends] = list(chain.from_iterable(rows))
    labels = np.where((position >= starts) & (position < ends), inputs, IGNORED)
    return Batch(torch.from_numpy(inputs), torch.from_numpy(labels))


def _ids(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts. Every distinct line is tokenized once: no token spans a line break."""
    lines = list({line for text in texts for line in text.split("\n")})
    encoded = tokenizer.backend_tokenizer.encode_batch(["\n", *lines])
    line_break, *known = (line.ids for line in encoded)
    ids_of = dict(zip(lines, known, strict=True))
    rows = [[token for line in text.split("\n") for token in (*line_break, *ids_of[line])] for text in texts]
    return [row[len(line_break) :] for row in rows]


# -------------------------------------------------------------------------------------------------- model
def build_model(architecture: Architecture, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama decoder with tied embeddings and random weights."""
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=architecture.hidden_size,
            num_hidden_layers=architecture.layers,
            num_attention_heads=architecture.heads,
            intermediate_size=architecture.intermediate_size,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            **ids,
        )
    )
    model.generation_config = GenerationConfig(**ids)
    return model


def _train(model: LlamaForCausalLM, data: Batch, config: PretrainedBase, track: Track) -> list[tuple[int, float]]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    schedule = get_cosine_schedule_with_warmup(optimizer, int(WARMUP * config.steps), config.steps)
    every = max(1, config.steps // CURVE_POINTS)
    batches = _batches(data, config.batch_size)
    curve, recent = [], []
    for step in track(range(1, config.steps + 1)):
        loss = _loss(model, next(batches))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        recent.append(loss.item())
        if step % every == 0:
            curve.append((step, sum(recent) / len(recent)))
            recent.clear()
    return curve


def _loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the program's tokens. Under causal attention, padding on the right needs no mask."""
    targets = batch.labels[:, 1:]
    scored = targets != IGNORED
    hidden = model.model(batch.inputs[:, :-1]).last_hidden_state
    return cross_entropy(model.lm_head(hidden[scored]), targets[scored])


def _batches(data: Batch, size: int) -> Iterator[Batch]:
    """Endless passes over shuffled data, each batch cut to its longest sequence.

    Batches hold sequences of similar length: sorting within pools of shuffled ones saves a third of the time and costs
    0.01 nats of held-out loss.
    """
    lengths = (data.labels != IGNORED).int().mul(torch.arange(data.labels.shape[1])).amax(dim=1) + 1
    while True:
        for pool in torch.split(torch.randperm(len(lengths)), POOL * size):
            batches = torch.split(pool[lengths[pool].argsort()], size)
            for number in torch.randperm(len(batches)).tolist():
                rows = batches[number]
                width = int(lengths[rows].max())
                yield Batch(data.inputs[rows, :width], data.labels[rows, :width])


# ----------------------------------------------------------------------------------------------- surroundings
@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder next to `folder` that replaces it on success and is removed on any error.

    For one process at a time: it removes what a killed process left.
    """
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
