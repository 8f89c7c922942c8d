"""The Translator: CTranslate2 against the torch model, and text in, text out, line for line."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import pytest
import torch

import dpe
from dpe import Translator, UserError
from dpe.cli import run
from dpe.model.checkpoint import MODEL, save_model
from dpe.model.translation import TranslationTransformer
from dpe.text.dictionaries import token_names
from dpe.text.vocabulary import Vocabulary
from dpe.translator.ctranslate2 import export_model
from dpe.translator.translator import LONGEST_PART, export_translator, exported, length_limit, load_model
from tests.segmenters import learned_vocabulary, save_segmenter
from tests.translators import SETTINGS, TEST, train, write_corpus
from tests.vocabularies import make_vocabulary

ROOT = Path(__file__).parents[1]
SOURCES = [source for source, _ in TEST]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("translator")
    corpus = write_corpus(directory / "corpus")
    train(directory / "out", corpus, learned_vocabulary(), steps=150)
    return directory / "out"


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, threads=1)


def random_model(vocabulary: Vocabulary, norm: str) -> TranslationTransformer:
    torch.manual_seed(3)
    model = TranslationTransformer.of(replace(SETTINGS, norm=norm), vocabulary).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)  # less flat than at the start of a training
        for name, parameter in model.named_parameters():
            if (
                name.endswith("bias") or "norm" in name
            ):  # which begin as zeros and ones: a swap would not show
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def log_probabilities(model: TranslationTransformer, source: list[int], target: list[int]) -> list[float]:
    """Of each target piece and the end, by teacher forcing, for one sentence."""
    ids = torch.tensor([[*source, model.eos_id]])
    with torch.no_grad():
        logits = model.logits(ids, torch.tensor([ids.shape[1]]), torch.tensor([[model.bos_id, *target]]))
    wanted = torch.tensor([*target, model.eos_id])
    return logits[0].log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()


def assert_same_scores(model: TranslationTransformer, vocabulary: Vocabulary, exported_to: Path) -> None:
    """CTranslate2's log-probability of every piece is torch's."""
    names = token_names(vocabulary)
    random = torch.Generator().manual_seed(1)
    rows = [torch.randint(len(vocabulary), (2, n), generator=random).tolist() for n in (1, 2, 7, 20, 60)]
    engine = ctranslate2.Translator(str(exported_to), compute_type="float32")
    sources, targets = ([[names[i] for i in row[side]] for row in rows] for side in (0, 1))
    for row, scored in zip(rows, engine.score_batch(sources, targets), strict=True):
        wanted = log_probabilities(model, *row)
        assert scored.log_probs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_ctranslate2_gives_the_torch_models_log_probabilities(norm: str, tmp_path: Path) -> None:
    vocabulary = learned_vocabulary()
    model = random_model(vocabulary, norm)
    export_model(model, vocabulary, tmp_path / "model", int8=False)
    assert_same_scores(model, vocabulary, tmp_path / "model")


def test_a_vocabulary_with_repeated_names_is_exported_right(tmp_path: Path) -> None:
    vocabulary = make_vocabulary(
        {"▁": -1.0, "a": -2.0, "b": -3.0, "</s>2": -4.0}, protected=("<s>", "</s>"), special=["<unk>"]
    )
    assert vocabulary.pieces.count("<s>") == 2
    names = token_names(vocabulary)
    assert len(set(names)) == len(vocabulary)
    assert all(names[number] == piece for piece, number in vocabulary.ids.items())
    model = random_model(vocabulary, "pre")
    export_model(model, vocabulary, tmp_path / "model", int8=False)
    assert_same_scores(model, vocabulary, tmp_path / "model")


def test_exporting_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    vocabulary = learned_vocabulary()
    model = random_model(vocabulary, "pre")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    export_model(model, vocabulary, tmp_path / "model", int8=True)
    for name, parameter in model.named_parameters():
        assert torch.equal(before[name], parameter), name


def torch_greedy(model: TranslationTransformer, vocabulary: Vocabulary, line: str) -> str:
    ids = vocabulary.piece_ids(vocabulary.encode(line))
    source = torch.tensor([[*ids, vocabulary.eos_id]])
    (found,) = model.greedy(source, torch.tensor([len(ids) + 1]), max_length=length_limit(len(ids)))
    return vocabulary.decode_ids(found)


def test_greedy_translations_are_those_of_the_torch_model(trained: Path, translator: Translator) -> None:
    model = load_model(trained)
    wanted = [torch_greedy(model, translator.vocabulary, line) for line in SOURCES]
    assert translator.translate(SOURCES, beam=1) == wanted
    assert len(set(wanted)) > len(wanted) // 2  # it has learned to look at the source


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_scores_are_log_probabilities_over_length(
    trained: Path, translator: Translator, penalty: float
) -> None:
    model, vocabulary = load_model(trained), translator.vocabulary
    names = token_names(vocabulary)
    engine = ctranslate2.Translator(str(exported(trained)), compute_type="float32")
    compared = 0
    for line in SOURCES:
        source = vocabulary.piece_ids(vocabulary.encode(line))
        (result,) = engine.translate_batch(
            [[names[i] for i in source]], num_hypotheses=3, beam_size=3, length_penalty=penalty,
            return_scores=True, min_decoding_length=0, max_decoding_length=length_limit(len(source)),
        )  # fmt: skip
        ids = [[names.index(name) for name in found] for found in result.hypotheses]
        if compared == 5 or max(map(len, ids)) >= length_limit(len(source)):
            continue  # a hypothesis that was cut off has no end symbol, which the scores below have
        compared += 1
        wanted = [
            math.fsum(log_probabilities(model, source, found)) / (len(found) + 1) ** penalty for found in ids
        ]
        assert result.scores == pytest.approx(wanted, abs=1e-3)
        ours = translator.n_best(line, n=3, length_penalty=penalty)
        assert [one.score for one in ours] == pytest.approx(wanted, abs=1e-3)
        assert [one.text for one in ours] == [vocabulary.decode_ids(found) for found in ids]
    assert compared == 5


@pytest.mark.parametrize("line", [None, b"in", ["in", "my"], 7])
def test_what_is_no_text_is_refused(translator: Translator, line: Any) -> None:
    with pytest.raises(UserError, match="A line must be a string"):
        translator.translate([line])


def test_only_one_line_is_translated_at_a_time(translator: Translator) -> None:
    with pytest.raises(UserError, match="contains a line break"):
        translator.translate("a dog.\na cat.")
    with pytest.raises(UserError, match="The source must be a string or a list of strings, got None"):
        translator.n_best(None)  # type: ignore[call-overload]
    assert translator.translate(iter(SOURCES[:2])) == translator.translate(SOURCES[:2])


def test_the_n_best_are_in_order_and_begin_with_the_translation(translator: Translator) -> None:
    assert translator.n_best(SOURCES[:2], n=2) == [translator.n_best(line, n=2) for line in SOURCES[:2]]
    found = translator.n_best(SOURCES[0], n=4)
    assert len(found) == 4
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert found[0].text == translator.translate(SOURCES[0], beam=4)


def test_a_beam_above_the_vocabulary_is_refused(translator: Translator) -> None:
    with pytest.raises(UserError, match="pieces of the vocabulary"):
        translator.translate(SOURCES[0], beam=len(translator.vocabulary) + 1)


def test_more_translations_than_the_beam_are_refused(translator: Translator) -> None:
    with pytest.raises(UserError, match="at most the beam, 2"):
        translator.n_best(SOURCES[0], n=3, beam=2)


def test_eight_bits_are_close(trained: Path, translator: Translator) -> None:
    assert len(Translator.load(trained, int8=True).translate(SOURCES)) == len(SOURCES)
    sides = ([translator.vocabulary.encode(pair[side]) for pair in TEST] for side in (0, 1))
    sources, targets = map(list, sides)
    exact, rounded = (
        ctranslate2.Translator(str(exported(trained)), compute_type=kind).score_batch(sources, targets)
        for kind in ("float32", "int8")
    )
    exact_sum, rounded_sum = (
        math.fsum(value for one in scored for value in one.log_probs) for scored in (exact, rounded)
    )
    assert rounded_sum == pytest.approx(exact_sum, rel=0.05)


def test_every_line_gives_one_line_and_empty_ones_stay_empty(translator: Translator) -> None:
    lines = ["", SOURCES[0], "   ", "日本語 ☃", SOURCES[1], ""]
    found = translator.translate(lines)
    assert [bool(line) for line in found][::2] == [False, False, True]
    assert found[0] == found[2] == found[5] == ""
    assert "\n" not in "".join(found)
    assert found[1] == translator.translate(SOURCES[0])
    assert translator.translate([]) == []


def test_a_translation_does_not_depend_on_batch_or_threads(trained: Path, translator: Translator) -> None:
    whole = translator.translate(SOURCES)
    assert Translator.load(trained, threads=2).translate(SOURCES, batch_tokens=50) == whole


def test_a_very_long_line_is_translated_in_parts_cut_between_words(translator: Translator) -> None:
    line = " ".join(SOURCES)
    assert len(translator.vocabulary.encode(line)) > 2 * LONGEST_PART
    parts = translator._parts(line)
    assert [name for part in parts for name in part] == translator.vocabulary.encode(line)
    assert all(len(part) <= LONGEST_PART and part[0].startswith("▁") for part in parts)
    plain = [translator.vocabulary.decode(part) for part in parts]
    assert translator.translate(line, beam=1) == " ".join(translator.translate(plain, beam=1))


def test_a_giant_word_comes_out(translator: Translator) -> None:
    assert isinstance(translator.translate("x" * 3000, beam=1), str)


class Echo:
    """An engine that translates every source by itself."""

    def __init__(self) -> None:
        self.sources: list[list[str]] = []

    def translate_batch(self, sources: list[list[str]], **options: Any) -> list[Any]:
        self.sources += sources
        return [SimpleNamespace(hypotheses=[source], scores=[0.0]) for source in sources]


def test_moses_tokenises_before_and_detokenises_after() -> None:
    line = "the cars were big, but the houses were not."
    engine, vocabulary = Echo(), learned_vocabulary()
    found = Translator(engine, vocabulary, moses=("en", "en")).translate(line)
    assert vocabulary.decode(engine.sources[0]) == "the cars were big , but the houses were not ."
    assert found == line


def test_moses_languages_are_stored_in_the_translator(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    train(tmp_path / "out", corpus, learned_vocabulary(), steps=1, moses=("en", "fi"))
    loaded = Translator.load(tmp_path / "out")
    assert loaded._tokenize("a, b") == "a , b"
    assert loaded._detokenize("a , b") == "a, b"


def test_the_export_is_made_once_and_again_for_other_weights(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy, ignore=shutil.ignore_patterns("ctranslate2-*"))
    (copy / "ctranslate2-int8").mkdir()  # one that the user exported
    first = exported(copy)
    stamp = (first / "model.bin").stat().st_mtime_ns
    assert exported(copy) == first
    assert (first / "model.bin").stat().st_mtime_ns == stamp
    model = load_model(copy)
    torch.nn.init.ones_(model.embedding.weight)
    save_model(copy / MODEL, model, {})
    second = exported(copy)
    assert second != first
    assert {path.name for path in copy.glob("*ctranslate2-*")} == {second.name, "ctranslate2-int8"}


def test_what_is_no_translator_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not contain a trained translator"):
        Translator.load(tmp_path)
    vocabulary = learned_vocabulary()
    with pytest.raises(UserError, match="contains a segmenter, not a translator"):
        Translator.load(save_segmenter(tmp_path / "segmenter", vocabulary))
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    learned_vocabulary(180).save(copy / "vocab.model")
    with pytest.raises(UserError, match="not the vocabulary"):
        Translator.load(copy)
    shutil.copy(trained / "vocab.model", copy)
    (copy / MODEL).unlink()
    with pytest.raises(UserError, match="Train the translator first"):
        Translator.load(copy)


def test_the_command_streams_standard_input(trained: Path, translator: Translator) -> None:
    command = [sys.executable, "-m", "dpe", "-q", "translate", "--translator", str(trained), "--beam", "2"]
    text = f"{SOURCES[0]}\n\n{SOURCES[1]}\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    first, second = translator.translate(SOURCES[:2], beam=2)
    assert done.stdout == f"{first}\n\n{second}\n"


def test_the_command_writes_n_best_lists(trained: Path, translator: Translator, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_text(f"{SOURCES[0]}\n\n", encoding="utf-8")
    options = ["--beam", "3", "--n-best", "2", "--threads", "1", "--out", str(out)]
    assert run(["-q", "translate", "--translator", str(trained), str(source), *options]) == 0
    rows = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    wanted = translator.n_best(SOURCES[0], n=2, beam=3)
    assert [row[0] for row in rows] == ["1", "1", "2"]
    assert [row[2] for row in rows] == [one.text for one in wanted] + [""]
    assert [float(row[1]) for row in rows[:2]] == pytest.approx([one.score for one in wanted], abs=1e-3)


def test_the_readme_of_an_export_translates_with_few_lines(
    trained: Path, translator: Translator, tmp_path: Path
) -> None:
    out = tmp_path / "deployed"
    assert run(["-q", "export", "--translator", str(trained), "--to", "ctranslate2", "--out", str(out)]) == 0
    (code,) = re.findall("```python\n(.*?)```", (out / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 8
    assert "max_input_length" in code  # or CTranslate2 reads no more than 1,024 pieces
    assert "max_decoding_length" in code  # or it writes no more than 256
    assert "dpe" not in code
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=out, check=True
    )
    assert done.stdout == translator.translate("Hello.") + "\n"
    with pytest.raises(UserError, match="already exists"):
        export_translator(trained, out, int8=False)


def test_an_export_of_eight_bits_is_smaller_and_translates(trained: Path, tmp_path: Path) -> None:
    export_translator(trained, tmp_path / "small", int8=True)
    weights = (path / "model.bin" for path in (tmp_path / "small", exported(trained)))
    small, large = (path.stat().st_size for path in weights)
    assert small < large
    engine = ctranslate2.Translator(str(tmp_path / "small"), compute_type="int8")
    assert engine.translate_batch([Vocabulary.load(tmp_path / "small/vocab.model").encode(SOURCES[0])])


def test_the_package_hands_out_the_translator() -> None:
    from dpe.translator import translator as module

    assert dpe.Translator is module.Translator


def test_where_nothing_can_be_written_the_export_is_temporary(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "out", ignore=shutil.ignore_patterns("ctranslate2-*"))
    before = sorted((tmp_path / "out").iterdir())
    monkeypatch.setattr("dpe.translator.translator.os.access", lambda *_: False)  # root may always write
    assert isinstance(Translator.load(tmp_path / "out", threads=1).translate("a dog."), str)
    assert sorted((tmp_path / "out").iterdir()) == before
