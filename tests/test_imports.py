"""The layers of docs/architecture.md: a module imports only from the layers above it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dpe"

# Data flows down this list. A line's members may import each other only downwards, never in a circle.
LAYERS = [
    ["errors", "choices", "machine"],
    ["progress", "settings"],
    ["files", "store", "pool"],
    ["text"],
    ["demo"],
    ["evaluation"],
    ["lattice"],
    ["model"],
    ["training"],
    ["segmenter"],
    ["data"],
    ["corpus_run"],
    ["translator"],
    ["explorer"],
    ["experiment"],
    ["commands"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
TORCH_FREE = ("text", "demo", "evaluation")  # strings and numpy only


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> list[str]:
    """Full names of what a module imports, `dpe` modules and others."""
    names: list[str] = []
    # Imports inside functions count too: an upward one would only be hidden there.
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def layer_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_imports_only_from_above(path: Path) -> None:
    own = layer_of(module_name(path))
    if not own:
        return  # dpe/__init__.py hands out the public names, lazily
    for name in imports_of(path):
        if name.startswith("dpe.") and name != "dpe.__version__":
            assert RANK[layer_of(name)] <= RANK[own], f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if layer_of(module_name(p)) in TORCH_FREE], ids=module_name
)
def test_text_and_evaluation_know_no_network(path: Path) -> None:
    for name in imports_of(path):
        assert not name.startswith("torch"), f"{path.name} imports {name}"
    if layer_of(module_name(path)) == "evaluation":
        forbidden = ("dpe.model", "dpe.training", "dpe.segmenter", "dpe.lattice")
        assert not [name for name in imports_of(path) if name.startswith(forbidden)]


def test_model_does_not_know_the_dynamic_program() -> None:
    for path in (PACKAGE / "model").glob("*.py"):
        assert not [name for name in imports_of(path) if "dynamic_program" in name], path.name


def test_no_import_circles() -> None:
    graph = {module_name(path): {n for n in imports_of(path) if n.startswith("dpe.")} for path in modules()}
    known = set(graph)
    edges = {
        name: {t if t in known else t.rpartition(".")[0] for t in targets} & known - {name}
        for name, targets in graph.items()
        if name != "dpe"
    }
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in finished:
            for target in edges.get(name, ()):
                visit(target, (*trail, name))
            finished.add(name)

    for name in edges:
        visit(name, ())


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["train-segmenter", "--help"]])
def test_help_imports_neither_torch_nor_numpy(command: list[str]) -> None:
    code = (
        "import sys; from dpe.cli import run; code = run(sys.argv[1:]); "
        "heavy = [m for m in ('torch', 'numpy', 'sentencepiece', 'matplotlib') if m in sys.modules]; "
        "sys.exit(f'{heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_import_dpe_does_not_import_torch() -> None:
    code = "import sys, dpe; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def architecture() -> str:
    return (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def tree_of_the_page() -> dict[str, str]:
    """The tree in docs/architecture.md: what it says of each directory; of `dpe/` itself under ``."""
    tree = architecture().split("```")[1]
    said: dict[str, str] = {}
    directory = ""
    for line in tree.splitlines():
        if re.match(r"  \S", line):
            directory = found[1] if (found := re.match(r"  (\w+)/", line)) else ""
        said[directory] = said.get(directory, "") + line + "\n"
    return said


def test_the_architecture_names_no_file_that_is_not_there() -> None:
    for directory, said in tree_of_the_page().items():
        named = set(re.findall(r"\b(\w+\.py)\b", said))
        assert named <= {path.name for path in (PACKAGE / directory).glob("*.py")}, directory


@pytest.mark.parametrize("path", [path for path in modules() if path.name != "__init__.py"], ids=module_name)
def test_the_architecture_names_every_module(path: Path) -> None:
    directory = "" if path.parent == PACKAGE else path.parent.name
    assert re.search(rf"\b{re.escape(path.name)}\b", tree_of_the_page()[directory])


STOP = re.compile(r"`([\w.]+)` in `([\w/]+\.py)`")


def test_the_architecture_walks_four_paths_of_at_most_twelve_stops() -> None:
    (walks,) = [part for part in architecture().split("\n## ") if part.startswith("Four paths")]
    paths = [re.findall(r"^(\d+)\. (.*)$", path, re.MULTILINE) for path in walks.split("\n### ")[1:]]
    assert len(paths) == 4
    for path in paths:
        assert [int(number) for number, _ in path] == [*range(1, len(path) + 1)]
        assert len(path) <= 12
        assert all(STOP.match(stop) for _, stop in path)


@pytest.mark.parametrize(("name", "file"), sorted(set(STOP.findall(architecture()))))
def test_functions_that_the_architecture_names_exist(name: str, file: str) -> None:
    assert name in defined_in(ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body)


def defined_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(prefix + node.name)
            found |= defined_in(node.body, f"{node.name}.") if isinstance(node, ast.ClassDef) else set()
    return found


def test_running_needs_no_extra() -> None:
    """`make demo` installs no extra; only the explorer and the cluster have one of their own."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {re.split(r"[\[><=]", one)[0] for one in project["dependencies"]}
    here = {"dpe", "_typeshed", "compression", *sys.stdlib_module_names}  # the last since Python 3.14
    own_names = {"google": "protobuf", "backports": "backports.zstd"}
    for path in modules():
        if "explore" not in str(path.relative_to(PACKAGE)) and path.name != "cluster.py":
            needed = {name.partition(".")[0] for name in imports_of(path)}
            assert {own_names.get(name, name) for name in needed} <= installed | here, path
