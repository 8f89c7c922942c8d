"""How near a distilled model comes to its segmenter: every number by its definition, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpe import Segmenter
from dpe.evaluation.agreement import (
    DISTILLED,
    SEGMENTER,
    agreement_figures,
    agreement_sections,
    agreement_tables,
    compare_boundaries,
    measure_agreement,
)
from dpe.evaluation.segmented_text import words_with_cuts
from dpe.segmenter.distillation import unigram_boundaries
from dpe.text.corpus import write_lines
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER
from tests.oracles import cuts_of_text, log_sum_exp
from tests.segment_command import Dpe
from tests.segmenters import PAIRS
from tests.vocabularies import LETTERS, LONGER, make_vocabulary


def pieces(text: str) -> list[list[str]]:
    return [line.replace("_", MARKER).split() for line in text.splitlines()]


def test_shares_by_definition() -> None:
    by_segmenter = pieces("_ab c _a\n_a bc _a _xy\n_ab c , _a")
    by_distilled = pieces("_ab c _a\n_ab c _a _x y\n_ab c, _a")
    result = measure_agreement(
        {SEGMENTER: by_segmenter, DISTILLED: by_distilled}, [], lines_a_second={SEGMENTER: 1.0}
    )
    # Tokens: abc three times (once cut otherwise), a three times, xy once (cut otherwise).
    assert result.tokens_alike == pytest.approx(5 / 7)
    assert result.types_alike == pytest.approx(2 / 3)
    assert result.ceiling == pytest.approx(6 / 7)
    assert [one.word for one in result.comparison.top] == ["xy"]
    assert result.boundaries.positions == 0
    assert not agreement_figures(result)
    texts = [cell for table in agreement_tables(result) for row in table.rows for cell in row]
    assert {"71.4 % of 7", "85.7 %", "66.7 % of 3"} <= set(texts)
    assert agreement_sections(result)


def test_boundary_probabilities_inside_words_only() -> None:
    word, theirs, ours = f"{MARKER}ab-c", (0.9, 0.2, 1.0, 1.0, 1.0), (0.1, 0.6, 1.0, 1.0, 1.0)
    other = (f"{MARKER}abc", (0.0, 0.5, 0.1, 1.0), (0.0, 0.55, 0.2, 1.0))
    found = compare_boundaries([(word, theirs, ours), (word, theirs, ours), other])
    left, right = np.array([0.2, 0.2, 0.5, 0.1]), np.array([0.6, 0.6, 0.55, 0.2])
    assert found.positions == 4
    assert found.mean_difference == pytest.approx(np.abs(left - right).mean())
    assert found.correlation == pytest.approx(np.corrcoef(left, right)[0, 1])
    bins = {round(part.lowest, 1): part for part in found.bins}
    assert set(bins) == {0.2, 0.5, 0.6}
    assert (bins[0.6].positions, bins[0.6].distilled, bins[0.6].segmenter) == (
        2,
        *map(pytest.approx, (0.6, 0.2)),
    )
    assert found.calibration_error == pytest.approx((0.4 + 0.4 + 0.05 + 0.1) / 4)
    assert compare_boundaries([(word, theirs, theirs)]).correlation is None


@pytest.mark.parametrize("protected", [(), ("bc",)])
def test_boundaries_of_a_unigram_against_enumeration(protected: tuple[str, ...]) -> None:
    known = [one for one in [*LETTERS, *LONGER] if one[0] not in protected]
    vocabulary = make_vocabulary(known, type="unigram", protected=protected)
    words = {f"{MARKER}abcab", "ba", f"{MARKER}☃a", f"{MARKER}xyx"}
    found = unigram_boundaries(vocabulary, words)
    assert set(found) == words
    for word in words:
        cuts = {
            cut: sum(
                0.0 if p in protected else vocabulary.scores.get(p, vocabulary.unknown_score) for p in cut
            )
            for cut in cuts_of_text(word, vocabulary)
        }
        total = log_sum_exp(list(cuts.values()))
        wanted = np.zeros(len(word))
        for cut, score in cuts.items():
            wanted[np.cumsum([len(piece) for piece in cut]) - 1] += np.exp(score - total)
        assert found[word] == pytest.approx(wanted.tolist(), abs=1e-9)


def test_the_report(segment_place: Path, tmp_path: Path, dpe: Dpe) -> None:
    sources, targets = map(list, zip(*PAIRS[:40], strict=True))
    write_lines(tmp_path / "h.en", sources)
    write_lines(tmp_path / "h.fi", targets)
    words = sorted({word for line in targets for word in line.split() if word.isalpha() and len(word) > 2})
    write_lines(tmp_path / "gold.tsv", (f"{word}\t{word[:2]} {word[2:]}" for word in words))
    report = tmp_path / "report"
    common = ["distill", "--segmenter", str(segment_place / "segmenter"), "--out", str(tmp_path / "d.model")]
    common += ["--source", str(segment_place / "x.en"), "--target", str(segment_place / "x.fi")]
    held_out = ["--held-out-source", str(tmp_path / "h.en"), "--held-out-target", str(tmp_path / "h.fi")]
    _, err = dpe(*common, *held_out, "--report", str(report), "--gold", str(tmp_path / "gold.tsv"))
    assert "tokens are cut alike" in err
    result = json.loads((report / "distill.json").read_text("utf-8"))
    segmenter, model = Segmenter.load(segment_place / "segmenter"), Vocabulary.load(tmp_path / "d.model")
    assert result["lines"] == 40
    different = total = 0
    for target, theirs in zip(targets, segmenter.best(sources, targets), strict=True):
        both = zip(words_with_cuts(model.encode(target)), words_with_cuts(theirs.pieces), strict=True)
        for ours, other in both:
            total += 1
            different += ours != other
    assert (result["comparison"]["tokens"], result["comparison"]["different_tokens"]) == (total, different)
    assert 0 < different < total
    systems = result["morphology"][0]["systems"]
    assert [one["name"] for one in systems] == ["BPE", "unigram", "distilled", "segmenter"]
    assert result["lines_a_second"]["distilled"] > result["lines_a_second"]["segmenter"] > 0
    assert result["boundaries"]["correlation"] > 0.5  # the fit is to the average of these probabilities
    page = (report / "report.html").read_text("utf-8")
    assert "tokens cut alike" in page
    assert page.count("<figure>") == 2
    assert (report / "boundaries.png").exists()
    _, err = dpe(*common, *held_out[2:], "--report", str(report), code=2)
    assert "both sides" in err
    _, err = dpe(*common, *held_out, code=2)
    assert "--report DIR" in err
