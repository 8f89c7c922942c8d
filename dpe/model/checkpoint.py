"""The files of a trained model: safetensors and JSON, nothing is unpickled.

settings.json           what it is: kind, settings that differ from their defaults, vocabulary, data
vocab.model             the vocabulary, of the target alone if there is
source.model            another one for the source
model.safetensors       the weights to use (the best on the development text so far)
last.safetensors        weights, optimiser and position of the last save, from which training resumes
best-epoch.safetensors  the best epoch's weights, while those to use are from the end (training/state.py)
epoch-NNNN.safetensors  the last epochs' weights, if they are to be averaged (training/state.py);
                        evaluation-NNNN.safetensors if evaluations come every N updates
training.jsonl          the curve (training/log.py); training.png: its picture
cache/                  the lock of the training; line indexes of its text; an epoch's targets, uncompressed
cuts/                   a segmenter's targets for the training text, unless kept elsewhere
ctranslate2-*/          a translator as CTranslate2 reads it (translator/translator.py)

Each file is whole or absent, but for training.jsonl, which grows line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from dpe.errors import UserError, refuse
from dpe.files import whole_file
from dpe.model.settings import model_settings
from dpe.settings import first_difference
from dpe.text.vocabulary import Vocabulary

FORMAT = 2
CURVE, PICTURE = "training.jsonl", "training.png"
SETTINGS, VOCABULARY, MODEL, LAST = "settings.json", "vocab.model", "model.safetensors", "last.safetensors"
SOURCE_VOCABULARY = "source.model"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Tensors and a JSON state in one file, so that they can never disagree."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as file:
        file.write(safetensors_bytes(content, metadata={"state": json.dumps(state, sort_keys=True)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a damaged file is refused in one sentence."""
    try:
        path.open("rb").close()  # safe_open calls everything that it cannot open missing
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; the training there has not saved a model yet.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); remove {path.parent} and train again.") from error


def save_model(path: Path, model: nn.Module, state: Mapping[str, Any]) -> None:
    """The weights of a model (tied ones once)."""
    save_tensors(path, dict(model.named_parameters()), state)


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], *, name: str) -> None:
    """Copy weights into a model; names and shapes must match."""
    parameters = dict(model.named_parameters())
    shapes = {key: tuple(tensor.shape) for key, tensor in weights.items()}
    for key in sorted(parameters.keys() | shapes.keys()):
        if key not in parameters or shapes.get(key) != tuple(parameters[key].shape):
            raise UserError(f"{name} does not fit this network (it differs in {key}); train again.")
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(weights[key])


def average_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, in double precision."""
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        count += 1
        for name, tensor in load_tensors(path)[0].items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}


class Identified(Protocol):
    """Settings, some of which a resumed training cannot change."""

    def identity(self) -> dict[str, Any]: ...


def write_settings(
    directory: Path, kind: str, settings: Identified, vocabulary: Vocabulary, about: Mapping[str, Any]
) -> None:
    """Start a model directory, or check that the one that exists was started in the same way.

    `about` is what the model depends on beside its settings: the data, and the segmenter.
    """
    wanted = {"kind": kind, "vocabulary": vocabulary.fingerprint, "settings": settings.identity(), **about}
    if vocabulary.source is not vocabulary:
        wanted["source_vocabulary"] = vocabulary.source.fingerprint
    path = directory / SETTINGS
    if not path.exists():
        _refuse_foreign_files(directory, vocabulary)
    else:
        there = read_settings(directory, kind)
        if any((directory / name).exists() for name in (LAST, MODEL)):  # else nothing would be lost
            recorded = model_settings(there, type(settings), str(path)).identity()
            compared = {"source_vocabulary": None} | json.loads(json.dumps(wanted))
            there = {key: there.get(key) for key in compared} | {"settings": recorded}
            if difference := first_difference(there, compared):
                raise UserError(
                    f"{directory} holds a training with other settings ({difference}); "
                    "choose another --out, or give the same settings to resume it."
                )
            return
    vocabulary.save(directory / VOCABULARY)
    (directory / SOURCE_VOCABULARY).unlink(missing_ok=True)
    if vocabulary.source is not vocabulary:
        vocabulary.source.save(directory / SOURCE_VOCABULARY)
    with whole_file(path) as file:
        file.write((json.dumps({"format": FORMAT} | wanted, indent=2, sort_keys=True) + "\n").encode())


def _refuse_foreign_files(directory: Path, vocabulary: Vocabulary) -> None:
    """Files with our names in a directory without settings were made by somebody else."""
    own = {VOCABULARY: vocabulary.fingerprint, SOURCE_VOCABULARY: vocabulary.source.fingerprint}
    for name in (CURVE, MODEL, LAST, PICTURE, *own):
        path = directory / name
        if path.exists() and not (name in own and Vocabulary.load(path).fingerprint == own[name]):
            raise UserError(f"{path} already exists and was not created by dpe; choose another --out.")


def read_settings(directory: Path, kind: str) -> dict[str, Any]:
    """`settings.json` of a model of this kind (`segmenter`, `translator`), its settings under "settings"."""
    path = directory / SETTINGS
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        lack = f"no {SETTINGS}" if directory.is_dir() else "no such directory"
        raise UserError(f"{directory} does not contain a trained {kind} ({lack}).") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); train again.") from error
    if not isinstance(record, dict) or not {"kind", "format", "vocabulary"} <= record.keys():
        raise UserError(f"{path} was not written by dpe.")
    there, form = record["kind"], record["format"]
    refuse(
        (there != kind, f"{directory} contains a {there}, not a {kind}."),
        (form not in (1, FORMAT), f"{path} has format {form}; this version of dpe reads 1 and {FORMAT}."),
    )
    return record


def load_vocabulary(directory: Path, record: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a model, or of each side, checked to be what it was trained with."""
    found = []
    for name, key in ((VOCABULARY, "vocabulary"), (SOURCE_VOCABULARY, "source_vocabulary")):
        if record.get(key) is not None:
            found.append(Vocabulary.load(directory / name))
            if found[-1].fingerprint != record[key]:
                raise UserError(
                    f"{directory / name} is not the vocabulary that this {record['kind']} was trained with."
                )
    return Vocabulary.of(*found)


def load_weights(directory: Path, model: nn.Module) -> None:
    """Put the weights of a trained model into a network of its shape."""
    put_weights(model, load_tensors(directory / MODEL)[0], name=str(directory / MODEL))


def model_files(directory: Path) -> list[Path]:
    """The files that a training writes into its directory, whether they exist or not."""
    names = [directory / name for name in (SETTINGS, VOCABULARY, SOURCE_VOCABULARY, CURVE, PICTURE)]
    return [*names, *directory.glob("*.safetensors"), *directory.glob("ctranslate2-*/*")]
