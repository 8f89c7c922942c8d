"""The values that a user chooses among, the same in commands, recipes and Python."""

from __future__ import annotations

from typing import Literal

VocabularyType = Literal["bpe", "unigram"]
Normalization = Literal["nfkc", "identity"]

# How text is segmented: by counts, or by a trained segmenter.
CountMethod = Literal["bpe", "bpe-dropout", "longest-match", "unigram", "uniform"]
SourceMethod = Literal["bpe", "bpe-dropout", "unigram", "unigram-best"]
TargetMethod = Literal[
    "bpe", "bpe-dropout", "longest-match", "dpe-fixed", "dpe", "unigram", "unigram-best", "uniform"
]
SEGMENTER_METHODS: tuple[TargetMethod, ...] = ("dpe", "dpe-fixed")
CutMode = Literal["best", "sample", "n-best"]
PairMethod = Literal["dpe", CountMethod]
PairMode = Literal["best", "sample"]
BadLines = Literal["pass", "drop", "stop"]  # what becomes of lines in a stream that are no pairs
CountsOf = Literal["posterior", "best"]  # which pieces of a segmenter are counted

# How segmentations are written: other toolkits write a `SegmentedFormat` too.
SegmentedFormat = Literal["pieces", "subword-nmt"]
PieceFormat = Literal["pieces", "subword-nmt", "ids"]
CutFormat = Literal["pieces", "subword-nmt", "ids", "jsonl"]

# The dictionaries of other toolkits that `dpe pieces` writes.
DictionaryFormat = Literal["plain", "fairseq", "eole", "marian-yml", "sockeye", "ctranslate2", "hf-marian"]

PresetName = Literal["tiny", "small", "base"]
BleuTokens = Literal["13a", "intl", "zh", "char", "none"]
RAY_HERE = "local"  # the address that stands for a Ray cluster of this machine alone
