"""evaluate, compare, morphology and diagnose as a user runs them: tables, JSON, figures, mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from dpe.cli import run
from dpe.evaluation.tables import Table, markdown, plain

A = ["▁the ▁car ts ▁of", "▁car ts .", "▁f illed ▁dog s"]
B = ["▁the ▁cart s ▁of", "▁cart s .", "▁fill ed ▁dog s"]


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    posterior = {"word": "▁carts", "boundary_probabilities": [0, 0, 0, 0.2, 0.9, 1], "entropy": 0.3}
    return {
        "a": write(tmp_path / "a.pieces", *A),
        "b": write(tmp_path / "b.pieces", *B),
        "nmt": write(tmp_path / "b.nmt", "the cart@@ s of", "cart@@ s@@ .", "fill@@ ed dog@@ s"),
        "gold": write(tmp_path / "gold.tsv", "carts\tcart s", "filled\tfill ed", "the\tthe"),
        "empty": write(tmp_path / "empty"),
        "other": write(tmp_path / "other.tsv", "talossa\ttalo ssa"),
        "counts": write(tmp_path / "counts.tsv", "carts\t7", "filled\t200"),
        "source": write(tmp_path / "source", "die Karren", "Karren", "gefüllt"),
        "posteriors": write(tmp_path / "p.jsonl", json.dumps({"words": [posterior]}, ensure_ascii=False)),
        "reference": write(tmp_path / "reference", "the cat sat on the mat.", "a dog ran away today."),
        "good": write(tmp_path / "good", "the cat sat on a mat.", "a dog ran away today."),
        "bad": write(tmp_path / "bad", "cats are on the mat.", "the dog runs away."),
    }


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["-q", *arguments]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(output(capsys, *arguments, "--json"))


def test_compare_prints_the_papers_table(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "compare", "--a", files["a"], "--b", files["b"], "--gold", files["gold"])
    lines = [line.split() for line in text.splitlines()]
    assert ["2", "carts", "car+ts", "cart+s"] in lines
    assert ["1", "filled", "f+illed", "fill+ed"] in lines
    assert any(line.startswith("Morphology: ") for line in text.splitlines())


def test_compare_by_training_counts_and_across_formats(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "--a", files["a"], "--train-counts", files["counts"], "--source", files["source"]]
    found = as_json(capsys, *arguments, "--b", files["b"])["comparison"]
    assert [(one["word"], one["frequency"]) for one in found["comparison"]["top"]] == [
        ("filled", 200),
        ("carts", 7),
    ]
    assert found["comparison"]["different_tokens"] == 3
    other = as_json(capsys, *arguments, "--b", files["nmt"])["comparison"]
    assert other["comparison"] == found["comparison"]


def test_a_stray_marker_does_not_change_the_format(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = write(tmp_path / "train", "carts \u2581 of", *["the carts of carts"] * 3)
    arguments = ["compare", "--a", files["a"], "--b", files["b"], "--train-counts", raw]
    top = as_json(capsys, *arguments)["comparison"]["comparison"]["top"]
    assert [(one["word"], one["frequency"]) for one in top] == [("carts", 7), ("filled", 0)]
    nmt = write(tmp_path / "stray.nmt", "\u2581 the", *Path(files["nmt"]).read_text().splitlines())
    found = as_json(capsys, "morphology", "--pieces", nmt, "--gold", files["gold"], "--samples", "5")
    assert (found[0]["systems"][0]["scores"]["words"], found[0]["systems"][0]["scores"]["f1"]) == (3, 1)


def test_results_are_written_even_if_nobody_reads_the_tables(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_reading(tables: object, *, as_markdown: bool) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("dpe.evaluation.tables.print_tables", stop_reading)
    run(["-q", "compare", "--a", files["a"], "--b", files["b"], "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "compare.json").exists()


def test_compare_writes_results_and_figures(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["compare", "--a", files["a"], "--b", files["b"], "--gold", files["gold"], "--out", str(out)]
    printed = as_json(capsys, *arguments)
    assert json.loads((out / "compare.json").read_text(encoding="utf-8")) == printed
    assert {path.suffix for path in out.iterdir()} == {".json", ".png", ".svg"}
    assert len(list(out.iterdir())) == 7


def test_evaluate(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--reference", files["reference"], "--hypothesis", files["good"]]
    found = as_json(
        capsys, *arguments, "--baseline", files["bad"], "--by-length", "--out", str(tmp_path / "out")
    )
    hypothesis, reference = (Path(files[name]).read_text().splitlines() for name in ("good", "reference"))
    assert found["hypotheses"][0]["bleu"] == sacrebleu.corpus_bleu(hypothesis, [reference]).score
    assert found["summary"]["bleu_deviation"] is None
    assert {test["metric"] for test in found["significance"]} == {"BLEU", "chrF2"}
    assert [part["lines"] for part in found["by_length"]] == [2]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "evaluate.json", "bleu-by-length.png", "bleu-by-length.svg",
    }  # fmt: skip
    text = output(capsys, *arguments, "--hypothesis", files["bad"])
    assert "mean of seeds" in text
    assert "tok:13a" in text


def test_evaluate_by_frequency(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = write(tmp_path / "counts", "cat\t1", "the\t500", "sat\t2", "dog\t1", "away\t30")
    arguments = ["evaluate", "--reference", files["reference"], "--hypothesis", files["good"]]
    arguments += ["--baseline", files["bad"], "--by-frequency", counts]
    found = as_json(capsys, *arguments)
    bands = {band["label"]: band for band in found["by_frequency"]}
    assert {label: band["words"] for label, band in bands.items()} == {
        "0": 7, "1": 2, "2-5": 1, "21-100": 1, "over 100": 2,
    }  # fmt: skip
    assert bands["1"]["f1"] == {"good": 100, "bad": pytest.approx(200 / 3)}  # a dog, no cat
    assert bands["over 100"]["f1"] == {"good": pytest.approx(200 / 3), "bad": 100 / 2}
    tests = {test["metric"]: test["difference"] for test in found["significance"]}
    assert tests["F1 of 1"] == pytest.approx(100 - 200 / 3)
    assert list(tests) == ["BLEU", "chrF2", *(f"F1 of {label}" for label in bands)]
    text = output(capsys, *arguments)
    assert ["1", "2", "100.00", "66.67"] in [line.split() for line in text.splitlines()]
    assert run([*arguments[:-1], "-"]) == 2
    assert "cannot be read twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Die Katze schläft .", "seems to be tokenised"),
        ("\u2581Die \u2581Katz e", "seems to be segmented"),
        ("Die Kat@@ ze", "seems to be segmented"),
        ("Die Katze schläft.", None),
    ],
)
def test_text_that_looks_unfinished_has_a_warning(
    line: str, said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, hypothesis = (
        write(tmp_path / name, *[text] * 3) for name, text in (("r", "Ja."), ("h", line))
    )
    assert run(["evaluate", "--reference", reference, "--hypothesis", hypothesis]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"{hypothesis} {said}") if said else told == ""


def test_results_are_named_after_the_command_and_replace_only_their_own(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {
        "evaluate": ["--reference", files["reference"], "--hypothesis", files["good"]],
        "compare": ["--a", files["a"], "--b", files["b"]],
        "morphology": ["--pieces", files["a"], "--gold", files["gold"], "--samples", "5"],
        "diagnose": ["--jsonl", files["posteriors"]],
    }
    out = tmp_path / "out"
    out.mkdir()
    of_a_run = Path(write(out / "results.json", "{}"))
    printed = {}
    for name, arguments in [*commands.items(), *commands.items()]:
        printed[name] = as_json(capsys, name, *arguments, "--out", str(out))
    for name in commands:
        assert json.loads((out / f"{name}.json").read_text(encoding="utf-8")) == printed[name]
    assert {path.stem for path in out.glob("*.json")} == {*commands, "results"}
    assert of_a_run.read_text() == "{}\n"


def test_morphology(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["morphology", "--pieces", files["a"], "--pieces", files["nmt"], "--gold", files["gold"]]
    found = as_json(capsys, *arguments, "--samples", "20", "--out", str(tmp_path / "out"))
    a, b = found[0]["systems"]
    assert (a["name"], b["name"]) == ("a.pieces", "b.nmt")
    assert (a["scores"]["f1"], b["scores"]["f1"]) == (0, 1)
    assert b["f1_gain"] == 1
    assert (tmp_path / "out" / "morphology-all.svg").exists()
    assert "words that all cut into equally many pieces" in output(capsys, *arguments)


def test_morphology_of_two_texts_is_doubted(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = write(tmp_path / "twice.pieces", *A, *A)
    assert run(["morphology", "--pieces", files["a"], "--pieces", twice, "--gold", files["gold"]]) == 0
    assert "4 in a.pieces, 8 in twice.pieces: are these segmentations of one text?" in capsys.readouterr().err
    assert run(["morphology", "--pieces", files["a"], "--pieces", files["b"], "--gold", files["gold"]]) == 0
    assert "one text" not in capsys.readouterr().err


def test_text_that_is_not_segmented_has_a_warning(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = write(tmp_path / "plain", "the carts of", "carts.", "filled dogs")
    for command in (["morphology", "--pieces", plain, "--gold"], ["compare", "--b", plain, "--a"]):
        assert run([*command, files["gold" if command[0] == "morphology" else "a"]]) == 0
        assert f"{plain} seems not to be segmented" in capsys.readouterr().err


def test_diagnose(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["diagnose", "--jsonl", files["posteriors"], "--gold", files["gold"]]
    found = as_json(capsys, *arguments, "--train-counts", files["counts"], "--out", str(tmp_path / "out"))
    assert found["entropy"][0]["label"] == "6-10"
    assert found["calibration_error"] == pytest.approx((0.2 + 0.1) / 4)
    assert (tmp_path / "out" / "calibration.png").exists()
    assert "Expected calibration error: 0.0750" in output(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "--hypothesis", "{a}", "--reference", "{reference}"], "a.pieces has 3 lines but"),
        (["evaluate", "--reference", "{reference}"], "Missing option"),
        (["compare", "--a", "{a}", "--b", "{reference}"], "Line 1 of"),
        (["compare", "--a", "{a}", "--b", "{b}", "--source", "{good}"], "good ends after 2 lines"),
        (
            ["morphology", "--pieces", "{a}", "--gold", "{reference}"],
            "reference, line 1: Expected a word, a tab",
        ),
        (["morphology", "--pieces", "{good}", "--gold", "{counts}"], "do not join"),
        (["morphology", "--pieces", "{bad}", "--gold", "{gold}.gz"], "cannot be read"),
        (["diagnose", "--jsonl", "{a}"], "a.pieces, line 1: Expected a JSON object"),
        (["diagnose", "--jsonl", "{empty}"], "empty has no words"),
        (["diagnose", "--jsonl", "{posteriors}", "--gold", "{other}"], "other.tsv: No word of the gold"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], says: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.format(**files) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_words_of_another_language_are_a_sentence(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["morphology", "--pieces", files["a"], "--gold", files["other"]]) == 2
    said = capsys.readouterr().err
    assert "a.pieces has no word of" in said
    assert "other.tsv; check that both are the same language" in said


def test_columns_line_up_for_wide_and_combining_characters() -> None:
    table = Table(
        "title",
        ["word", "n"],
        [["車車", "1"], ["e\u0301e\u0301", "22"], ["abcd", "333"]],
        frozenset({"word"}),
    )
    assert plain(table).splitlines() == [
        "title",
        "word    n",
        "車車    1",
        "e\u0301e\u0301     22",
        "abcd  333",
    ]


def test_markdown_keeps_bars_within_their_cells() -> None:
    table = Table("title", ["word", "n"], [["a|b", "1"]], frozenset({"word"}), "a note\nof two lines")
    lines = "| word | n |\n| :-- | --: |\n| a\\|b | 1 |"
    assert markdown(table) == f"**title**\n\n{lines}\n\na note\\\nof two lines"


def test_tables_as_markdown_or_json_but_not_both(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "--a", files["a"], "--b", files["b"], "--markdown"]
    assert "| carts | car+ts | cart+s |" in output(capsys, *command)
    assert run([*command, "--json"]) == 2
    assert "--json and --markdown" in capsys.readouterr().err


def test_results_are_utf8_in_any_locale(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", "▁tä lo"), write(tmp_path / "b", "▁t älo")
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "dpe", "compare", "--a", a, "--b", b]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, check=True, cwd=root, env=environment)
    assert "tä+lo" in done.stdout.decode()
    assert done.stderr == b""
