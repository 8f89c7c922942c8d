"""Translating: training against `torch.nn.Transformer`, CTranslate2 against torch, what on-the-fly DPE costs.

    python -m benchmarks.translating [training] [decoding] [on-the-fly] [--prepare]

The network has width 256 and 4 + 4 layers, the vocabulary 8,000 pieces. Runs alternate, and medians are
compared. `--prepare` only trains the models that are measured, which later runs find in the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.beam_search import beam_search
from benchmarks.record import record
from benchmarks.steps import medians, seconds_of_rounds
from benchmarks.subjects import CACHE, NETWORK, saved_segmenter, text, trained_mixed, vocabulary
from dpe.model.batch_order import epoch_batches
from dpe.model.batching import TranslationBatch, TranslationExample, collate_translation, translation_example
from dpe.model.transformer import sinusoids
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.settings import SegmentSettings
from dpe.text.text_file import ParallelText
from dpe.training.processes import Session
from dpe.translator.settings import TranslatorSettings
from dpe.translator.targets import KeptCuts
from dpe.translator.training import label_smoothed_cross_entropy, train_translator
from dpe.translator.translator import Translator, length_limit, load_model

SIZE, ROUNDS, BEAM, SMOOTHING = 8_000, 5, 5, 0.1
BATCH_TOKENS = 2_000
TRAINED_EPOCHS, DECODED_LINES, CUT_LINES = 1, 200, 600
SETTINGS = TranslatorSettings(warmup=150, batch=BATCH_TOKENS, epochs=TRAINED_EPOCHS)


class TorchTransformer(nn.Module):
    """The same network out of torch's parts: tied embeddings, sinusoids, norms first."""

    def __init__(self) -> None:
        super().__init__()
        pieces = vocabulary(SIZE)
        self.scale, self.pad_id = math.sqrt(NETWORK.width), pieces.pad_id
        self.embedding = nn.Embedding(len(pieces), NETWORK.width, padding_idx=pieces.pad_id)
        nn.init.normal_(self.embedding.weight, std=NETWORK.width**-0.5)
        self.positions = sinusoids(512, NETWORK.width).float()
        self.transformer = nn.Transformer(
            NETWORK.width,
            NETWORK.heads,
            NETWORK.encoder_layers,
            NETWORK.decoder_layers,
            NETWORK.feed_forward,
            dropout=NETWORK.dropout,
            batch_first=True,
            norm_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        return F.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]], NETWORK.dropout)

    def loss(self, batch: TranslationBatch) -> Tensor:
        padding = batch.source == self.pad_id
        causal = nn.Transformer.generate_square_subsequent_mask(batch.target_in.shape[1])
        states = self.transformer(
            self.embed(batch.source),
            self.embed(batch.target_in),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        logits = F.linear(states, self.embedding.weight)
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch.target_out.flatten(),
            ignore_index=self.pad_id,
            label_smoothing=SMOOTHING,
        )


def training_step(
    model: nn.Module, loss: Callable[[TranslationBatch], Tensor]
) -> Callable[[TranslationBatch], None]:
    """Forward, backward, clipping and Adam, as the trainer does them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(batch: TranslationBatch) -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def our_step(model: TranslationTransformer) -> Callable[[TranslationBatch], None]:
    return training_step(
        model,
        lambda batch: label_smoothed_cross_entropy(model, batch, smoothing=SMOOTHING)[0] / batch.token_count,
    )


def batches(lines: Sequence[int], tokens: int = BATCH_TOKENS) -> list[TranslationBatch]:
    """These lines of the text, both sides cut by BPE."""
    pieces = vocabulary(SIZE)

    def example(number: int) -> TranslationExample:
        source, target = text().sources[lines[number]], text().targets[lines[number]]
        return translation_example(pieces, number, pieces.encode(source), pieces.encode(target))

    groups = epoch_batches(
        len(lines), example, lambda e: e.size, budget=(tokens, tokens), seed=1, epoch=0, window=len(lines)
    )
    return [collate_translation(group, pieces) for group in groups]


def measure_training() -> dict[str, float]:
    """Target tokens a second of our model and of torch's, on the same three batches."""
    torch.manual_seed(1)
    some = batches(range(600))[:3]
    ours, theirs = TranslationTransformer.of(NETWORK, vocabulary(SIZE)), TorchTransformer()
    steps = {"ours": our_step(ours), "torch": training_step(theirs, theirs.loss)}
    works = {name: lambda step=step: [step(batch) for batch in some] for name, step in steps.items()}
    seconds = medians(seconds_of_rounds(works, rounds=ROUNDS, warm_up=1)[0])
    tokens = sum(batch.token_count for batch in some)
    return {
        "our target tokens a second": tokens / seconds["ours"],
        "nn.Transformer's target tokens a second": tokens / seconds["torch"],
        "times as fast as nn.Transformer": seconds["torch"] / seconds["ours"],
    }


