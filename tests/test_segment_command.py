"""`dpe segment` and `dpe score` as a user meets them: modes, formats, workers, mistakes."""

from __future__ import annotations

import gzip
import json
import math
from itertools import accumulate
from pathlib import Path

import pytest

from dpe import OnTheFly, Segmenter, UserError
from dpe.text.bpe import BpeDropout
from dpe.text.corpus import read_lines, write_lines
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.unigram import Unigram
from tests.segment_command import SEGMENT, TEXT, Dpe, changed, start
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter

HOSTILE = [
    "", "   ", "\t", "\u2028", "\x85 \x0c", "talo\rssa", "\u2581", "\u2581\u2581 a", "a" * 3000,
    "\U0001f600\U0001f600 x", "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c" * 10, "\ufb01\ufdfa", "e\u0301",
    "<unk> </s> <pad>", "a ||| b", "\x00", "\u200b\ufeffx", "@@ @@",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _stand_there(segment_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(segment_place)


def test_lines_come_out_in_order_as_the_api_cuts_them(dpe: Dpe) -> None:
    dpe(*SEGMENT, *TEXT, "--out", "plain.txt", "--batch-characters", "700")
    api = Segmenter.load("segmenter").best(*map(list, zip(*PAIRS, strict=True)))
    assert list(read_lines(Path("plain.txt"))) == [" ".join(cut.pieces) for cut in api]
    out, err = dpe(*SEGMENT, *TEXT, "--batch-characters", "700")
    assert out == Path("plain.txt").read_text(encoding="utf-8")
    assert "400 lines" in err


def test_any_number_of_workers_gives_the_same_bytes(dpe: Dpe) -> None:
    """In processes of their own; jsonl shows every digit."""
    options = ["--format", "jsonl", "--batch-characters", "900"]
    dpe(*SEGMENT, *TEXT, *options, "--out", "one.jsonl")
    three = start(*SEGMENT[:-1], "3", *TEXT, *options, "--out", "three.jsonl")
    _, err = three.communicate()
    assert three.returncode == 0, err
    assert Path("three.jsonl").read_bytes() == Path("one.jsonl").read_bytes()


def test_hostile_lines_all_come_out(dpe: Dpe) -> None:
    vocabulary = learned_vocabulary()
    targets = [line.replace("\t", " ") for line in HOSTILE]
    stdin = "".join(
        f"{source}\t{target}\n" for source, target in zip(reversed(targets), targets, strict=True)
    )
    out, _ = dpe(*SEGMENT, stdin=stdin)
    lines = out.split("\n")
    assert lines.pop() == ""
    assert [line.replace(" ", "") for line in lines] == [vocabulary.normalize(line) for line in targets]
    out, _ = dpe(*SEGMENT, "--mode", "n-best", "--n", "3", stdin=stdin)
    assert [line.split("\t")[0] for line in out.split("\n")[:-1]] == lines
    out, _ = dpe(*SEGMENT, "--format", "ids", stdin=stdin)
    ids = [" ".join(map(str, vocabulary.piece_ids(filter(None, line.split(" "))))) for line in lines]
    assert out.split("\n")[:-1] == ids


def test_packed_files_and_standard_input_give_the_same(dpe: Dpe) -> None:
    write_lines(Path("x.en.gz"), (source for source, _ in PAIRS))
    write_lines(Path("x.fi.xz"), (target for _, target in PAIRS))
    expected, _ = dpe(*SEGMENT, *TEXT)
    dpe(*SEGMENT, "--source", "x.en.gz", "--target", "x.fi.xz", "--out", "packed.gz")
    assert gzip.decompress(Path("packed.gz").read_bytes()).decode() == expected
    first = Path("packed.gz").read_bytes()
    dpe(*SEGMENT, *TEXT, "--out", "packed.gz", "--force")
    assert Path("packed.gz").read_bytes() == first
    out, _ = dpe(*SEGMENT, stdin="".join(f"{source}\t{target}\n" for source, target in PAIRS))
    assert out == expected
    assert not list(Path().glob("*.partial"))


@pytest.mark.parametrize("format", ["pieces", "subword-nmt", "ids"])
@pytest.mark.parametrize("normalization", ["nfkc", "identity"])
def test_several_cuts_are_decoded_apart(dpe: Dpe, tmp_path: Path, normalization: str, format: str) -> None:
    settings = VocabularySettings(size=150, normalization=normalization)
    vocabulary = learn_vocabulary((side for pair in PAIRS for side in pair), settings)
    segmenter = save_segmenter(tmp_path / "segmenter", vocabulary, source=False)
    (tmp_path / "text").write_text("talossa on auto.\n")
    options = ["--segmenter", str(segmenter), "--target", str(tmp_path / "text"), "--format", format]
    cuts, _ = dpe("segment", *options, "--mode", "n-best", "--n", "2")
    plain, _ = dpe("decode", "--vocab", str(segmenter / "vocab.model"), "--format", format, stdin=cuts)
    assert plain == "talossa on auto.\ttalossa on auto.\n"


def test_a_tab_in_the_text_cannot_separate_cuts(dpe: Dpe, tmp_path: Path) -> None:
    settings = VocabularySettings(size=200, normalization="identity")
    vocabulary = learn_vocabulary((side for pair in PAIRS for side in pair), settings)
    segmenter = save_segmenter(tmp_path / "identity", vocabulary, source=False)
    (tmp_path / "text").write_text("talo\nta\tlo\n")
    options = ["segment", "--segmenter", str(segmenter), "--target", str(tmp_path / "text")]
    _, err = dpe(*options, "--mode", "n-best", "--n", "2", code=2)
    assert "Line 2 of the target contains a tab" in err
    dpe(*options, "--mode", "n-best", "--n", "2", "--format", "jsonl")


def test_a_language_model_needs_the_target_alone(dpe: Dpe) -> None:
    options = ["segment", "--segmenter", "lm", "--workers", "1"]
    from_file, _ = dpe(*options, "--target", "x.fi")
    from_input, _ = dpe(*options, stdin="".join(f"{target}\n" for _, target in PAIRS))
    api = Segmenter.load("lm").best(None, [target for _, target in PAIRS])
    assert from_file == from_input == "".join(f"{' '.join(cut.pieces)}\n" for cut in api)


@pytest.mark.parametrize("name", ["segment", "score"])
@pytest.mark.parametrize("target", [[], ["--target", "-"]])
def test_a_language_model_reads_no_pairs(dpe: Dpe, name: str, target: list[str]) -> None:
    options = [name, "--segmenter", "lm", "--workers", "1"]
    out, err = dpe(*options, *target, stdin="talo\na house\ttalo\n", code=2)
    assert "standard input, line 2: has a tab" in err
    assert "was trained without a source; give the target alone" in err
    assert out == ""
    Path("tabs").write_text("ta\tlo\n")
    dpe(*options, "--target", "tabs")  # a file is the target, whatever is in it


@pytest.mark.parametrize("name", ["segment", "score", "distill"])
def test_bf16_needs_a_gpu(dpe: Dpe, name: str) -> None:
    """On a CPU that claims to know it the process might be killed."""
    command = [name, "--segmenter", "segmenter", *TEXT, "--out", f"{name}.bf16"]
    _, err = dpe(*command, "--bf16", "--device", "cpu", code=2)
    assert err == "dpe: bf16 is for GPUs, but the device is the CPU; leave bf16 out.\n"
    assert not Path(f"{name}.bf16").exists()


@pytest.mark.parametrize("name", ["segment", "score", "distill"])
def test_bf16_reaches_the_segmenter_and_the_record(
    dpe: Dpe, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, asked = Segmenter.load, []

    def load_here(directory: Path, *, device: str, batch_characters: int, bf16: bool) -> Segmenter:
        asked.append((device, bf16))
        return load(directory, batch_characters=batch_characters)

    monkeypatch.setattr(Segmenter, "load", load_here)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    command = [name, "--segmenter", "segmenter", *TEXT, "--out", f"{name}.gpu"]
    dpe(*command, "--bf16")
    dpe(*command, "--force")
    assert asked == [("cuda:0", True), ("cuda:0", False)]
    _, err = dpe(*command, "--bf16", code=2)
    assert "bf16" in err


def test_source_dropout_of_an_epoch(dpe: Dpe) -> None:
    """The target is cut given a source that dropout has cut."""
    segmenter = Segmenter.load("segmenter")
    drop = BpeDropout(segmenter.vocabulary, dropout=0.5)
    outputs = []
    for epoch in (0, 1):
        out, _ = dpe(*SEGMENT, *TEXT, "--source-dropout", "0.5", "--seed", "4", "--epoch", str(epoch))
        examples = [
            segmenter.example(line, drop.cut(source, Draw(4, epoch, line)), target)
            for line, (source, target) in enumerate(PAIRS)
        ]
        cuts = segmenter.answers(examples, lambda batch: batch.best())
        assert out == "".join(f"{' '.join(cut.pieces)}\n" for cut in cuts)
        outputs.append(out)
    plain, _ = dpe(*SEGMENT, *TEXT)
    assert len({plain, *outputs}) == 3


def test_source_alpha_of_an_epoch(dpe: Dpe) -> None:
    """The target is segmented, and scored, given a source that was sampled from the unigram."""
    segmenter, text = Segmenter.load("unigram"), ["--segmenter", "unigram", "--workers", "1", *TEXT]
    sample = Unigram(segmenter.vocabulary, alpha=0.4)
    outputs = []
    for epoch in (0, 1):
        draw = ["--source-alpha", "0.4", "--seed", "4", "--epoch", str(epoch)]
        examples = [
            segmenter.example(line, sample.cut(source, Draw(4, epoch, line)), target)
            for line, (source, target) in enumerate(PAIRS)
        ]
        cuts = segmenter.answers(examples, lambda batch: batch.best())
        out, _ = dpe("segment", *text, *draw)
        assert out == "".join(f"{' '.join(cut.pieces)}\n" for cut in cuts)
        scores, _ = dpe("score", *text, *draw)
        found = [float(line.split("\t")[0]) for line in scores.splitlines()]
        wanted = segmenter.answers(examples, segmenter.batch_scores)
        assert found == pytest.approx([score.log_probability for score in wanted], abs=1e-3)
        outputs.append(out)
    plain, _ = dpe("segment", *text)
    assert len({plain, *outputs}) == 3


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("segmenter", ["--source-alpha", "0.2"], "source_alpha samples from a unigram vocabulary"),
        ("unigram", ["--source-dropout", "0.1"], "source_dropout needs a bpe vocabulary"),
        ("unigram", ["--source-alpha", "-1"], "source_alpha is -1.0; it must be at least 0"),
        ("unigram", ["--source-alpha", "inf"], "Alpha must be from 0"),
    ],
)
def test_noise_that_cannot_be_is_one_sentence(dpe: Dpe, name: str, options: list[str], says: str) -> None:
    out, err = dpe("segment", "--segmenter", name, "--workers", "1", *TEXT, *options, code=2)
    assert says in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("name", ["segmenter", "lm", "unigram"])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_pairs_on_the_fly_are_those_of_the_commands(dpe: Dpe, name: str, temperature: float | None) -> None:
    """Asked for backwards and a few at a time."""
    draw = ["--seed", "4", "--epoch", "2"]
    mode = [] if temperature is None else ["--mode", "sample", "--n", "1", "--temperature", str(temperature)]
    noise = ["--source-alpha" if name == "unigram" else "--source-dropout", "0.5"]
    text = ["--target", "x.fi"] if name == "lm" else [*TEXT, *noise]
    method = ["unigram", "--alpha"] if name == "unigram" else ["bpe-dropout", "--dropout"]
    vocabulary = ["--vocab", f"{name}/vocab.model", "--method", *method, "0.5"]
    sources, _ = dpe("encode", *vocabulary, *draw, "x.en")
    is_random = name != "lm" or temperature is not None
    drawn = [*draw, *mode] if is_random else []
    targets, _ = dpe("segment", "--segmenter", name, "--workers", "1", *text, *drawn)
    alpha = 0.5 if name == "unigram" else None
    cutter = OnTheFly(Segmenter.load(name), dropout=0.5, alpha=alpha, seed=4, temperature=temperature)
    pairs = {}
    for begin in range(len(PAIRS) - 7, -8, -7):
        lines = range(max(begin, 0), begin + 7)
        asked = list(zip(*(PAIRS[line] for line in lines), strict=True))
        pairs.update(zip(lines, cutter.pairs(*asked, epoch=2, lines=lines), strict=True))
    found = [pairs[line] for line in range(len(PAIRS))]
    assert "".join(f"{' '.join(pair.source)}\n" for pair in found) == sources
    assert "".join(f"{' '.join(pair.target)}\n" for pair in found) == targets
    assert cutter.pairs([], [], epoch=0) == []


def test_pairs_over_a_unigram_vocabulary_are_sampled_unless_dropout_is_0() -> None:
    segmenter = Segmenter.load("unigram")
    sources, targets = map(list, zip(*PAIRS[:20], strict=True))
    sampled = OnTheFly(segmenter).pairs(sources, targets, epoch=1)
    assert sampled == OnTheFly(segmenter, alpha=0.2).pairs(sources, targets, epoch=1)
    plain = [tuple(segmenter.vocabulary.encode(source)) for source in sources]
    assert [pair.source for pair in sampled] != plain
    without = OnTheFly(segmenter, dropout=0.0).pairs(sources, targets, epoch=1)
    assert [pair.source for pair in without] == plain
    assert [pair.target for pair in without] == [cut.pieces for cut in segmenter.best(sources, targets)]
    with pytest.raises(UserError, match="source_alpha samples from a unigram vocabulary"):
        OnTheFly(Segmenter.load("segmenter"), alpha=0.2)


def test_modes_and_formats_say_what_the_api_says(dpe: Dpe) -> None:
    segmenter = Segmenter.load("segmenter")
    sources, targets = map(list, zip(*PAIRS, strict=True))
    sampled = segmenter.sample(sources, targets, n=2, seed=3, epoch=1, temperature=2.0)
    sample = ["--mode", "sample", "--n", "2", "--seed", "3", "--epoch", "1", "--temperature", "2"]
    out, _ = dpe(*SEGMENT, *TEXT, *sample)
    assert out.splitlines() == ["\t".join(" ".join(cut.pieces) for cut in cuts) for cuts in sampled]
    out, _ = dpe(*SEGMENT, *TEXT, "--mode", "sample")
    assert "\t" not in out  # one draw unless told otherwise
    ranked = segmenter.n_best(sources, targets)
    out, _ = dpe(*SEGMENT, *TEXT, "--mode", "n-best", "--format", "ids")
    assert out.splitlines() == ["\t".join(" ".join(map(str, cut.ids)) for cut in cuts) for cuts in ranked]
    out, _ = dpe(*SEGMENT, *TEXT, "--format", "subword-nmt")
    assert [line.replace("@@ ", "") for line in out.splitlines()] == targets


def test_jsonl_has_the_cut_and_the_posterior_of_sentence_and_words(dpe: Dpe) -> None:
    segmenter = Segmenter.load("segmenter")
    sources, targets = map(list, zip(*PAIRS, strict=True))
    out, _ = dpe(*SEGMENT, *TEXT, "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    questions = segmenter.best, segmenter.posterior, segmenter.score
    answers = zip(rows, *(ask(sources, targets) for ask in questions), strict=True)
    for row, cut, posterior, score in answers:
        assert row["best_score"] == row["score"]
        assert row["gap"] == pytest.approx(score.gap, rel=1e-3, abs=1e-4)
        assert row["bits_per_character"] == pytest.approx(score.bits_per_character, rel=1e-4)
        assert row["bits_per_byte"] == pytest.approx(score.bits_per_byte, rel=1e-4)
        assert tuple(row["pieces"]) == cut.pieces
        assert tuple(map(tuple, row["offsets"])) == cut.offsets
        assert row["score"] == pytest.approx(cut.score, rel=1e-4)
        assert row["probability"] == pytest.approx(cut.probability, rel=1e-2)
        assert row["log_partition"] == pytest.approx(posterior.log_partition, rel=1e-4)
        assert row["entropy"] == pytest.approx(posterior.entropy, rel=1e-2, abs=1e-4)
        assert row["boundary_probabilities"] == pytest.approx(posterior.boundaries, abs=1e-3)
        words = row["words"]
        assert [piece for word in words for piece in word["pieces"]] == row["pieces"]
        assert [word["word"] for word in words] == [word.word for word in posterior.words]
        ends = list(accumulate(len(word["word"]) for word in words))
        assert [word["offset"] for word in words] == [0, *ends[:-1]]
        assert math.prod(w["probability"] for w in words) == pytest.approx(row["probability"], rel=1e-4)
        assert sum(w["entropy"] for w in words) == pytest.approx(row["entropy"], rel=1e-4, abs=1e-5)
        # What is left is the end of sentence, which the cut does not change.
        ends = [row[key] - sum(word[key] for word in words) for key in ("score", "log_partition")]
        assert ends[0] == pytest.approx(ends[1], abs=1e-3)


@pytest.mark.parametrize("mode", ["n-best", "sample"])
def test_jsonl_of_several_cuts(dpe: Dpe, mode: str) -> None:
    out, _ = dpe(*SEGMENT, "--mode", mode, "--n", "4", "--format", "jsonl", stdin="a\ttalossani\na\t\n")
    full, empty = map(json.loads, out.splitlines())
    assert len(full["cuts"]) == 4
    for cut in full["cuts"]:
        assert "".join(cut["pieces"]) == "\u2581talossani"
        expected = math.exp(cut["score"] - full["log_partition"])
        assert cut["probability"] == pytest.approx(expected, rel=1e-3)
    assert len(full["boundary_probabilities"]) == len("\u2581talossani")
    best = Segmenter.load("segmenter").best("a", "talossani")
    assert full["best_score"] == pytest.approx(best.score, rel=1e-4)
    assert full["gap"] == pytest.approx(best.log_partition - best.score, rel=1e-3)
    assert {tuple(cut["pieces"]) for cut in empty["cuts"]} == {()}
    assert empty["words"] == []


def test_score_gives_one_row_per_line_and_the_totals(dpe: Dpe) -> None:
    stdin = "".join(f"{source}\t{target}\n" for source, target in [*PAIRS[:20], ("a", ""), ("a", "☃ ☃")])
    out, err = dpe("score", "--segmenter", "segmenter", "--workers", "1", stdin=stdin)
    rows = [line.split("\t") for line in out.splitlines()]
    sources, targets = map(list, zip(*PAIRS[:20], ("a", ""), ("a", "☃ ☃"), strict=True))
    scores = Segmenter.load("segmenter").score(sources, targets)
    assert [float(row[0]) for row in rows] == pytest.approx([s.log_probability for s in scores], rel=1e-4)
    assert [int(row[1]) for row in rows] == [s.characters for s in scores]
    assert [int(row[2]) for row in rows] == [0] * 21 + [2]
    assert [float(row[3]) for row in rows] == pytest.approx([s.bits_per_character for s in scores], rel=1e-4)
    assert [len(row) for row in rows] == [9] * len(rows)
    wanted = [(s.best_log_probability, s.gap, s.entropy, s.bytes, s.bits_per_byte) for s in scores]
    for row, values in zip(rows, wanted, strict=True):
        assert [float(value) for value in row[4:]] == pytest.approx(values, rel=1e-4, abs=1e-4)
    bits = -sum(float(row[0]) for row in rows) / math.log(2)
    assert f"{bits / sum(int(row[1]) for row in rows):.4f} bits per character" in err
    assert f"{bits / sum(int(row[7]) for row in rows):.4f} bits per byte" in err
    assert "2 unknown" in err


def test_an_empty_text_gives_an_empty_output(dpe: Dpe, tmp_path: Path) -> None:
    (tmp_path / "nothing").touch()
    out = tmp_path / "out"
    for _ in range(2):
        dpe("segment", "--segmenter", "lm", "--target", str(tmp_path / "nothing"), "--out", str(out))
        assert out.read_bytes() == b""
    out_text, _ = dpe("score", "--segmenter", "lm", "--workers", "1")
    assert out_text == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--target", "x.fi"], "give --source"),
        (["--segmenter", "lm", *TEXT], "leave --source out"),
        (["--source", "x.en", "--target", "absent"], "absent"),
        (["--source", "x.en", "--target", "short"], "equally many lines"),
        ([*TEXT, "--segmenter", "x.en"], "x.en"),
        ([*TEXT, "--segmenter", "nowhere"], "does not contain a trained segmenter"),
        ([*TEXT, "--temperature", "0", "--mode", "sample"], "at least 1e-100"),
        (TEXT[:2], "give --target too"),
        ([*TEXT, "--temperature", "inf", "--mode", "sample"], "at most 1e+100"),
        ([*TEXT, "--out", "/dev/full"], "No space left"),
        ([*TEXT, "--mode", "n-best", "--n", "-1"], "n is -1; it must be at least 1"),
        ([*TEXT, "--segmenter", "x.fi"], "x.fi does not contain a trained segmenter"),
        ([*TEXT, "--out", "x.fi/out"], "x.fi is a file"),
        ([*TEXT, "--device", "abacus"], "abacus"),
        ([*TEXT, "--out", "."], "directory"),
        (["--source", "x.en", "--target", "latin"], "UTF-8"),
        ([], "line 1: has 0 tabs"),
    ],
)
def test_mistakes_are_sentences(dpe: Dpe, arguments: list[str], says: str) -> None:
    Path("short").write_text("one line\n")
    Path("latin").write_bytes(b"\xe4\n" * len(PAIRS))
    out, err = dpe(*changed(SEGMENT, *arguments), code=2, stdin="no tab\n")
    assert says in err
    assert err.startswith("dpe: ")
    assert out == ""
