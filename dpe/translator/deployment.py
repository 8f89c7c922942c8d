"""A trained translator as a directory that runs without dpe."""

from __future__ import annotations

from pathlib import Path

from dpe.errors import UserError
from dpe.files import whole_directory
from dpe.model.checkpoint import VOCABULARY, load_vocabulary, read_settings
from dpe.translator.ctranslate2 import export_model
from dpe.translator.translator import LONGEST_PART, load_model

_README = """\
# A translation model for CTranslate2

Run in this directory, with the packages `ctranslate2` and `sentencepiece`:

```python
import ctranslate2, sentencepiece
vocabulary = sentencepiece.SentencePieceProcessor(model_file="{vocabulary}")
translator = ctranslate2.Translator(".", compute_type="{compute_type}")
source = vocabulary.id_to_piece(vocabulary.encode("Hello."))
limits = {{"max_input_length": 0, "max_decoding_length": 2 * len(source) + 20, "min_decoding_length": 0}}
best = translator.translate_batch([source], beam_size=5, **limits)
print(vocabulary.decode(best[0].hypotheses[0]))
```

CTranslate2's own limits would cut long text short. Sources above {longest} pieces are longer than the model
knows: translate their sentences one by one.
"""
_MOSES = """
The model was trained on text tokenised by Moses' rules: tokenise the source ({}), and detokenise the
translation ({}), for instance with the package `sacremoses`.
"""


def export_translator(directory: Path, out: Path, *, int8: bool) -> None:
    """Write a CTranslate2 model, its vocabulary and a README with the few lines that use them."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already; give another --out, or remove it.")
    settings = read_settings(directory, "translator")
    vocabulary = load_vocabulary(directory, settings)
    compute_type = "int8" if int8 else "float32"
    readme = _README.format(vocabulary=VOCABULARY, compute_type=compute_type, longest=LONGEST_PART)
    if settings["moses"]:
        readme += _MOSES.format(*settings["moses"])
    with whole_directory(out) as aside:
        export_model(load_model(directory), vocabulary, aside, int8=int8)
        vocabulary.save(aside / VOCABULARY)
        (aside / "README.md").write_text(readme, encoding="utf-8")
