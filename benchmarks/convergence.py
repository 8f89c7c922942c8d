"""How soon a segmenter is good, with either decoder: bits and gold boundaries by minutes of training.

    python -m benchmarks.convergence train multi30k-en-de words   one of the trainings; can be resumed
    python -m benchmarks.convergence show                         times both decoders; table and figure

A training runs in one thread and may share the machine: what it yields is counted in updates. `show` needs a
quiet machine. It measures the seconds of an update of both decoders on batches of each text, in turns; the
minutes of the table and the figure are these times the updates, without evaluations.

All networks are of the preset `tiny` with 8,000 pieces. Recall and F1 are those of the boundaries of words in
lines that are not trained on, token by token. The gold of German has derivations only: read its recall.
The texts are those of `../shared`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.record import record
from benchmarks.steps import Step, interleaved, medians, mixed_step
from benchmarks.subjects import CACHE, DECODERS, DecoderName
from dpe.evaluation.morphology import boundary_scores, read_gold, tally
from dpe.evaluation.plots import COLOURS
from dpe.files import whole_text_file
from dpe.model.batch_order import epoch_batches
from dpe.model.batching import MixedCollator, mixed_example
from dpe.model.checkpoint import load_tensors, put_weights
from dpe.model.device import keep_freed_memory
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
from dpe.segmenter.training import train_segmenter
from dpe.text.corpus import read_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session

DATA = Path(__file__).parents[2] / "shared" / "data"
FIGURE = Path(__file__).parents[1] / "docs" / "convergence.svg"
EVERY, PIECES = 200, 8_000
STOP_BELOW, BATCHES, REPETITIONS = 0.01, 6, 9


@dataclass(frozen=True)
class Trial:
    """A parallel text, and gold morphemes of its target language."""

    directory: str
    source: str
    target: str
    gold: str
    held_out: tuple[str, ...] = ("dev", "test")
    updates: int = 800

    def lines(self, part: str, language: str) -> list[str]:
        return list(read_lines(DATA / self.directory / f"{part}.{language}.xz"))

    def held_out_pairs(self) -> tuple[list[str], list[str]]:
        sources = [line for part in self.held_out for line in self.lines(part, self.source)]
        return sources, [line for part in self.held_out for line in self.lines(part, self.target)]


FOUR_EPOCHS = 1_400  # updates, of Multi30k
MULTI30K_PARTS = ("dev", "test", "test2017", "mscoco2017")
TRIALS = {
    "multi30k-en-de": Trial("multi30k/en-de", "en", "de", "de.tsv.gz", MULTI30K_PARTS, FOUR_EPOCHS),
    "multi30k-de-en": Trial("multi30k/en-de", "de", "en", "en.sigmorphon.exact.tsv.gz", MULTI30K_PARTS),
    "softloc-en-hu": Trial("softloc/en-hu", "en", "hu", "hu.tsv.gz"),
    "softloc-en-de": Trial("softloc/en-de", "en", "de", "de.tsv.gz", updates=1_000),
}


def settings(decoder: DecoderName, *, updates: int) -> SegmenterSettings:
    """Those of every training; `average` keeps the weights of every evaluation."""
    tiny = replace(SEGMENTER_PRESETS["tiny"], decoder=decoder, epochs=None, steps=updates)
    return replace(tiny, evaluate_updates=EVERY, average=updates // EVERY)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=CACHE / "convergence", help="of trainings, and read by show"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("text", choices=TRIALS)
    training.add_argument("decoder", choices=DECODERS)
    commands.add_parser("show")
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments.out, arguments.text, arguments.decoder)
    else:
        show(arguments.out)


def pieces_of(out: Path, name: str) -> Vocabulary:
    trial, path = TRIALS[name], out / f"{name}.model"
    if not path.exists():
        lines = [*trial.lines("train", trial.source), *trial.lines("train", trial.target)]
        path.parent.mkdir(parents=True, exist_ok=True)
        learn_vocabulary(lines, VocabularySettings(size=PIECES)).save(path)
    return Vocabulary.load(path)


def train(out: Path, name: str, decoder: DecoderName) -> None:
    """Train, and then score the weights of every evaluation against the gold."""
    trial, directory = TRIALS[name], out / f"{name}-{decoder}"
    train_segmenter(
        directory,
        vocabulary=pieces_of(out, name),
        source=trial.lines("train", trial.source),
        target=trial.lines("train", trial.target),
        dev_source=trial.lines("dev", trial.source),
        dev_target=trial.lines("dev", trial.target),
        settings=settings(decoder, updates=trial.updates),
        session=Session(threads=1),
    )
    curve = [json.loads(line) for line in (directory / "training.jsonl").read_text("utf-8").splitlines()]
    scored = {one["step"]: one for one in curve if "dev_bits" in one and "averaged" not in one}
    segmenter, gold = Segmenter.load(directory), read_gold(DATA / "morph" / trial.gold)
    sources, targets = trial.held_out_pairs()
    points = []
    for number in range(1, trial.updates // EVERY + 1):
        path = directory / f"evaluation-{number:04}.safetensors"
        put_weights(segmenter._model, load_tensors(path)[0], name=str(path))
        cut = [one.pieces for one in segmenter.best(sources, targets)]
        boundaries = boundary_scores(tally(cut, gold), by_type=False)
        point = scored[number * EVERY]
        points.append(
            {
                "updates": number * EVERY,
                "dev_bits": point["dev_bits"],
                "dev_cuts_changed": point.get("dev_cuts_changed"),
                "words": boundaries.words,
                "precision": boundaries.precision,
                "recall": boundaries.recall,
                "f1": boundaries.f1,
                "pieces_per_word": boundaries.pieces_per_word,
            }
        )
        print(json.dumps(points[-1]))
    epoch_updates = next((one["step"] for one in curve if one.get("epoch") == 2), None)
    with whole_text_file(out / f"{name}-{decoder}.json") as file:
        json.dump({"points": points, "first_step_of_epoch_2": epoch_updates}, file, indent=1)


def update_seconds(out: Path, name: str) -> dict[str, float]:
    """The median seconds of an update of each decoder on the same batches of a text, as it is trained."""
    trial, vocabulary = TRIALS[name], pieces_of(out, name)
    sources, targets = trial.lines("train", trial.source), trial.lines("train", trial.target)
    examples = epoch_batches(
        len(targets),
        lambda line: mixed_example(vocabulary, line, vocabulary.encode(sources[line]), targets[line]),
        lambda example: example.size,
        budget=(SEGMENTER_PRESETS["tiny"].batch,) * 2,
        seed=1,
        epoch=0,
    )
    collator = MixedCollator(vocabulary)
    batches = [collator.collate(group, epoch=0) for group in islice(examples, BATCHES)]
    steps: dict[str, Step] = {}
    for decoder in DECODERS:
        model = Segmenter.load(out / f"{name}-{decoder}")._model
        steps[decoder] = mixed_step(model.requires_grad_())
    return medians(interleaved(steps, dict.fromkeys(steps, batches), repetitions=REPETITIONS), BATCHES)


def show(out: Path) -> None:
    """Print and record the table, and write the figure."""
    torch.set_num_threads(1)
    keep_freed_memory()
    numbers: dict[str, Any] = {"pieces": PIECES, "preset": "tiny", "threads": 1, "texts": {}}
    for name in TRIALS:
        files = {decoder: out / f"{name}-{decoder}.json" for decoder in DECODERS}
        if not all(path.exists() for path in files.values()):
            print(f"{name}: not both decoders are trained; left out")
            continue
        seconds = update_seconds(out, name)
        found = {decoder: json.loads(path.read_text("utf-8")) for decoder, path in files.items()}
        numbers["texts"][name] = {
            decoder: {
                "seconds_per_update": seconds[decoder],
                "points": found[decoder]["points"],
                "stop": stop(found[decoder]["points"]),
            }
            for decoder in DECODERS
        } | {"same_bits": same_bits(found, seconds)}
    print_table(numbers["texts"])
    record("convergence", numbers)
    with whole_text_file(FIGURE) as file:
        figure(numbers["texts"]).savefig(file, format="svg", metadata={"Date": None})
    print(f"\n{FIGURE.name}: the figure")


def stop(points: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Where `until_cuts_change_less_than` 1 % would stop, and how far recall moves after that."""
    for index, point in enumerate(points):
        if point["dev_cuts_changed"] is not None and point["dev_cuts_changed"] < STOP_BELOW:
            later = [abs(other["recall"] - point["recall"]) for other in points[index:]]
            return {"updates": point["updates"], "recall": point["recall"], "moves_by": max(later)}
    return None