@cache
def translator_directory() -> Path:
    """A translator after one epoch; a finished training in the cache is not touched."""
    pieces = vocabulary(SIZE)
    key = hashlib.sha256(f"{pieces.fingerprint} {SETTINGS}".encode()).hexdigest()[:16]
    directory = CACHE / f"translator-{SIZE}-{key}"
    train_translator(
        directory,
        vocabulary=pieces,
        source=text().sources[1000:],
        target=text().targets[1000:],
        dev_source=text().sources[:20],
        dev_target=text().targets[:20],
        settings=SETTINGS,
    )
    return directory


def measure_decoding() -> dict[str, float]:
    """Lines a second of CTranslate2 and of our torch search, beam 5, all cores, over the same lines."""
    lines = text().sources[:DECODED_LINES]
    model = load_model(translator_directory())
    exact, rounded = (Translator.load(translator_directory(), int8=int8) for int8 in (False, True))
    some = batches(range(DECODED_LINES), BATCH_TOKENS)

    def search() -> list[str]:
        found = [""] * len(lines)
        for batch in some:
            longest = length_limit(int(batch.source_lengths.max()) - 1)
            hypotheses = beam_search(model, batch.source, batch.source_lengths, beam=BEAM, max_length=longest)
            for line, hypothesis in zip(batch.lines, hypotheses, strict=True):
                found[line] = exact.vocabulary.decode_ids(hypothesis.ids)
        return found

    translations = [search(), exact.translate(lines), rounded.translate(lines)]
    works: dict[str, Callable[[], object]] = {
        "torch": search,
        "float32": lambda: exact.translate(lines),
        "int8": lambda: rounded.translate(lines),
    }
    seconds = medians(seconds_of_rounds(works, rounds=ROUNDS, warm_up=1)[0])
    return {
        "lines": len(lines),
        "torch lines a second": len(lines) / seconds["torch"],
        "CTranslate2 lines a second": len(lines) / seconds["float32"],
        "CTranslate2 int8 lines a second": len(lines) / seconds["int8"],
        "times as fast as torch": seconds["torch"] / seconds["float32"],
        "times as fast as torch, int8": seconds["torch"] / seconds["int8"],
        "lines translated as by torch": _equal(translations[0], translations[1]),
        "lines translated by int8 as by float32": _equal(translations[1], translations[2]),
    }


def _equal(one: list[str], other: list[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def measure_on_the_fly() -> dict[str, float]:
    """Seconds to cut an epoch of some lines, and to train on it: equal networks, one thread each."""
    torch.set_num_threads(1)
    directory = saved_segmenter(trained_mixed(SIZE), vocabulary(SIZE), NETWORK, source=True)
    some_text = ParallelText.open(text().sources[:CUT_LINES], text().targets[:CUT_LINES])
    kept = KeptCuts(directory, some_text, directory / "cuts", Session(workers=1))
    step, epochs = our_step(TranslationTransformer.of(NETWORK, vocabulary(SIZE))), iter(range(100))
    some = batches(range(CUT_LINES))

    def cut() -> None:
        kept.make(SegmentSettings(source_dropout=0.05, epoch=next(epochs)))

    works = {"cut": cut, "train": lambda: [step(batch) for batch in some]}
    seconds = medians(seconds_of_rounds(works, rounds=ROUNDS, warm_up=1)[0])
    return {
        "lines": CUT_LINES,
        "lines cut a second": CUT_LINES / seconds["cut"],
        "lines trained on a second": CUT_LINES / seconds["train"],
        "cutting relative to training": seconds["cut"] / seconds["train"],
    }


MEASUREMENTS = {"training": measure_training, "decoding": measure_decoding, "on-the-fly": measure_on_the_fly}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", nargs="*", choices=[*MEASUREMENTS, []], help="all if none is named")
    parser.add_argument("--prepare", action="store_true", help="train the models and measure nothing")
    arguments = parser.parse_args()
    if arguments.prepare:
        translator_directory()
        trained_mixed(SIZE)
        return
    for name in arguments.which or MEASUREMENTS:
        numbers = {"text": text().name} | MEASUREMENTS[name]()
        for key, value in numbers.items():
            print(f"{key:50} {value if isinstance(value, str) else format(value, '.4g')}")
        record(f"translating-{name}", numbers)


if __name__ == "__main__":
    main()
