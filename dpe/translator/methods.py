"""Which ways to cut a target go with which ways to cut its source; for trainings and for recipes."""

from __future__ import annotations

from dpe.choices import SourceMethod, TargetMethod
from dpe.errors import UserError
from dpe.lattice.dynamic_program import check_temperature


def check_methods(
    source: SourceMethod, target: TargetMethod, *, reads_source: bool, sampling: float | None
) -> None:
    """Refuse what could not be meant; `reads_source`: whether the segmenter of dpe does.

    `sampling` is the temperature of drawn cuts, None for the best.
    """
    if (source, target) == ("unigram", "dpe"):
        raise UserError(
            "dpe follows BPE dropout of the source, and its source method here is unigram; "
            "choose bpe-dropout or bpe, or dpe-fixed as target method."
        )
    if (source, target) == ("bpe", "dpe") and reads_source and sampling is None:
        raise UserError(
            "dpe cuts the target anew for every dropout of the source, and there is none here; "
            "choose bpe-dropout as source method, or dpe-fixed as target method."
        )
    if sampling is not None and target != "dpe":
        raise UserError(
            "Target sampling draws a segmenter's cuts anew every epoch; choose dpe as target method."
        )
    if sampling is not None:
        check_temperature(sampling)