def same_bits(found: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, float | None]:
    """The time that words need to the last bits of characters, relative to the time of characters."""
    aim = found["characters"]["points"][-1]
    reached = next((p for p in found["words"]["points"] if p["dev_bits"] <= aim["dev_bits"]), None)
    if reached is None:
        return {"bits": aim["dev_bits"], "time_ratio": None}
    spent = {"words": reached["updates"], "characters": aim["updates"]}
    times = {decoder: count * seconds[decoder] for decoder, count in spent.items()}
    return {"bits": aim["dev_bits"], "time_ratio": times["words"] / times["characters"]}


def print_table(texts: Mapping[str, Any]) -> None:
    print(
        "| text | decoder | s an update | updates | minutes | bits | changed | recall | F1 | pieces a word |"
    )
    print("| --- " * 10 + "|")
    for name, trial in texts.items():
        for decoder in DECODERS:
            cost, points = trial[decoder]["seconds_per_update"], trial[decoder]["points"]
            for point in (points[0], points[len(points) // 2 - 1], points[-1]):
                minutes, changed = point["updates"] * cost / 60, point["dev_cuts_changed"]
                print(
                    f"| {name} | {decoder} | {cost:.3f} | {point['updates']:,} | {minutes:.1f} "
                    f"| {point['dev_bits']:.3f} | {'' if changed is None else f'{changed:.1%}'} "
                    f"| {point['recall']:.1%} | {point['f1']:.1%} | {point['pieces_per_word']:.2f} |"
                )
    for name, trial in texts.items():
        same = trial["same_bits"]
        print(f"\n{name}: time of words to the last bits of characters: {same['time_ratio']}")
        print(f"stops by 1 %: { ({decoder: trial[decoder]['stop'] for decoder in DECODERS}) }")


def figure(texts: Mapping[str, Any]) -> Figure:
    """Bits above recall against minutes; a column for each text."""
    drawn = Figure(figsize=(2.6 * max(len(texts), 1), 4.6), layout="constrained")
    axes = drawn.subplots(2, max(len(texts), 1), sharex="col", squeeze=False)
    for column, (name, trial) in enumerate(texts.items()):
        for colour, decoder in zip(COLOURS, DECODERS, strict=False):
            cost, points = trial[decoder]["seconds_per_update"] / 60, trial[decoder]["points"]
            for row, (key, label) in enumerate(
                (("dev_bits", "bits a character"), ("recall", "boundary recall"))
            ):
                place = axes[row, column]
                x = [point["updates"] * cost for point in points]
                place.plot(x, [point[key] for point in points], ".-", color=colour, label=decoder)
                place.grid(alpha=0.3)
                if column == 0:
                    place.set_ylabel(label)
        axes[0, column].set_title(name, fontsize=9)
        axes[1, column].set_xlabel("minutes, one core")
    axes[0, 0].legend()
    return drawn


if __name__ == "__main__":
    main()
