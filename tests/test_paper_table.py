"""The results of a run, and what the paper's table says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from dpe.choices import VocabularyType
from dpe.cli import run
from dpe.errors import UserError
from dpe.evaluation.plots import save_figures
from dpe.evaluation.translations import draw_bins
from dpe.experiment.costs import training_table
from dpe.experiment.recipe import CorpusFields, Recipe, TranslatorSection, VocabularyFields, recipe_json
from dpe.experiment.report import score_blocks
from dpe.experiment.results import Results, read_results, write_results
from dpe.experiment.systems import SYSTEMS
from dpe.experiment.tables import labels, length_tables, mean_bins, paper_tables, system_tables


def hand_made_run(
    root: Path,
    scores: Mapping[str, list[float]],
    *,
    p: float,
    pair: str = "en-et",
    type: VocabularyType = "bpe",
) -> Path:
    """A run directory with these test BLEU scores by system, one per seed, and tests against the first."""
    source, target = pair.split("-")
    systems = tuple(replace(SYSTEMS[name].over(type), title=name.upper()) for name in scores)
    corpus = CorpusFields(train=("{language}",), dev="{language}", test="{language}")
    recipe = Recipe(
        name=root.name,
        source=source,
        target=target,
        systems=systems,
        seeds=(1, 2, 3),
        corpus=corpus,
        vocabulary=VocabularyFields(type=type),
    )
    first = next(iter(scores))
    root.mkdir()
    (root / "recipe.json").write_text(json.dumps(recipe_json(recipe)))
    for name, values in scores.items():
        for seed, value in enumerate(values, start=1):
            text = {"bleu": value, "chrf": value + 20, "bleu_signature": "B|x", "chrf_signature": "C|x"}
            record(root, f"scores/{name}/seed-{seed}", {"dev": text | {"bleu": value - 1}, "test": text})
            if name != first:
                test = {"difference": value - scores[first][seed - 1], "p_value": p * seed, "signature": "T"}
                tests = [test | {"metric": metric} for metric in ("BLEU", "chrF2")]
                record(root, f"significance/{name}/{first}/seed-{seed}", {"tests": tests})
    return root


def record(
    root: Path,
    stage: str,
    facts: Mapping[str, Any],
    needs: Mapping[str, str] = {},
    settings: Mapping[str, Any] = {},
) -> None:
    directory = root / stage
    directory.mkdir(parents=True)
    content = {
        "stage": stage,
        "signature": "s",
        "settings": settings,
        "needs": needs,
        "facts": facts,
        "files": {},
    }
    (directory / "artifact.json").write_text(json.dumps(content | {"seconds": 1.0, "finished": True}))


BPE, DPE_SCORES = [20.0, 21.0, 20.4], [22.0, 21.5, 21.9]


def test_the_table_has_means_deviations_deltas_and_stars(tmp_path: Path) -> None:
    found = read_results(hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01))
    scores, tests = paper_tables([found])
    assert list(scores.columns) == ["", "BPE", "DPE", "Δ"]
    assert list(scores.rows[0]) == [
        "en→et",
        f"{mean(BPE):.2f} ± {stdev(BPE):.2f}",
        f"{mean(DPE_SCORES):.2f} ± {stdev(DPE_SCORES):.2f}",
        f"{mean(DPE_SCORES) - mean(BPE):+.2f}*",
    ]
    assert "B|x" in scores.note
    assert list(tests.rows[0]) == ["en→et", "DPE", "BPE", "3", "+1.33", "0.0300", "+1.33", "0.0300"]


def test_one_seed_that_is_not_sure_takes_the_star(tmp_path: Path) -> None:
    found = read_results(hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.02))
    assert paper_tables([found])[0].rows[0][3] == "+1.33"  # the third seed has p = 0.06


def test_a_difference_of_other_seeds_than_were_tested_has_no_star(tmp_path: Path) -> None:
    found = read_results(hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES[:2]}, p=0.001))
    assert paper_tables([found])[0].rows[0][-1] == "+1.28"


def test_the_mean_of_all_seeds_decides_where_it_was_tested(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.02)
    mean_test = {"difference": 1.33, "low": 0.4, "high": 2.26, "p_value": 0.002}
    tests_of_means = [mean_test | {"metric": metric} for metric in ("BLEU", "chrF2")]
    record(root, "significance/dpe/bpe/mean", {"tests": tests_of_means})
    scores, tests = paper_tables([read_results(root)])
    assert scores.rows[0][3] == "+1.33*"  # though the third seed alone has p = 0.06
    cells = ["+1.33 [0.40, 2.26]", "0.0020"]
    assert list(tests.rows[0]) == ["en→et", "DPE", "BPE", "3", *cells, *cells]


def test_a_pair_that_was_tested_both_ways_is_shown_once(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": [21.0]}, p=0.01)
    turned = {"difference": -1.0, "p_value": 0.01, "signature": "T", "metric": "BLEU"}
    record(root, "significance/bpe/dpe/seed-1", {"tests": [turned]})
    _, tests = paper_tables([read_results(root)])
    assert [row[1:3] for row in tests.rows] == [["DPE", "BPE"]]


def test_a_test_is_shown_before_the_first_system_is_scored(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": [21.0], "bpe-dropout": [20.5]}, p=0.01)
    shutil.rmtree(root / "scores" / "bpe")
    found = {"difference": 0.5, "p_value": 0.01, "signature": "T", "metric": "BLEU"}
    record(root, "significance/dpe/bpe-dropout/seed-1", {"tests": [found]})
    _, tests = paper_tables([read_results(root)])
    assert [row[1:3] for row in tests.rows] == [["DPE", "BPE-DROPOUT"]]


def test_other_texts_and_metrics(tmp_path: Path) -> None:
    found = read_results(hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": [21.0]}, p=0.01))
    (dev,) = paper_tables([found], text="dev")  # tests are of the test text
    assert list(dev.rows[0]) == ["en→et", "19.00", "20.00", "+1.00"]
    assert "*" not in dev.note
    both = [table.title.split()[0] for table in paper_tables([found], metrics=["bleu", "chrf"])]
    assert both == ["BLEU", "chrF2", "Paired"]
    assert list(paper_tables([found], metrics=["chrf"])[0].rows[0]) == ["en→et", "40.00", "41.00", "+1.00*"]


def test_systems_are_compared_with_bpe_dropout_as_in_the_paper(tmp_path: Path) -> None:
    scores = {"bpe": [20.0], "bpe-dropout": [20.5], "dpe": [21.5], "dpe-plain": [20.8]}
    found = read_results(hand_made_run(tmp_path / "r", scores, p=0.9))
    cells = ["en→et", "20.00", "20.50", "+0.50", "21.50", "+1.00", "20.80", "+0.80"]
    assert list(paper_tables([found])[0].rows[0]) == cells


def test_systems_over_a_unigram_vocabulary_are_compared_with_its_sampling(tmp_path: Path) -> None:
    scores = {"unigram-best": [20.0], "unigram": [20.5], "dpe": [21.5], "dpe-plain": [20.8]}
    found = read_results(hand_made_run(tmp_path / "r", scores, p=0.9, type="unigram"))
    cells = ["en→et", "20.00", "20.50", "+0.50", "21.50", "+1.00", "20.80", "+0.80"]
    assert list(paper_tables([found])[0].rows[0]) == cells
    by_system = {row[0]: row[-1] for row in system_tables(found)[0].rows}
    assert by_system["DPE"] == "UNIGRAM"
    # Over BPE it is one system among others, and the first is what all are compared with.
    scores = {"bpe": [20.0], "unigram": [20.5], "dpe": [21.5]}
    found = read_results(hand_made_run(tmp_path / "bpe", scores, p=0.9))
    assert list(paper_tables([found])[0].rows[0]) == ["en→et", "20.00", "20.50", "+0.50", "21.50", "+1.50"]


def test_several_pairs_are_rows_with_an_average(tmp_path: Path) -> None:
    first = hand_made_run(tmp_path / "one", {"bpe": [20.0], "dpe": [21.0]}, p=0.9)
    second = hand_made_run(tmp_path / "two", {"bpe": [30.0], "dpe": [32.0]}, p=0.9, pair="et-en")
    third = hand_made_run(tmp_path / "three", {"bpe": [40.0]}, p=0.9, pair="et-en")
    again = hand_made_run(tmp_path / "again", {"bpe": [25.0], "dpe": [26.0]}, p=0.9)
    table = paper_tables([read_results(first), read_results(second)])[0]
    assert [list(row) for row in table.rows] == [
        ["en→et", "20.00", "21.00", "+1.00"],
        ["et→en", "30.00", "32.00", "+2.00"],
        ["average", "25.00", "26.50", "+1.50"],
    ]
    partial = paper_tables([read_results(first), read_results(third)])[0]
    assert [list(row) for row in partial.rows] == [
        ["en→et", "20.00", "21.00", "+1.00"],
        ["et→en", "40.00", "", ""],
        ["average", "30.00", "", ""],
    ]
    of_one_pair = paper_tables([read_results(first), read_results(again)])[0]
    assert [row[0] for row in of_one_pair.rows] == ["en→et (one)", "en→et (again)"]


def test_a_system_with_two_titles_has_one_column(tmp_path: Path) -> None:
    roots = [hand_made_run(tmp_path / name, {"bpe": [20.0]}, p=0.9) for name in ("one", "two")]
    recipe = json.loads((roots[1] / "recipe.json").read_text())
    recipe["systems"][0]["title"] = "BPE, other"
    (roots[1] / "recipe.json").write_text(json.dumps(recipe))
    table = paper_tables([read_results(root) for root in roots])[0]
    assert list(table.columns) == ["", "BPE or BPE, other"]
    assert [list(row) for row in table.rows][:1] == [["en→et (one)", "20.00"]]


def test_the_report_stars_what_the_table_stars(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0, 21.0, 29.0], "dpe": [22.0, 21.5]}, p=0.01)
    found = read_results(root)
    assert paper_tables([found])[0].rows[0][3] == "-1.58"  # of the two seeds that were tested it is +1.25
    report = "".join(map(str, score_blocks(found)))
    assert "-1.58" in report
    assert "-1.58*" not in report


def test_runs_without_scores_have_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": []}, p=0.9)
    assert paper_tables([read_results(root)]) == []
    assert run(["table", str(root)]) == 2
    assert "scored yet" in capsys.readouterr().err


def test_scores_whose_inputs_have_changed_are_left_out(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": []}, p=0.9)
    record(root, "translations/dpe/seed-1", {})
    text = {"bleu": 25.0, "chrf": 1.0, "bleu_signature": "", "chrf_signature": ""}
    facts = {"dev": text, "test": text}
    record(root, "scores/dpe/seed-1", facts, needs={"translations/dpe/seed-1": "s"})
    record(root, "scores/dpe/seed-2", facts, needs={"translations/dpe/seed-1": "older"})
    dpe = read_results(root).systems[1]
    assert [seed.seed for seed in dpe.seeds] == [1]


def test_scores_of_other_settings_than_the_recipes_are_left_out(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01)
    plan = {f"scores/{system}/seed-{seed}": "s" for system in ("bpe", "dpe") for seed in (1, 2, 3)}
    (root / "plan.json").write_text(json.dumps(plan | {"scores/dpe/seed-3": "other"}))
    found = read_results(root)
    assert [[seed.seed for seed in system.seeds] for system in found.systems] == [[1, 2, 3], [1, 2]]


def test_seeds_that_the_recipe_no_longer_has_are_left_out(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01)
    plan = {f"scores/{system}/seed-{seed}": "s" for system in ("bpe", "dpe") for seed in (1, 2)}
    (root / "plan.json").write_text(json.dumps(plan))
    found = read_results(root)
    assert [[seed.seed for seed in system.seeds] for system in found.systems] == [[1, 2], [1, 2]]
    assert found.tests == []


def test_an_adopted_record_stands_for_its_old_signature(tmp_path: Path) -> None:
    """So results are the same while a run of an earlier version is adopted, and before its next plan."""
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0]}, p=0.01)
    record(root, "translators/bpe/seed-1", {"steps": 7})
    scores = root / "scores/bpe/seed-1/artifact.json"
    needs = {"translators/bpe/seed-1": "s"}
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"needs": needs}))
    (root / "plan.json").write_text(json.dumps(needs | {"scores/bpe/seed-1": "s"}))
    before = read_results(root).systems
    path = root / "translators/bpe/seed-1/artifact.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"signature": "new", "adopted": "s"}))
    assert read_results(root).systems == before
    assert before[0].seeds[0].training == {"steps": 7}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"adopted": "other"}))
    assert read_results(root).systems == []


def test_the_machine_is_the_one_that_made_it(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0]}, p=0.9)
    path = root / "scores" / "bpe" / "seed-1" / "artifact.json"
    other = {"cpu": "abacus", "cores": 3, "system": "wood"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": other}))
    assert read_results(root).machine == other


def test_results_json_stands_for_the_run(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01)
    written = write_results(root)
    copied: Results = read_results(root / "results.json")
    assert copied == written
    assert paper_tables([copied]) == paper_tables([read_results(root)])


def with_lengths(
    root: Path, system: str, seed: int, *, bleu: float, penalty: float, parts: list[float]
) -> None:
    """Add lengths to a seed's scores: 30 lines of up to 10 words, the rest of up to 20, of over 50."""
    path = root / "scores" / system / f"seed-{seed}" / "artifact.json"
    content = json.loads(path.read_text())
    limits = [(1, 10, 30), (11, 20, 1200), (51, None, 3)]
    by_length = [
        {"shortest": shortest, "longest": longest, "lines": lines, "bleu": part}
        for (shortest, longest, lines), part in zip(limits, parts, strict=True)
    ]
    found = {"bleu": bleu, "brevity_penalty": penalty, "length_ratio": penalty + 0.01, "by_length": by_length}
    content["facts"]["test"] |= found
    path.write_text(json.dumps(content))


