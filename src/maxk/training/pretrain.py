"""Pretraining of the pocket base model: a tokenizer and a small Llama decoder, trained on a generated corpus.

The model learns prompt → program → end of sequence; the prompt's tokens carry no loss, because the model never has to
write statements. At this size more threads cost CPU time without any speed-up. Instead, every batch has two halves, on
which two processes can work side by side. One process computes the same bits, so a seed is repeatable on any number of
cores. The result is an ordinary Hugging Face folder.

    maxk base --config results/config.json
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
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
# Starts on the second half of a batch with that many scored tokens; what it returns adds the gradients, and returns the
# loss.
SecondHalf = Callable[["Batch", int], Callable[[], float]]


class Batch(NamedTuple):
    """Token ids, padded on the right, and the labels of the program's tokens; both [sequences, length]."""

    inputs: torch.Tensor
    labels: torch.Tensor

    def half(self, which: int) -> Batch:
        """Every other sequence, from number 0 or 1: batches are sorted by length, and the halves take equally long."""
        return Batch(self.inputs[which::2], self.labels[which::2])


def pretrain(
    config: PretrainedBase, prompt: Prompt, folder: Path, track: Track = lambda steps: steps, processes: int = 1
) -> dict[str, Any]:
    """Trains the base model into `folder`, which appears complete or not at all, and returns metrics.

    `loss` in the metrics is a curve of (step, mean loss in nats per program token since the previous point). With two
    `processes` it takes half the time and writes the same bits. They need a process that never called `backward`, which
    torch does not let a fork repeat: a RuntimeError otherwise.
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
        data = _encode(tokenizer, pairs)
        with _in_another_process(model) if processes > 1 else _here(model) as second_half:
            curve = _train(model, data, config, track, second_half)
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


def _train(
    model: LlamaForCausalLM, data: Batch, config: PretrainedBase, track: Track, second_half: SecondHalf
) -> list[tuple[int, float]]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    schedule = get_cosine_schedule_with_warmup(optimizer, int(WARMUP * config.steps), config.steps)
    every = max(1, config.steps // CURVE_POINTS)
    batches = _batches(data, config.batch_size)
    curve, recent = [], []
    for step in track(range(1, config.steps + 1)):
        batch = next(batches)
        tokens = int((batch.labels[:, 1:] != IGNORED).sum())
        rest = second_half(batch.half(1), tokens)
        recent.append(_backward(model, batch.half(0), tokens) + rest())
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % every == 0:
            curve.append((step, sum(recent) / len(recent)))
            recent.clear()
    return curve


def _backward(model: LlamaForCausalLM, half: Batch, tokens: int) -> float:
    """Adds the gradients of half a batch; returns its part of the mean cross-entropy of the batch's scored `tokens`.

    Under causal attention, padding on the right needs no mask. The second half of one sequence is empty.
    """
    if not len(half.inputs):
        return 0.0
    targets = half.labels[:, 1:]
    scored = targets != IGNORED
    hidden = model.model(half.inputs[:, :-1], use_cache=False).last_hidden_state
    loss = cross_entropy(model.lm_head(hidden[scored]), targets[scored], reduction="sum") / tokens
    torch.autograd.backward(loss)
    return loss.item()


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


# -------------------------------------------------------------------------------------------------- second half
@contextlib.contextmanager
def _here(model: LlamaForCausalLM) -> Iterator[SecondHalf]:
    yield lambda half, tokens: lambda: _backward(model, half, tokens)


@contextlib.contextmanager
def _in_another_process(model: LlamaForCausalLM) -> Iterator[SecondHalf]:
    """The other process reads the weights where this one changes them, and writes its gradients beside them."""
    model.share_memory()
    gradients = [torch.zeros_like(weights) for weights in model.parameters()]
    for shared in gradients:
        shared.share_memory_()  # type: ignore[no-untyped-call]

    forked = multiprocessing.get_context("fork")
    here, there = forked.Pipe()
    other = forked.Process(target=_backward_there, args=(model, gradients, here, there), daemon=True)
    other.start()
    there.close()

    def start(half: Batch, tokens: int) -> Callable[[], float]:
        with _alive(other):
            # as arrays: a tensor would travel through shared memory of its own
            here.send((half.inputs.numpy(), half.labels.numpy(), tokens))

        def add() -> float:
            with _alive(other):
                loss: float = here.recv()
            for weights, others in zip(model.parameters(), gradients, strict=True):
                weights.grad += others  # to the first half's
            return loss

        return add

    try:
        yield start
    finally:
        here.close()
        other.join()


@contextlib.contextmanager
def _alive(other: BaseProcess) -> Iterator[None]:
    """Raises RuntimeError if the other process ended before it took or answered what was sent."""
    try:
        yield
    except (EOFError, ConnectionError):
        other.join()
        raise RuntimeError(f"the process of the second halves ended with {other.exitcode}") from None


def _backward_there(
    model: LlamaForCausalLM, gradients: Sequence[torch.Tensor], here: Connection, there: Connection
) -> None:
    here.close()  # so that `there` ends with the first process, however that ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for weights, shared in zip(model.parameters(), gradients, strict=True):
        weights.grad = shared
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            inputs, labels, tokens = there.recv()
            model.zero_grad(set_to_none=False)
            there.send(_backward(model, Batch(torch.from_numpy(inputs), torch.from_numpy(labels)), tokens))


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
