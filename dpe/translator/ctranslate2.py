"""A trained translation model as a CTranslate2 model, weight by weight.

CTranslate2 decodes several times faster than torch. Its reader of a directory finds the pieces by id in
`shared_vocabulary.json` (or in a file for each side), closes every source with the end symbol itself, and
starts every target from the beginning symbol, as the model was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
from torch import Tensor, nn

from dpe.files import whole_directory
from dpe.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, Stack, sinusoids
from dpe.model.translation import TranslationTransformer
from dpe.text.dictionaries import source_names, token_names
from dpe.text.vocabulary import Vocabulary

LONGEST = 2048  # positions on either side; CTranslate2 reads them from a table and refuses what is longer


def export_model(model: TranslationTransformer, vocabulary: Vocabulary, out: Path, *, int8: bool) -> None:
    """Write a CTranslate2 model to the directory `out`, which appears when it is complete.

    An `out` that exists already, even because another process was faster, is left as it is.
    """
    spec = _fill(model)
    tokens = token_names(vocabulary)
    spec.register_source_vocabulary(source_names(vocabulary))
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token = tokens[vocabulary.bos_id]
    spec.config.eos_token = tokens[vocabulary.eos_id]
    spec.config.unk_token = tokens[vocabulary.unk_id]
    spec.config.decoder_start_token = tokens[vocabulary.bos_id]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    with whole_directory(out) as aside:
        spec.save(str(aside))


def _fill(model: TranslationTransformer) -> Any:
    """CTranslate2's specification of the model, every array a copy: quantising changes them in place."""
    first_layer = model.decoder.layers[0]
    assert isinstance(first_layer, DecoderLayer)
    heads = first_layer.self_attention.heads
    norm_first = first_layer.self_attention_residual.norm_first
    spec = TransformerSpec(
        TransformerEncoderSpec(len(model.encoder.layers), heads, pre_norm=norm_first),
        TransformerDecoderSpec(len(model.decoder.layers), heads, pre_norm=norm_first),
    )
    source_table = model.source_embedding or model.embedding
    spec.encoder.embeddings[0].weight = _copy(source_table.weight)
    spec.decoder.embeddings.weight = _copy(model.embedding.weight)
    spec.decoder.projection.weight = _copy(model.embedding.weight)
    _fill_stack(spec.encoder, model.encoder)
    _fill_stack(spec.decoder, model.decoder)
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        assert isinstance(layer, EncoderLayer)
        _fill_self_attention(layer_spec.self_attention, layer)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual)
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        assert isinstance(layer, DecoderLayer)
        _fill_self_attention(layer_spec.self_attention, layer)
        _fill_cross_attention(layer_spec.attention, layer)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual)
    return spec


def _fill_stack(spec: Any, stack: Stack) -> None:
    """Positions as a table, because CTranslate2's own formula is another; and the last norm, if any."""
    width = stack.positions.table.shape[1]
    spec.scale_embeddings = True
    spec.position_encodings.encodings = sinusoids(LONGEST, width).float().numpy()
    if isinstance(stack.final_norm, nn.LayerNorm):
        _fill_norm(spec.layer_norm, stack.final_norm)


def _fill_self_attention(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _fill_norm(spec.layer_norm, layer.self_attention_residual.norm)
    _fill_linear(spec.linear, [layer.self_attention.query_key_value, layer.self_attention.output])


def _fill_cross_attention(spec: Any, layer: DecoderLayer) -> None:
    attention = layer.cross_attention
    _fill_norm(spec.layer_norm, layer.cross_attention_residual.norm)
    _fill_linear(spec.linear, [attention.query, attention.key_value, attention.output])


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, residual: Residual) -> None:
    _fill_norm(spec.layer_norm, residual.norm)
    _fill_linear([spec.linear_0, spec.linear_1], [feed_forward.inner, feed_forward.outer])


def _fill_linear(specs: Sequence[Any], linears: Sequence[nn.Linear]) -> None:
    for spec, linear in zip(specs, linears, strict=True):
        spec.weight, spec.bias = _copy(linear.weight), _copy(linear.bias)


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(tensor: Tensor) -> Any:
    return tensor.detach().to(torch.device("cpu"), torch.float32, copy=True).numpy()