def test_lengths_are_means_over_the_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0, 22.0], "dpe": [24.0]}, p=0.9)
    with_lengths(root, "bpe", 1, bleu=20.0, penalty=0.8, parts=[30.0, 20.0, 1.0])
    with_lengths(root, "bpe", 2, bleu=22.0, penalty=1.0, parts=[32.0, 21.0, 0.0])
    with_lengths(root, "dpe", 1, bleu=24.0, penalty=0.0, parts=[33.0, 23.0, 2.5])
    outputs, by_length = length_tables([read_results(root)])
    assert [list(row) for row in outputs.rows] == [
        ["en→et", "BPE", "2", "21.00", "0.910", "0.900", "23.50"],  # (20 / 0.8 + 22) / 2
        ["en→et", "DPE", "1", "24.00", "0.010", "0.000", "24.00"],
    ]
    assert list(by_length.columns) == ["words in the reference", "lines", "BPE", "DPE"]
    assert [list(row) for row in by_length.rows] == [
        ["1-10", "30", "31.00", "33.00"],
        ["11-20", "1,200", "20.50", "23.00"],
        ["over 50", "3", "0.50", "2.50"],
    ]
    pictures = save_figures({"lengths": draw_bins(mean_bins(read_results(root)))}, tmp_path)
    assert [path.suffix for path in pictures] == [".png", ".svg"]
    assert run(["table", str(root), "--lengths"]) == 0
    assert "brevity penalty" in capsys.readouterr().out


