"""Commands that run whole experiments and show them: run, table, show, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpe.commands.options import AsJson, AsMarkdown, Device, Ray, named_file
from dpe.errors import UserError
from dpe.progress import Progress


def run(
    context: typer.Context,
    *,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file; see recipes/.")],
    changes: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; may be repeated."),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Where everything goes. [default: runs/NAME]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the stages and how far each is; make nothing.")
    ] = False,
    only: Annotated[
        list[str], typer.Option(metavar="SYSTEM", help="Run this system only; may be repeated.")
    ] = [],  # noqa: B006
    seed: Annotated[list[int], typer.Option(help="Run this seed only; may be repeated.")] = [],  # noqa: B006
    device: Device = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to compute with. [default: all]")] = None,
    ray: Ray = None,
) -> None:
    """Run an experiment from text to the table of scores; what is up to date is not made again.

    Killed and started again it resumes. Several processes may work on one run at the same time: start the
    command again, with --threads 1 for each on a machine of two cores, and they share the stages. With --ray
    every stage is a task of a cluster whose machines share the file system (RECIPE before --ray).

    Example: `dpe run recipes/demo.toml --set vocabulary.size=2000`
    """
    from dpe.evaluation.tables import print_tables
    from dpe.experiment.artifacts import Artifacts
    from dpe.experiment.recipe import read_recipe
    from dpe.experiment.remote import make_on_cluster
    from dpe.experiment.run import Part, describe, make_here, plan, run_experiment
    from dpe.experiment.stages import Experiment
    from dpe.training.processes import Session

    read = read_recipe(recipe, changes)
    session = Session(device=device, threads=threads, workers=threads, ray=ray, progress=context.obj)
    experiment = Experiment(read, out or Path("runs") / read.name, session)
    part = Part(systems=tuple(only), seeds=tuple(seed))
    if dry_run:
        for line in describe(plan(experiment, part), Artifacts(experiment.root)):
            print(line)
        return
    print_tables(run_experiment(experiment, part, make=make_on_cluster if ray else make_here))


def table(
    *,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or results.json of runs.")
    ],
    metric: Annotated[Literal["bleu", "chrf", "both"], typer.Option(help="Which score.")] = "bleu",
    text: Annotated[
        str, typer.Option(metavar="NAME", help="On which text: test, dev, or another of the recipe's.")
    ] = "test",
    texts: Annotated[
        bool, typer.Option("--texts", help="Also show the scores on every text, with lowercased BLEU.")
    ] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Also show what the models are, and how long all took.")
    ] = False,
    lengths: Annotated[
        bool, typer.Option("--lengths", help="Also show lengths of the outputs, and BLEU by length.")
    ] = False,
    frequency: Annotated[
        bool, typer.Option("--frequency", help="Also show F1 of words by their frequency in training.")
    ] = False,
    json: AsJson = False,
    markdown: AsMarkdown = False,
) -> None:
    """Print the paper's table: rows are language pairs, columns systems, with deltas and significance.

    Example: `dpe table runs/softloc-en-et runs/softloc-et-en`
    """
    from dpe.evaluation.tables import show
    from dpe.experiment.costs import cost_tables, training_table
    from dpe.experiment.results import read_results
    from dpe.experiment.tables import all_texts_tables, frequency_tables, length_tables, paper_tables

    results = [read_results(path) for path in runs]
    metrics = ["bleu", "chrf"] if metric == "both" else [metric]
    tables = paper_tables(results, metrics=metrics, text=text)
    tables += length_tables(results, text=text) if lengths else []
    tables += frequency_tables(results, text=text) if frequency else []
    tables += all_texts_tables(results) if texts else []
    tables += [training_table(results), *cost_tables(results)] if training else []
    if not tables:
        raise UserError("Nothing has been translated and scored yet; see 'dpe run', or look with --training.")
    show([one.as_json() for one in results], tables, as_json=json, as_markdown=markdown)


def show(
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory with a segmenter.")],
    sentences: Annotated[int, typer.Option(min=0, max=1_000_000, help="Sentences to show.")] = 5,
    gold: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Gold morphemes, word TAB morphs. [default: the built-in corpus's]"
        ),
    ] = None,
) -> None:
    """Show what the segmenter of a run does: segmentations beside the vocabulary's own, one in depth,
    morphology.

    Example: `dpe show runs/demo --sentences 3`
    """
    from dpe.evaluation.tables import print_tables
    from dpe.experiment.show import ShownRun

    shown = ShownRun(run)
    gold = gold or shown.gold
    if gold is not None:
        print_tables([shown.morphology(gold)])
    for block in shown.sentences(sentences):
        print(f"\n{block}")


def report(
    context: typer.Context,
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=named_file, help="Where to write. [default: RUN/report.html]"),
    ] = None,
) -> None:
    """Write a run as one HTML file that needs nothing else: scores, curves, figures, a lattice.

    A part that the run has not made yet is named as such. The last section says how to repeat the run.

    Example: `dpe report runs/demo`
    """
    from dpe.experiment.report import REPORT, RunReport

    progress: Progress = context.obj
    path = out or run / REPORT
    is_page = path.suffix in (".html", ".htm")  # an earlier page may go
    if path.is_file() and not is_page and path.resolve().is_relative_to(run.resolve()):
        raise UserError(f"{path} is a file of the run; give the report another name.")
    RunReport(run).write(path)
    progress.say(f"{path}: the report")
