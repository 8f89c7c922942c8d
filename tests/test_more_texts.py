"""A run with more test texts, noise, two segmenters and two seeds: what is scored, tested and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from scipy import stats

from dpe.cli import run as command
from dpe.evaluation.noise import add_noise
from dpe.evaluation.scores import SystemOutput
from dpe.evaluation.word_frequency import count_tokens, f1_by_frequency
from dpe.experiment.artifacts import Artifacts, State
from dpe.experiment.costs import cost_tables
from dpe.experiment.report import RunReport
from dpe.experiment.results import read_results
from dpe.experiment.run import plan, run_experiment
from dpe.experiment.tables import frequency_tables
from dpe.text.corpus import read_lines
from tests.experiments import MINUSCULE, experiment

OVERRIDES = (
    'systems=["bpe-dropout-source", "dpe-fixed"]',
    "seeds=[1, 2]",
    "segmenter_seeds=[1, 2]",
    "translator.epochs=2",
    "corpus.builtin_pairs=150",
    'evaluation.tests=["more.{language}"]',
    "evaluation.noise=[0.1]",
)
TEXTS = ("dev", "test", "more", "test-noise-0.1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run."""
    directory = tmp_path_factory.mktemp("more")
    (directory / "more.en").write_text("The old house.\na cat\n")
    (directory / "more.fi").write_text("Vanha talo.\nkissa\n")
    made = experiment(directory, MINUSCULE, *OVERRIDES, f"data={directory}")
    run_experiment(made)
    return made.root


def lines(path: Path) -> list[str]:
    return list(read_lines(path))


def test_the_texts_are_those_of_the_recipe(root: Path) -> None:
    made, corpus = root / "evaluation", root / "corpus"
    assert lines(made / "more.fi") == ["Vanha talo.", "kissa"]
    noised = list(add_noise(lines(corpus / "test.en"), rate=0.1, seed=1))
    assert lines(made / "test-noise-0.1.en") == noised != lines(corpus / "test.en")
    assert lines(made / "test-noise-0.1.fi") == lines(corpus / "test.fi")
    counts = dict(line.split("\t") for line in lines(made / "word-counts.tsv"))
    wanted = count_tokens(lines(corpus / "train.fi"))
    assert counts == {word: str(count) for word, count in wanted.items()}


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_scored(text: str, root: Path) -> None:
    for system in read_results(root).systems:
        for seed in system.seeds:
            translated = lines(root / "translations" / system.name / f"seed-{seed.seed}" / f"{text}.fi")
            folder = "corpus" if text in ("dev", "test") else "evaluation"
            reference = lines(root / folder / f"{text}.fi")
            found = seed.scores[text]
            assert found["bleu"] == sacrebleu.corpus_bleu(translated, [reference]).score
            lowercase = sacrebleu.corpus_bleu(translated, [reference], lowercase=True).score
            assert found["lowercase_bleu"] == lowercase
            assert "case:lc" in found["lowercase_signature"]
            counts = count_tokens(lines(root / "corpus" / "train.fi"))
            bands = f1_by_frequency([SystemOutput("this", translated)], reference, counts)
            assert [(one["label"], one["words"], one["f1"]) for one in found["by_frequency"]] == [
                (band.label, band.words, band.f1["this"]) for band in bands
            ]


def test_p_over_seeds_is_welchs_of_the_scores(root: Path) -> None:
    results = read_results(root)
    baseline, system = results.systems
    tested = {(test.text, test.metric): test for test in results.mean_tests}
    assert {text for text, _ in tested} == set(TEXTS[1:])
    for text in TEXTS[1:]:
        for metric, name in (("chrf", "chrF2"), ("bleu", "BLEU")):
            ours, others = system.values(metric, text), baseline.values(metric, text)
            test = tested[text, name]
            assert test.difference == pytest.approx(sum(ours) / 2 - sum(others) / 2, abs=1e-9)
            if test.p_over_seeds is not None:
                wanted = stats.ttest_ind(ours, others, equal_var=False).pvalue
                assert test.p_over_seeds == pytest.approx(wanted, rel=1e-3)
    assert tested["test", "chrF2"].p_over_seeds is not None
    assert {test.text for test in results.tests} == {"test"}  # of single seeds