def test_scores_without_lengths_ask_for_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0]}, p=0.9)
    assert run(["table", str(root), "--lengths"]) == 2
    assert "'dpe run'" in capsys.readouterr().err


def test_what_the_models_took_is_a_mean_over_the_seeds(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0, 21.0]}, p=0.9)
    settings = {"network": {"width": 64, "encoder_layers": 2, "decoder_layers": 3}}
    facts = {"steps": 1200, "epochs": 4, "training_seconds": 3600.0}
    record(root, "segmenters/mixed", facts | {"dev_bits_per_character": 0.7111}, settings=settings)
    for seed, bleu in ((1, 30.0), (2, 31.0)):
        found = facts | {"dev_bleu_greedy": bleu, "training_seconds": 1800.0 * seed}
        record(root, f"translators/bpe/seed-{seed}", found, settings=settings)
    table = training_table([read_results(root)])
    network = "d 64, 2+3 layers"
    assert [list(row) for row in table.rows] == [
        ["en→et", "segmenter, DPE", network, "1", "1,200", "4", "0.711 bits", "1.00"],
        ["en→et", "translator, BPE", network, "2", "1,200", "4", "30.50 BLEU", "0.75"],
    ]
    assert "cores" in table.note
    assert "on the fly" not in table.note
    with_dpe = hand_made_run(tmp_path / "dpe", {"bpe": [20.0], "dpe": [21.0]}, p=0.9)
    assert "on the fly" in training_table([read_results(with_dpe)]).note


