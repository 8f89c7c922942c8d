"""Training as a user meets it: it learns, resumes exactly, refuses what does not fit, and adds processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dpe.model.checkpoint import load_tensors
from dpe.training.log import read_curve
from tests.segment_command import Dpe
from tests.segmenters import DECODERS

ROOT = Path(__file__).parents[1]
DPE = [sys.executable, "-m", "dpe"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "dpe",
]
FAST = ["--preset", "tiny", "--batch-characters", "1500", "--warmup", "20"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    run([*DPE, "demo-corpus", "--out", directory, "--pairs", "300"])
    run([*DPE, "vocab", "--source", directory / "train.en", "--target", directory / "train.fi",
         "--size", "300", "--out", directory / "vocab.model"])  # fmt: skip
    for side in ("en", "fi"):
        lines = (directory / f"dev.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (directory / f"dev.{side}").write_text("".join(lines[:30]), encoding="utf-8")
    return directory


def run(command: list[object], *, code: int = 0) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == code, done.stderr
    return done.stderr


def training(corpus: Path, out: Path, *more: object) -> list[object]:
    return [
        "train-segmenter", "--vocab", corpus / "vocab.model", "--source", corpus / "train.en",
        "--target", corpus / "train.fi", "--dev-source", corpus / "dev.en", "--dev-target", corpus / "dev.fi",
        "--out", out, *FAST, *more,
    ]  # fmt: skip


def assert_same_weights(one: Path, other: Path, *, tolerance: float = 0.0) -> None:
    first, second = load_tensors(one)[0], load_tensors(other)[0]
    assert first.keys() == second.keys()
    for name in first.keys() - ({"best_cuts"} if tolerance else set()):
        torch.testing.assert_close(first[name], second[name], rtol=tolerance, atol=tolerance, msg=name)


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted training of four epochs."""
    out = tmp_path_factory.mktemp("finished") / "segmenter"
    run([*DPE, *training(corpus, out, "--epochs", 4, "--average", 2)])
    return out


def test_a_unigram_vocabulary_works_with_the_defaults(corpus: Path, tmp_path: Path, dpe: Dpe) -> None:
    model, out, whole = tmp_path / "unigram.model", tmp_path / "out", tmp_path / "whole"
    text = ("--source", corpus / "train.en", "--target", corpus / "train.fi")
    dpe(*map(str, ("vocab", "--type", "unigram", *text, "--size", 300, "--out", model)))

    def train(out: Path, *more: object, model: Path = model, code: int = 0) -> str:
        command = training(corpus, out, "--threads", 1, *more)
        return dpe(*(str(model if p == corpus / "vocab.model" else p) for p in command), code=code)[1]

    train(out, "--steps", 2)
    assert "resumes from step 2" in train(out, "--steps", 4)
    train(whole, "--steps", 4)
    assert_same_weights(out / "last.safetensors", whole / "last.safetensors")
    assert "source_alpha is the default there and 0.5 now" in train(
        out, "--steps", 4, "--source-alpha", 0.5, code=2
    )
    assert "source_dropout is the default there and 0.0 now" in train(
        out, "--steps", 4, "--source-dropout", 0, code=2
    )
    bpe, alpha = tmp_path / "bpe", ("--steps", 2, "--source-alpha", 0.5)
    says = train(bpe, *alpha, model=corpus / "vocab.model", code=2)
    assert "source_alpha samples from a unigram vocabulary, but this one is bpe" in says
    assert not (bpe / "settings.json").exists()  # so that the next try is not refused
    sides = ("--source", corpus / "dev.en", "--target", corpus / "dev.fi")
    cuts = dpe(*map(str, ("segment", "--segmenter", out, *sides, "--workers", 1)))[0].splitlines()
    joined = [cut.replace(" ", "").replace("▁", " ").strip() for cut in cuts]
    assert joined == (corpus / "dev.fi").read_text(encoding="utf-8").splitlines()


