"""A vocabulary for each side: segmenters and translators whose sources and targets have other pieces and ids.

The two differ in size, in their special ids, and in their pieces; so an id of the wrong one shows.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest
import torch

from dpe import OnTheFly, Segmenter, Translator
from dpe.data import EpochPairs
from dpe.errors import UserError
from dpe.explorer.answers import Explorer
from dpe.explorer.messages import Question
from dpe.model.batching import collate_translation, translation_example
from dpe.model.checkpoint import SOURCE_VOCABULARY, VOCABULARY, load_vocabulary, read_settings, write_settings
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.segmenter import fingerprint
from dpe.text.dictionaries import source_names, token_names
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.segmenters import source_segmenter
from dpe.text.vocabulary import Vocabulary
from dpe.translator.ctranslate2 import export_model
from dpe.translator.translator import export_translator, exported, length_limit, load_model
from tests.experiments import experiment
from tests.oracles import brute_force, log_sum_exp
from tests.segment_command import Dpe
from tests.segmenters import NETWORK, PAIRS, save_segmenter
from tests.test_vocabulary import train as train_sentencepiece
from tests.translators import SETTINGS, TEST, write_corpus
from tests.vocabularies import make_vocabulary

SMALL = ["--set", "width=16", "--set", "heads=2", "--set", "feed_forward=32"]
SMALL += ["--set", "encoder_layers=1", "--set", "decoder_layers=1"]


@pytest.fixture(scope="module")
def source() -> Vocabulary:
    """A user's own, of English: `<unk>` is 0, `</s>` 2, and the padding comes after the pieces."""
    return Vocabulary(train_sentencepiece([en for en, _ in PAIRS], model_type="bpe", vocab_size=90))


@pytest.fixture(scope="module")
def target() -> Vocabulary:
    return learn_vocabulary((fi for _, fi in PAIRS), VocabularySettings(size=170))


@pytest.fixture(scope="module")
def both(source: Vocabulary, target: Vocabulary) -> Vocabulary:
    return Vocabulary.of(target, source)


def test_the_sides_differ(source: Vocabulary, both: Vocabulary) -> None:
    """Else the tests below could not fail."""
    assert len(source.ids.keys() - both.ids.keys()) > 20
    assert source.pad_id != both.pad_id
    assert source.unk_id != both.unk_id
    assert source.eos_id != both.eos_id
    assert not both.is_joint
    assert both.source.fingerprint == source.fingerprint


def test_a_vocabulary_beside_itself_is_joint(target: Vocabulary, both: Vocabulary) -> None:
    assert target.source is target
    assert target.is_joint
    assert Vocabulary.of(target, Vocabulary(target.content)).source.fingerprint == target.fingerprint
    assert Vocabulary.of(both) is both
    assert Vocabulary.of(both, target).is_joint
    scores = dict.fromkeys(target.ids, -2.0)
    assert Vocabulary.of(target.as_unigram(scores), target).is_joint  # the same pieces and ids


def test_both_sides_are_pickled(both: Vocabulary) -> None:
    copy = pickle.loads(pickle.dumps(both))
    assert (copy.content, copy.source.content) == (both.content, both.source.content)


def test_joint_models_keep_their_weights(target: Vocabulary, both: Vocabulary) -> None:
    """Names and shapes; another vocabulary for the source adds one table."""
    joint = MixedTransformer.of(NETWORK, target, source=True)
    apart = MixedTransformer.of(NETWORK, both, source=True)
    shapes = {name: tuple(p.shape) for name, p in apart.named_parameters()}
    assert shapes.pop("output_embedding.weight") == (len(target), NETWORK.width)
    assert shapes["source_embedding.weight"] == (len(both.source), NETWORK.width)
    assert shapes.keys() == {name for name, _ in joint.named_parameters()}
    translator = {name for name, _ in TranslationTransformer.of(SETTINGS, target).named_parameters()}
    assert "source_embedding.weight" not in translator
    apart_translator = dict(TranslationTransformer.of(SETTINGS, both).named_parameters())
    assert apart_translator.keys() - translator == {"source_embedding.weight"}
    assert len(apart_translator["source_embedding.weight"]) == len(both.source)


