"""Faults in code that decides results, each of which a named test must notice: `make mutants`.

Every fault is one edit, made in a copy of the package; then its test must fail. A fault whose text is no
longer found exactly once is an error: move it along with the code. Give words to try only faults that have
them in their file or test: `python -m tests.mutants batch_order`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("dpe", "tests", "recipes", "pyproject.toml")
FAILED = 1  # pytest's exit code when a test fails; others are errors of its use


class Fault(NamedTuple):
    """One edit of a file below dpe/, and the test that must notice it."""

    file: str
    old: str
    new: str
    test: str


PROTOCOL, TRAINER, MORE = "test_protocol.py::", "test_trainer.py::", "test_more_texts.py::"
FAULTS = (
    Fault(
        "translator/training.py",
        "cut_target(number, target)",
        "cut_target(number, self._train[(number + 1) % len(self._train)][1])",
        PROTOCOL + "test_a_line_is_trained_with_its_own_source_and_target",
    ),
    Fault(
        "translator/targets.py",
        "in pieces[line].split",
        "in pieces[max(line - 1, 0)].split",
        PROTOCOL + "test_a_line_is_trained_with_its_own_source_and_target",
    ),
    Fault(
        "translator/training.py",
        "self.model.eval()",
        "pass",
        PROTOCOL + "test_dev_is_scored_without_dropout",
    ),
    Fault(
        "translator/training.py",
        "return smoothed, nats, batch.token_count",
        "return smoothed, nats, len(batch.lines)",
        PROTOCOL + "test_losses_are_counted_by_the_token_and_by_the_character",
    ),
    Fault(
        "segmenter/training.py",
        "nats, nats.detach(), batch.character_count",
        "nats, nats.detach(), len(batch.lines)",
        PROTOCOL + "test_losses_are_counted_by_the_token_and_by_the_character",
    ),
    Fault("training/trainer.py", "eps=1e-9", "eps=1e-3", PROTOCOL + "test_adams_constants"),
    Fault(
        "training/trainer.py",
        "gradient.div_(max(units, 1.0))",
        "gradient.div_(1.0)",
        TRAINER + "test_the_step_is_along_the_gradient_of_the_mean_loss",
    ),
    Fault(
        "training/trainer.py",
        "clip_grad_norm_(parameters, self.settings.clip)",
        "clip_grad_norm_(parameters, 1e9)",
        TRAINER + "test_the_rate_rises_and_falls_and_gradients_are_clipped",
    ),
    Fault(
        "training/trainer.py",
        "enabled=settings.bf16 and",
        "enabled=False and",
        PROTOCOL + "test_bf16_is_on_where_it_is_wanted_and_there_is_a_gpu",
    ),
    Fault(
        "training/trainer.py",
        "position.worse_epochs >= settings.patience",
        "position.worse_epochs > settings.patience",
        "test_train_translator.py::test_training_stops_when_bleu_does_not_improve",
    ),
    Fault(
        "training/state.py",
        "position.worse_epochs = 0",
        "pass",
        "test_train_translator.py::test_training_stops_when_bleu_does_not_improve",
    ),
    Fault(
        "training/state.py",
        "rank < position.best_epoch",
        "rank > position.best_epoch",
        "test_train_translator.py::test_training_stops_when_bleu_does_not_improve",
    ),
    Fault(
        "model/checkpoint.py",
        "(tensor / count)",
        "(tensor / 2)",
        PROTOCOL + "test_the_average_is_the_mean_of_all_checkpoints",
    ),
    Fault(
        "model/settings.py",
        '"linear": 1 - share',
        '"linear": 1 - share / 2',
        TRAINER + "test_the_learning_rate_falls_by_the_schedule",
    ),
    Fault(
        "model/settings.py",
        "math.cos(math.pi * share)",
        "math.cos(share)",
        TRAINER + "test_the_learning_rate_falls_by_the_schedule",
    ),
    Fault(
        "model/settings.py",
        "math.sqrt(warmup / max(step, warmup))",
        "warmup / max(step, warmup)",
        TRAINER + "test_the_rate_rises_and_falls_and_gradients_are_clipped",
    ),
    Fault(
        "model/settings.py",
        "min(step / warmup, 1.0)",
        "1.0",
        TRAINER + "test_the_rate_rises_and_falls_and_gradients_are_clipped",
    ),
    Fault(
        "model/transformer.py",
        "nn.init.xavier_uniform_(part.weight)",
        "nn.init.normal_(part.weight, std=0.02)",
        PROTOCOL + "test_linear_maps_begin_xavier_uniform",
    ),
    Fault(
        "translator/training.py",
        "smoothing=self._settings.label_smoothing",
        "smoothing=0.1",
        PROTOCOL + "test_label_smoothing_is_that_of_the_settings",
    ),
    Fault(
        "translator/training.py",
        "dropout=settings.bpe_dropout",
        "dropout=0.05",
        PROTOCOL + "test_random_segmentations_have_the_dropout_and_the_seed_of_the_settings",
    ),
    Fault(
        "translator/training.py",
        "skew=settings.uniform_skew",
        "skew=0.0",
        PROTOCOL + "test_random_segmentations_have_the_dropout_and_the_seed_of_the_settings",
    ),
    Fault(
        "text/unigram.py",
        "dict.fromkeys(vocabulary.ids, -skew)",
        "dict.fromkeys(vocabulary.ids, skew)",
        "test_segmenters.py::test_uniform_draws_have_the_distribution_of_their_definition",
    ),
    Fault(
        "translator/training.py",
        "Draw(self.settings.cut_seed, self.epoch, number)",
        "Draw(1, self.epoch, number)",
        PROTOCOL + "test_random_segmentations_have_the_dropout_and_the_seed_of_the_settings",
    ),
    Fault(
        "translator/training.py",
        "count_segmenter(settings.target_method, settings, vocabulary), settings.cut_seed",
        "count_segmenter(settings.target_method, settings, vocabulary), 1",
        PROTOCOL + "test_random_segmentations_have_the_dropout_and_the_seed_of_the_settings",
    ),
    Fault(
        "experiment/recipe.py",
        "from_preset(TRANSLATOR_PRESETS, self.translator | decided,",
        'from_preset(TRANSLATOR_PRESETS, {"preset": "tiny"} | decided,',
        PROTOCOL + "test_a_recipes_settings_reach_the_training_of_a_translator",
    ),
    Fault(
        "experiment/outputs.py",
        "model.stream(read_lines(source), search)",
        "model.stream(read_lines(source), Search(beam=search.beam))",
        PROTOCOL + "test_a_recipes_search_reaches_the_translator",
    ),
    Fault(
        "translator/translator.py",
        "length_penalty=search.length_penalty,",
        "length_penalty=1.0,",
        "test_translator.py::test_scores_are_log_probabilities_over_length",
    ),
    Fault(
        "training/trainer.py",
        "start=position.window,",
        "start=0,",
        TRAINER + "test_a_resumed_training_loads_no_line_of_the_windows_before",
    ),
    Fault(
        "model/batch_order.py",
        "[share::shares] for share in own]",
        "[own[0] :: shares] for share in own]",
        "test_batching.py::test_ranks_load_their_shares_only_and_have_the_batches_of_one",
    ),
    Fault(
        "model/batch_order.py",
        "random.shuffle(order)",
        "pass",
        PROTOCOL + "test_lines_are_shuffled_across_windows",
    ),
    Fault(
        "translator/translator.py",
        "min(2 * rounded + 20, LONGEST - 1)",
        "min((2 * rounded + 20) // 4, LONGEST - 1)",
        PROTOCOL + "test_a_translation_may_be_twice_as_long_as_its_source",
    ),
    Fault(
        "translator/training.py",
        "limits = (2 * batch.source_lengths + 20)",
        "limits = (batch.source_lengths // 2 + 2)",
        PROTOCOL + "test_greedy_translations_of_dev_may_be_twice_as_long_as_their_source",
    ),
    Fault(
        "model/word_decoder.py",
        "word_ends.flatten().nonzero()[:, 0]  # [end]",
        "word_ends.roll(-1, 1).flatten().nonzero()[:, 0]  # [end]",
        "test_mixed.py::test_changing_a_character_changes_no_distribution_before_it",
    ),
    Fault(
        "model/word_decoder.py",
        ".masked_fill(batch.word_ends, nothing)",
        "",
        "test_mixed.py::test_changing_a_character_changes_no_distribution_before_it",
    ),
    Fault(
        "model/word_decoder.py",
        "wanted(batch.rows)[ends] + 1",
        "wanted(batch.rows)[ends]",
        "test_mixed.py::test_every_character_read_matters_to_all_states_after_it",
    ),
    Fault(
        "segmenter/segmenter.py",
        "enabled=self._bf16)",
        "enabled=False)",
        PROTOCOL + "test_a_segmenter_computes_all_of_an_answer_in_bf16_where_it_is_wanted",
    ),
    Fault(
        "segmenter/segmenter.py",
        "found.update(zip(places, answer(scored), strict=True))",
        "found.update(zip(places[::-1], answer(scored), strict=True))",
        PROTOCOL + "test_a_line_is_trained_with_its_own_source_and_target",
    ),
    Fault(
        "segmenter/segmenter.py",
        "cut_source.cut(source, draw.at(line))",
        "cut_source.cut(source, draw.at(line + 1))",
        "test_segment_command.py::test_source_dropout_of_an_epoch",
    ),
    Fault(
        "segmenter/training.py",
        "settings.source_dropout, settings.source_alpha)",
        "settings.source_dropout, None)",
        PROTOCOL + "test_sources_of_a_segmenter_are_drawn_by_its_settings",
    ),
    Fault(
        "translator/targets.py",
        "source_alpha=settings.unigram_alpha if",
        "source_alpha=0.2 if",
        "test_train_translator.py::test_dpe_cuts_the_target_given_each_epochs_samples_of_the_source",
    ),
    Fault(
        "segmenter/prefix.py",
        "batch.word_ends & inside",
        "batch.word_ends",
        "test_prefix.py::test_a_prefix_is_all_that_begins_with_it",
    ),
    Fault(
        "segmenter/prefix.py",
        "if len(longer) > left",
        "if len(longer) == left + 1",
        "test_prefix.py::test_a_prefix_is_all_that_begins_with_it",
    ),
    Fault(
        "corpus_run/pair_stream.py",
        "number = self._first_line + self.lines",
        "number = self._first_line + self.lines - self.bad",
        "test_pair_stream.py::test_a_line_has_the_draws_of_its_number",
    ),
    Fault(
        "data.py",
        "self._epoch.fill_(epoch)",
        "self._epoch = torch.tensor(epoch)",
        "test_data.py::test_spawned_workers_that_persist_follow_the_epoch",
    ),
    Fault(
        "evaluation/significance.py",
        "p_value = (int(as_far.sum()) + 1)",
        "p_value = (int(as_far.sum()) // 2 + 1)",
        "test_scores.py::test_interval_and_p_are_those_of_texts_resampled_for_real",
    ),
    Fault(
        "evaluation/significance.py",
        "part**2 / (len(sample) - 1)",
        "part**2 / len(sample)",
        "test_significance.py::test_welch_is_scipys",
    ),
    Fault(
        "evaluation/significance.py",
        "min(2 * tail / whole, 1.0)",
        "min(tail / whole, 1.0)",
        "test_significance.py::test_welch_is_scipys",
    ),
    Fault(
        "evaluation/word_frequency.py",
        "enumerate((ours & theirs, ours, theirs))",
        "enumerate((ours, ours, theirs))",
        "test_word_frequency.py::test_f1_is_that_of_words_matched_one_by_one",
    ),
    Fault(
        "evaluation/word_frequency.py",
        "bisect_left(_LIMITS, frequency.get(word, 0))",
        "bisect_left(_LIMITS, frequency.get(word, 0) + 1)",
        "test_word_frequency.py::test_f1_is_that_of_words_matched_one_by_one",
    ),
    Fault(
        "evaluation/noise.py",
        "generator(EDIT_STREAM, seed, number)",
        "generator(EDIT_STREAM, seed, 0)",
        "test_noise.py::test_seeds_and_lines_differ",
    ),
    Fault(
        "evaluation/noise.py",
        "if random.random() < rate:",
        "if random.random() < rate / 2:",
        "test_noise.py::test_the_four_edits_are_equally_frequent_and_as_frequent_as_asked",
    ),
    Fault(
        "experiment/texts.py",
        'add_noise((pair.source or "" for pair in test), rate=rate',
        'add_noise((pair.source or "" for pair in test), rate=0',
        MORE + "test_the_texts_are_those_of_the_recipe",
    ),
    Fault(
        "experiment/outputs.py",
        'SystemOutput("this", list(read_lines(translations / f"{name}.{texts.target}")))',
        'SystemOutput("this", list(read_lines(translations / f"test.{texts.target}")))',
        MORE + "test_every_text_is_scored",
    ),
    Fault(
        "experiment/recipe.py",
        "self.segmenter_seeds[(seed - 1) % len(self.segmenter_seeds)]",
        "self.segmenter_seeds[0]",
        MORE + "test_translators_take_the_two_segmenters_in_turn",
    ),
)


def caught(fault: Fault, place: Path) -> bool:
    """Whether the fault's test fails with it, in a copy of the package."""
    path = place / "dpe" / fault.file
    text = path.read_text(encoding="utf-8")
    if (found := text.count(fault.old)) != 1:
        raise SystemExit(f"dpe/{fault.file} has {fault.old!r} {found} times; a fault must be one edit.")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        return not passes([fault.test], place)
    finally:
        path.write_text(text, encoding="utf-8")


def passes(tests: Iterable[str], place: Path) -> bool:
    """Whether the tests pass in the copy."""
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [f"tests/{test}" for test in tests]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    if done.returncode not in (0, FAILED):
        raise SystemExit(f"{' '.join(command)} cannot be run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def main(words: list[str]) -> int:
    """Try the faults that have all the words; the number of those that no test noticed."""
    chosen = [fault for fault in FAULTS if all(word in fault.file + fault.test for word in words)]
    missed = 0
    with TemporaryDirectory() as directory:
        place = Path(directory)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place / name)
        if not passes(dict.fromkeys(fault.test for fault in chosen), place):
            raise SystemExit("A test fails without any fault; mend that first: make test.")
        for number, fault in enumerate(chosen, start=1):
            is_caught = caught(fault, place)
            missed += not is_caught
            state = "caught" if is_caught else "NOT NOTICED"
            print(f"[{number}/{len(chosen)}] {state}: dpe/{fault.file}: {fault.new}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults are noticed by their tests")
    return missed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
