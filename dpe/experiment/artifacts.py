"""What a stage makes: a directory with its files and `artifact.json`, the record of what it was made from.

The signature of a stage is the key of its settings, of the signatures of the stages it needs and of the files
from outside that it reads. It is known before anything is made, so the records tell what is up to date. What
was made with another signature is kept under another name (`NAME.SIGNATURE`) until its settings come back; a
training that only has to be longer starts from a copy of it.
"""

from __future__ import annotations

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
from dpe.store import key_of, lock

RECORD = "artifact.json"
LOCKS = ".locks"  # a directory of the run
_FORMAT = 2  # of records; those without a format hold all settings, also those that have their default
_COPY = "copy"  # in the place of a signature, while it is made
_NOT_COPIED = ("cache", "cuts", "ctranslate2-*")  # made again from the rest
Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of an experiment. `make` resumes what a killed one left in the directory."""

    name: str  # its directory below the run
    settings: Mapping[str, Any]  # everything that the result depends on, beside `needs` and `files`
    needs: tuple[Stage, ...]
    make: Callable[[Path], Facts]  # fills the directory; what it returns is kept in the record
    outputs: tuple[str, ...]  # files that must exist for the stage to count as done
    files: tuple[Path, ...] = ()  # text from outside the run
    # Whether what other settings made of the same needs can be continued to become this.
    goes_on_from: Callable[[Mapping[str, Any]], bool] | None = None
    # Whether the settings in a record without a format mean these; None: they must be equal.
    same_settings: Callable[[Mapping[str, Any]], bool] | None = None

    @cached_property
    def file_hashes(self) -> list[str]:
        return [file_hash(path) for path in self.files]

    @cached_property
    def signature(self) -> str:
        """Equal for equal settings and inputs, wherever they are."""
        needs = [stage.signature for stage in self.needs]
        return key_of({"settings": self.settings, "needs": needs, "files": self.file_hashes})

    def provenance(self) -> dict[str, Any]:
        """What a record says about how it is made."""
        needs = {need.name: need.signature for need in self.needs}
        settings = json.loads(json.dumps(self.settings))
        return {"format": _FORMAT, "signature": self.signature, "settings": settings, "needs": needs}


class State(Enum):
    """How far a stage is; the value is what a user reads."""

    DONE = "done"
    UNFINISHED = "unfinished"
    CHANGED = "to do, the old result is kept"
    TO_DO = "to do"


@dataclass(frozen=True)
class Artifacts:
    """The artifacts of a run directory."""

    root: Path

    def directory(self, stage: Stage) -> Path:
        return self.root / stage.name

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a stage, finished or not; None where there is none."""
        return read_record(self.root / name)

    def lock_file(self, name: str) -> Path:
        """For the lock of the process that makes a stage."""
        return self.root / LOCKS / f"{name.replace('/', '.')}.lock"

    def state(self, stage: Stage) -> State:
        """By the record and the sizes of the files."""
        directory, record = self.directory(stage), self.record(stage.name)
        if record is not None and record["signature"] == stage.signature:
            return State.DONE if _is_whole(directory) else State.UNFINISHED
        if _is_whole(self._aside(stage, stage.signature)):
            return State.DONE
        return State.TO_DO if record is None or _has_made_nothing(directory) else State.CHANGED

    def what_changed(self, stage: Stage) -> str:
        """In words, how a stage differs from what other settings or inputs made in its place."""
        wanted = stage.provenance()
        record = self.record(stage.name) or wanted
        for name, signature in wanted["needs"].items():
            if record["needs"].get(name) != signature:
                return f"{name} has changed"
        return first_difference(record["settings"], wanted["settings"]) or "a file that it reads has changed"

    def make(self, stage: Stage) -> None:
        """Make a stage, or resume it, and record it. Its needs must be done."""
        self.settle(stage)
        directory = self.directory(stage)
        record = (self.record(stage.name) or _unmade(stage)) | stage.provenance()
        _write_record(directory, {**record, "finished": False})
        begin = time.monotonic()
        facts = stage.make(directory)
        sizes = {file: (directory / file).stat().st_size for file in stage.outputs}
        seconds = round(time.monotonic() - begin, 1)
        made = {"facts": facts, "files": sizes, "seconds": seconds, "machine": machine(), "finished": True}
        _write_record(directory, {**record, **made})

    def settle(self, stage: Stage) -> None:
        """Set aside what another signature made; bring back what this one made, or can continue."""
        directory = self.directory(stage)
        record = read_record(directory)
        if record is not None and record["signature"] != stage.signature:
            if _has_made_nothing(directory):
                shutil.rmtree(directory)
            else:
                directory.rename(self._aside(stage, record["signature"]))
        elif record is None and directory.is_dir():
            remove_leftovers(directory)  # of a record that a kill cut short
            if any(directory.iterdir()):  # a stage writes its record first
                raise UserError(
                    f"{directory} contains files that were not created by dpe; "
                    "choose another --out, or move them."
                )
        earlier = self._aside(stage, stage.signature)
        if earlier.exists() and read_record(directory) is None:
            directory.parent.mkdir(parents=True, exist_ok=True)
            earlier.rename(directory)
        if not directory.exists() and (shorter := self._shorter(stage)):
            copy = self._aside(stage, _COPY)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(shorter, copy, ignore=shutil.ignore_patterns(RECORD, *_NOT_COPIED))
            _write_record(copy, {**_unmade(stage), "finished": False})
            copy.rename(directory)

    def _shorter(self, stage: Stage) -> Path | None:
        """What was set aside and can be continued to become this stage; of several the longest."""
        if stage.goes_on_from is None:
            return None
        needs, found = stage.provenance()["needs"], []
        for directory in self.directory(stage).parent.glob(f"{self.directory(stage).name}.*"):
            record = read_record(directory)
            if record is None or directory == self._aside(stage, _COPY):  # a kill left the copy
                continue
            if record["needs"] == needs and stage.goes_on_from(record["settings"]):
                found.append((record["facts"].get("steps", 0), directory))
        return max(found)[1] if found else None

    def adopt(self, stage: Stage) -> None:
        """Rewrite a record without a format, so that it stays up to date, if the stage would make the same.

        The needs come first: their records keep the signature that this one knows. A kill between two stages
        does no harm.
        """
        record = self.record(stage.name)
        if record is None or "format" in record:
            return
        with lock(self.lock_file(stage.name)):
            record = self.record(stage.name)  # again: another process may have been faster
            if record is not None and self._is_of(stage, record):
                adopted = {**record, **stage.provenance(), "adopted": record["signature"]}
                _write_record(self.directory(stage), adopted)

    def _is_of(self, stage: Stage, record: Mapping[str, Any]) -> bool:
        """Whether the settings of a record without a format mean those of the stage, its signature follows
        from it and the files, and its needs were adopted.
        """
        for need in stage.needs:
            now = self.record(need.name) or {}
            if now.get("signature") != need.signature or now.get("adopted") != record["needs"].get(need.name):
                return False
        needs = [record["needs"][need.name] for need in stage.needs]
        about = {"settings": record["settings"], "needs": needs, "files": stage.file_hashes}
        same_settings = stage.same_settings or stage.provenance()["settings"].__eq__
        is_intact = "format" not in record and key_of(about) == record["signature"]
        return is_intact and same_settings(record["settings"])

    def _aside(self, stage: Stage, signature: str) -> Path:
        return self.root / f"{stage.name}.{signature}"


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
        raise UserError(f"{path} is damaged; remove {directory} to make it again.") from error
    return record


def write_json(path: Path, content: Any, *, sort_keys: bool = False) -> None:
    """A file of a run, absent or whole."""
    with whole_text_file(path) as file:
        file.write(json.dumps(content, indent=1, sort_keys=sort_keys, ensure_ascii=False) + "\n")


def _write_record(directory: Path, record: Mapping[str, Any]) -> None:
    write_json(directory / RECORD, record, sort_keys=True)


def _unmade(stage: Stage) -> dict[str, Any]:
    return {"stage": stage.name, **stage.provenance(), "files": {}, "facts": {}, "seconds": 0.0}


def _is_whole(directory: Path) -> bool:
    """Whether the artifact is finished and its files exist, as large as they were."""
    record = read_record(directory)
    if record is None or not record["finished"]:
        return False
    files = {directory / file: size for file, size in record["files"].items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in files.items())


def _has_made_nothing(directory: Path) -> bool:
    """Whether a stage failed before it made anything: there is only its record."""
    return not _is_whole(directory) and {path.name for path in directory.iterdir()} == {RECORD}
