"""The Segmenter: every answer against brute force over all cuts of short sentences."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import dpe
from dpe import OnTheFly, Segmenter, UserError
from dpe.model.batching import MixedCollator, MixedInput
from dpe.segmenter import lazy_best, long_lines, scored_batch
from dpe.segmenter.likelihood import batch_edge_scores
from dpe.segmenter.long_lines import Window, long_line_scores, windows
from dpe.segmenter.scored_batch import Cut, ScoredBatch
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER
from tests.oracles import Cuts, brute_force, log_sum_exp, piece_scores
from tests.segmenters import DECODERS, PAIRS, learned_vocabulary, save_segmenter
from tests.tensor_sizes import LargestTensor
from tests.vocabularies import LETTERS, SENTENCES, letters_vocabulary, make_vocabulary

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return letters_vocabulary()


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def segmenter(vocabulary: Vocabulary, decoder: str, tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    directory = tmp_path_factory.mktemp("small") / "s"
    return Segmenter.load(save_segmenter(directory, vocabulary, decoder=decoder))


@pytest.fixture(scope="module")
def language_model(
    vocabulary: Vocabulary, decoder: str, tmp_path_factory: pytest.TempPathFactory
) -> Segmenter:
    directory = tmp_path_factory.mktemp("small") / "lm"
    return Segmenter.load(save_segmenter(directory, vocabulary, source=False, decoder=decoder))


@pytest.fixture(scope="module")
def corpus_segmenter(decoder: str, tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    directory = tmp_path_factory.mktemp("corpus") / "s"
    return Segmenter.load(save_segmenter(directory, learned_vocabulary(), decoder=decoder))


def written(cut: tuple[str, ...], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Neighbouring unknown characters joined, unless that would read as a piece."""
    found: list[str] = []
    for known, run in itertools.groupby(cut, lambda piece: piece in vocabulary.ids):
        parts = list(run)
        found += parts if known or "".join(parts) in vocabulary.ids else ["".join(parts)]
    return tuple(found)


def test_two_cuts_never_read_alike(tmp_path: Path) -> None:
    vocabulary = make_vocabulary([("▁", -9.0), ("a", -8.0), ("qu", -1.0), ("▁a", -2.0)])
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary, source=False))
    cuts = segmenter.n_best(None, "aqu quq", n=100)
    assert len({cut.pieces for cut in cuts}) == len(cuts)
    assert sum(cut.probability for cut in cuts) == pytest.approx(1)
    for cut in cuts:
        assert "".join(cut.pieces) == vocabulary.normalize("aqu quq")


@pytest.mark.parametrize("target", SENTENCES)
@pytest.mark.parametrize("with_source", [True, False])
def test_every_answer_is_brute_force(
    segmenter: Segmenter, language_model: Segmenter, target: str, with_source: bool
) -> None:
    chosen, source = (segmenter, "ab c") if with_source else (language_model, None)
    cuts = brute_force(chosen, source, target)
    log_partition = log_sum_exp(list(cuts.values()))

    every = chosen.n_best(source, target, n=len(cuts) + 5)
    assert [cut.score for cut in every] == pytest.approx(sorted(cuts.values(), reverse=True), abs=1e-4)
    assert Counter(cut.pieces for cut in every) == Counter(written(cut, chosen.vocabulary) for cut in cuts)
    assert math.fsum(cut.probability for cut in every) == pytest.approx(1.0, abs=1e-9)

    best = chosen.best(source, target)
    assert best == chosen.n_best(source, target, n=1)[0]
    assert best.pieces == written(max(cuts, key=cuts.__getitem__), chosen.vocabulary)
    assert best.log_partition == pytest.approx(log_partition, abs=1e-4)
    assert best.probability == pytest.approx(math.exp(max(cuts.values()) - log_partition), abs=1e-5)

    score = chosen.score(source, target)
    assert score.log_probability == best.log_partition
    assert score.characters == len(chosen.vocabulary.normalize(target)) + 1
    assert 2 ** (score.bits_per_character * score.characters) == pytest.approx(
        math.exp(-log_partition), rel=1e-3
    )
    assert score.unknown == target.count("☃")
    assert score.best_log_probability == pytest.approx(max(cuts.values()), abs=1e-4)
    assert score.gap == pytest.approx(log_partition - max(cuts.values()), abs=1e-5)
    probabilities = [math.exp(one - log_partition) for one in cuts.values()]
    assert score.entropy == pytest.approx(-sum(p * math.log(p) for p in probabilities), abs=1e-4)
    assert score.bytes == len(f"{target}\n".encode())
    assert score.bits_per_byte * score.bytes == pytest.approx(score.bits_per_character * score.characters)

    assert_posterior(chosen, source, target, cuts)


