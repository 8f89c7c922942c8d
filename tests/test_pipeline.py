"""Experiments as stages: what is made, what is not made again, and what the table says of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from dpe.errors import UserError
from dpe.pipeline.artifacts import Artifacts, Stage, State
from dpe.pipeline.experiment import Experiment
from dpe.pipeline.locks import shared_run, stage_lock
from dpe.pipeline.models import Machine, segmenter_settings, translator_settings, translator_stopping
from dpe.pipeline.paper_table import paper_tables
from dpe.pipeline.results import Results, read_results, write_results
from dpe.pipeline.run import Selection, plan
from dpe.pipeline.running import describe, in_order, run_stages
from dpe.pipeline.texts import Texts, make_corpus
from dpe.progress import QUIET, Progress
from dpe.recipe.reading import read_recipe
from dpe.text.corpus import read_lines, write_lines
from dpe.training.checkpoint import load_tensors

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
SHIPPED = sorted(path for path in RECIPES.rglob("*.toml") if path.name != "common.toml")
SILENT = Progress(QUIET)
DPE = [sys.executable, "-m", "dpe"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

# Minuscule, but of every kind: both segmenters, cuts on the fly and fixed.
MINUSCULE = """
name = "minuscule"
source = "en"
target = "fi"
systems = ["bpe", "dpe", "lm-dpe"]
[corpus]
builtin_pairs = 200
[vocabulary]
size = 150
[segmenter]
preset = "tiny"
width = 16
heads = 2
feed_forward = 32
encoder_layers = 1
decoder_layers = 1
epochs = 1
[translator]
preset = "tiny"
width = 16
heads = 2
feed_forward = 32
encoder_layers = 1
decoder_layers = 1
batch = 500
epochs = 3
[decoding]
beam = 2
"""


class Toy:
    """Three stages in a row and one beside them; `made` lists those that were made, in order."""

    def __init__(self, root: Path) -> None:
        self.artifacts, self.made = Artifacts(root), list[str]()

    def stage(self, name: str, setting: int, *needs: Stage, files: tuple[Path, ...] = ()) -> Stage:
        def make(directory: Path) -> Mapping[str, Any]:
            self.made.append(name)
            inputs = "".join((self.artifacts.directory(need) / "out").read_text() for need in needs)
            (directory / "out").write_text(f"{inputs}{name}{setting} ")
            return {"setting": setting}

        return Stage(
            name=name, settings={"setting": setting}, needs=needs, make=make, outputs=("out",), files=files
        )

    def run(self, a: int = 1, b: int = 1, c: int = 1) -> list[str]:
        """Make everything with these settings; gives what had to be made."""
        self.made.clear()
        run_stages(self.stages(a, b, c), self.artifacts, SILENT)
        return list(self.made)

    def stages(self, a: int = 1, b: int = 1, c: int = 1) -> list[Stage]:
        first = self.stage("a", a)
        middle = self.stage("x/b", b, first)
        return in_order([self.stage("x/c", c, middle), self.stage("d", 1, first)])

    def text(self, name: str) -> str:
        return (self.artifacts.root / name / "out").read_text()


def test_every_stage_is_made_once_after_its_needs(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    assert toy.run() == ["a", "x/b", "x/c", "d"]
    assert toy.text("x/c") == "a1 x/b1 x/c1 "
    assert toy.run() == []


def test_a_changed_setting_makes_again_only_what_depends_on_it(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    assert toy.run(c=2) == ["x/c"]
    assert toy.run(b=2, c=2) == ["x/b", "x/c"]
    assert toy.text("x/c") == "a1 x/b2 x/c2 "
    assert set(toy.run(a=3, b=2, c=2)) == {"a", "x/b", "x/c", "d"}


def test_what_was_made_before_comes_back_with_its_settings(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    toy.run(b=2)
    assert [toy.artifacts.state(stage) for stage in toy.stages()] == [State.DONE] * 4
    assert toy.run() == []
    assert toy.text("x/c") == "a1 x/b1 x/c1 "


def test_a_file_from_outside_counts_by_its_content(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one")
    toy = Toy(tmp_path / "run")
    before = toy.stage("a", 1, files=(text,)).signature
    (tmp_path / "elsewhere").write_text("one")
    assert toy.stage("a", 1, files=(tmp_path / "elsewhere",)).signature == before
    text.write_text("two")
    assert toy.stage("a", 1, files=(text,)).signature != before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("cut sh")])
def test_a_lost_or_shortened_output_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    toy = Toy(tmp_path)
    toy.run()
    damage(tmp_path / "x" / "b" / "out")
    assert toy.run() == ["x/b"]


def test_a_stage_that_failed_is_begun_and_made_again(tmp_path: Path) -> None:
    toy = Toy(tmp_path)

    def fail(directory: Path) -> Mapping[str, Any]:
        (directory / "half").write_text("left")
        raise UserError("full disk")

    broken = Stage(name="a", settings={"setting": 1}, needs=(), make=fail, outputs=("out",))
    with pytest.raises(UserError, match="full disk"):
        run_stages([broken], toy.artifacts, SILENT)
    assert toy.artifacts.state(broken) is State.BEGUN
    assert (tmp_path / "a" / "half").exists()  # what is there may help to go on
    assert toy.run() == ["a", "x/b", "x/c", "d"]


def test_the_plan_says_how_far_each_stage_is(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    lines = describe(toy.stages(b=2), toy.artifacts)
    assert [line.split("  ", 2)[0].strip() for line in lines] == ["a", "x/b", "x/c", "d"]
    states = [line.split("  ")[-1] for line in lines]
    assert states == ["done", State.CHANGED.value, State.CHANGED.value, "done"]


@contextmanager
def other_process(code: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python that has printed a line, and so holds its locks; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def holding(context: str) -> str:
    return (
        "import time; from pathlib import Path; from dpe.pipeline.locks import *\n"
        f"with {context} as held: print('ready', flush=True); time.sleep(60)"
    )


def test_a_stage_belongs_to_one_living_process(tmp_path: Path) -> None:
    code = holding(f"stage_lock(Path({str(tmp_path)!r}), 'x/b')")
    with other_process(code) as process:
        with stage_lock(tmp_path, "x/b") as is_ours:
            assert not is_ours
        with stage_lock(tmp_path, "x/c") as is_ours:
            assert is_ours
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with stage_lock(tmp_path, "x/b") as is_ours:
            assert is_ours


def test_processes_with_other_settings_are_refused_while_one_works(tmp_path: Path) -> None:
    code = holding(f"shared_run(Path({str(tmp_path)!r}), {{'size': 1}})")
    with other_process(code):
        with shared_run(tmp_path, {"size": 1}):
            pass
        with pytest.raises(UserError, match="other settings"), shared_run(tmp_path, {"size": 2}):
            pass
    with shared_run(tmp_path, {"size": 2}):
        pass


def test_two_processes_share_the_stages(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"""
import time
from pathlib import Path
from dpe.pipeline.artifacts import Artifacts, Stage
from dpe.pipeline.running import run_stages
from dpe.progress import QUIET, Progress
def make(name):
    def work(directory):
        with open({str(log)!r}, "a") as file: file.write(name + chr(10))
        time.sleep(0.3)
        (directory / "out").write_text("x")
        return {{}}
    return work
