"""`dpe join`: the parts of an output, each made from some lines of a text, as the output of the whole"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from dpe.corpus_run.output import Record, ResumableOutput
from dpe.corpus_run.run import add_totals
from dpe.errors import UserError
from dpe.progress import Progress
from dpe.settings import differing
from dpe.text.corpus import read_lines


def join(parts: Sequence[Path], out: Path, *, force: bool = False, progress: Progress) -> Record:
    """Write what the whole run would have written, with its record; the parts may be given in any order.

    By their records they must be finished, follow each other from the first line of one text to its last,
    and be made by the same model with the same settings.
    """
    records = {path: _finished(path) for path in parts}
    ordered = sorted(parts, key=lambda path: records[path].first)
    _check_lines([records[path] for path in ordered])
    for one, other in pairwise(ordered):
        _check_same(one, records[one], other, records[other])
    configuration = {k: v for k, v in records[ordered[0]].configuration.items() if k != "lines"}
    with closing(ResumableOutput(out, configuration, force=force)) as output:
        if not output.record.finished:
            output.start_over()
            totals: dict[str, float] = {}
            for path in ordered:
                record = records[path]
                add_totals(totals, record.totals)
                output.append(_counted(path, record), count=record.lines, digest=record.text, totals=totals)
            output.finish()
        output.publish()
        progress.say(f"{out}: {output.record.lines:,} lines of {len(parts)} parts")
        return output.record


def _finished(path: Path) -> Record:
    record = Record.of(path)
    if record is None:
        raise UserError(
            f"{path} has no record of how it was made, which is a file beside it, .{path.name}.dpe.json; "
            "give parts that dpe segment, score or distill made with --lines, and keep their records."
        )
    if not record.finished:
        raise UserError(f"{path} is not finished; run the command that makes it again.")
    if not path.exists() or not record.is_of(path):
        raise UserError(f"{path} was changed or removed after it was made; make it again.")
    return record


def _check_lines(records: Sequence[Record]) -> None:
    """Each part must begin where the one before ends."""
    line = 0
    for record in records:
        if record.first > line:
            raise UserError(f"Lines {line}:{record.first} are missing; give the part that has them.")
        if record.first < line:
            raise UserError(f"Two parts have line {record.first} of the text; leave one of them out.")
        line = record.lines
    if records[-1].goes_on:
        raise UserError(f"Lines {line}: are missing, up to the end of the text; give the part that has them.")


def _check_same(one: Path, before: Record, other: Path, after: Record) -> None:
    """Two neighbours must be made in the same way from the same text."""
    ways = [{k: v for k, v in record.configuration.items() if k != "lines"} for record in (before, after)]
    if difference := next(differing(*ways), None):
        key, *values = difference
        first, second = ("the default" if value is None else str(value)[:12] for value in values)  # or a hash
        raise UserError(
            f"{other} was made with another {key.replace('_', ' ')} than {one} ({second}, not {first}); "
            "make all parts in the same way."
        )
    if before.text != after.before:
        raise UserError(f"{other} was made from another text than {one}; make all parts from one text.")


def _counted(path: Path, record: Record) -> Iterator[str]:
    """The lines of a part, which must be as many as its record says."""
    count = 0
    for count, line in enumerate(read_lines(path), start=1):  # noqa: B007
        yield line
    if count != record.lines - record.first:
        raise UserError(
            f"{path} has {count:,} lines instead of {record.lines - record.first:,}; make it again."
        )
