"""The command line as a user meets it: results, one-sentence errors, exit codes, interrupts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from typer.main import get_command

from dpe import __version__
from dpe.cli import app
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary

DPE = [sys.executable, "-m", "dpe"]
ROOT = Path(__file__).parents[1]


def dpe(*arguments: str | Path, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    given = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(
        [*DPE, *map(str, arguments)], input=given, capture_output=True, check=False, cwd=ROOT
    )


def commands() -> list[str]:
    return sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("vocab")
    assert dpe("demo-corpus", "--out", directory, "--pairs", "300").returncode == 0
    path = directory / "vocab.model"
    done = dpe("vocab", "--source", directory / "train.en", "--target", directory / "train.fi",
               "--size", "300", "--out", path, "--listing", directory / "vocab.vocab")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""  # what is not the result goes to standard error
    return path


def test_the_listing_has_every_piece_by_its_id(vocab: Path) -> None:
    processor = SentencePieceProcessor(model_file=str(vocab))
    rows = [line.split("\t") for line in vocab.with_suffix(".vocab").read_text("utf-8").splitlines()]
    assert [piece for piece, _ in rows] == [processor.id_to_piece(i) for i in range(300)]
    assert [float(score) for _, score in rows] == pytest.approx([processor.get_score(i) for i in range(300)])


@pytest.mark.parametrize("own", [False, True])
def test_a_dictionary_of_the_pieces_knows_every_cut(vocab: Path, tmp_path: Path, own: bool) -> None:
    text, model = vocab.parent / "train.fi", vocab
    if own:  # with SentencePiece's own order of special pieces, of which there are three
        SentencePieceTrainer.train(
            input=str(text), model_prefix=str(tmp_path / "own"), vocab_size=200, model_type="bpe"
        )
        model = tmp_path / "own.model"
    pieces = dpe("pieces", "--vocab", model).stdout.decode().split("\n")[:-1]
    assert len(pieces) == len(set(pieces)) == (197 if own else 296)
    assert not {"<pad>", "<unk>", "<s>", "</s>"} & set(pieces)
    cuts = dpe("encode", "--vocab", model, "--method", "bpe-dropout", "--dropout", "0.5", text).stdout
    assert set(cuts.decode().split()) <= set(pieces)


def test_version() -> None:
    assert dpe("--version").stdout.decode() == f"dpe {__version__}\n"


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = dpe(command, "--help")
    assert done.returncode == 0
    assert b"Example" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["vocab", "--siz", "3"], "No such option: --siz"),
        (["vocab", "--out", "x.model"], "No text to learn from"),
        (["vocab", "--out", "x.model", "--source", "absent.txt"], "absent.txt"),
        (["encode", "--vocab", "absent.model"], "absent.model"),
        (["encode", "--vocab", "README.md"], "README.md is not a SentencePiece model"),
        (["encode", "--vocab", "x", "--method", "magic"], "magic"),
        (["clean", "--source", "a"], "Missing option"),
        (["demo-corpus", "--out", "x", "--pairs", "0"], "--pairs"),
    ],
)
def test_a_mistake_is_one_sentence_and_code_2(arguments: list[str], says: str) -> None:
    done = dpe(*arguments)
    message = done.stderr.decode()
    assert done.returncode == 2
    assert says in message
    assert message.startswith("dpe: ")
    assert "Traceback" not in message
    assert done.stdout == b""


def test_options_of_many_values_and_flags_may_be_repeated() -> None:
    done = dpe("evaluate", *["--hypothesis", "absent"] * 2, "--reference", "absent", "--json", "--json")
    assert done.stderr.startswith(b"dpe: absent: cannot be read")


@pytest.mark.parametrize("option", ["-q", "--quiet", "-v", "--verbose"])
def test_how_much_is_said_may_stand_behind_the_command(option: str, tmp_path: Path) -> None:
    command = ["demo-corpus", "--out", tmp_path, "--pairs", "1"]
    before, behind = dpe(option, *command), dpe(*command, option)
    assert (behind.returncode, behind.stderr) == (0, before.stderr)
    assert (behind.stderr == b"") == ("q" in option)


def test_encode_and_decode_keep_every_line(vocab: Path) -> None:
    text = "talossani on kirja.\n\n   \n\u2028 odd \x85 lines \x0c\nlast without newline \U0001f600"
    for format_ in ("pieces", "subword-nmt"):
        encoded = dpe("encode", "--vocab", vocab, "--format", format_, stdin=text)
        assert encoded.returncode == 0, encoded.stderr
        assert encoded.stdout.count(b"\n") == 5
        decoded = dpe("decode", "--vocab", vocab, "--format", format_, stdin=encoded.stdout)
        lines = decoded.stdout.decode().split("\n")
        assert lines[0] == "talossani on kirja."
        assert lines[1:3] == ["", ""]
        assert lines[4] == "last without newline \U0001f600"


def test_sed_undoes_the_subword_nmt_format(vocab: Path) -> None:
    encoded = dpe(
        "encode", "--vocab", vocab, "--format", "subword-nmt", stdin="tuntematonta puhetta talossa\n"
    )
    undone = subprocess.run(["sed", "s/@@ //g"], input=encoded.stdout, capture_output=True, check=True)
    assert undone.stdout.decode() == "tuntematonta puhetta talossa\n"


def test_random_cuts_depend_on_seed_epoch_and_line(vocab: Path) -> None:
    text = "taloissanikin on kirjoja\n" * 30
    runs = [
        dpe(
            "encode", "--vocab", vocab, "--method", "bpe-dropout", "--dropout", "0.3", *more, stdin=text
        ).stdout
        for more in ([], [], ["--epoch", "1"], ["--seed", "2"])
    ]
    assert runs[0] == runs[1]
    assert len(set(runs)) == 3
    assert len(set(runs[0].splitlines())) > 1


def test_encode_cuts_by_the_draws_that_segment_reads(vocab: Path) -> None:
    """`dpe segment --source-dropout` cuts its sources by the same ones, which on-the-fly DPE relies on."""
    lines = ["taloissanikin on kirjoja", "talossani on kirja"] * 10
    options = ["--method", "bpe-dropout", "--seed", "4", "--epoch", "2"]
    done = dpe("encode", "--vocab", vocab, *options, stdin="".join(f"{line}\n" for line in lines))
    drop = BpeDropout(Vocabulary.load(vocab), dropout=0.05)
    wanted = [" ".join(drop.cut(line, Draw(4, 2, number))) for number, line in enumerate(lines)]
    assert done.stdout.decode().splitlines() == wanted


def test_invalid_text_names_file_and_line(vocab: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\xfe\n")
    done = dpe("encode", "--vocab", vocab, "--out", tmp_path / "out", bad)
    assert done.returncode == 2
    assert re.search(r"bad\.txt.*line 2", done.stderr.decode())
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_an_interrupt_exits_130_and_leaves_no_file(vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen(
        [*DPE, "encode", "--vocab", str(vocab), "--out", str(out / "result")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"yksi\n" * 1000)
    process.stdin.flush()
    deadline = time.monotonic() + 240
    while not list(out.iterdir()) and time.monotonic() < deadline:  # until it has begun to write
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=240) == 130
    assert list(out.iterdir()) == []


# While modules load, while it runs, and where Typer catches it.
@pytest.mark.parametrize("hit", ["builtins.__import__", "dpe.cli.app", "dpe.cli.Progress"])
def test_an_interrupt_in_generated_code_exits_130(hit: str, tmp_path: Path) -> None:
    """Dataclasses and named tuples are made by exec; after an interrupt in one Python ends by signal."""
    module = (
        "from dpe.__main__ import main\n"
        f"import {hit.rpartition('.')[0]}\n"
        "def interrupted(*_, **__):\n"
        "    exec('raise KeyboardInterrupt')\n"
        f"{hit} = interrupted\n"
        "main()\n"
    )
    (tmp_path / "interrupted.py").write_text(module)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "interrupted", "table"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 130
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_no_error(vocab: Path) -> None:
    command = f"yes talossa | head -n 200000 | {sys.executable} -m dpe -q encode --vocab {vocab} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, cwd=ROOT)
    assert done.stdout.decode().replace(" ", "") == "▁talossa\n"
    assert b"Traceback" not in done.stderr
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], check=False, cwd=ROOT, capture_output=True
    )
    assert done.returncode == 141


@pytest.mark.parametrize(
    ("where", "code", "says"), [(">/dev/full", 2, "dpe: standard output: No space left"), (">&-", 0, "")]
)
def test_standard_output_may_be_full_or_closed(vocab: Path, where: str, code: int, says: str) -> None:
    command = f"echo talossa | {sys.executable} -m dpe -q encode --vocab {vocab} {where}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, cwd=ROOT)
    assert done.returncode == code
    assert done.stderr.decode().startswith(says)
    assert b"Traceback" not in done.stderr


def test_an_output_is_no_input(vocab: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("talossa\n")
    for arguments in (
        ["vocab", "--source", text, "--size", "20", "--out", text],
        ["encode", "--vocab", vocab, text, "--out", text],
        ["decode", "--vocab", vocab, text, "--out", text],
        ["clean", "--source", text, "--target", text, "--out-source", tmp_path / "x", "--out-target", text],
    ):
        done = dpe(*arguments)
        assert done.returncode == 2
        assert b"is also an input" in done.stderr
    assert text.read_text() == "talossa\n"


def test_several_cuts_of_a_line_are_decoded_one_by_one(vocab: Path) -> None:
    done = dpe("decode", "--vocab", vocab, stdin="\u2581ta lo ssa\t\u2581talo ssa\n")
    assert done.stdout == b"talossa\ttalossa\n"


def test_a_tab_of_the_text_is_decoded_as_text(tmp_path: Path) -> None:
    lines = ["talo\tauto", "talo \t auto", "\ttalo", "talo\t auto"]
    vocabulary = tmp_path / "identity"
    learn_vocabulary(lines * 3, VocabularySettings(size=14, normalization="identity")).save(vocabulary)
    text = "".join(f"{line}\n" for line in lines)
    pieces = dpe("encode", "--vocab", vocabulary, stdin=text).stdout.decode()
    assert dpe("decode", "--vocab", vocabulary, stdin=pieces).stdout.decode() == text


def test_the_model_and_its_listing_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("talo auto\n")
    out = tmp_path / "model"
    done = dpe("vocab", "--source", tmp_path / "text", "--size", "12", "--out", out, "--listing", out)
    assert b"is named for two outputs" in done.stderr
    assert not out.exists()


def test_other_text_than_pieces_is_not_decoded(vocab: Path) -> None:
    done = dpe("decode", "--vocab", vocab, stdin="\u2581talo ssa\ntalossa on\n")
    assert done.returncode == 2
    said = (
        "standard input, line 2: 'talossa on' contains no U+2581, and 'talossa' is not a piece; "
        "is it another format?"
    )
    assert said in done.stderr.decode()


def test_a_file_that_cannot_be_read_is_named(vocab: Path) -> None:
    done = dpe("encode", "--vocab", vocab, "/proc/self/mem")  # opens, and fails when read
    assert done.returncode == 2
    assert done.stderr.startswith(b"dpe: /proc/self/mem: cannot be read")