@pytest.mark.parametrize("decoder", ["characters", "words"])
def test_a_segmenter_is_exact(both: Vocabulary, decoder: str, tmp_path: Path) -> None:
    """The oracle reads the source by its own vocabulary, and sums over the target's pieces."""
    letters = make_vocabulary({"▁": -1.0, "a": -2.0, "b": -3.0, "▁a": -4.0, "ab": -5.0, "ba": -6.0})
    pair = Vocabulary.of(letters, both.source)
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", pair, decoder=decoder))
    for line, (english, _) in zip(["ab ba", "a", "bab☃"], PAIRS, strict=False):
        cuts = brute_force(segmenter, english, line)
        found = segmenter.n_best(english, line, n=len(cuts) + 3)
        assert [cut.score for cut in found] == pytest.approx(sorted(cuts.values(), reverse=True), abs=1e-4)
        assert found[0].log_partition == pytest.approx(log_sum_exp(list(cuts.values())), abs=1e-4)
        assert math.fsum(cut.probability for cut in found) == pytest.approx(1.0, abs=1e-9)
    single, batch = (
        segmenter.best("the old house", "ab"),
        segmenter.best(["the old house", "on"], ["ab", "ba"]),
    )
    assert batch[0].score == pytest.approx(single.score, abs=1e-4)  # padding is the source's


def test_examples_have_the_ids_of_their_side(both: Vocabulary, tmp_path: Path) -> None:
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", both))
    for english, finnish in PAIRS[:20]:
        pieces = both.source.encode(english)
        example = segmenter.example(0, pieces, finnish)
        assert example.source == [*both.source.piece_ids(pieces), both.source.eos_id]
        assert both.source.unk_id not in example.source
        cut = segmenter.best(english, finnish)
        assert [both.pieces[i] for i in cut.ids] == list(cut.pieces)
    first = translation_example(both, 0, both.source.encode("the"), both.encode("talo"))
    second = translation_example(both, 1, both.source.encode("the old house"), both.encode("talo on"))
    batch = collate_translation([first, second], both)
    padding = len(second.source) - len(first.source)
    assert batch.source[0].tolist() == [*first.source, *[both.source.pad_id] * padding]
    assert batch.target_in[1].tolist() == [both.bos_id, *second.target]
    assert batch.target_out[1].tolist() == [*second.target, both.eos_id]


def test_a_directory_keeps_both_and_tells_them_apart(
    source: Vocabulary, target: Vocabulary, both: Vocabulary, tmp_path: Path
) -> None:
    apart, joint = save_segmenter(tmp_path / "apart", both), save_segmenter(tmp_path / "joint", target)
    assert (apart / SOURCE_VOCABULARY).read_bytes() == source.content
    assert (apart / VOCABULARY).read_bytes() == target.content
    assert not (joint / SOURCE_VOCABULARY).exists()
    assert "source_vocabulary" not in read_settings(joint, "segmenter")
    for directory, other in ((apart, target), (joint, both)):
        with pytest.raises(UserError, match="source_vocabulary"):
            write_settings(directory, "segmenter", NETWORK, other, {})
        assert load_vocabulary(directory, read_settings(directory, "segmenter")).is_joint == (
            directory == joint
        )
    before = fingerprint(apart)
    (apart / SOURCE_VOCABULARY).write_bytes(target.content)
    assert fingerprint(apart) != before
    with pytest.raises(UserError, match=r"source\.model is not the vocabulary"):
        Segmenter.load(apart)


def test_pairs_for_other_training_loops(both: Vocabulary, tmp_path: Path) -> None:
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", both))
    english, finnish = map(list, zip(*PAIRS[:12], strict=True))
    cutter = OnTheFly(segmenter, dropout=0.4, seed=3)
    pairs = cutter.pairs(english, finnish, epoch=2)
    drop = source_segmenter(both.source, 0.4)
    assert [list(p.source) for p in pairs] == [drop.cut(x, Draw(3, 2, n)) for n, x in enumerate(english)]
    rows = EpochPairs(english, finnish, cutter)
    rows.set_epoch(2)
    for row, pair in zip(rows.__getitems__(range(12)), pairs, strict=True):
        assert row["input_ids"] == [*both.source.piece_ids(pair.source), both.source.eos_id]
        assert row["labels"] == [*both.piece_ids(pair.target), both.eos_id]


