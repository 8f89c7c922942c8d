"""Write every table of results/ (`make results`): NAME.md beside each NAME.json.

The JSON files were made by `dpe run` (one run, with all its seeds), `dpe morphology --json` and
`dpe compare --json`; README.md lists them. A Markdown file has the tables that these commands print.
"""

from __future__ import annotations

import json
import types
from dataclasses import is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from dpe.evaluation.comparison import FileComparison, comparison_tables
from dpe.evaluation.morphology import Selection, morphology_tables
from dpe.evaluation.tables import Table, markdown
from dpe.experiment.costs import cost_tables, training_table
from dpe.experiment.results import Results, read_results
from dpe.experiment.tables import (
    all_texts_tables,
    frequency_tables,
    length_tables,
    paper_tables,
    texts_of,
)

RESULTS = Path(__file__).parent


def tables_of(path: Path) -> list[Table]:
    """All tables of one JSON file, whichever command made it."""
    content = path.read_text(encoding="utf-8")
    found = json.loads(content)
    if isinstance(found, list):
        return morphology_tables(from_json(list[Selection], found))
    if "comparison" in found:
        return comparison_tables(from_json(FileComparison, found["comparison"]))
    runs = [read_results(path)]
    scores = [paper_tables(runs, metrics=["bleu", "chrf"], text=text) for text in ("test", "dev")]
    lengths = length_tables(runs) if '"by_length"' in content else []  # one older file has none
    return [*chain(*scores), *lengths, *_newer(runs), training_table(runs), *cost_tables(runs)]


def _newer(runs: list[Results]) -> list[Table]:
    """What results of earlier versions lack."""
    if not (on_all := all_texts_tables(runs)):
        return []
    texts = [text for text in texts_of(runs) if text not in ("dev", "test")]
    tests = [table for text in texts for table in paper_tables(runs, text=text)[1:]]
    return [*on_all, *tests, *frequency_tables(runs)]


def from_json(kind: Any, value: Any) -> Any:
    """The dataclass, or the list, dictionary or plain value, that `to_json` wrote."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{key: from_json(hints[key], one) for key, one in value.items()})  # type: ignore[operator]
    if get_origin(kind) is list:
        return [from_json(get_args(kind)[0], one) for one in value]
    if get_origin(kind) is dict:
        return {key: from_json(get_args(kind)[1], one) for key, one in value.items()}
    if get_origin(kind) is types.UnionType and value is not None:
        return from_json(get_args(kind)[0], value)
    return value


def page_of(path: Path) -> str:
    """The Markdown file beside a JSON file."""
    origin = f"Written by `make results` from [{path.name}]({path.name}); see [README.md](README.md)."
    return "\n\n".join([f"# {path.stem}", origin, *map(markdown, tables_of(path))]) + "\n"


def main() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        path.with_suffix(".md").write_text(page_of(path), encoding="utf-8")


if __name__ == "__main__":
    main()
