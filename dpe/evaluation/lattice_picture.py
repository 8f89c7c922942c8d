"""The lattices of words as pictures (SVG) of a report: letters on a line, an arc per piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dpe.evaluation.html_page import Html
from dpe.text.words import MARKER

LEAST_DRAWN = 0.005  # probability of an arc off the best path
_CHARACTER, _MARGIN, _LETTERS = 22, 12, 44  # pixels: a letter's width, the rim, the letters' height


@dataclass(frozen=True)
class Arc:
    """One piece over the characters `start` to `end` of a word."""

    start: int
    end: int
    probability: float
    is_best: bool


@dataclass(frozen=True)
class WordArcs:
    """A word with the arcs of its pieces."""

    word: str
    arcs: Sequence[Arc]


def lattice_picture(words: Sequence[WordArcs], *, caption: str) -> Html:
    """Each word's characters on a line, an arc per piece, as thick as it is probable."""
    pictures = "\n".join(map(_word_picture, words))
    return Html(
        f'<figure>\n<div class="lattices">\n{pictures}\n</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def _word_picture(lattice: WordArcs) -> str:
    arcs = [arc for arc in lattice.arcs if arc.is_best or arc.probability >= LEAST_DRAWN]
    top = max((_height(arc) for arc in arcs), default=0.0) * 0.75 + 6  # a curve reaches 3/4 of its handles
    width, height = 2 * _MARGIN + _CHARACTER * len(lattice.word), top + _LETTERS
    best = "+".join(lattice.word[arc.start : arc.end] for arc in arcs if arc.is_best)
    content = [
        *(
            _arc(lattice.word, arc, top)
            for arc in sorted(arcs, key=lambda arc: (arc.is_best, arc.probability))
        ),
        *(_letter(character, number, top) for number, character in enumerate(lattice.word)),
        *(_boundary(at, lattice.arcs, top) for at in range(1, len(lattice.word))),
    ]
    return (
        f'<svg class="lattice" width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}" '
        f'role="img" aria-label="{escape(lattice.word)}, best cut {escape(best)}">'
        + "".join(content)
        + "</svg>"
    )


def _height(arc: Arc) -> float:
    return 14.0 + 13.0 * (arc.end - arc.start)


def _arc(word: str, arc: Arc, base: float) -> str:
    left, right = (_MARGIN + _CHARACTER * at + inset for at, inset in ((arc.start, 2), (arc.end, -2)))
    top = base - _height(arc)
    return (
        f'<path class="{"best" if arc.is_best else "other"}" stroke-width="{0.7 + 5 * arc.probability:.2f}" '
        f'd="M{left} {base:.1f}C{left} {top:.1f} {right} {top:.1f} {right} {base:.1f}">'
        f"<title>{escape(word[arc.start : arc.end])} {arc.probability:.1%}</title></path>"
    )


def _letter(character: str, number: int, base: float) -> str:
    x = _MARGIN + _CHARACTER * (number + 0.5)
    shade = ' class="soft"' if character == MARKER else ""
    return f'<text{shade} x="{x}" y="{base + 20:.1f}">{escape(character)}</text>'


def _boundary(at: int, arcs: Sequence[Arc], base: float) -> str:
    """The probability of a boundary in percent below the letters, and a tick where the best cut has one."""
    percent = round(100 * sum(arc.probability for arc in arcs if arc.end == at))
    x = _MARGIN + _CHARACTER * at
    tick = (
        f'<path class="tick" d="M{x} {base + 3:.1f}v22"/>'
        if any(a.is_best and a.end == at for a in arcs)
        else ""
    )
    label = f'<text class="percent" x="{x}" y="{base + 38:.1f}">{percent}</text>' if percent else ""
    return tick + label