def test_the_explorer_shows_the_source_in_its_own_pieces(both: Vocabulary, tmp_path: Path) -> None:
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", both))
    question = Question(source="the old houses", target=PAIRS[0][1], n_best=2)
    answer = Explorer({"s": segmenter}).answer(question)
    assert [p for word in answer.source_words or [] for p in word] == both.source.encode("the old houses")


def test_special_symbols_have_one_name_for_ctranslate2(both: Vocabulary) -> None:
    names, of_target = source_names(both), token_names(both)
    assert len(set(names)) == len(names) == len(both.source)
    for role in ("pad_id", "unk_id", "bos_id", "eos_id"):
        assert names[getattr(both.source, role)] == of_target[getattr(both, role)]
    assert all(names[i] == piece for piece, i in both.source.ids.items())
    odd = make_vocabulary({"▁": -1.0, "<blank>": -2.0, "a": -3.0}, special=("<unk>", "</s>"))
    other = make_vocabulary({"▁": -1.0}, protected=["</s>"], special=("<unk>",))
    mixed = source_names(Vocabulary.of(other, odd))
    assert len(set(mixed)) == len(mixed)
    assert source_names(both.source) == token_names(both.source)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_ctranslate2_gives_torchs_log_probabilities(norm: str, both: Vocabulary, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = TranslationTransformer.of(replace(SETTINGS, norm=norm), both).eval()  # type: ignore[arg-type]
    export_model(model, both, tmp_path / "model", int8=False)
    engine = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32")
    read, written = source_names(both), token_names(both)
    for english, finnish in PAIRS[:5]:
        x, y = both.source.piece_ids(both.source.encode(english)), both.piece_ids(both.encode(finnish))
        ids, wanted = torch.tensor([[*x, both.source.eos_id]]), torch.tensor([*y, both.eos_id])
        with torch.no_grad():
            logits = model.logits(ids, torch.tensor([ids.shape[1]]), torch.tensor([[both.bos_id, *y]]))
        expected = logits[0].log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()
        (scored,) = engine.score_batch([[read[i] for i in x]], [[written[i] for i in y]])
        assert scored.log_probs == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, source: Vocabulary, target: Vocabulary) -> Path:
    directory = write_corpus(tmp_path_factory.mktemp("sides"))
    source.save(directory / "en.model")
    target.save(directory / "fi.model")
    return directory


def texts(place: Path) -> list[str]:
    sides = [
        ("source", "train.en"),
        ("target", "train.fi"),
        ("dev-source", "dev.en"),
        ("dev-target", "dev.fi"),
    ]
    return [part for side, name in sides for part in (f"--{side}", str(place / name))]


def of_sides(place: Path) -> list[str]:
    return ["--source-vocab", str(place / "en.model"), "--target-vocab", str(place / "fi.model")]


def test_segmenter_and_translator_by_the_command_line(place: Path, both: Vocabulary, dpe: Dpe) -> None:
    segmenter, translator = str(place / "segmenter"), str(place / "translator")
    train = ["train-segmenter", *texts(place), "--preset", "tiny", *SMALL, "--out", segmenter]
    for vocabularies in (["--vocab", str(place / "fi.model"), *of_sides(place)], of_sides(place)[:2], []):
        assert "--vocab" in dpe(*train, "--epochs", "1", *vocabularies, code=2)[1]
    dpe(*train, *of_sides(place), "--epochs", "1")
    dpe(*train, *of_sides(place), "--epochs", "2")  # resumes
    given = ["--source", str(place / "dev.en"), "--target", str(place / "dev.fi")]
    cut, _ = dpe("segment", "--segmenter", segmenter, *given, "--workers", "1")
    assert {piece for line in cut.splitlines() for piece in line.split(" ")} <= both.ids.keys()
    pairs = "".join(f"{x}\t{y}\n" for x, y in PAIRS[:7])
    written, _ = dpe("cut-pairs", "--segmenter", segmenter, "--format", "ids", stdin=pairs)
    for line, (english, finnish) in zip(written.splitlines(), PAIRS, strict=False):
        x, y = (list(map(int, side.split())) for side in line.split("\t"))
        assert (both.source.decode_ids(x), both.decode_ids(y)) == (english, finnish)
    by_counts, _ = dpe("cut-pairs", *of_sides(place), "--target-method", "bpe", stdin=pairs)
    english, finnish = by_counts.splitlines()[0].split("\t")
    assert english.split(" ") == both.source.encode(PAIRS[0][0])
    assert finnish.split(" ") == both.encode(PAIRS[0][1])

    train = ["train-translator", *texts(place), "--preset", "tiny", *SMALL, "--out", translator]
    train += ["--source-method", "bpe-dropout", "--target-method", "dpe", "--segmenter", segmenter]
    _, said = dpe(*train, "--vocab", str(place / "fi.model"), code=2)
    assert "another source vocabulary; use the source.model" in said
    dpe(*train, *of_sides(place), "--epochs", "2", "--cut-workers", "1")
    lines = "".join(f"{x}\n" for x, _ in TEST)
    translated, _ = dpe("translate", "--translator", translator, "--beam", "1", stdin=lines)
    loaded, model = Translator.load(translator), load_model(Path(translator))
    for (english, _), line in list(zip(TEST, translated.split("\n"), strict=False))[:20]:
        ids = [*both.source.piece_ids(both.source.encode(english)), both.source.eos_id]
        (found,) = model.greedy(
            torch.tensor([ids]), torch.tensor([len(ids)]), max_length=length_limit(len(ids) - 1)
        )
        assert line == both.decode_ids(found)
    assert loaded.vocabulary.source.fingerprint == both.source.fingerprint
    assert (exported(Path(translator)) / "source_vocabulary.json").exists()
    run_the_readme_of_an_export(Path(translator), place / "deployed", loaded)


