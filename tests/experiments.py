"""Experiments for tests: minuscule ones, of every kind of model."""

from __future__ import annotations

from pathlib import Path

from dpe.experiment.recipe import read_recipe
from dpe.experiment.stages import Experiment
from dpe.training.processes import Session

# Minuscule, but of every kind: both segmenters, cuts on the fly and fixed.
MINUSCULE = """
name = "minuscule"
source = "en"
target = "fi"
systems = ["bpe", "dpe", "lm-dpe"]
[corpus]
builtin_pairs = 200
[vocabulary]
size = 150
[segmenter]
preset = "tiny"
width = 16
heads = 2
feed_forward = 32
encoder_layers = 1
decoder_layers = 1
epochs = 1
[translator]
preset = "tiny"
width = 16
heads = 2
feed_forward = 32
encoder_layers = 1
decoder_layers = 1
batch = 500
epochs = 3
[decoding]
beam = 2
"""


def experiment(directory: Path, text: str = MINUSCULE, *overrides: str) -> Experiment:
    path = directory / "recipe.toml"
    directory.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return Experiment(read_recipe(path, overrides), directory / "run", Session(device="cpu"))
