"""Recipes: what a file says is what one gets, and every mistake is one sentence with the right name in it."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpe.errors import UserError
from dpe.experiment import recipe as recipe_module
from dpe.experiment.recipe import (
    CorpusFields,
    EvaluationFields,
    Recipe,
    SegmenterSection,
    TranslatorSection,
    VocabularyFields,
    read_recipe,
    recipe_from_json,
    recipe_json,
    recipe_toml,
)
from dpe.experiment.systems import SYSTEMS, System
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
from dpe.settings import nearest
from dpe.translator.settings import TranslatorSettings

RECIPES = Path(__file__).parents[1] / "recipes"
SHIPPED = sorted(path for path in RECIPES.rglob("*.toml") if path.name != "common.toml")
PAIRS = [f"{a}-{b}" for x in ("de", "ro", "et", "fi", "hu") for a, b in (("en", x), (x, "en"))]

GOOD = """
name = "mine"
source = "en"
target = "de"
systems = ["bpe", "dpe"]
[corpus]
train = ["train.{language}"]
dev = "dev.{language}"
test = "test.{language}"
[vocabulary]
size = 500
"""


def write(directory: Path, text: str, name: str = "recipe.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        read_recipe(path, overrides)
    return str(caught.value)


def test_a_file_becomes_fields_and_the_rest_has_defaults(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, GOOD))
    assert (recipe.source, recipe.target, recipe.vocabulary.size) == ("en", "de", 500)
    assert recipe.systems == (SYSTEMS["bpe"], SYSTEMS["dpe"])
    assert recipe.seeds == (1,)
    assert recipe.segmenter == {}
    assert recipe.segmenter_settings("mixed") == SEGMENTER_PRESETS["small"]
    assert recipe.file(recipe.corpus.dev, "de") == Path("data/dev.de")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sourc = 'en'", ["'sourc'", "did you mean 'source'?"]),
        ("[vocabulary]\nsise = 3", ["'vocabulary.sise'", "did you mean 'vocabulary.size'?"]),
        ("[translator]\nwarm_up = 3", ["did you mean 'translator.warmup'?"]),
        ("[translator]\nqqqqqq = 3", ["translator.qqqqqq", "choose one of", "translator.width"]),
        ("[vocabulary]\nsize = '8k'", ["vocabulary.size must be a whole number, not '8k'"]),
        ("[vocabulary]\nsize = true", ["vocabulary.size must be a whole number"]),
        ("vocabulary = 3", ["vocabulary must be a table, not 3"]),
        ("seeds = 3", ["seeds must be a list, each item a whole number"]),
        ("seeds = [1, 'two']", ["seeds must be a whole number, not 'two'"]),
        ("[segmenter]\npreset = 'huge'", ["segmenter.preset must be one of tiny, small, base"]),
        ("systems = ['bpe', 'dpe-fixd']", ["no system 'dpe-fixd'", "did you mean 'dpe-fixed'?"]),
        ("systems = [[]]", ["no system []"]),
        ("about = 'unclosed", ["is not valid TOML"]),
    ],
)
def test_a_mistake_names_the_file_and_the_nearest_setting(tmp_path: Path, line: str, says: list[str]) -> None:
    path = write(tmp_path, line + "\n")
    message = complaint(path)
    assert message.startswith(f"{path}: ")
    for words in says:
        assert words in message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "mine"', "", "'name' is missing"),
        ('systems = ["bpe", "dpe"]', "systems = []", "systems must name at least one"),
        ('systems = ["bpe", "dpe"]', 'systems = ["bpe", "bpe"]', "systems names one twice"),
        ('name = "mine"', 'name = "mine"\nseeds = [1, 1]', "seeds names one twice"),
        ("[vocabulary]", 'moses = true\n[vocabulary]\ntext = ["a"]', "vocabulary.text"),
        ('target = "de"', 'target = "en"', "both 'en'"),
        ('dev = "dev.{language}"', "", "all of the files train, dev and test"),
        (
            GOOD[GOOD.index("train =") : GOOD.index("[vocabulary]")],
            "",
            "either builtin_pairs, or all of the files",
        ),
        ('dev = "dev.{language}"', 'dev = "dev.de"', "'dev.de' without {language}"),
        ("[corpus]", "[corpus]\nbuiltin_pairs = 5", "either builtin_pairs, or all of the files"),
    ],
)
def test_a_recipe_that_does_not_hold_together_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in GOOD
    assert says in complaint(write(tmp_path, GOOD.replace(old, new)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "absent.toml" in complaint(tmp_path / "absent.toml")
    path = write(tmp_path, 'extends = "gone.toml"\n' + GOOD)
    assert "gone.toml" in complaint(path)


def test_set_overrides_with_toml_values_and_plain_text(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    recipe = read_recipe(
        path,
        ["vocabulary.size=700", "seeds=[4, 5]", "data=/some where/x", "translator.dropout=0", 'name="x=y"'],
    )
    assert recipe.vocabulary.size == 700
    assert recipe.seeds == (4, 5)
    assert recipe.data == "/some where/x"
    assert isinstance(recipe.translator["dropout"], float)
    assert recipe.name == "x=y"
    assert recipe.corpus == read_recipe(path).corpus


def test_set_to_nothing_takes_a_setting_away(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "[translator]\nsteps = 5\nepochs = 2\n")
    recipe = read_recipe(path, ["translator.steps=", "vocabulary.size=", "corpus.lines="])
    assert recipe.translator == {"epochs": 2}
    assert recipe.vocabulary.size == 32_000
    assert "'name' is missing" in complaint(path, "name=")
    assert complaint(path, "nme=").startswith("--set nme=: there is no setting 'nme'")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("vocabulary.sise=3", "did you mean 'vocabulary.size'?"),
        ("vocabulary.size=many", "must be a whole number, not 'many'"),
        ("vocabulary", "must be KEY=VALUE"),
        ("seeds=[1,", "must be a list"),
    ],
)
def test_a_wrong_override_is_named_as_such(tmp_path: Path, override: str, says: str) -> None:
    message = complaint(write(tmp_path, GOOD), override)
    assert message.startswith(f"--set {override}: ")
    assert says in message


def test_a_recipe_extends_another_key_by_key(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "character_coverage = 0.99\n", "base.toml")
    write(tmp_path, 'extends = "base.toml"\nseeds = [7]\n[vocabulary]\nsize = 600\n', "middle.toml")
    top = write(tmp_path, 'extends = "middle.toml"\nsource = "de"\ntarget = "en"\n', "top.toml")
    recipe = read_recipe(top)
    assert (recipe.source, recipe.target, recipe.seeds) == ("de", "en", (7,))
    assert (recipe.vocabulary.size, recipe.vocabulary.character_coverage) == (600, 0.99)
    assert recipe.corpus.train == ("train.{language}",)


def test_files_replace_the_builtin_corpus_and_it_replaces_them(tmp_path: Path) -> None:
    files = GOOD[GOOD.index("[corpus]") : GOOD.index("[vocabulary]")]
    write(tmp_path, GOOD.replace(files, "[corpus]\nbuiltin_pairs = 9\n"), "builtin.toml")
    top = read_recipe(write(tmp_path, 'extends = "builtin.toml"\n' + files, "top.toml"))
    assert (top.corpus.builtin_pairs, top.corpus.dev) == (None, "dev.{language}")
    back = read_recipe(tmp_path / "top.toml", ["corpus.builtin_pairs=7", "target=fi"])
    assert (back.corpus.builtin_pairs, back.corpus.train, back.corpus.test) == (7, (), "")


def test_a_mistake_below_names_the_file_that_has_it(tmp_path: Path) -> None:
    base = write(tmp_path, GOOD + "sise = 1\n", "base.toml")
    assert complaint(write(tmp_path, 'extends = "base.toml"\n')).startswith(f"{base}: ")


def test_a_circle_of_recipes_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "b.toml"\n', "a.toml")
    assert "extends itself" in complaint(write(tmp_path, 'extends = "a.toml"\n', "b.toml"))


def test_a_system_may_be_defined_in_the_recipe(tmp_path: Path) -> None:
    own = (
        '[{name = "mine", title = "B / D", source = "bpe", target = "dpe-fixed", segmenter = "mixed"}, "bpe"]'
    )
    systems = read_recipe(write(tmp_path, GOOD), [f"systems={own}"]).systems
    assert systems[0] == System(
        name="mine", title="B / D", source="bpe", target="dpe-fixed", segmenter="mixed"
    )
    assert systems[1] == SYSTEMS["bpe"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ('source = "bpe", target = "dpe"', "needs a segmenter"),
        ('source = "bpe", target = "bpe", segmenter = "lm"', "if, and only if"),
        (
            'source = "bpe", target = "dpe", segmenter = "mixed"',
            "System mine: Target method dpe segments the target anew",
        ),
        ('source = "bpe", target = "unigram"', "needs two vocabularies, for bpe and for unigram"),
        ('source = "unigram-best", target = "bpe-dropout"', "needs two vocabularies"),
        (
            'source = "unigram", target = "dpe", segmenter = "mixed"',
            "System mine has the source method unigram, but vocabulary.type is bpe",
        ),
        ('source = "bpe", target = "bpe", target_sampling = 1.0', "System mine: Target sampling needs"),
        (
            'source = "bpe", target = "dpe", segmenter = "mixed", target_sampling = inf',
            "target_sampling is inf; it must be at most",
        ),
        ('source = "bpe", target = "dep"', "systems.target must be one of"),
        ('source = "bpe"', "'systems.target' is missing"),
    ],
)
def test_a_system_that_cannot_be_is_refused(tmp_path: Path, fields: str, says: str) -> None:
    systems = f'systems=[{{name = "mine", title = "x", {fields}}}]'
    assert says in complaint(write(tmp_path, GOOD), systems)


UNIGRAM = 'vocabulary.type="unigram"'


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.segmenter])
def test_systems_with_a_segmenter_follow_the_type_of_the_vocabulary(tmp_path: Path, name: str) -> None:
    path, overrides = write(tmp_path, GOOD), [f'systems=["bpe", "unigram", "{name}"]', UNIGRAM]
    recipe = read_recipe(path, overrides)
    bpe, unigram, system = recipe.systems
    assert (bpe, unigram) == (SYSTEMS["bpe"], SYSTEMS["unigram"])
    assert [one.vocabulary for one in recipe.systems] == ["bpe", "unigram", "unigram"]
    before = SYSTEMS[name]
    best = before.source == "bpe"
    assert system.source == ("unigram-best" if best else "unigram")
    source, _, target = before.title.partition(" / ")
    assert source == ("BPE" if best else "BPE dropout")
    assert system.title == f"unigram {'best' if best else 'sampling'} / {target}"
    same = (system.name, system.target, system.segmenter, system.target_sampling)
    assert same == (name, before.target, before.segmenter, before.target_sampling)
    assert recipe_json(recipe)["systems"] == ["bpe", "unigram", name]
    assert recipe_from_json(recipe_json(recipe), "JSON") == recipe
    assert read_recipe(write(tmp_path, recipe_toml(recipe), "again.toml")) == recipe
    assert dataclasses.replace(recipe, name="other").systems == recipe.systems


def test_an_own_system_names_a_source_of_the_type_of_the_vocabulary(tmp_path: Path) -> None:
    own = '[{{name = "mine", title = "x", source = "{}", target = "dpe", segmenter = "mixed"}}]'
    path = write(tmp_path, GOOD)
    (system,) = read_recipe(path, [f"systems={own.format('unigram')}", UNIGRAM]).systems
    assert (system.source, system.title) == ("unigram", "x")
    says = complaint(path, f"systems={own.format('bpe-dropout')}", UNIGRAM)
    assert "System mine has the source method bpe-dropout, but vocabulary.type is unigram" in says


def test_the_alpha_of_sources_reaches_the_segmenter_that_reads_them(tmp_path: Path) -> None:
    path, alpha = write(tmp_path, GOOD), "segmenter.source_alpha=0.5"
    recipe = read_recipe(path, [UNIGRAM, alpha])
    assert recipe.segmenter_settings("mixed").source_alpha == 0.5
    assert recipe.segmenter_settings("lm").source_alpha is None
    assert "source_alpha samples from a unigram vocabulary" in complaint(path, alpha)
    assert "leave unigram_nbest out" in complaint(path, UNIGRAM, "translator.unigram_nbest=8")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("translator.epochs=0", "epochs is 0; it must be at least 1"),
        ("segmenter.heads=0", "heads is 0"),
        ("translator.batch=-5", "batch is -5"),
        ("translator.bpe_dropout=7", "bpe_dropout is 7"),
        ("segmenter.source_dropout=nan", "source_dropout is nan"),
        ("decoding.beam=0", "beam is 0"),
        ("seeds=[1, -1]", "seeds has (1, -1)"),
        ("corpus.lines=-3", "lines is -3"),
    ],
)
def test_a_number_out_of_its_range_is_refused(tmp_path: Path, override: str, says: str) -> None:
    assert says in complaint(write(tmp_path, GOOD), override)


@pytest.mark.parametrize("override", ["corpus.moses=true", "corpus.lines=9", "corpus.max_ratio=2"])
def test_the_built_in_corpus_is_not_changed(override: str) -> None:
    assert "do not apply to the built-in corpus" in complaint(RECIPES / "demo.toml", override)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (['evaluation.tests=["x/more.en"]'], "evaluation names the file 'x/more.en' without {language}"),
        (['evaluation.tests=["x/a.{language}", "y/a.{language}.gz"]'], "two texts 'a'"),
        (['evaluation.tests=["other/test.{language}"]'], "two texts 'test'"),
        (['evaluation.tests=["test/{language}"]'], "two texts ''"),
        (["evaluation.noise=[0.02, 0.02]"], "two texts 'test-noise-0.02'"),
        (["evaluation.noise=[0.0]"], "must be above 0 and at most 1"),
        (["evaluation.noise=[1.5]"], "must be above 0 and at most 1"),
        (["segmenter_seeds=[1, 1]"], "segmenter_seeds names one twice"),
        (["segmenter_seeds=[1, 2]", "segmenter.seed=3"], "exclude each other"),
    ],
)
def test_texts_and_seeds_that_contradict_each_other(tmp_path: Path, overrides: list[str], says: str) -> None:
    assert says in complaint(write(tmp_path, GOOD), *overrides)


def test_texts_are_named_after_their_files(tmp_path: Path) -> None:
    tests = 'evaluation.tests=["a/test2017.{language}.xz", "newstest-{language}.txt"]'
    recipe = read_recipe(write(tmp_path, GOOD), [tests, "evaluation.noise=[0.02, 1]"])
    names = ("dev", "test", "test2017", "newstest", "test-noise-0.02", "test-noise-1")
    assert recipe.evaluated == names


def test_translators_take_the_segmenters_in_turn(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, GOOD), ["segmenter_seeds=[7, 8]", "seeds=[1, 2, 3, 4]"])
    assert [recipe.segmenter_settings("mixed", seed).seed for seed in recipe.seeds] == [7, 8, 7, 8]
    assert recipe.segmenter_settings("lm").seed == 7


def test_a_vocabulary_is_learned_or_given(tmp_path: Path) -> None:
    overrides = ("vocabulary.model=own.model", 'vocabulary.text=["text.en"]')
    assert "give one of them" in complaint(write(tmp_path, GOOD), *overrides)


def test_a_written_recipe_reads_as_it_was(tmp_path: Path) -> None:
    for path in SHIPPED:
        recipe = read_recipe(path)
        assert read_recipe(write(tmp_path, recipe_toml(recipe), "again.toml")) == recipe
        assert recipe_from_json(json.loads(json.dumps(recipe_json(recipe))), "JSON") == recipe


def test_the_documentation_has_every_key_with_its_default(tmp_path: Path) -> None:
    page = (RECIPES.parent / "docs" / "recipes.md").read_text(encoding="utf-8")
    (block, *_) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    short = GOOD.replace('"de"', '"fi"').replace('"bpe"', '"bpe", "bpe-dropout"').replace("size = 500", "")
    shown, default = read_recipe(write(tmp_path, block)), read_recipe(write(tmp_path, short))
    same = {"corpus": default.corpus, "segmenter": default.segmenter, "translator": default.translator}
    assert dataclasses.replace(shown, **same) == default
    assert dataclasses.replace(shown.corpus, train=default.corpus.train) == default.corpus
    assert shown.segmenter_settings("mixed") == default.segmenter_settings("mixed")
    assert shown.translator_settings(SYSTEMS["dpe"], 1) == default.translator_settings(SYSTEMS["dpe"], 1)
    parts = re.split(r"^\[(\w+)\]", block, flags=re.MULTILINE)
    sections = {"recipe": block, **dict(zip(parts[1::2], parts[2::2], strict=True))}
    sections["translator"] += sections["segmenter"]  # whose network keys are its own too
    tables = {"recipe": Recipe, "corpus": CorpusFields, "vocabulary": VocabularyFields}
    tables |= {"segmenter": SegmenterSettings, "translator": TranslatorSettings}
    tables |= {"evaluation": EvaluationFields}
    decided = {*SegmenterSection.decided, *TranslatorSection.decided} - {"seed"}
    for name, fields in tables.items():
        for field in dataclasses.fields(fields):
            if field.name not in decided or name == "recipe":
                found = re.search(rf"^(# |\[)?{field.name}( = |\])", sections[name], re.MULTILINE)
                assert found, field.name
    assert all(f"| `{name}` |" in page for name in SYSTEMS)


def test_nearest_lists_everything_when_nothing_is_near() -> None:
    assert nearest("bpe-drop", ["bpe", "bpe-dropout", "dpe"]) == "did you mean 'bpe-dropout'?"
    assert nearest("zzz", ["bpe", "dpe"]) == "choose one of bpe, dpe."


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(RECIPES)))
def test_shipped_recipes_are_named_after_their_files(path: Path) -> None:
    recipe = read_recipe(path)
    prefix = "paper-" if path.parent.name == "paper" else ""
    assert recipe.name == prefix + path.stem
    if recipe.corpus.train:
        assert recipe.name.endswith(f"{recipe.source}-{recipe.target}")
        pair = {recipe.source, recipe.target} - {"en"}
        named = " ".join([*recipe.corpus.train, recipe.corpus.dev, recipe.corpus.test])
        assert "paper" in recipe.name or all(f"en-{other}/" in named for other in pair)


def test_the_ten_directions_of_the_paper_are_there_twice() -> None:
    names = {str(path.relative_to(RECIPES).with_suffix("")) for path in SHIPPED}
    assert {f"paper/{pair}" for pair in PAIRS} | {f"softloc-{pair}" for pair in PAIRS} <= names
    assert {"demo", "multi30k-en-de", "multi30k-de-en"} <= names


@pytest.mark.parametrize("pair", PAIRS)
def test_paper_recipes_have_the_settings_of_the_paper(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder too, whatever the presets come to say."""
    presets = {name: replace(one, decoder="words") for name, one in SEGMENTER_PRESETS.items()}
    monkeypatch.setattr(recipe_module, "SEGMENTER_PRESETS", presets)
    recipe = read_recipe(RECIPES / "paper" / f"{pair}.toml")
    assert recipe.vocabulary.size == 32_000
    assert len(recipe.seeds) == 3
    assert recipe.corpus.moses
    assert recipe.corpus.max_tokens == 80
    segmenter, translator = recipe.segmenter_settings("mixed"), recipe.translator_settings(SYSTEMS["dpe"], 1)
    assert segmenter.source_dropout == translator.bpe_dropout == 0.05
    assert segmenter.decoder == "characters"
    assert recipe.segmenter["preset"] == recipe.translator["preset"] == "base"
    paper = ("bpe", "bpe-dropout-source", "bpe-dropout", "dpe", "dpe-fixed", "lm-dpe")
    assert tuple(system.name for system in recipe.systems) == paper
