"""The code fences of a page, which the tests run, compare or write to files.

`sybil` parses the fences with their lines; this module defines how each kind is run. `sybil` was
chosen because it reads MyST, hidden preparations in comments and consoles with `>>>` unchanged.
"""

from __future__ import annotations

import ast
import doctest
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management import call_command
from sybil import Document, Example
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

from mcp_django import mcp
from tests.kit.processes import REPOSITORY

DOCS = REPOSITORY / "docs"
# In an answer that a page shows, a text that cannot be predicted.
ANYTHING = "…"


def pages() -> dict[str, Path]:
    """Return the pages by name, which is unique across all folders."""
    paths = [*DOCS.glob("*.md"), *DOCS.glob("[!_]*/*.md")]
    names = {path.stem: path for path in sorted(paths)}
    assert len(names) == len(paths), "two pages have one name"
    return names


def addresses() -> dict[str, Path]:
    """Return the pages by their path below the documentation's URL, such as `ref/settings`."""
    return {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in pages().values()}


def has_code(path: Path) -> bool:
    """Return whether a page has code to evaluate."""
    return any(fence.language == "python" for fence in fences(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One fence, of any language."""

    language: str
    text: str
    line: int

    @property
    def is_console(self) -> bool:
        """Whether it shows what was typed and what came back."""
        return self.text.startswith(">>>")

    @property
    def file(self) -> str | None:
        """The file that a first line such as `# shop/mcp.py` names."""
        first = self.text.partition("\n")[0]
        name = first.removeprefix("# ").partition(",")[0]
        is_named = first.startswith("# ") and name.endswith((".py", ".ini", ".txt"))
        return name if is_named else None


def fences(path: Path) -> list[Fence]:
    """Return all visible fences of a page, in order."""
    document = Document(path.read_text(encoding="utf-8"), str(path))
    return [
        Fence(
            language=region.lexemes["language"],
            text=str(region.lexemes["source"]),
            line=document.text.count("\n", 0, region.start) + 1,
        )
        for region in FencedCodeBlockLexer(".+")(document)
    ]


def evaluate(path: Path, namespace: dict[str, Any]) -> int:
    """Run a page from its beginning to its end, and return how many examples there were.

    Python and the commands of `manage.py` run, what a console shows is compared, and an answer in
    JSON is compared with the last expression before it.

    Raises:
        SybilFailure: an answer differs from the one on the page.
    """
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    python = PythonCodeBlockParser(doctest_optionflags=flags)
    python.codeblock_parser = CodeBlockParser("python", _run)
    commands = CodeBlockParser("sh", _manage)
    document = Document.parse(str(path), python, commands, CodeBlockParser("json", _compare))
    document.namespace = namespace
    namespace[begin_again.__name__] = begin_again
    examples = list(document)
    for example in examples:
        example.evaluate()
    return len(examples)


def _run(example: Example) -> None:
    """Run a fence, and store the value of the expression that it ends with."""
    padding = "\n" * (example.line + example.parsed.line_offset)
    tree = ast.parse(padding + example.parsed, example.path)
    value = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        value = ast.Expression(tree.body.pop().value)
    exec(compile(tree, example.path, "exec"), example.namespace)
    if value is not None:
        example.namespace["_"] = eval(compile(value, example.path, "eval"), example.namespace)


def _manage(example: Example) -> None:
    """Run the management commands of a fence; servers are started by tests of their own."""
    for line in example.parsed.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            call_command(*arguments[1:])


def _compare(example: Example) -> str | None:
    shown, real = json.loads(example.parsed), example.namespace.get("_")
    if matches(shown, real):
        return None
    return f"The page shows\n{_pretty(shown)}\nand the answer is\n{_pretty(real)}"


def begin_again() -> None:
    """Empty the default server and the database, for a section that does not continue the last one.

    Called by hidden examples, in which it is a global name.
    """
    registry = mcp.registry
    for component in [*registry]:
        registry.unregister(component)
    registry.declarations.clear()
    registry.views.clear()
    call_command("flush", interactive=False, verbosity=0)


def matches(shown: Any, real: Any) -> bool:
    """Return whether an answer is the one shown, where `…` stands for any text."""
    if shown == ANYTHING:
        return isinstance(real, str)
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(matches(shown[k], real[k]) for k in shown)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(matches, shown, real))
    return bool(shown == real)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)
