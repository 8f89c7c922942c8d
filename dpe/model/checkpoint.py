"""The files of a trained model: safetensors and JSON, nothing is unpickled.

settings.json           what it is: kind, network, training settings, vocabulary, data
vocab.model             the vocabulary
model.safetensors       the weights to use (the best on the development text so far)
last.safetensors        weights, optimiser and position of the last save, from which training goes on
best-epoch.safetensors  the best epoch's weights, while those to use are of the end (kept_weights.py)
epoch-NNNN.safetensors  the last epochs' weights, if they are to be averaged (kept_weights.py)
training.jsonl          the curve (curve.py); training.png: its picture
cache/                  the lock of the training; where the lines of its text begin; an epoch's cuts, unpacked
cuts/                   a segmenter's cuts of the training text, unless kept elsewhere (kept_cuts.py)
ctranslate2-*/          a translator as CTranslate2 reads it (inference/translator.py)

Each file is whole or absent, but for training.jsonl, which grows line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from dpe.errors import UserError
from dpe.files import whole_file
from dpe.settings import first_difference
from dpe.text.vocabulary import Vocabulary

FORMAT = 1
CURVE, PICTURE = "training.jsonl", "training.png"
SETTINGS, VOCABULARY, MODEL, LAST = "settings.json", "vocab.model", "model.safetensors", "last.safetensors"


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
        raise UserError(f"{path} is missing; the training there did not get as far as saving it.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); remove {path.parent} and train again.") from error


def save_model(path: Path, model: nn.Module, state: Mapping[str, Any]) -> None:
    """The weights of a model (tied ones once)."""
    save_tensors(path, dict(model.named_parameters()), state)


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], *, name: str) -> None:
    """Copy weights into a model; every one must be there and fit."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())[0]
        raise UserError(f"{name} is of another network (it differs in {odd}); train again or use its own.")
    for key, parameter in parameters.items():
        if parameter.shape != weights[key].shape:
            raise UserError(f"{name} is of a network of another size (it differs in {key}).")
        with torch.no_grad():
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


def write_settings(directory: Path, kind: str, settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Start a model directory, or check that the one that is there was started in the same way."""
    wanted = {"format": FORMAT, "kind": kind, "vocabulary": vocabulary.fingerprint, **settings}
    path = directory / SETTINGS
    there = read_settings(directory, kind) if path.exists() else None
    if there is None:
        _refuse_files_without_settings(directory, vocabulary)
    elif any((directory / name).exists() for name in (LAST, MODEL)):  # else nothing would be lost
        _refuse_other(path, there, json.loads(json.dumps(wanted)))
        return
    vocabulary.save(directory / VOCABULARY)
    with whole_file(path) as file:
        file.write((json.dumps(wanted, indent=2, sort_keys=True) + "\n").encode())


def read_settings(directory: Path, kind: str) -> dict[str, Any]:
    """The settings of a model directory of this kind (`segmenter`, `translator`)."""
    path = directory / SETTINGS
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        lack = f"{SETTINGS} is missing" if directory.exists() else "there is no such directory"
        raise UserError(f"{directory} holds no trained {kind} ({lack}).") from error
    except NotADirectoryError as error:
        raise UserError(f"{directory} is a file; give the directory of a trained {kind}.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); train again.") from error
    if not isinstance(settings, dict) or not {"kind", "format", "network", "vocabulary"} <= settings.keys():
        raise UserError(f"{path} is not of a model that dpe trained.")
    if settings["kind"] != kind:
        raise UserError(f"{directory} holds a {settings['kind']}, not a {kind}.")
    if settings["format"] != FORMAT:
        raise UserError(
            f"{path} has format {settings['format']}, and this version of dpe reads format {FORMAT}."
        )
    return settings


def load_vocabulary(directory: Path, settings: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a model with these settings, checked to be the one that it learned with."""
    path, kind = directory / VOCABULARY, settings["kind"]
    vocabulary = Vocabulary.load(path)
    if vocabulary.fingerprint != settings["vocabulary"]:
        raise UserError(f"{path} is not the vocabulary that this {kind} learned with.")
    return vocabulary


def load_weights(directory: Path, model: nn.Module) -> None:
    """Put the weights of a trained model into a network of its shape."""
    put_weights(model, load_tensors(directory / MODEL)[0], name=str(directory / MODEL))


def _refuse_files_without_settings(directory: Path, vocabulary: Vocabulary) -> None:
    """What is there under our names without a model is somebody's own."""
    path = directory / VOCABULARY
    if path.exists() and Vocabulary.load(path).fingerprint != vocabulary.fingerprint:
        raise UserError(f"{path} is another vocabulary than the one given; give another --out.")
    for name in (CURVE, MODEL, LAST, PICTURE):
        if (directory / name).exists():
            raise UserError(f"{directory / name} is there and of no training of dpe's; give another --out.")


def _refuse_other(path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if difference := first_difference(there, wanted):
        raise UserError(
            f"{path.parent} holds a training with other settings ({difference}); "
            "give another --out, or the same settings to go on with it."
        )
