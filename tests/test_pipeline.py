"""Recipes as stages of an experiment: what depends on what, and the texts. Whole runs: test_run.py."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
import sacrebleu

from dpe.errors import UserError
from dpe.experiment.artifacts import Artifacts
from dpe.experiment.outputs import training_counts
from dpe.experiment.recipe import read_recipe
from dpe.experiment.run import Part, describe, fixed_settings, plan, run_experiment
from dpe.experiment.stages import Experiment
from dpe.experiment.texts import Texts, make_corpus
from dpe.progress import QUIET, Progress
from dpe.text.corpus import read_lines, write_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session
from tests.experiments import MINUSCULE, experiment

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
SHIPPED = sorted(path for path in RECIPES.rglob("*.toml") if path.name != "common.toml")


def signatures(made: Experiment) -> dict[str, str]:
    return {stage.name: stage.signature for stage in plan(made)}


# The first part of the names of the stages that each setting must change, and no others.
DEPENDENT = {
    "decoding.beam=3": ("translations", "scores", "significance"),
    "translator.dropout=0.3": ("translators", "translations", "scores", "significance"),
    "segmenter.epochs=2": ("segmenters", "segmentations/lm", "segmentations/mixed", "D", "significance/D"),
    "vocabulary.size=160": ("vocabularies", "seg", "translators", "translations", "scores", "significance"),
    "corpus.builtin_pairs=210": ("",),
    "bleu_tokenize='char'": ("evaluation", "translators", "translations", "scores", "significance"),
    "evaluation.noise=[0.1]": ("evaluation", "translations", "scores", "significance"),
    "evaluation.noise_seed=2": ("evaluation", "scores", "significance"),
    "segmenter_seeds=[2]": ("segmenters", "segmentations/lm", "segmentations/mixed", "D", "significance/D"),
    "segmenter_seeds=[1]": (),
    "bleu_tokenize='13a'": (),
    "name='other'": (),
    "data='elsewhere'": (),
    "examples=7": (),
}


@pytest.mark.parametrize("override", DEPENDENT)
def test_a_setting_changes_the_signatures_that_depend_on_it(tmp_path: Path, override: str) -> None:
    before = signatures(experiment(tmp_path))
    after = signatures(experiment(tmp_path, MINUSCULE, override))
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    prefixes = DEPENDENT[override]
    if "D" in prefixes:  # the systems that use a segmenter
        kinds = ("translators", "translations", "scores", "significance")
        prefixes = (*prefixes[:3], *(f"{kind}/{name}" for kind in kinds for name in ("dpe", "lm-dpe")))
    assert changed == {name for name in before if name.startswith(prefixes)}


def test_a_plan_has_only_what_its_systems_need(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["bpe", "unigram"]', "seeds=[1, 2]")
    names = [stage.name for stage in plan(made)]
    assert not [name for name in names if "segment" in name]
    assert {"vocabularies/bpe", "vocabularies/unigram"} <= set(names)
    assert sum(name.startswith("translators/") for name in names) == 4
    assert [name for name in names if name.startswith("significance")] == [
        "significance/unigram/bpe/seed-1",
        "significance/unigram/bpe/seed-2",
        "significance/unigram/bpe/mean",
    ]
    positions = {name: number for number, name in enumerate(names)}
    assert all(positions[need.name] < positions[stage.name] for stage in plan(made) for need in stage.needs)


def test_without_seeds_the_targets_are_only_cut(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["dpe"]', "seeds=[]")
    assert [stage.name for stage in plan(made)] == [
        "corpus",
        "vocabularies/bpe",
        "segmentations/bpe",
        "segmenters/mixed",
        "segmentations/mixed",
    ]


def test_segmenters_are_distilled_where_that_is_asked_for(tmp_path: Path) -> None:
    plain, more = (signatures(experiment(tmp_path, MINUSCULE, *given)) for given in ([], ["distill=true"]))
    assert {name: key for name, key in more.items() if not name.startswith("distilled/")} == plain
    assert more.keys() - plain.keys() == {"distilled/mixed", "distilled/lm"}


def test_a_vocabulary_of_other_text_does_not_depend_on_the_training_text(tmp_path: Path) -> None:
    write_lines(tmp_path / "other", ["kaksi taloa", "talo ja toinen talo"] * 5)
    overrides = (f"data='{tmp_path}'", "vocabulary.text=['other']", "vocabulary.size=30")
    learned = []
    for pairs in (200, 210):
        made = experiment(tmp_path / str(pairs), MINUSCULE, *overrides, f"corpus.builtin_pairs={pairs}")
        stage = made.vocabulary("bpe")
        stage.make(made.root)
        learned.append((made.root / "vocab.model").read_bytes())
        assert stage.files == (tmp_path / "other",)
    assert learned[0] == learned[1]
    with pytest.raises(UserError, match=r"1 of 1 files are missing .*absent"):
        experiment(tmp_path, MINUSCULE, *overrides[:1], "vocabulary.text=['absent']").vocabulary("bpe")


def test_a_model_of_the_users_own_is_taken(
    tmp_path: Path, bpe_vocabulary: Vocabulary, unigram_vocabulary: Vocabulary
) -> None:
    bpe_vocabulary.save(tmp_path / "own.model")
    unigram_vocabulary.save(tmp_path / "unigram.model")
    learned = signatures(experiment(tmp_path))
    made = experiment(tmp_path, MINUSCULE, f"data='{tmp_path}'", "vocabulary.model='own.model'")
    assert signatures(made)["vocabularies/bpe"] != learned["vocabularies/bpe"]
    made.vocabulary("bpe").make(made.root)
    assert (made.root / "vocab.model").read_bytes() == bpe_vocabulary.content
    overrides = [f"data='{tmp_path}'", "vocabulary.model='unigram.model'"]
    other = experiment(tmp_path, MINUSCULE, *overrides)
    with pytest.raises(UserError, match=r"is a unigram model, but the recipe needs bpe"):
        other.vocabulary("bpe").make(other.root)
    unigram = experiment(tmp_path, MINUSCULE, *overrides, "vocabulary.type='unigram'")
    unigram.vocabulary("unigram").make(unigram.root)
    assert (unigram.root / "vocab.model").read_bytes() == unigram_vocabulary.content
    assert "model" not in unigram.vocabulary("bpe").settings  # which the system bpe needs


def test_segmenters_work_over_the_vocabulary_of_the_recipe(tmp_path: Path) -> None:
    systems = 'systems=["unigram-best", "unigram", "dpe", "dpe-fixed", "lm-dpe"]'
    made = experiment(tmp_path, MINUSCULE, systems, "vocabulary.type='unigram'")
    stages = {stage.name: [need.name for need in stage.needs] for stage in plan(made)}
    assert not [name for name in stages if name.startswith(("vocabularies/bpe", "segmentations/bpe"))]
    assert stages["segmenters/mixed"] == stages["segmenters/lm"] == ["corpus", "vocabularies/unigram"]
    assert stages["segmentations/lm"] == ["segmentations/unigram", "segmenters/lm"]
    assert "segmenters/mixed" in stages["translators/dpe-fixed/seed-1"]
    tests = [name for name in stages if name.startswith("significance/dpe/")]
    assert tests == ["significance/dpe/unigram-best/seed-1", "significance/dpe/unigram/seed-1"]
    assert fixed_settings(made)["own_systems"] == {}


def test_the_mean_of_the_seeds_is_tested(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["bpe", "dpe"]', "seeds=[1, 2]")
    outputs = {
        "bpe/seed-1": "a b c d x",
        "bpe/seed-2": "a b c d e",
        "dpe/seed-1": "a b c d e",
        "dpe/seed-2": "a b c d e",
    }
    files = {f"translations/{name}/test.fi": line for name, line in outputs.items()}
    for name, line in (files | {"corpus/test.fi": "a b c d e"}).items():
        write_lines(made.root / name, [line] * 3)
    write_lines(made.root / "evaluation" / "word-counts.tsv", ["e\t1", "d\t3"])
    bpe, dpe = made.recipe.systems
    stage = made.significance(dpe, bpe, made.recipe.seeds)
    bleu, chrf, *bands = stage.make(made.root / stage.name)["tests"]
    worse = sacrebleu.corpus_bleu(["a b c d x"] * 3, [["a b c d e"] * 3]).score
    assert bleu["difference"] == pytest.approx((100 - worse) / 2)
    assert (bleu["metric"], chrf["metric"]) == ("BLEU", "chrF2")
    differences = {one["metric"]: one["difference"] for one in bands}
    assert differences == pytest.approx({"F1 of 0": 100 / 14, "F1 of 1": 50, "F1 of 2-5": 0})  # x is new
    written = json.loads((made.root / stage.name / "significance.json").read_text())["tests"]
    assert written == [bleu, chrf, *bands]


def test_a_selection_leaves_the_other_systems_and_their_tests_out(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, "seeds=[1, 2]")
    names = {stage.name for stage in plan(made, Part(systems=("dpe",), seeds=(2,)))}
    assert {name for name in names if name.startswith("tr")} == {
        "translators/dpe/seed-2",
        "translations/dpe/seed-2",
    }
    assert not [name for name in names if name.startswith("significance")]
    with pytest.raises(UserError, match="did you mean 'dpe'"):
        plan(made, Part(systems=("dpee",)))
    with pytest.raises(UserError, match="no seed 5"):
        plan(made, Part(seeds=(5,)))


def test_results_of_others_in_a_new_run_directory_are_kept(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    made.root.mkdir()
    (made.root / "results.json").write_text("{}")
    with pytest.raises(UserError, match=r"results\.json already exists and was not created by dpe"):
        run_experiment(made)
    assert [path.name for path in made.root.iterdir()] == ["results.json"]


def test_one_baseline_is_enough_for_a_test(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["bpe", "bpe-dropout", "dpe"]', "seeds=[1, 2]")
    names = [stage.name for stage in plan(made, Part(systems=("bpe-dropout", "dpe"), seeds=(2,)))]
    tests = [name for name in names if name.startswith("significance")]
    assert tests == ["significance/dpe/bpe-dropout/seed-2"]


def test_a_plan_adopts_the_records_of_an_earlier_version(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["bpe", "dpe"]')
    artifacts = Artifacts(made.root)
    for stage in plan(made):
        directory = artifacts.directory(stage)
        directory.mkdir(parents=True)
        for file in stage.outputs:
            (directory / file).touch()
        record = {
            "stage": stage.name,
            "signature": stage.signature,
            "settings": stage.settings,
            "needs": {need.name: need.signature for need in stage.needs},
            "files": dict.fromkeys(stage.outputs, 0),
            "facts": {},
            "seconds": 1.0,
            "finished": True,
        }
        (directory / "artifact.json").write_text(json.dumps(record))

    def adopted() -> set[str]:
        return {stage.name for stage in plan(made) if "format" in (artifacts.record(stage.name) or {})}

    part = plan(experiment(tmp_path, MINUSCULE, 'systems=["bpe", "dpe"]'), Part(systems=("dpe",)))
    assert "significance/dpe/bpe/seed-1" in {stage.name for stage in part}  # the baseline counts as made
    assert "format" not in (artifacts.record("scores/bpe/seed-1") or {})
    assert adopted() == set(signatures(made))
    assert all(line.endswith("  done") for line in describe(plan(made), artifacts))


def test_no_two_systems_are_tested_both_ways(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, 'systems=["bpe", "dpe", "bpe-dropout"]')
    tests = [name for name in signatures(made) if name.startswith("significance")]
    pairs = ["dpe/bpe", "dpe/bpe-dropout", "bpe-dropout/bpe"]
    assert tests == [f"significance/{pair}/seed-1" for pair in pairs]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(RECIPES)))
def test_shipped_recipes_describe_valid_models(path: Path) -> None:
    recipe = read_recipe(path)
    for system in recipe.systems:
        settings = recipe.translator_settings(system, 1)
        assert settings.uses_segmenter == (system.segmenter is not None)
        assert settings.epochs or settings.steps
        if system.segmenter:
            assert recipe.segmenter_settings(system.segmenter).source == (system.segmenter == "mixed")


def test_missing_corpus_files_are_one_sentence(tmp_path: Path) -> None:
    made = Experiment(
        read_recipe(RECIPES / "paper" / "ro-en.toml", [f"data={tmp_path}"]),
        tmp_path / "run",
        Session(),
    )
    with pytest.raises(UserError) as caught:
        plan(made)
    message = str(caught.value)
    tests = tmp_path / "wmt16-en-ro" / "tests"
    assert str(tests / "Statmt-newstest_enro-2016-eng-ron.ro") in message
    assert "--set data=DIR" in message
    assert "\n" not in message


FILES = """
name = "files"
source = "en"
target = "de"
systems = ["bpe"]
[corpus]
train = ["a.{language}", "b.{language}.gz"]
dev = "dev.{language}"
test = "dev.{language}"
max_tokens = 4
"""


def file_experiment(directory: Path, *overrides: str) -> Experiment:
    directory.mkdir(exist_ok=True)
    for language in ("en", "de"):
        write_lines(
            directory / f"a.{language}", [f"{language} {n}" for n in range(40)] + ["one two three four"]
        )
        write_lines(directory / f"b.{language}.gz", [f"{language} {n}" for n in range(40, 50)])
        write_lines(
            directory / f"dev.{language}", ["Hello, world!", "a much longer line than the limit allows"]
        )
    return experiment(directory, FILES, f"data={directory}", *overrides)


def corpus_of(made: Experiment) -> Texts:
    made.root.mkdir(exist_ok=True)
    make_corpus(made.recipe, made.texts, Progress(QUIET))
    return made.texts


def test_the_training_files_are_joined_and_cleaned_and_the_others_kept_whole(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path))
    assert list(read_lines(texts.plain("train", "de"))) == [f"de {n}" for n in range(50)]
    assert list(read_lines(texts.plain("dev", "en"))) == list(read_lines(tmp_path / "dev.en"))
    assert {path.name for path in texts.directory.iterdir()} == set(texts.file_names)


def test_processes_in_one_directory_agree_on_the_text_and_on_systems_of_their_own(tmp_path: Path) -> None:
    own = 'systems=[{{name = "x", title = "x", source = "bpe", target = "{}"}}]'
    here = fixed_settings(file_experiment(tmp_path / "a", own.format("bpe")))
    assert fixed_settings(file_experiment(tmp_path / "b", own.format("bpe"))) == here
    assert fixed_settings(file_experiment(tmp_path / "b", own.format("longest-match"))) != here
    changed = file_experiment(tmp_path / "b", own.format("bpe"))
    write_lines(tmp_path / "b" / "a.en", ["another"] * 41)
    assert fixed_settings(changed) != here
    assert fixed_settings(file_experiment(tmp_path / "a", "systems=['bpe']", "seeds=[4]")) == fixed_settings(
        file_experiment(tmp_path / "a", "systems=['bpe', 'bpe-dropout']")
    )


def test_words_are_counted_as_the_vocabulary_writes_them(tmp_path: Path) -> None:
    made = file_experiment(tmp_path)
    texts = corpus_of(made)
    lines = ["tämä mökki", "mo\u0308kki, \uff4d\u00f6kki!"]
    write_lines(texts.plain("train", "de"), lines)
    learn_vocabulary(lines, VocabularySettings(size=20)).save(tmp_path / "vocab.model")
    assert training_counts(tmp_path / "vocab.model", texts) == {"tämä": 1, "mökki": 3}


def test_the_gold_is_of_finnish_targets(tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_text("talossa\ttalo ssa\n")
    assert Texts(tmp_path, "en", "fi", False).gold == tmp_path / "gold.tsv"
    assert Texts(tmp_path, "fi", "en", False).gold is None
    assert Texts(tmp_path / "elsewhere", "en", "fi", False).gold is None


def test_lines_draws_pairs_from_all_of_the_text(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path, "corpus.lines=20", "corpus.max_tokens=80"))
    sources, targets = (list(read_lines(texts.plain("train", language))) for language in ("en", "de"))
    assert len(sources) == 20
    assert [line.replace("en", "de") for line in sources] == targets  # pairs stay pairs, in their order
    numbers = [int(line.split()[1]) for line in sources if line.startswith("en")]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] >= 25  # the first half alone would be a biased sample


def test_lines_are_drawn_without_holding_the_text_in_memory(tmp_path: Path) -> None:
    made = file_experiment(tmp_path, "corpus.lines=20")
    for language in ("en", "de"):
        write_lines(tmp_path / f"a.{language}", (f"{n} {'x' * 500}" for n in range(20_000)))
    tracemalloc.start()
    corpus_of(made)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000  # the text has 20 million characters


def test_moses_tokenises_for_the_models_and_keeps_the_reference(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path, "corpus.moses=true"))
    assert next(iter(read_lines(texts.prepared("test", "en")))) == "Hello , world !"
    assert next(iter(read_lines(texts.plain("test", "en")))) == "Hello, world!"
    assert {path.name for path in texts.directory.iterdir()} == set(texts.file_names)