def test_translators_take_the_two_segmenters_in_turn(root: Path) -> None:
    def record(name: str) -> dict[str, Any]:
        return dict(json.loads((root / name / "artifact.json").read_text()))

    names = ("segmenters/mixed", "segmenters/mixed-seed-2")
    for seed, name in enumerate(names, start=1):
        needs = record(f"translators/dpe-fixed/seed-{seed}")["needs"]
        assert needs[name] == record(name)["signature"]
    first, second = (record(name)["settings"] for name in names)
    assert second == first | {"seed": 2}
    assert record("segmentations/mixed")["needs"].keys() == {"segmentations/bpe", "segmenters/mixed"}


def test_costs_are_those_of_the_logs(root: Path) -> None:
    (table,) = cost_tables([read_results(root)])
    stages = read_results(root).stages
    rows = {row[1]: row[2:] for row in table.rows}
    seconds = [
        stages[f"segmenters/{name}"]["facts"]["training_seconds"] for name in ("mixed", "mixed-seed-2")
    ]
    plain, fixed = rows["BPE dropout / BPE"], rows["BPE dropout / DPE fixed"]
    assert plain[:2] == ["", ""]
    assert plain[-1] == "1.00"
    assert float(fixed[0]) == pytest.approx(sum(seconds) / 2 / 60, abs=0.06)
    facts = [stages[f"translators/dpe-fixed/seed-{seed}"]["facts"] for seed in (1, 2)]
    assert all(0 < one["targets_took_seconds"] <= one["waited_for_targets_seconds"] + 0.1 for one in facts)
    assert all(one["waited_for_targets_seconds"] < one["training_seconds"] for one in facts)


def test_the_tables_and_the_report_show_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["table", str(root), "--texts", "--frequency", "--training"]) == 0
    shown = capsys.readouterr().out
    wanted = [
        "BLEU on all texts",
        "lowercased BLEU on all texts",
        "F1 of words by frequency on test",
        "p over seeds",
    ]
    assert all(one in shown for one in [*wanted, "test-noise-0.1", "Minutes of computing", "case:lc"])
    assert command(["table", str(root), "--text", "more", "--frequency"]) == 0
    shown = capsys.readouterr().out
    assert "BLEU on more" in shown
    assert "F1 of words by frequency on more" in shown
    assert command(["table", str(root), "--text", "mor"]) == 2
    assert "has no scores on 'mor'; did you mean 'more'?" in capsys.readouterr().err
    (bands, _) = frequency_tables([read_results(root)])
    result = read_results(root).systems[0]
    for row in bands.rows:
        values = result.values(f"F1 of {row[0]}", "test")
        assert row[2].startswith(f"{sum(values) / 2:.2f} ± ")
    RunReport(root).write(root / "report.html")
    page = (root / "report.html").read_text(encoding="utf-8")
    assert "Words by frequency" in page
    assert "test-noise-0.1" in page
    assert "BLEU on all texts" in (root / "table.txt").read_text(encoding="utf-8")


def test_more_texts_train_nothing_again(root: Path) -> None:
    directory = root.parent
    overrides = (*OVERRIDES, "evaluation.noise=[0.1, 0.2]", f"data={directory}")
    again = experiment(directory, MINUSCULE, *overrides)
    state = {stage.name: Artifacts(root).state(stage) for stage in plan(again)}
    kept = [
        name
        for name in state
        if name.split("/")[0] in ("corpus", "vocabularies", "segmenters", "translators")
    ]
    assert len(kept) == 1 + 1 + 2 + 4
    assert all(state[name] is State.DONE for name in kept)
    assert state["translations/dpe-fixed/seed-1"] is State.CHANGED
