"""Draw docs/lattice.svg: every way to segment one word, with what BPE makes of it.

make demo
python docs/lattice_picture.py --segmenter demo/segmenters/mixed --out docs/lattice.svg
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from html import escape
from pathlib import Path

import sentencepiece

import dpe

SOURCE, WORD = "from her grandmother too", "mummoltaankin"
GLOSSES = ("grandmother", "from", "her", "too")  # of the pieces that DPE finds, which are the morphemes
MOST_WAYS = 1000  # more than the word has, so that n_best returns all of them

WIDTH, HEIGHT = 900, 250
LEFT, BASE, LETTER = 28, 166, 38  # the first letter's left edge, where arcs end, the width of a letter
PANEL, PANEL_LETTER = 568, 17  # left edge of the two segmentations on the right, the width of a letter
INK, SOFT, FAINT, BEST = "#1f2328", "#656d76", "#b4bbc4", "#d1571b"
FONT = "font-family=\"'Helvetica Neue', Helvetica, Arial, sans-serif\""


def draw(segmenter: Path) -> str:
    ways = dpe.Segmenter.load(segmenter).n_best(SOURCE, WORD, n=MOST_WAYS)
    bpe = sentencepiece.SentencePieceProcessor(model_file=str(segmenter / "vocab.model"))
    arcs: defaultdict[tuple[int, int], float] = defaultdict(float)  # probability of each piece
    for way in ways:
        for span in spans(way.pieces):
            arcs[span] += way.probability
    best = spans(ways[0].pieces)
    drawn = sorted(arcs, key=lambda span: (span in best, arcs[span]))
    parts = [
        *(arc(span, arcs[span], is_best=span in best) for span in drawn),
        *(text(LEFT + LETTER * (at + 0.5), BASE + 26, one, size=26) for at, one in enumerate(WORD)),
        *(
            boundary(at, sum(p for (_, end), p in arcs.items() if end == at), best)
            for at in range(1, len(WORD))
        ),
        note(LEFT, 34, "each piece that fits is an arc, as thick as it is probable"),
        note(LEFT, HEIGHT - 12, "below the letters: probability of a boundary, in percent"),
        note(PANEL, 34, f"source: “{SOURCE}”"),
        *segmentation("BPE", bpe.encode(WORD, out_type=str), 68, INK),
        *segmentation("DPE", ways[0].pieces, 136, BEST, GLOSSES),
        note(
            PANEL,
            HEIGHT - 12,
            f"DPE: probability {ways[0].probability:.2f}, the best of {len(ways)} segmentations",
        ),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT}>\n'
        f"<title>Every way to segment {WORD}, with its probability</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def spans(pieces: tuple[str, ...]) -> list[tuple[int, int]]:
    """Start and end of each piece in the word: `["▁mum", "mo"]` -> `[(0, 3), (3, 5)]`."""
    found, end = [], 0
    for piece in pieces:
        start, end = end, end + len(piece.removeprefix("▁"))
        if end > start:
            found.append((start, end))
    return found


def arc(span: tuple[int, int], probability: float, *, is_best: bool) -> str:
    start, end = (LEFT + LETTER * at for at in span)
    top = BASE - 6 - 27 * (span[1] - span[0])
    colour, width = (BEST if is_best else FAINT), 1 + 5 * probability
    if not is_best and probability >= 0.01:
        colour = SOFT
    return (
        f'<path d="M{start + 3} {BASE}C{start + 3} {top} {end - 3} {top} {end - 3} {BASE}" '
        f'fill="none" stroke="{colour}" stroke-width="{width:.2f}"/>'
    )


def boundary(at: int, probability: float, best: list[tuple[int, int]]) -> str:
    """Its probability below the letters, and a line where the best segmentation has one."""
    x, is_best = LEFT + LETTER * at, any(end == at for _, end in best)
    label = text(
        x, BASE + 48, f"{100 * probability:.0f}", size=13, fill=BEST if is_best else FAINT, bold=is_best
    )
    line = f'<path d="M{x} {BASE + 4}v30" stroke="{BEST}" stroke-width="2"/>'
    return line + label if is_best else label


def segmentation(
    title: str, pieces: list[str] | tuple[str, ...], y: int, colour: str, glosses: tuple[str, ...] = ()
) -> list[str]:
    """Its pieces in boxes, what they mean below."""
    parts, x = [text(PANEL, y + 23, title, size=16, anchor="start", fill=colour, bold=True)], PANEL + 50.0
    for number, piece in enumerate(one.removeprefix("▁") for one in pieces):
        width = PANEL_LETTER * len(piece) - 1
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="34" rx="5" fill="{colour}" fill-opacity="0.1" '
            f'stroke="{colour}"/>'
        )
        parts.append(text(x + width / 2, y + 23, piece, size=18))
        if glosses:
            parts.append(text(x + width / 2, y + 51, glosses[number], size=13, fill=SOFT))
        x += width + 7
    return parts


def note(x: float, y: float, content: str) -> str:
    return text(x, y, content, size=13, anchor="start", fill=SOFT)


def text(
    x: float,
    y: float,
    content: str,
    *,
    size: int,
    anchor: str = "middle",
    fill: str = INK,
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>'
        f"{escape(content)}</text>"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--segmenter", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.write_text(draw(arguments.segmenter), encoding="utf-8")
