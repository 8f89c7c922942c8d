"""What is wrong with arguments together, each of which is right by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpe.errors import UserError
from dpe.text.files import Stamp, is_standard_stream


def refuse_idle(options: Mapping[str, object], *, needs: str) -> None:
    """Refuse options that were given where nothing uses them; `None` is not given."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"{name} is for {needs}.")


def refuse_overwriting(out: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the files it would be made from."""
    for path in inputs:
        if out and path and out.is_file() and path.exists() and out.samefile(path):
            raise UserError(f"{out}: is an input as well; give the output another name.")


def refuse_two_streams(*inputs: Path | None) -> None:
    """Refuse `-` for more than one input: the first would take all of it."""
    if sum(path is not None and is_standard_stream(path) for path in inputs) > 1:
        raise UserError("Standard input (-) can be read once only; give files for the other inputs.")


def require_files(*paths: Path | None) -> None:
    """Refuse pipes and the like among what is read more than once."""
    for path in paths:
        if path is not None and str(path) == "-":
            raise UserError("Standard input cannot be read twice, which this needs; save it as a file.")
        if path is not None:
            Stamp.of(path)


def model_files(directory: Path) -> list[Path]:
    """What a training wrote into its directory, as far as it may be there."""
    from dpe.training.checkpoint import SETTINGS, VOCABULARY
    from dpe.training.curve import CURVE, PICTURE

    names = [directory / name for name in (SETTINGS, VOCABULARY, CURVE, PICTURE)]
    return [*names, *directory.glob("*.safetensors"), *directory.glob("ctranslate2-*/*")]
