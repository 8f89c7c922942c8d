"""What a stage leaves: a directory with its files and `artifact.json`, which says what it was made from.

The signature of a stage is a hash of its settings, of the signatures of the stages it needs and of the files
from outside that it reads. It is known before anything is made, so a look at the records tells what is up to
date. What was made with another signature is put aside (`NAME.SIGNATURE`) until its settings come back; a
training that is to be longer begins with a copy of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from dpe.errors import UserError
from dpe.files import file_hash, remove_leftovers, whole_text_file
from dpe.machine import machine
from dpe.settings import first_difference

RECORD = "artifact.json"
_COPY = "copy"  # in the place of a signature, while it is made
_NOT_COPIED = ("cache", "cuts", "ctranslate2-*")  # made again from the rest
Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of an experiment. `make` may find what a killed one left in the directory, and goes on."""

    name: str  # its directory below the run
    settings: Mapping[str, Any]  # everything that the result depends on, beside `needs` and `files`
    needs: tuple[Stage, ...]
    make: Callable[[Path], Facts]  # fills the directory; what it returns is kept in the record
    outputs: tuple[str, ...]  # files that must be there for the stage to count as done
    files: tuple[Path, ...] = ()  # text from outside the run
    # Whether what other settings made of the same needs can go on to become this.
    goes_on_from: Callable[[Mapping[str, Any]], bool] | None = None
    same_settings: Callable[[Mapping[str, Any]], bool] | None = None

    @cached_property
    def signature(self) -> str:
        """Sixteen hexadecimal digits; equal for equal settings and inputs, wherever they lie."""
        content = {
            "settings": self.settings,
            "needs": [stage.signature for stage in self.needs],
            "files": [file_hash(path) for path in self.files],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class State(Enum):
    """How far a stage is; the value is what a user reads."""

    DONE = "done"
    BEGUN = "begun"
    CHANGED = "to do, and what is there is kept aside"
    TO_DO = "to do"


@dataclass(frozen=True)
class Artifacts:
    """The artifacts of a run directory."""

    root: Path

    def directory(self, stage: Stage) -> Path:
        return self.root / stage.name

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a stage, whether it is finished or not; None where there is none."""
        return read_record(self.root / name)

    def state(self, stage: Stage) -> State:
        """What a look at the record and the files says."""
        record = self.record(stage.name)
        if record is None or record["signature"] != stage.signature:
            if _is_whole(self._aside(stage.name, stage.signature)):
                return State.DONE
            is_nothing = record is None or _has_made_nothing(self.directory(stage))
            return State.TO_DO if is_nothing else State.CHANGED
        return State.DONE if _is_whole(self.directory(stage)) else State.BEGUN

    def what_changed(self, stage: Stage) -> str:
        """In words, what sets a stage apart from what other settings or inputs made in its place."""
        record = self.record(stage.name) or self._new_record(stage)
        for need in stage.needs:
            if record["needs"].get(need.name) != need.signature:
                return f"{need.name} has changed"
        wanted = json.loads(json.dumps(stage.settings))
        return first_difference(record["settings"], wanted) or "a file that it reads has changed"

    def make(self, stage: Stage) -> None:
        """Make a stage, or go on with it, and record it. Its needs must be done."""
        self.settle(stage)
        directory = self.directory(stage)
        record = self.record(stage.name) or self._new_record(stage)
        _write_record(directory, {**record, "finished": False})
        begin = time.monotonic()
        facts = stage.make(directory)
        sizes = {file: (directory / file).stat().st_size for file in stage.outputs}
        seconds = round(time.monotonic() - begin, 1)
        made = {"facts": facts, "files": sizes, "seconds": seconds, "machine": machine(), "finished": True}
        _write_record(directory, {**record, **made})

    def settle(self, stage: Stage) -> None:
        """Put aside what another signature made; bring back what this one made before, or can go on from."""
        directory = self.directory(stage)
        record = read_record(directory)
        if record is not None and record["signature"] != stage.signature:
            if _has_made_nothing(directory):
                shutil.rmtree(directory)
            else:
                directory.rename(self._aside(stage.name, record["signature"]))
        earlier = self._aside(stage.name, stage.signature)
        _refuse_what_no_run_made(directory)
        if earlier.exists() and read_record(directory) is None:
            directory.parent.mkdir(parents=True, exist_ok=True)
            earlier.rename(directory)
        if not directory.exists() and (shorter := self._shorter(stage)):
            copy = self._aside(stage.name, _COPY)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(shorter, copy, ignore=shutil.ignore_patterns(RECORD, *_NOT_COPIED))
            _write_record(copy, {**self._new_record(stage), "finished": False})
            copy.rename(directory)

    def _shorter(self, stage: Stage) -> Path | None:
        """What was put aside and can go on to become this stage; of several the longest."""
        if stage.goes_on_from is None:
            return None
        needs = {need.name: need.signature for need in stage.needs}
        found = []
        for directory in self.directory(stage).parent.glob(f"{self.directory(stage).name}.*"):
            record = read_record(directory)
            if directory == self._aside(stage.name, _COPY):
                continue  # a kill left it
            if record and record["needs"] == needs and stage.goes_on_from(record["settings"]):
                found.append((record["facts"].get("steps", 0), directory))
        return max(found)[1] if found else None

    def is_current(self, name: str) -> bool:
        """Whether a finished artifact and all that it was made from are still the same, by the records."""
        record = self.record(name)
        if record is None or not record["finished"]:
            return False
        needs = {need: self.record(need) for need in record["needs"]}
        return all(
            found is not None and found["signature"] == record["needs"][need] and self.is_current(need)
            for need, found in needs.items()
        )

    def _aside(self, name: str, signature: str) -> Path:
        return self.root / f"{name}.{signature}"

    def _new_record(self, stage: Stage) -> dict[str, Any]:
        return {
            "stage": stage.name,
            "signature": stage.signature,
            "settings": stage.settings,
            "needs": {need.name: need.signature for need in stage.needs},
            "files": {},
            "facts": {},
            "seconds": 0.0,
        }


def read_record(directory: Path) -> dict[str, Any] | None:
    """What `artifact.json` says; a kill cannot leave half of one, so a damaged one is refused."""
    path = directory / RECORD
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"stage", "signature", "settings", "needs", "finished"} <= record.keys():
            raise ValueError("something is missing")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: is damaged; remove {directory} to make it again.") from error
    return record


def write_json(path: Path, content: Any, *, sort_keys: bool = False) -> None:
    """A file of a run, absent or whole."""
    with whole_text_file(path) as file:
        file.write(json.dumps(content, indent=1, sort_keys=sort_keys, ensure_ascii=False) + "\n")


def _write_record(directory: Path, record: Mapping[str, Any]) -> None:
    write_json(directory / RECORD, record, sort_keys=True)


def _is_whole(directory: Path) -> bool:
    """Whether the artifact is finished and its files are there, as large as they were."""
    record = read_record(directory)
    if record is None or not record["finished"]:
        return False
    return all(_size(directory / file) == size for file, size in record["files"].items())


def _has_made_nothing(directory: Path) -> bool:
    """Whether a stage began and failed at once: there is its record and nothing else."""
    return not _is_whole(directory) and {path.name for path in directory.iterdir()} == {RECORD}


def _refuse_what_no_run_made(directory: Path) -> None:
    """A stage writes its record first, so what lies there without one was not made by a run."""
    if read_record(directory) is not None or not directory.is_dir():
        return
    remove_leftovers(directory)  # of a record that a kill cut short
    if any(directory.iterdir()):
        raise UserError(
            f"{directory} holds files that no run has made, and would be written to; "
            "give another --out, or move them."
        )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