def test_bits_fall_and_the_curve_is_kept(finished: Path) -> None:
    epochs = [record for record in read_curve(finished / "training.jsonl") if "dev_bits" in record]
    assert [record["epoch"] for record in epochs[:4]] == [1, 2, 3, 4]
    assert epochs[3]["dev_bits"] < epochs[0]["dev_bits"] - 0.5
    assert epochs[3]["train_bits"] < epochs[0]["train_bits"] - 0.5
    for record in epochs[:4]:
        # The sum over all cuts is at least the best cut's share of it.
        assert record["dev_bits"] <= record["dev_map_bits"]
        assert record["dev_pieces_per_word"] >= 1
    assert (finished / "training.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_pickled(finished: Path) -> None:
    kinds = {path.suffix for path in finished.iterdir() if path.is_file()}
    assert kinds == {".json", ".jsonl", ".model", ".safetensors", ".png"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_training_goes_on_and_ends_alike(
    corpus: Path, finished: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "segmenter"
    command = [*DPE, *training(corpus, out, "--epochs", 4, "--average", 2, "--save-minutes", 0)]
    with subprocess.Popen(list(map(str, command)), cwd=ROOT, stderr=subprocess.PIPE) as process:
        try:
            wait_for_step(out, 12)
            process.send_signal(number)
            assert process.wait(timeout=240) == (130 if number == signal.SIGINT else -number)
        finally:
            process.kill()
    assert "resumes from step" in run(command)
    assert_same_weights(out / "last.safetensors", finished / "last.safetensors")
    assert_same_weights(out / "model.safetensors", finished / "model.safetensors")
    steps = [record["step"] for record in read_curve(out / "training.jsonl")]
    assert steps == [record["step"] for record in read_curve(finished / "training.jsonl")]


def wait_for_step(out: Path, step: int) -> None:
    """Until the training has saved itself at or after a step."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        if (out / "last.safetensors").exists() and load_tensors(out / "last.safetensors")[1]["step"] >= step:
            return
        time.sleep(0.02)
    raise AssertionError("the training did not get there in time")


def test_a_finished_training_stays_as_it_is_and_can_be_prolonged(
    corpus: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "segmenter"
    run([*DPE, *training(corpus, out, "--steps", 5)])
    before = (out / "last.safetensors").read_bytes()
    run([*DPE, *training(corpus, out, "--steps", 5)])
    assert load_tensors(out / "last.safetensors")[1]["step"] == 5
    assert (out / "last.safetensors").read_bytes() == before
    run([*DPE, *training(corpus, out, "--epochs", 4, "--average", 2)])
    assert_same_weights(out / "last.safetensors", finished / "last.safetensors")


@pytest.mark.parametrize("decoder", DECODERS)
def test_two_processes_make_the_updates_of_one(corpus: Path, tmp_path: Path, decoder: str) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    choice = ("--epochs", 1, "--evaluate-updates", 3, "--set", f"decoder={decoder}", "--accumulate", 2)
    run([*DPE, *training(corpus, alone, *choice)])
    run([*TORCHRUN, *training(corpus, together, *choice)])
    assert_same_weights(alone / "last.safetensors", together / "last.safetensors", tolerance=2e-4)
    one, other = (read_curve(path / "training.jsonl")[-1] for path in (alone, together))
    assert one["step"] == other["step"]
    assert one["train_bits"] == pytest.approx(other["train_bits"], abs=1e-4)
    assert one["dev_bits"] == pytest.approx(other["dev_bits"], abs=1e-3)
    cuts = [load_tensors(path / "last.safetensors")[0]["best_cuts"] for path in (alone, together)]
    assert float((cuts[0] == cuts[1]).double().mean()) > 0.99  # rounding may decide between equal ones
    shares = [one["dev_cuts_changed"], other["dev_cuts_changed"]]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)
    assert 0 < shares[0] < 1


def test_a_language_model_needs_no_source(corpus: Path, tmp_path: Path) -> None:
    base = ["train-segmenter", "--vocab", corpus / "vocab.model", "--target", corpus / "train.fi",
            "--dev-target", corpus / "dev.fi", "--out", tmp_path / "lm", *FAST, "--steps", 3]  # fmt: skip
    run([*DPE, *base, "--no-source"])
    assert json.loads((tmp_path / "lm/settings.json").read_text())["settings"]["source"] is False
    assert "--no-source" in run([*DPE, *base], code=2)


def test_other_settings_are_refused(corpus: Path, finished: Path) -> None:
    says = run([*DPE, *training(corpus, finished, "--learning-rate", 0.1)], code=2)
    assert "learning_rate is 0.002 there and 0.1 now" in says
    assert says.count("\n") == 1


def test_a_damaged_checkpoint_is_refused(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "segmenter"
    run([*DPE, *training(corpus, out, "--steps", 2)])
    path = out / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    says = run([*DPE, *training(corpus, out, "--steps", 4)], code=2)
    assert "last.safetensors is damaged" in says
    assert says.count("\n") == 1


def test_long_lines_are_left_out_with_a_count(corpus: Path, tmp_path: Path) -> None:
    says = run([*DPE, *training(corpus, tmp_path / "out", "--epochs", 1, "--set", "max_characters=40")])
    long = sum(
        max(map(len, pair)) > 40
        for pair in zip(
            (corpus / "train.en").read_text().splitlines(),
            (corpus / "train.fi").read_text().splitlines(),
            strict=True,
        )
    )
    assert 0 < long < 300
    assert f"{long} lines longer than 40 characters left out" in says


def test_a_giant_line_of_dev_is_left_out_with_a_count(corpus: Path, tmp_path: Path) -> None:
    for side in ("en", "fi"):
        text = (corpus / f"dev.{side}").read_text(encoding="utf-8")
        (tmp_path / f"dev.{side}").write_text(f"{text}{'a' * 100_000}\n", encoding="utf-8")
        (tmp_path / f"train.{side}").write_bytes((corpus / f"train.{side}").read_bytes())
    (tmp_path / "vocab.model").write_bytes((corpus / "vocab.model").read_bytes())
    said = run([*DPE, *training(tmp_path, tmp_path / "out", "--steps", 1)])
    assert "1 lines of the development text longer than 2,000 characters left out" in said
    run([*DPE, *training(corpus, tmp_path / "without", "--steps", 1)])
    assert last_dev_bits(tmp_path / "out") == last_dev_bits(tmp_path / "without")


def last_dev_bits(out: Path) -> float:
    return float(read_curve(out / "training.jsonl")[-1]["dev_bits"])


def test_where_all_lines_are_too_long_nothing_is_trained(corpus: Path, tmp_path: Path) -> None:
    command = [*DPE, *training(corpus, tmp_path / "out", "--steps", 5, "--set", "max_characters=1")]
    left_out = "300 lines longer than 1 characters left out"
    assert run(command, code=2) == f"dpe: Nothing is left to train on: {left_out}.\n"
