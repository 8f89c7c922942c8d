"""Every option does what its help says: what commands hand on, and what the pages name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command

from docs.settings_tables import PAGE, with_tables
from dpe.cli import app, run
from dpe.commands.options import require_files
from dpe.errors import UserError
from dpe.segmenter import training as segmenter_training
from dpe.segmenter.settings import SEGMENTER_PRESETS
from dpe.text.corpus import read_lines, write_lines
from dpe.text.vocabulary import Vocabulary
from dpe.translator import training as translator_training
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter
from tests.translators import write_corpus

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


def command(line: str) -> None:
    assert run(shlex.split(line)) == 0


@pytest.fixture(autouse=True)
def _stand_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_clean_drops_what_the_options_say(capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(Path("s"), ["So, ja.", "", "eins zwei drei vier", "eins zwei drei", "a b c d e"])
    write_lines(Path("t"), ["So, yes.", "x", "one", "one", "a b c d e"])
    options = "--moses de en --max-tokens 5 --max-ratio 3.5"
    command(f"clean --source s --target t --out-source a --out-target b {options}")
    assert list(read_lines(Path("a"))) == ["So , ja .", "eins zwei drei"]
    assert list(read_lines(Path("b"))) == ["So , yes .", "one"]
    assert re.findall(r"\d+", capsys.readouterr().err.splitlines()[-1])[:1] == ["2"]


def test_a_vocabulary_is_learned_as_the_options_say() -> None:
    write_lines(Path("text"), [*(f"<ph> {target} x²" for _, target in PAIRS), "ж"])
    write_lines(Path("protect"), ["<ph>", ""])
    options = "--size 100 --type unigram --normalization identity --character-coverage 0.999"
    command(f"vocab --target text --protect protect --out model {options}")
    learned = Vocabulary.load(Path("model"))
    assert (len(learned), learned.type, learned.protected) == (100, "unigram", ("<ph>",))
    assert "²" in learned.characters  # which nfkc makes a 2
    assert "ж" not in learned.characters


def trained_with(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, line: str) -> dict[str, Any]:
    """What a training command hands to the training."""
    found: dict[str, Any] = {}

    def train(out: Path, *_: Any, **given: Any) -> None:
        out.mkdir(exist_ok=True)
        (out / "training.jsonl").write_text('{"epoch": 1, "step": 1, "train_bits": 2.0}\n')
        found.update(given)

    monkeypatch.setattr(module, name, train)
    learned_vocabulary().save(Path("v"))
    write_corpus(Path("c"))
    sides = "--source c/train.en --target c/train.fi --dev-source c/dev.en --dev-target c/dev.fi"
    command(f"{line} --vocab v {sides} --out out")
    return found


TRAINING = (
    "--epochs 3 --steps 7 --accumulate 2 --learning-rate 0.02 --warmup 9 --dropout 0.4 --seed 5 "
    "--save-minutes 2 --load-workers 3 --average 3 --patience 4 --device cpu --preset tiny"
)


def test_options_of_train_segmenter_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "--batch-characters 900 --source-dropout 0.2 --set max_characters=77 --set width=64"
    own += " --evaluate-updates 50 --until-cuts-change-less-than 2%"
    found = trained_with(
        monkeypatch, segmenter_training, "train_segmenter", f"train-segmenter {TRAINING} {own}"
    )
    settings = found["settings"]
    assert_training(found)
    assert (settings.batch, settings.source, settings.source_dropout) == (900, True, 0.2)
    assert (settings.max_characters, settings.width) == (77, 64)
    assert (settings.evaluate_updates, settings.until_cuts_change_less_than) == (50, 0.02)
    assert found["source"] == Path("c/train.en")
    assert found["dev_target"] == Path("c/dev.fi")


def test_options_of_train_translator_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    save_segmenter(Path("s"), learned_vocabulary())
    own = (
        "--batch-tokens 900 --source-method bpe-dropout --target-method dpe --segmenter s --bpe-dropout 0.2 "
        "--target-sampling 0.7 --set cut_seed=6 --cuts shared "
        "--cut-workers 2 --keep-cuts 4 --moses en fi --bleu-tokenize char --label-smoothing 0.3 "
        "--set max_tokens=70"
    )
    found = trained_with(
        monkeypatch, translator_training, "train_translator", f"train-translator {TRAINING} {own}"
    )
    settings = found["settings"]
    assert_training(found)
    assert (settings.batch, settings.label_smoothing, settings.max_tokens) == (900, 0.3, 70)
    assert (settings.source_method, settings.target_method) == ("bpe-dropout", "dpe")
    assert settings.bpe_dropout == 0.2
    assert (settings.target_sampling, settings.cut_seed) == (0.7, 6)
    assert (settings.moses, settings.bleu_tokenize) == (("en", "fi"), "char")
    assert found["cuts"] == Path("shared")
    session = found["session"]
    assert (found["segmenter"], session.workers, session.keep_cuts) == (Path("s"), 2, 4)


@pytest.mark.parametrize("kind", ["segmenter", "translator"])
def test_a_training_computes_with_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    module = {"segmenter": segmenter_training, "translator": translator_training}[kind]
    threads = torch.get_num_threads()
    try:
        line = f"train-{kind} --threads {threads + 1}"
        with trained_with(monkeypatch, module, f"train_{kind}", line)["session"].joined():
            assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", (0.05, 0.2, -1)),
        ("--source-method unigram --unigram-alpha 0.3 --set unigram_nbest=8", (0.05, 0.3, 8)),
        ("--target-method unigram --unigram-alpha 0", (0.05, 0.0, -1)),
        ("--target-method unigram --set unigram_alpha=", (0.05, None, -1)),
        ("--target-method bpe-dropout --bpe-dropout 0", (0.0, 0.2, -1)),
    ],
)
def test_settings_of_cuts_by_counts(
    monkeypatch: pytest.MonkeyPatch, options: str, wanted: tuple[float, float, int]
) -> None:
    found = trained_with(monkeypatch, translator_training, "train_translator", f"train-translator {options}")
    settings = found["settings"]
    assert (settings.bpe_dropout, settings.unigram_alpha, settings.unigram_nbest) == wanted


@pytest.mark.parametrize(("options", "wanted"), [("", 0.05), ("--source-dropout 0", 0.0)])
def test_source_dropout_of_train_segmenter(
    monkeypatch: pytest.MonkeyPatch, options: str, wanted: float
) -> None:
    found = trained_with(monkeypatch, segmenter_training, "train_segmenter", f"train-segmenter {options}")
    assert found["settings"].source_dropout == wanted


TRANSLATOR = "train-translator --vocab v --source a --target b --dev-source c --dev-target d --out out"
SEGMENTER = "train-segmenter --vocab v --target b --dev-target d"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{TRANSLATOR} --set widht=3", "there is no setting 'widht'; did you mean 'width'?"),
        (f"{TRANSLATOR} --set width=3", "width 3 must be even"),
        (f"{TRANSLATOR} --set width", "must be KEY=VALUE"),
        (f"{SEGMENTER} --no-source --epochs 0 --out out", "epochs is 0; it must be at least 1."),
        ("vocab --source text --out -", "--out needs the name of a file"),
        ("clean --source text --target text --out-source - --out-target b", "--out-source needs the name of"),
        ("clean --source text --target text --out-source a --out-target -", "--out-target needs the name of"),
        ("report run --out -", "--out needs the name of a file"),
        (f"{SEGMENTER} --no-source --out text", "dir 'text' is a file."),
        (TRANSLATOR.replace("--out out", "--out text"), "dir 'text' is a file."),
        ("run recipe.toml --out text", "dir 'text' is a file."),
        ("export --translator t --out text", "dir 'text' is a file."),
        ("vocab --source - --target - --out model", "Standard input (-) can be read only once"),
        ("vocab --source - --protect - --out model", "Standard input (-) can be read only once"),
        ("report run --out run/results.json", "run/results.json is a file of the run"),
        ("report run --out run/corpus/train.en", "run/corpus/train.en is a file of the run"),
        ("report run --out run/old.html", "is not a run of dpe"),
        ("translate --translator t text --out t/model.safetensors", "is also an input"),
        ("translate --translator t text --out t/ctranslate2-0/model.bin", "is also an input"),
    ],
)
def test_mistakes_are_sentences(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["text", "run/results.json", "run/corpus/train.en", "run/old.html", "t/model.safetensors"]
    before = {Path(name): f"{name}\n" for name in [*files, "t/ctranslate2-0/model.bin"]}
    for path, text in before.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert run(shlex.split(line)) == 2
    found = capsys.readouterr()
    assert found.err.startswith("dpe: ")
    assert says in found.err
    assert {path: path.read_text() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("line", ["encode --vocab v --seed 4 --epoch 2 --dropout 0.3 text --out a"])
def test_options_without_effect_are_harmless(line: str) -> None:
    learned_vocabulary().save(Path("v"))
    write_lines(Path("text"), ["talossa"])
    command(line)
    assert list(read_lines(Path("a"))) == [" ".join(learned_vocabulary().encode("talossa"))]


def assert_training(found: dict[str, Any]) -> None:
    settings = found["settings"]
    assert (settings.accumulate, settings.learning_rate, settings.warmup) == (2, 0.02, 9)
    assert (settings.seed, settings.bf16, settings.dropout) == (5, False, 0.4)
    assert (settings.epochs, settings.steps, settings.patience, settings.average) == (3, 7, 4, 3)
    assert settings.feed_forward == SEGMENTER_PRESETS["tiny"].feed_forward
    assert (found["session"].save_seconds, found["session"].load_workers) == (120.0, 3)


@pytest.mark.parametrize("name", ["segment", "score"])
def test_an_output_is_no_input_even_by_force(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    save_segmenter(Path("s"), learned_vocabulary(), source=False)
    write_lines(Path("text"), ["talossa"])
    assert run([name, "--segmenter", "s", "--target", "text", "--out", "text", "--force"]) == 2
    assert "is also an input" in capsys.readouterr().err
    assert list(read_lines(Path("text"))) == ["talossa"]


@pytest.mark.parametrize("name", ["segment", "score"])
@pytest.mark.parametrize("file", ["vocab.model", "settings.json", "model.safetensors"])
def test_an_output_is_no_file_of_the_model(name: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    save_segmenter(Path("s"), learned_vocabulary(), source=False)
    write_lines(Path("text"), ["talossa"])
    before = Path("s", file).read_bytes()
    assert run([name, "--segmenter", "s", "--target", "text", "--out", f"s/{file}", "--force"]) == 2
    assert "is also an input" in capsys.readouterr().err
    assert Path("s", file).read_bytes() == before
    for _ in range(2):  # another name is free, also beside the model, and when it is there
        command(f"{name} --segmenter s --target text --out s/text.out --workers 1")


@pytest.mark.parametrize("page", PAGES)
def test_options_that_a_page_names_exist(page: str) -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"\bdpe ([a-z-]+)((?: [^`\n]*)?)", text):
        if name in commands:
            known = {option for one in commands[name].params for option in one.opts} | {"--help"}
            named = {word.rstrip(".,;:)") for word in rest.split() if word.startswith("--")}
            assert named <= known, (name, rest)


def test_what_is_read_twice_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    require_files(tmp_path / "a", None)
    for path, says in ((Path("-"), "cannot be read twice"), (Path("/dev/null"), "read out of order")):
        with pytest.raises(UserError, match=says):
            require_files(tmp_path / "a", path)


def test_presets_are_those_of_the_manual() -> None:
    page = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    row = r"^\| `(\w+)` \| d (\d+), (\d)\+(\d) layers[^|]*\| (?:(\d+) x )?([\d,]+) characters"
    rows = re.findall(row, page, re.MULTILINE)
    assert {name for name, *_ in rows} == set(SEGMENTER_PRESETS)
    for name, *numbers, accumulate, batch in rows:
        preset = SEGMENTER_PRESETS[name]
        assert [preset.width, preset.encoder_layers, preset.decoder_layers] == [*map(int, numbers)]
        assert (preset.accumulate, preset.batch) == (int(accumulate or 1), int(batch.replace(",", "")))


def test_the_manual_lists_all_settings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run 'python docs/settings_tables.py'"


def test_base_is_the_papers() -> None:
    base = SEGMENTER_PRESETS["base"]
    assert (base.heads, base.feed_forward, base.norm) == (8, 2048, "post")
    assert (base.dropout, base.epochs) == (0.3, 20)
    assert (base.learning_rate, base.warmup, base.accumulate) == (5e-4, 4000, 16)
