"""The paper's preparation: which pairs go, which stay, and what tokenisation does to them."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.text.corpus import Pair, read_lines, read_pairs, write_lines
from dpe.text.preparation import CleaningReport, CleaningRules, clean

sides = st.lists(st.sampled_from(["a", "É", "x-y"]), max_size=9).map(" ".join)


def cleaned(directory: Path, pairs: list[Pair], rules: CleaningRules) -> tuple[list[Pair], CleaningReport]:
    source, target = directory / "out.source", directory / "out.target"
    report = clean(pairs, out_source=source, out_target=target, rules=rules)
    return list(read_pairs(source, target)), report


def test_hand_example(tmp_path: Path) -> None:
    pairs = [
        Pair("Ein Hund läuft .", "A dog runs ."),
        Pair("", "empty source"),
        Pair("leeres Ziel", " \t\u00a0"),
        Pair("eins zwei drei vier fünf", "one"),
        Pair("eins", "one two three four five"),
        Pair("eins zwei", "one two three"),
        Pair("eins", "one two"),
        Pair("", ""),
        Pair("  ÄÖ  \u2028 É\u0301 ", "Zwei  Leerzeichen\r"),
    ]
    kept, report = cleaned(tmp_path, pairs, CleaningRules(max_tokens=5, max_ratio=1.5))
    assert kept == [pairs[0], pairs[5], Pair(pairs[8].source, "Zwei  Leerzeichen")]
    assert report == CleaningReport(kept=3, empty=3, too_long=2, unequal=1)
    assert report.dropped == 6


@pytest.mark.parametrize("long_side", [0, 1])
def test_eighty_tokens_go_and_seventy_nine_stay(tmp_path: Path, long_side: int) -> None:
    def pair(tokens: int) -> Pair:
        texts = [" ".join(["x"] * tokens), "short"]
        return Pair(texts[long_side], texts[1 - long_side])

    kept, report = cleaned(tmp_path, [pair(79), pair(80), pair(81)], CleaningRules())
    assert kept == [pair(79)]
    assert report == CleaningReport(kept=1, too_long=2)


@given(
    st.lists(st.tuples(sides, sides), max_size=12),
    st.integers(2, 9),
    st.one_of(st.none(), st.sampled_from([1.0, 1.5, 2.0, 3.0])),
)
def test_every_pair_is_judged_by_the_definition(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    max_tokens: int,
    max_ratio: float | None,
) -> None:
    def verdict(source: str, target: str) -> str:
        counts = [0 if not side else side.count(" ") + 1 for side in (source, target)]
        if 0 in counts:
            return "empty"
        if any(count >= max_tokens for count in counts):
            return "too_long"
        if max_ratio and any(a / b > max_ratio for a, b in (counts, counts[::-1])):
            return "unequal"
        return "kept"

    pairs = [Pair(*row) for row in rows]
    rules = CleaningRules(max_tokens=max_tokens, max_ratio=max_ratio)
    kept, report = cleaned(tmp_path_factory.mktemp("clean"), pairs, rules)
    assert kept == [Pair(*row) for row in rows if verdict(*row) == "kept"]
    assert vars(report) == {"kept": 0, "empty": 0, "too_long": 0, "unequal": 0} | Counter(
        verdict(*row) for row in rows
    )


def test_tokens_are_counted_after_tokenisation(tmp_path: Path) -> None:
    rules = CleaningRules(max_tokens=4, source_language="de", target_language="en")
    pairs = [Pair("Ja, gut.", "yes"), Pair("Ja gut.", "Don't!")]
    kept, report = cleaned(tmp_path, pairs, rules)
    assert kept == [Pair("Ja gut .", "Don 't !")]
    assert report == CleaningReport(kept=1, too_long=1)


def test_one_side_alone_can_be_tokenised(tmp_path: Path) -> None:
    kept, _ = cleaned(tmp_path, [Pair("So, ja.", "So, yes.")], CleaningRules(target_language="en"))
    assert kept == [Pair("So, ja.", "So , yes .")]


def test_outputs_are_compressed_by_their_names(tmp_path: Path) -> None:
    source, target = tmp_path / "s.gz", tmp_path / "t.xz"
    clean([Pair("a", "b")], out_source=source, out_target=target)
    assert gzip.decompress(source.read_bytes()) == b"a\n"
    assert lzma.decompress(target.read_bytes()) == b"b\n"


def test_inputs_may_be_cleaned_in_place(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    write_lines(source, ["a", "", "c"] * 10_000)
    write_lines(target, ["x", "y", "z"] * 10_000)
    report = clean(read_pairs(source, target), out_source=source, out_target=target)
    assert report == CleaningReport(kept=20_000, empty=10_000)
    assert list(read_lines(source)) == ["a", "c"] * 10_000
    assert list(read_lines(target)) == ["x", "z"] * 10_000


def test_works_in_a_stream_and_writes_both_or_none(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"old\n")

    def interrupted() -> Iterator[Pair]:
        yield Pair("a", "b")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(interrupted(), out_source=source, out_target=target)
    assert source.read_bytes() == b"old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_one_file_for_both_sides_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two outputs"):
        clean([Pair("a", "b")], out_source=tmp_path / "s", out_target=tmp_path / "s")


def test_pair_without_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no source"):
        clean([Pair(None, "b")], out_source=tmp_path / "s", out_target=tmp_path / "t")


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"max_tokens": 1}, "max-tokens must be at least 2, got 1"),
        ({"max_ratio": 0.5}, "max-ratio must be at least 1, got 0.5"),
        ({"max_ratio": float("nan")}, "max-ratio must be at least 1, got nan"),
    ],
)
def test_senseless_rules_are_refused(rules: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        CleaningRules(**rules)  # type: ignore[arg-type]