def test_a_training_may_end_inside_its_first_epoch(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0]}, p=0.9)
    settings = {"network": {"width": 64, "encoder_layers": 2, "decoder_layers": 3}}
    facts = {"steps": 3, "epochs": 0, "training_seconds": 1.0, "dev_bits_per_character": 2.0}
    record(root, "segmenters/mixed", facts, settings=settings)
    assert training_table([read_results(root)]).rows[0][5] == "under 1"


@pytest.mark.parametrize("content", ["[]", "{}", "nonsense", '{"systems": [{"x": 1}], "tests": []}'])
def test_what_is_no_run_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"results\.json"):
        read_results(path)
    with pytest.raises(UserError, match="is not a run of dpe"):
        read_results(tmp_path)


def test_runs_are_told_apart_by_name_then_settings_then_number() -> None:
    def results(recipe: Recipe) -> Results:
        return Results(recipe=recipe, systems=[], tests=[], mean_tests=[], stages={}, versions={}, machine={})

    corpus = CorpusFields(train=("{language}",), dev="{language}", test="{language}")
    plain = Recipe(name="a", source="en", target="et", systems=(SYSTEMS["bpe"],), corpus=corpus)
    longer = replace(plain, translator=TranslatorSection(steps=6600))
    seeds = replace(plain, seeds=(7,), name="b")
    assert labels([results(plain)]) == ["en→et"]
    assert labels([results(one) for one in (plain, seeds, replace(plain, target="fi"))]) == [
        "en→et (a)",
        "en→et (b)",
        "en→fi",
    ]
    assert labels([results(one) for one in (plain, longer, seeds)]) == [
        "en→et (a)",
        "en→et (a, translator.steps=6600)",
        "en→et (b)",
    ]
    assert labels([results(plain), results(plain)]) == ["en→et (run 1)", "en→et (run 2)"]
