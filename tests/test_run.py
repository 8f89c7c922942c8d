"""Whole runs: killed and continued, longer ones, and what is done once for several stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpe import OnTheFly, Segmenter
from dpe.cli import run
from dpe.experiment.artifacts import Artifacts
from dpe.experiment.run import describe, in_order, plan, run_experiment, run_stages
from dpe.model.checkpoint import load_tensors
from dpe.progress import QUIET, Progress
from dpe.segmenter.settings import SegmentSettings
from dpe.text.corpus import read_lines, write_lines
from dpe.translator.targets import KeptCuts
from tests.experiments import MINUSCULE, experiment

ROOT = Path(__file__).parents[1]
DPE = [sys.executable, "-m", "dpe"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def dpe(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DPE, *arguments],
        cwd=directory,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return out, errors


def wait_for(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not found() and process.poll() is None:
        time.sleep(0.02)


def outputs(run: Path) -> dict[str, object]:
    """Everything that a run is for: weights, cuts, translations, scores."""
    names = ("**/*.pieces", "translations/**/*.fi", "**/scores.json", "table.txt")
    found: dict[str, object] = {str(p.relative_to(run)): p.read_bytes() for n in names for p in run.glob(n)}
    for path in run.glob("**/model.safetensors"):  # beside the weights it holds how long they took
        weights = load_tensors(path)[0]
        found[str(path.relative_to(run))] = {name: tensor.tolist() for name, tensor in weights.items()}
    return found


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINUSCULE)
    command = ["run", "mine.toml", "--threads", "1", "--device", "cpu"]
    shown, _ = finished(dpe(tmp_path, *command, "--out", "whole"))
    expected = outputs(tmp_path / "whole")
    assert len(expected) == 5 + 3 + 6 + 3 + 1
    assert shown.strip() == (tmp_path / "whole" / "table.txt").read_text().strip()
    assert "BPE dropout / LM DPE" in shown

    killed = dpe(tmp_path, *command, "--out", "cut")
    saved = tmp_path / "cut" / "translators" / "dpe" / "seed-1" / "last.safetensors"
    wait_for(saved.exists, killed)  # the end of the first of three epochs
    killed.kill()
    killed.communicate()
    plan_shown, _ = finished(dpe(tmp_path, *command, "--out", "cut", "--dry-run"))
    states = dict(line.split("  ", 1) for line in plan_shown.splitlines())
    by_name = {name.strip(): state for name, state in states.items()}
    assert by_name["translators/dpe/seed-1"].endswith("unfinished")
    assert by_name["segmenters/mixed"].endswith("done")
    assert by_name["scores/dpe/seed-1"].endswith("to do")

    _, said = finished(dpe(tmp_path, *command, "--out", "cut"))
    assert "segmenters/mixed: up to date" in said
    assert "resumes from step" in said
    assert outputs(tmp_path / "cut") == expected
    assert "cut/results.json" in said
    tables, _ = finished(dpe(tmp_path, "table", "cut", "whole/results.json"))
    assert "en→fi (run 1)" in tables


def test_a_longer_training_goes_on_from_the_shorter(tmp_path: Path) -> None:
    systems = 'systems=["bpe"]'
    whole, grown = (experiment(tmp_path / name, MINUSCULE, systems) for name in ("whole", "grown"))
    short = experiment(tmp_path / "grown", MINUSCULE, systems, "translator.epochs=1")
    for made in (whole, short, grown):
        run_stages(
            in_order([made.translator(made.recipe.systems[0], 1)]), Artifacts(made.root), Progress(QUIET)
        )
    curves = [read_lines(made.root / "translators/bpe/seed-1/training.jsonl") for made in (whole, grown)]
    epochs = [[json.loads(line)["epoch"] for line in curve if "dev_bleu" in line] for curve in curves]
    assert epochs == [[1, 2, 3], [1, 2, 3]]
    assert (
        outputs(grown.root)["translators/bpe/seed-1/model.safetensors"]
        == (outputs(whole.root)["translators/bpe/seed-1/model.safetensors"])
    )
    aside = [path.name for path in (grown.root / "translators/bpe").iterdir()]
    assert len(aside) == 2  # the shorter one is kept


def test_a_whole_run_over_a_unigram_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = 'systems=["unigram-best", "unigram", "dpe", "dpe-fixed"]'
    settings = ["vocabulary.type='unigram'", "segmenter.source_alpha=0.6", "translator.unigram_alpha=0.3"]
    settings += ["translator.epochs=1", 'cut=["train", "test"]']
    made = experiment(tmp_path, MINUSCULE, systems, *settings)
    root, drawn, fixed = made.root, "unigram sampling / DPE", "unigram sampling / DPE fixed"
    scores, *_, examples = run_experiment(made)
    plain, sampled = "unigram best / unigram best", "unigram sampling / unigram sampling"
    assert list(scores.columns) == ["", plain, sampled, "Δ", drawn, "Δ", fixed, "Δ"]
    assert f"of {drawn} against {sampled}, of {fixed} against {sampled}" in scores.note
    assert list(examples.columns) == ["word", "unigram", "DPE"]
    assert not (root / "vocabularies" / "bpe").exists()

    segmenter, texts = Segmenter.load(root / "segmenters" / "mixed"), made.texts
    own = read_lines(root / "segmentations" / "unigram" / "test.pieces")
    lines = read_lines(texts.prepared("test", "fi"))
    assert list(own) == [" ".join(segmenter.vocabulary.encode(line)) for line in lines]
    record = json.loads((root / "segmenters" / "mixed" / "settings.json").read_text())
    assert record["settings"]["source_alpha"] == 0.6
    cuts = KeptCuts(
        root / "segmenters" / "mixed",
        texts.open("train", cache=tmp_path / "cache"),
        root / "segmenters" / "mixed" / "cuts",
        made.session,
    ).path(SegmentSettings(source_alpha=0.3))
    sides = [list(read_lines(path)) for path in texts.prepared_pair("train")]
    pairs = OnTheFly(segmenter, alpha=0.3).pairs(sides[0], sides[1], epoch=0)
    differing = sum(cut != " ".join(pair.target) for cut, pair in zip(read_lines(cuts), pairs, strict=True))
    assert differing <= 1  # another batch may decide a tie by rounding

    before = outputs(root)
    assert len(before) == 4 + 5 + 8 + 4 + 1
    assert all(line.endswith("  done") for line in describe(plan(made), Artifacts(root)))
    run_experiment(made)
    assert outputs(root) == before
    pieces = root / "segmentations" / "mixed" / "test.pieces"
    write_lines(
        pieces, [" ".join(line.replace(" ", "")) for line in list(read_lines(pieces))]
    )  # unlike unigram
    capsys.readouterr()
    assert run(["show", str(root), "--sentences", "1"]) == run(["report", str(root)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {"source", "unigram", "BPE", "DPE"} <= {line.split("  ")[0] for line in shown}
    page = (root / "report.html").read_text(encoding="utf-8")
    assert all(words in page for words in ("unigram and DPE segment differently", drawn, sampled))


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINUSCULE)
    shown, _ = finished(dpe(tmp_path, "run", "mine.toml", "--dry-run", "--set", "seeds=[3]"))
    assert "translators/bpe/seed-3" in shown
    assert all(line.endswith("to do") for line in shown.splitlines())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_fixed_targets_are_cut_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the analyses and for every translator that learns from them."""
    systems = 'systems=["bpe", "dpe-fixed", "dpe-plain"]'
    made = experiment(tmp_path, MINUSCULE, systems, 'cut=["train"]', "translator.epochs=1")
    cuts: list[Path] = []
    segment = KeptCuts._segment

    def noted(self: KeptCuts, out: Path, settings: SegmentSettings, *more: Any) -> None:
        cuts.append(out)
        segment(self, out, settings, *more)

    monkeypatch.setattr(KeptCuts, "_segment", noted)
    translators = [made.translator(system, 1) for system in made.recipe.systems[1:]]
    run_stages(in_order([made.segmentation("mixed"), *translators]), Artifacts(made.root), Progress(QUIET))
    assert len(cuts) == 1
    assert list(read_lines(made.root / "segmentations/mixed/train.pieces")) == list(read_lines(cuts[0]))
