"""The training curve as a file of JSON lines, one per record, in the order of the steps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpe.errors import UserError
from dpe.text.files import whole_text_file

CURVE, PICTURE = "training.jsonl", "training.png"


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Every whole record; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


class Curve:
    """Appends after the first `records`; later lines belong to steps lost in a kill, and are removed."""

    def __init__(self, directory: Path, *, records: int, active: bool) -> None:
        self.records = records
        self._path = directory / CURVE
        self._active = active  # only the first process writes
        if active:
            kept = read_curve(self._path)[:records]
            with whole_text_file(self._path) as file:
                file.writelines(map(_line, kept))

    def add(self, record: Mapping[str, Any]) -> None:
        self.records += 1
        if self._active:
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(_line(record))
            except OSError as error:
                raise UserError(f"{self._path}: cannot be written: {error.strerror}.") from error


def _line(record: Mapping[str, Any]) -> str:
    """JSON has no word for what is no number; null stands for it."""
    numbers = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(numbers, allow_nan=False) + "\n"