def assert_posterior(segmenter: Segmenter, source: str | None, target: str, cuts: Cuts) -> None:
    log_partition = log_sum_exp(list(cuts.values()))
    posterior = segmenter.posterior(source, target)
    probabilities = {cut: math.exp(score - log_partition) for cut, score in cuts.items()}
    expected = np.zeros(len(posterior.text))
    for cut, probability in probabilities.items():
        ends = list(itertools.accumulate(map(len, cut)))
        expected[np.array(ends, dtype=int) - 1] += probability
    assert posterior.boundaries == pytest.approx(expected, abs=1e-5)
    assert max(posterior.boundaries, default=0.0) <= 1.0
    entropy = -sum(p * math.log(p) for p in probabilities.values() if p)
    assert posterior.entropy == pytest.approx(entropy, abs=1e-4)
    assert posterior.text == "".join(word.word for word in posterior.words)
    assert posterior.log_partition == pytest.approx(log_partition, abs=1e-4)


one_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=5)


@settings(max_examples=30)
@given(target=st.text(alphabet="abc x☃\u2581\t\u00a0", max_size=8), source=one_line)
def test_best_of_odd_sentences_is_brute_force(segmenter: Segmenter, target: str, source: str) -> None:
    cuts = brute_force(segmenter, source, target)
    best = segmenter.best(source, target)
    assert best.score == pytest.approx(max(cuts.values()), abs=1e-4)
    assert "".join(best.pieces) == segmenter.vocabulary.normalize(target)
    (lazy,) = segmenter.answers(
        [segmenter.example(0, segmenter.vocabulary.encode(source), target)], ScoredBatch.best
    )
    assert lazy.score == pytest.approx(max(cuts.values()), abs=1e-4)
    assert best.log_partition == pytest.approx(log_sum_exp(list(cuts.values())), abs=1e-4)


def test_lists_are_answered_in_the_order_given(corpus_segmenter: Segmenter) -> None:
    sources, targets = map(list, zip(*PAIRS[:60], strict=True))
    targets[7], sources[9], targets[11] = "", "", "talo " * 90
    together = corpus_segmenter.best(sources, targets)
    for source, target, cut in zip(sources, targets, together, strict=True):
        alone = corpus_segmenter.best(source, target)
        assert alone.pieces == cut.pieces
        assert alone.score == pytest.approx(cut.score, abs=1e-3)
        assert "".join(cut.pieces) == corpus_segmenter.vocabulary.normalize(target)
    many = corpus_segmenter.n_best(sources, targets, n=3)
    assert [cuts[0].pieces for cuts in many] == [cut.pieces for cut in together]
    assert [len(p.text) + 1 for p in corpus_segmenter.posterior(sources, targets)] == [
        score.characters for score in corpus_segmenter.score(sources, targets)
    ]
    assert corpus_segmenter.best([], []) == []


def test_another_batch_size_gives_the_same_cuts(
    corpus_segmenter: Segmenter, decoder: str, tmp_path: Path
) -> None:
    directory = save_segmenter(tmp_path / "s", learned_vocabulary(), decoder=decoder)
    other = Segmenter.load(str(directory), batch_characters=50)
    sources, targets = map(list, zip(*PAIRS[:60], strict=True))
    for one, two in zip(corpus_segmenter.best(sources, targets), other.best(sources, targets), strict=True):
        assert one.pieces == two.pieces
        assert one.score == pytest.approx(two.score, abs=1e-3)