first = Stage(name="first", settings={{}}, needs=(), make=make("first"), outputs=("out",))
rest = [Stage(name=f"s{{n}}", settings={{"n": n}}, needs=(first,), make=make(f"s{{n}}"), outputs=("out",))
        for n in range(4)]
run_stages([first, *rest], Artifacts(Path({str(tmp_path / "run")!r})), Progress(QUIET))
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    lines = log.read_text().split()
    assert lines[0] == "first"
    assert sorted(lines) == ["first", "s0", "s1", "s2", "s3"]


def experiment(directory: Path, text: str = MINUSCULE, *overrides: str) -> Experiment:
    path = directory / "recipe.toml"
    directory.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return Experiment(read_recipe(path, overrides), directory / "run", Machine(device="cpu"), SILENT)


def signatures(made: Experiment) -> dict[str, str]:
    return {stage.name: stage.signature for stage in plan(made)}


# The first part of the names of the stages that each setting must change, and no others.
DEPENDENT = {
    "decoding.beam=3": ("translations", "scores", "significance"),
    "translator.dropout=0.3": ("translators", "translations", "scores", "significance"),
    "segmenter.epochs=2": ("segmenters", "segmentations/lm", "segmentations/mixed", "D", "significance/D"),
    "vocabulary.size=160": ("vocabularies", "seg", "translators", "translations", "scores", "significance"),
    "corpus.builtin_pairs=210": ("",),
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
        "significance/unigram/seed-1",
        "significance/unigram/seed-2",
    ]
    positions = {name: number for number, name in enumerate(names)}
    assert all(positions[need.name] < positions[stage.name] for stage in plan(made) for need in stage.needs)