def run_the_readme_of_an_export(translator: Path, out: Path, loaded: Translator) -> None:
    export_translator(translator, out, int8=False)
    (code,) = re.findall("```python\n(.*?)```", (out / "README.md").read_text("utf-8"), re.DOTALL)
    code = code.replace('"Hello."', json.dumps(TEST[0][0]))
    done = subprocess.run([sys.executable, "-c", code], cwd=out, capture_output=True, text=True, check=True)
    found, wanted = done.stdout.strip(), loaded.translate(TEST[0][0]).strip()
    assert len(found) > 20
    assert wanted.startswith(found)  # its limit of length is smaller


def test_a_distilled_model_has_the_targets_pieces(both: Vocabulary, dpe: Dpe, tmp_path: Path) -> None:
    segmenter, corpus = save_segmenter(tmp_path / "s", both), write_corpus(tmp_path)
    dpe(
        "distill", "--segmenter", str(segmenter), "--source", str(corpus / "dev.en"),
        "--target", str(corpus / "dev.fi"), "--out", str(tmp_path / "distilled.model"),
    )  # fmt: skip
    assert Vocabulary.load(tmp_path / "distilled.model").pieces == both.pieces


def test_a_recipe_may_learn_a_vocabulary_for_each_side(tmp_path: Path) -> None:
    made = experiment(tmp_path, replace_vocabulary("size = 80\njoint = false"))
    joint = experiment(tmp_path / "joint", replace_vocabulary("size = 80"))
    assert made.vocabulary("bpe").outputs == (VOCABULARY, SOURCE_VOCABULARY)
    assert not made.vocabulary("bpe").same_settings(joint.vocabulary("bpe").settings)
    assert not joint.vocabulary("bpe").same_settings(made.vocabulary("bpe").settings)
    for stage in (made.corpus, made.vocabulary("bpe"), made.segmenter("mixed"), made.segmenter("lm")):
        place = made.root / stage.name
        place.mkdir(parents=True, exist_ok=True)
        stage.make(place)
    place = made.root / made.vocabulary("bpe").name
    of_source, of_target = Vocabulary.load(place / SOURCE_VOCABULARY), Vocabulary.load(place / VOCABULARY)
    assert of_source.characters != of_target.characters
    segmenter = Segmenter.load(made.root / "segmenters" / "mixed")
    assert segmenter.vocabulary.source.fingerprint == of_source.fingerprint
    assert Segmenter.load(made.root / "segmenters" / "lm").vocabulary.fingerprint == of_target.fingerprint
    with pytest.raises(UserError, match="leave model and text out"):
        experiment(tmp_path / "other", replace_vocabulary('joint = false\nmodel = "x.model"'))


def replace_vocabulary(text: str) -> str:
    from tests.experiments import MINUSCULE

    return MINUSCULE.replace("size = 150", text)
