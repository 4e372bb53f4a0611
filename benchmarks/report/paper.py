"""Pages: one HTML file each, with everything in it, to be read, printed and kept; no script, and nothing to fetch.

A page quotes from stores and machines, which can hold anything: whatever a template gives out is made printable and
escaped, by its environment and not by each place. Templates lie beside the module that fills them, and what all pages
share in `templates/` here.
"""

from __future__ import annotations

from functools import partial
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined

from turnkeeper.runtime.printable_text import printable


def page_environment(package: str) -> Environment:
    """Make the environment of a package's templates."""
    return Environment(
        loader=FunctionLoader(partial(_template, package)),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(package: str, name: str) -> str:
    for place in (package, __package__):
        file = resources.files(place).joinpath("templates", name)
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise FileNotFoundError(name)


def _shown(value: object) -> object:
    """Make a text's characters printable, but for the ends of its lines; called with whatever a template gives out.

    What a template marks as safe is markup of ours, and stays as it is.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(printable(line) for line in value.split("\n"))