def test_a_selection_leaves_the_other_systems_and_their_tests_out(tmp_path: Path) -> None:
    made = experiment(tmp_path, MINUSCULE, "seeds=[1, 2]")
    names = {stage.name for stage in plan(made, Selection(systems=("dpe",), seeds=(2,)))}
    assert {name for name in names if name.startswith("tr")} == {
        "translators/dpe/seed-2",
        "translations/dpe/seed-2",
    }
    assert not [name for name in names if name.startswith("significance")]
    with pytest.raises(UserError, match="did you mean 'dpe'"):
        plan(made, Selection(systems=("dpee",)))
    with pytest.raises(UserError, match="no seed 5"):
        plan(made, Selection(seeds=(5,)))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(RECIPES)))
def test_shipped_recipes_describe_valid_models(path: Path) -> None:
    recipe = read_recipe(path)
    for system in recipe.systems:
        settings = translator_settings(recipe.translator, system, recipe.seeds[0], None)
        assert settings.uses_segmenter == (system.segmenter is not None)
        if system.segmenter:
            assert segmenter_settings(recipe.segmenter, source=system.segmenter == "mixed").batch > 0
    stopping = translator_stopping(recipe.translator)
    assert stopping.epochs or stopping.steps


def test_missing_corpus_files_are_one_sentence(tmp_path: Path) -> None:
    made = Experiment(
        read_recipe(RECIPES / "paper" / "ro-en.toml", [f"data={tmp_path}"]),
        tmp_path / "run",
        Machine(),
        SILENT,
    )
    with pytest.raises(UserError) as caught:
        plan(made)
    message = str(caught.value)
    assert str(tmp_path / "wmt16" / "newstest2016.ro") in message
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
    make_corpus(made.recipe, made.texts, SILENT)
    return made.texts


def test_the_training_files_are_joined_and_cleaned_and_the_others_kept_whole(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path))
    assert list(read_lines(texts.plain("train", "de"))) == [f"de {n}" for n in range(50)]
    assert list(read_lines(texts.plain("dev", "en"))) == list(read_lines(tmp_path / "dev.en"))
    assert {path.name for path in texts.directory.iterdir()} == set(texts.file_names)


def test_lines_draws_pairs_from_all_of_the_text(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path, "corpus.lines=20", "corpus.max_tokens=80"))
    sources, targets = (list(read_lines(texts.plain("train", language))) for language in ("en", "de"))
    assert len(sources) == 20
    assert [line.replace("en", "de") for line in sources] == targets  # pairs stay pairs, in their order
    numbers = [int(line.split()[1]) for line in sources if line.startswith("en")]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] >= 25  # the first half alone would be a biased sample


def test_moses_tokenises_for_the_models_and_keeps_the_reference(tmp_path: Path) -> None:
    texts = corpus_of(file_experiment(tmp_path, "corpus.moses=true"))
    assert next(iter(read_lines(texts.prepared("test", "en")))) == "Hello , world !"
    assert next(iter(read_lines(texts.plain("test", "en")))) == "Hello, world!"
    assert {path.name for path in texts.directory.iterdir()} == set(texts.file_names)


def hand_made_run(root: Path, scores: Mapping[str, list[float]], *, p: float, pair: str = "en-et") -> Path:
    """A run directory with these test BLEU scores by system, one per seed, and tests against BPE."""
    source, target = pair.split("-")
    systems = [{"name": name, "title": name.upper()} for name in scores]
    recipe = {"name": root.name, "source": source, "target": target, "systems": systems}
    root.mkdir()
    (root / "recipe.json").write_text(json.dumps(recipe))
    for name, values in scores.items():
        for seed, value in enumerate(values, start=1):
            text = {"bleu": value, "chrf": value + 20, "bleu_signature": "B|x", "chrf_signature": "C|x"}
            record(root, f"scores/{name}/seed-{seed}", {"dev": text | {"bleu": value - 1}, "test": text})
            if name != "bpe":
                test = {"difference": value - scores["bpe"][seed - 1], "p_value": p * seed, "signature": "T"}
                tests = [test | {"metric": metric} for metric in ("BLEU", "chrF2")]
                record(root, f"significance/{name}/seed-{seed}", {"bpe": tests})
    return root


def record(root: Path, stage: str, facts: Mapping[str, Any], needs: Mapping[str, str] = {}) -> None:
    directory = root / stage
    directory.mkdir(parents=True)
    content = {"stage": stage, "signature": "s", "settings": {}, "needs": needs, "files": {}, "facts": facts}
    (directory / "artifact.json").write_text(json.dumps(content | {"seconds": 1.0, "finished": True}))


