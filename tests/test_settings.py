"""A setting is one line: read, checked, stored without its default, compared in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe import Segmenter, UserError
from dpe.experiment import recipe as recipe_module
from dpe.experiment.run import plan
from dpe.model.checkpoint import load_tensors
from dpe.model.settings import from_preset, model_settings
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings, SegmentSettings
from dpe.segmenter.training import train_segmenter
from dpe.settings import (
    Settings,
    build,
    changed,
    differing,
    first_difference,
    flatten,
    merged,
    parse_override,
    setting,
)
from dpe.translator.settings import TRANSLATOR_PRESETS, TranslatorSettings
from tests.experiments import MINUSCULE, experiment
from tests.segmenters import SMALLEST, TARGETS, learned_vocabulary, save_segmenter


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    share: float = setting(0.5, "A share.", low=0, high=1)
    names: tuple[str, ...] = setting((), "Some names.")


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    size: int
    rate: float = setting(1.0, "A rate.", above=0, below=2)
    limit: int | None = setting(None, "A limit.", low=1)
    inner: Inner = Inner()


def test_what_is_written_is_read_and_defaults_are_left_out() -> None:
    assert changed(Outer(size=3)) == {"size": 3}
    full = Outer(size=3, rate=1.5, limit=2, inner=Inner(names=("a", "b")))
    assert changed(full) == {"size": 3, "rate": 1.5, "limit": 2, "inner": {"names": ["a", "b"]}}
    for one in (full, Outer(size=3), Outer(size=3, inner=Inner(share=0))):
        assert build(Outer, json.loads(json.dumps(changed(one))), "JSON") == one


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "x.toml: the setting 'size' is missing."),
        ({"size": 1, "sise": 2}, "x.toml: there is no setting 'sise'; did you mean 'size'?"),
        ({"size": "1"}, "x.toml: size must be a whole number, not '1'."),
        ({"size": 1, "inner": {"share": "a"}}, "x.toml: inner.share must be a number, not 'a'."),
        (
            {"size": 1, "inner": {"names": "a"}},
            "x.toml: inner.names must be a list, each item text",
        ),
        ({"size": 1, "rate": 0}, "x.toml: rate is 0.0; it must be more than 0."),
        ({"size": 1, "rate": 2}, "x.toml: rate is 2.0; it must be less than 2."),
        ({"size": 1, "rate": float("nan")}, "x.toml: rate is nan; it must be more than 0."),
        ({"size": 1, "limit": 0}, "x.toml: limit is 0; it must be at least 1."),
        ({"size": 1, "inner": {"share": 1.5}}, "x.toml: share is 1.5; it must be at most 1."),
    ],
)
def test_a_mistake_is_one_sentence(table: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Outer, table, "x.toml")
    assert str(caught.value).startswith(says)


def test_set_takes_toml_text_and_nothing() -> None:
    assert parse_override("a.b=3") == {"a": {"b": 3}}
    assert parse_override("a=[1, 2]") == {"a": [1, 2]}
    assert parse_override("a=/some where/x") == {"a": "/some where/x"}
    assert parse_override("a.b=") == {"a": {"b": None}}
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "d": 4}) == {"a": {"c": 2}, "d": 4}


@pytest.mark.parametrize(
    "cls", [SegmenterSettings, TranslatorSettings, SegmentSettings], ids=lambda cls: cls.__name__
)
def test_every_setting_has_a_default_and_a_help_text(cls: type[Any]) -> None:
    for field in fields(cls):
        assert field.metadata["help"].endswith("."), field.name
    assert changed(cls()) == {}


@pytest.mark.parametrize("presets", [SEGMENTER_PRESETS, TRANSLATOR_PRESETS], ids=["segmenter", "translator"])
def test_a_preset_is_changed_by_name(presets: dict[str, Any]) -> None:
    assert from_preset(presets, {}, "x") == presets["small"]
    tiny = from_preset(presets, {"preset": "tiny", "width": 64, "seed": 4}, "x")
    assert tiny == replace(presets["tiny"], width=64, seed=4)
    assert from_preset(presets, {"steps": 7}, "x").epochs is None
    assert from_preset(presets, {"steps": 7, "epochs": 2}, "x").epochs == 2
    assert from_preset(presets, {"width": None, "epochs": None}, "x") == replace(
        presets["small"], epochs=None
    )
    for name, settings in presets.items():
        assert model_settings({"settings": changed(settings)}, type(settings), name) == settings


@dataclass(frozen=True, kw_only=True)
class NewerSettings(SegmenterSettings):
    """As a later version may have them."""

    novelty: int = setting(3, "Something new.", low=0)


def train(out: Path, settings: SegmenterSettings) -> dict[str, torch.Tensor]:
    settings = replace(settings, source=False, batch=160)
    train_segmenter(
        out, vocabulary=learned_vocabulary(), target=TARGETS, dev_target=TARGETS, settings=settings
    )
    return load_tensors(out / "last.safetensors")[0]


def test_a_new_field_with_a_default_does_not_make_a_model_stale(tmp_path: Path) -> None:
    newer = NewerSettings(**{field.name: getattr(SMALLEST, field.name) for field in fields(SMALLEST)})
    train(tmp_path / "model", replace(SMALLEST, steps=2))
    resumed = train(tmp_path / "model", replace(newer, steps=4))
    whole = train(tmp_path / "whole", replace(SMALLEST, steps=4))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    with pytest.raises(UserError, match="novelty is the default there and 5 now"):
        train(tmp_path / "model", replace(newer, steps=6, novelty=5))


def test_a_new_field_with_a_default_does_not_make_a_run_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {stage.name: stage.signature for stage in plan(experiment(tmp_path))}
    presets = {
        name: NewerSettings(**{field.name: getattr(one, field.name) for field in fields(one)})
        for name, one in SEGMENTER_PRESETS.items()
    }
    monkeypatch.setattr(recipe_module, "SEGMENTER_PRESETS", presets)
    monkeypatch.setattr(recipe_module.SegmenterSection, "settings", NewerSettings)
    assert {stage.name: stage.signature for stage in plan(experiment(tmp_path))} == before
    other = {stage.name: stage.signature for stage in plan(experiment(tmp_path, novelty(5)))}
    assert other["segmenters/mixed"] != before["segmenters/mixed"]


def novelty(value: int) -> str:
    return MINUSCULE.replace("[segmenter]\n", f"[segmenter]\nnovelty = {value}\n")


def test_a_model_of_the_first_version_is_loaded_and_resumed(tmp_path: Path) -> None:
    """Which wrote every field, in tables."""
    directory = save_segmenter(tmp_path / "loaded", learned_vocabulary())
    best = Segmenter.load(directory).best("a dog.", "koira.")
    train(tmp_path / "model", replace(SMALLEST, steps=2))
    for place in (directory, tmp_path / "model"):
        path = place / "settings.json"
        record = json.loads(path.read_text())
        settings = build(SegmenterSettings, record.pop("settings"), "settings")
        network = {n: getattr(settings, n) for n in ("width", "heads", "feed_forward", "encoder_layers",
                                                     "decoder_layers", "dropout", "norm")}  # fmt: skip
        training = {n: getattr(settings, n) for n in ("learning_rate", "warmup", "clip", "accumulate", "seed",
                                                      "bf16")}  # fmt: skip
        own = {n: getattr(settings, n) for n in ("batch", "source", "source_dropout", "max_characters")}
        old = {**record, "format": 1, "network": network, "training": training, **own}
        path.write_text(json.dumps(old))
    assert Segmenter.load(directory).best("a dog.", "koira.") == best
    resumed = train(tmp_path / "model", replace(SMALLEST, steps=4))
    whole = train(tmp_path / "whole", replace(SMALLEST, steps=4))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    with pytest.raises(UserError, match="heads is 1 there and 2 now"):
        train(tmp_path / "model", replace(SMALLEST, heads=2, steps=6))


def test_nested_keys_are_joined_by_dots() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": [2]}) == {"a.b": 1, "a.c.d": None, "e": [2]}


def test_differing_keys_come_in_order_with_both_values() -> None:
    there, wanted = {"b": 1, "a": {"x": 1, "y": 2}, "c": 3}, {"b": 2, "a": {"x": 1}, "c": 3}
    assert list(differing(there, wanted)) == [("a.y", 2, None), ("b", 1, 2)]
    assert list(differing(there, there)) == []


def test_the_first_difference_in_words() -> None:
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 2}}) == "a.b is 1 there and 2 now"
    assert first_difference({"a": "0" * 64}, {"a": "1" * 64}) == "another a"  # a hash tells nobody anything
    assert first_difference({"a": "0" * 64}, {"a": None}) == "another a"
    assert first_difference({"a": 1}, {"a": 1}) is None