def test_the_best_cut_is_found_without_looking_at_every_position(
    corpus_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lazily, and after everything was computed: the same cuts; with any number of rounds."""
    sources, targets = map(list, zip(*PAIRS[:80], strict=True))
    targets[3], targets[4] = "", "talo" * 40
    encode = corpus_segmenter.vocabulary.encode
    examples = [corpus_segmenter.example(0, encode(s), t) for s, t in zip(sources, targets, strict=True)]
    shares = []

    def lazily(batch: ScoredBatch) -> list[Cut]:
        cuts = batch.best()
        known = batch._given.known[batch.lattice.edge_positions].double()
        shares.append(float(known.mean()))
        return cuts

    def fully(batch: ScoredBatch) -> list[Cut]:
        batch.log_partitions()
        return batch.best()

    expected = corpus_segmenter.answers(examples, fully)
    for rounds in (0, 1, 5):
        monkeypatch.setattr(lazy_best, "_ROUNDS", rounds)
        found = corpus_segmenter.answers(examples, lazily)
        assert [cut.pieces for cut in found] == [cut.pieces for cut in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)
    assert min(shares) < 0.9


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_samples_follow_the_posterior(segmenter: Segmenter, temperature: float) -> None:
    target, draws = "abcab", 4000
    cuts = brute_force(segmenter, "b", target)
    tempered = log_sum_exp([score / temperature for score in cuts.values()])
    expected = {cut: draws * math.exp(score / temperature - tempered) for cut, score in cuts.items()}
    drawn = segmenter.sample("b", target, n=draws, seed=3, temperature=temperature)
    found = Counter(cut.pieces for cut in drawn)
    assert found.keys() <= expected.keys()
    frequent = [cut for cut, count in expected.items() if count >= 5]
    rest = [draws - sum(found[cut] for cut in frequent), draws - sum(expected[cut] for cut in frequent)]
    observed = [*(found[cut] for cut in frequent), rest[0]]
    assert chisquare(observed, [*(expected[cut] for cut in frequent), rest[1]]).pvalue > 1e-4
    for cut in drawn[:50]:
        assert cut.score == pytest.approx(cuts[cut.pieces], abs=1e-4)  # of temperature 1


def test_a_draw_depends_on_seed_epoch_line_and_number_alone(corpus_segmenter: Segmenter) -> None:
    sources, targets = map(list, zip(*PAIRS[:40], strict=True))
    together = corpus_segmenter.sample(sources, targets, n=3, seed=7)
    for line in (0, 17, 39):
        alone = corpus_segmenter.sample(sources[line], targets[line], n=2, seed=7, first_line=line)
        assert [cut.pieces for cut in alone] == [cut.pieces for cut in together[line][:2]]
    pieces = [[cut.pieces for cut in cuts] for cuts in together]
    for other in ({"seed": 8}, {"seed": -7}, {"seed": 7, "epoch": 1}, {"seed": 7, "first_line": 1}):
        again = corpus_segmenter.sample(sources, targets, n=3, **other)
        assert [[cut.pieces for cut in cuts] for cuts in again] != pieces


def test_a_low_temperature_gives_the_best_cut(corpus_segmenter: Segmenter) -> None:
    sources, targets = map(list, zip(*PAIRS[:10], strict=True))
    drawn = corpus_segmenter.sample(sources, targets, n=2, temperature=1e-4)
    best = corpus_segmenter.best(sources, targets)
    assert [{cut.pieces for cut in cuts} for cuts in drawn] == [{cut.pieces} for cut in best]


def test_a_segmentation_describes_itself(segmenter: Segmenter) -> None:
    cut = segmenter.best("a", "☃☃ ab")
    text = "".join(cut.pieces)
    assert text == "▁☃☃▁ab"
    assert [text[begin:end] for begin, end in cut.offsets] == list(cut.pieces)
    assert "".join(cut.surfaces) == "☃☃ab"
    assert "☃☃" in cut.pieces
    assert cut.ids == tuple(segmenter.vocabulary.piece_ids(cut.pieces))
    assert cut.ids[cut.pieces.index("☃☃")] == segmenter.vocabulary.unk_id
    assert str(cut).startswith(" ".join(cut.pieces) + "  (probability ")
    empty = segmenter.best("a", "   ")
    assert (empty.pieces, empty.offsets, empty.probability) == ((), (), 1.0)
    assert "▁ab" in str(segmenter.posterior("a", "ab"))


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda s, lm: s.best(None, "a"), "trained with a source"),
        (lambda s, lm: lm.best("a", "a"), "trained without a source"),
        (lambda s, lm: s.best(["a"], ["a", "b"]), "Got 1 sources and 2 targets"),
        (lambda s, lm: s.best("a", ["a"]), "give two strings, or two lists"),
        (lambda s, lm: s.best(["a"], "a"), "give two strings, or two lists"),
        (lambda s, lm: s.best("a", None), "The target must be a string or a list of strings, got None"),
        (lambda s, lm: s.score("a", 5), "The target must be a string or a list of strings, got 5"),
        (lambda s, lm: s.score(5, "a"), "The source must be a string or a list of strings, got 5"),
        (lambda s, lm: s.best(["a"], {"a"}), "The target must be a string or a list of strings, got {'a'}"),
        (lambda s, lm: s.best("a", "one\ntwo"), "'one.*two' contains a line break; give one line at a time"),
        (lambda s, lm: s.best("one\ntwo", "a"), "contains a line break"),
        (
            lambda s, lm: OnTheFly(s).pairs(["a"], None, epoch=0),
            "The target must be a string or a list of strings, got None",
        ),
        (lambda s, lm: OnTheFly(s).pairs(["a"], ["a\n"], epoch=0), "contains a line break"),
        (lambda s, lm: s.n_best("a", "a", n=0), "n is 0"),
        (lambda s, lm: s.sample("a", "a", temperature=0.0), "temperature"),
        (lambda s, lm: OnTheFly(s, dropout=1.5), "source_dropout is 1.5; it must be at most 1"),
        (lambda s, lm: OnTheFly(s, temperature=0.0), "temperature"),
        (lambda s, lm: OnTheFly(s).pairs("a", "b", epoch=0), "lists of sentences"),
        (lambda s, lm: OnTheFly(s).pairs(["a"], ["a", "b"], epoch=0), "as many of each"),
        (lambda s, lm: OnTheFly(s).pairs(["a"], ["a"], epoch=0, lines=[1, 2]), "as many of each"),
        (lambda s, lm: Segmenter.load("nowhere"), "does not contain a trained segmenter"),
    ],
)
def test_mistakes_are_sentences(
    segmenter: Segmenter, language_model: Segmenter, ask: object, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        ask(segmenter, language_model)  # type: ignore[operator]


def test_strings_may_come_one_by_one(segmenter: Segmenter) -> None:
    sources, targets = ["a", "b"], ["ab", "ba"]
    assert segmenter.best(iter(sources), iter(targets)) == segmenter.best(sources, targets)
    pairs = OnTheFly(segmenter).pairs(iter(sources), iter(targets), epoch=0, lines=iter([0, 1]))
    assert pairs == OnTheFly(segmenter).pairs(sources, targets, epoch=0)
    drawn = OnTheFly(segmenter, dropout=0.5, temperature=1.0)
    expected = drawn.pairs(sources, targets, epoch=3, lines=[17, 4])
    assert expected == drawn.pairs(sources, targets, epoch=3, lines=np.array([17, 4]))


def test_another_vocabulary_in_the_directory_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    directory = save_segmenter(tmp_path / "s", vocabulary)
    make_vocabulary(LETTERS).save(directory / "vocab.model")
    with pytest.raises(UserError, match="not the vocabulary"):
        Segmenter.load(directory)


@given(positions=st.integers(1, 20_000))
@settings(max_examples=50)
def test_windows_cover_every_position_once(positions: int) -> None:
    found = list(windows(positions))
    assert [p for w in found for p in range(w.begin, w.end)] == list(range(positions))
    assert all(w.end - w.context <= long_lines.LONGEST + 1 for w in found)
    assert all(w.begin - w.context == min(w.begin, long_lines.CONTEXT) for w in found)
    if positions <= long_lines.LONGEST + 1:
        assert found == [Window(0, 0, positions)]


@pytest.mark.parametrize("target", ["ab" * 30, "abc bca " * 8, "ab"])
def test_scores_of_a_long_line_are_those_of_its_windows(
    segmenter: Segmenter, decoder: str, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Each position by itself, read by a model that begins a context before the position's window."""
    monkeypatch.setattr(long_lines, "LONGEST", 12)
    monkeypatch.setattr(long_lines, "CONTEXT", 5)
    vocabulary, model = segmenter.vocabulary, segmenter._model
    source = "a b c " * 10
    example = segmenter.example(0, vocabulary.encode(source), target)
    assert long_lines.is_long(example)
    collator = MixedCollator(vocabulary)
    batch = collator.collate([example], epoch=0)
    found = long_line_scores(model, batch)
    ids = vocabulary.piece_ids(vocabulary.encode(source))
    for window in windows(len(example.marked) + 1):
        middle = len(ids) * (window.begin + window.end) // (2 * (len(example.marked) + 1))
        begin = min(max(middle - 6, 0), len(ids) - 12)
        part = torch.tensor([[*ids[begin : begin + 12], vocabulary.eos_id]])
        context = window.context
        if decoder == "words" and context:  # begins with a whole word, if that is not too late
            word = example.marked.find(MARKER, context, (context + window.begin) // 2 + 1)
            context = context if word < 0 else word
        for position in range(window.begin, window.end):
            read = collator.characters.encode(example.marked[context:position])
            row = torch.from_numpy(np.array([[collator.characters.begin, *read]]))
            ends = batch.word_ends[:, context : position + 1]
            state = model.states(MixedInput(part, torch.tensor([13]), row, ends))[-1:]
            edges = (batch.lattice.edge_positions == position).nonzero()[:, 0]
            pieces = batch.lattice.edge_pieces[edges]
            expected = piece_scores(model, state)[0, pieces]
            torch.testing.assert_close(found[edges], expected, rtol=1e-4, atol=1e-4)


def test_a_line_that_is_not_long_is_not_read_in_windows(segmenter: Segmenter) -> None:
    """At the limit the two ways to read agree; one character more needs two windows."""
    target = "ab" * (long_lines.LONGEST // 2)
    example = segmenter.example(0, ["a"], target[1:])
    assert len(example.marked) == long_lines.LONGEST
    assert not long_lines.is_long(example)
    batch = MixedCollator(segmenter.vocabulary).collate([example], epoch=0)
    model = segmenter._model
    torch.testing.assert_close(long_line_scores(model, batch), batch_edge_scores(model, batch))
    assert long_lines.is_long(segmenter.example(0, ["a"], target))


def test_long_lines_come_out_whole_beside_short_ones(corpus_segmenter: Segmenter) -> None:
    targets = ["ab" * 2500, "talo", "talossani on auto. " * 300, "x", "\U0001f600" * 3000]
    sources = ["a", "b c " * 4000, "auto " * 900, "", "\U0001f600"]
    with LargestTensor() as made:
        cuts = corpus_segmenter.best(sources, targets)
    for cut, target in zip(cuts, targets, strict=True):
        assert "".join(cut.pieces) == corpus_segmenter.vocabulary.normalize(target)
        assert cut.score <= cut.log_partition < 0
    assert made.elements < 300_000  # three vectors of 32 numbers at each of 2,000 positions
    assert len(corpus_segmenter.n_best(sources[2], targets[2], n=3)) == 3
    assert len(corpus_segmenter.sample(sources[2], targets[2], n=3)) == 3


def test_lines_of_any_shape_come_out_whole_in_bounded_memory(corpus_segmenter: Segmenter) -> None:
    """Nothing, unknown characters only, a giant word, a giant word of unknowns, words of one character."""
    targets = [
        "",
        "☃☃ ☃",
        "talo" * 1_250,
        "☃" * 1_900,
        "a " * 990,
        "a" * 1_999,
        " ",
        "\u2581",
        "talossa " * 9,
    ]
    with LargestTensor() as made:
        cuts = corpus_segmenter.best(["auto"] * len(targets), targets)
    for cut, target in zip(cuts, targets, strict=True):
        assert "".join(cut.pieces) == corpus_segmenter.vocabulary.normalize(target)
        assert math.isfinite(cut.score)
    alone = [corpus_segmenter.best("auto", target) for target in targets]
    assert [cut.log_partition for cut in cuts] == pytest.approx(
        [cut.log_partition for cut in alone], rel=1e-5
    )
    assert made.elements < 500_000  # three vectors of 32 numbers at each of 4,000 positions


def test_what_is_no_text_is_refused(corpus_segmenter: Segmenter) -> None:
    for source, target in ((["a", None], ["b", "c"]), (["a"], [None]), ([b"a"], ["b"]), ([["a"]], ["b"])):
        with pytest.raises(UserError, match="A line must be a string"):
            corpus_segmenter.best(source, target)  # type: ignore[call-overload]


def test_any_whole_number_can_be_drawn_with(corpus_segmenter: Segmenter) -> None:
    drawn = [
        corpus_segmenter.sample("a", "talossani autossani", n=9, epoch=epoch, first_line=line)
        for epoch, line in ((0, 0), (-1, 0), (0, -1), (2**70, 0))
    ]
    assert drawn[1] != drawn[0] != drawn[2]
    assert drawn[3] == drawn[0]


def test_import_dpe_does_not_wait_for_torch() -> None:
    code = "import dpe, sys; assert 'torch' not in sys.modules; dpe.Segmenter; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert all(hasattr(dpe, name) for name in dpe.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        dpe.nonsense  # noqa: B018


def test_answers_found_in_parts_are_the_same(
    corpus_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, targets = map(list, zip(*PAIRS[:20], strict=True))
    ranked, drawn = (
        corpus_segmenter.n_best(sources, targets, n=3),
        corpus_segmenter.sample(sources, targets, n=5),
    )
    monkeypatch.setattr(scored_batch, "_CELLS_AT_ONCE", 1)
    assert corpus_segmenter.n_best(sources, targets, n=3) == ranked
    assert corpus_segmenter.sample(sources, targets, n=5) == drawn