BPE, DPE_SCORES = [20.0, 21.0, 20.4], [22.0, 21.5, 21.9]


def test_the_table_has_means_deviations_deltas_and_stars(tmp_path: Path) -> None:
    run = read_results(hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01))
    scores, tests = paper_tables([run])
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
    run = read_results(hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.02))
    assert paper_tables([run])[0].rows[0][3] == "+1.33"  # the third seed has p = 0.06


def test_other_texts_and_metrics(tmp_path: Path) -> None:
    run = read_results(hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": [21.0]}, p=0.01))
    assert list(paper_tables([run], text="dev")[0].rows[0]) == ["en→et", "19.00", "20.00", "+1.00"]
    assert list(paper_tables([run], metric="chrf")[0].rows[0]) == ["en→et", "40.00", "41.00", "+1.00*"]


def test_systems_are_compared_with_bpe_dropout_as_in_the_paper(tmp_path: Path) -> None:
    scores = {"bpe": [20.0], "bpe-dropout": [20.5], "dpe": [21.5]}
    run = read_results(hand_made_run(tmp_path / "r", scores, p=0.9))
    assert list(paper_tables([run])[0].rows[0]) == ["en→et", "20.00", "20.50", "+0.50", "21.50", "+1.00"]


def test_several_runs_are_rows_with_an_average(tmp_path: Path) -> None:
    first = hand_made_run(tmp_path / "one", {"bpe": [20.0], "dpe": [21.0]}, p=0.9)
    second = hand_made_run(tmp_path / "two", {"bpe": [30.0], "dpe": [32.0]}, p=0.9, pair="et-en")
    third = hand_made_run(tmp_path / "three", {"bpe": [40.0]}, p=0.9)
    table = paper_tables([read_results(first), read_results(second)])[0]
    assert [list(row) for row in table.rows] == [
        ["en→et", "20.00", "21.00", "+1.00"],
        ["et→en", "30.00", "32.00", "+2.00"],
        ["average", "25.00", "26.50", "+1.50"],
    ]
    partial = paper_tables([read_results(first), read_results(third)])[0]
    assert [list(row) for row in partial.rows] == [
        ["en→et (one)", "20.00", "21.00", "+1.00"],
        ["en→et (three)", "40.00", "", ""],
        ["average", "30.00", "", ""],
    ]


def test_scores_whose_inputs_have_changed_are_left_out(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": [20.0], "dpe": []}, p=0.9)
    record(root, "translations/dpe/seed-1", {})
    text = {"bleu": 25.0, "chrf": 1.0, "bleu_signature": "", "chrf_signature": ""}
    facts = {"dev": text, "test": text}
    record(root, "scores/dpe/seed-1", facts, needs={"translations/dpe/seed-1": "s"})
    record(root, "scores/dpe/seed-2", facts, needs={"translations/dpe/seed-1": "older"})
    dpe = read_results(root).systems[1]
    assert [seed.seed for seed in dpe.seeds] == [1]


def test_results_json_stands_for_the_run(tmp_path: Path) -> None:
    root = hand_made_run(tmp_path / "r", {"bpe": BPE, "dpe": DPE_SCORES}, p=0.01)
    written = write_results(root)
    copied: Results = read_results(root / "results.json")
    assert copied == written
    assert paper_tables([copied]) == paper_tables([read_results(root)])


@pytest.mark.parametrize("content", ["[]", "{}", "nonsense", '{"systems": [{"x": 1}], "tests": []}'])
def test_what_is_no_run_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"results\.json"):
        read_results(path)
    with pytest.raises(UserError, match="is no run"):
        read_results(tmp_path)


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
    assert by_name["translators/dpe/seed-1"].endswith("begun")
    assert by_name["segmenters/mixed"].endswith("done")
    assert by_name["scores/dpe/seed-1"].endswith("to do")

    _, said = finished(dpe(tmp_path, *command, "--out", "cut"))
    assert "segmenters/mixed: up to date" in said
    assert "going on from step" in said
    assert outputs(tmp_path / "cut") == expected
    assert "cut/results.json" in said
    tables, _ = finished(dpe(tmp_path, "table", "cut", "whole/results.json"))
    assert "en→fi (minuscule)" in tables


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINUSCULE)
    shown, _ = finished(dpe(tmp_path, "run", "mine.toml", "--dry-run", "--set", "seeds=[3]"))
    assert "translators/bpe/seed-3" in shown
    assert all(line.endswith("to do") for line in shown.splitlines())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
