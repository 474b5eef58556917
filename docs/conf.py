"""Settings of the documentation site: `sphinx-build -W --keep-going -c docs . runs/site`, in the repository's root.

The root is Sphinx's source folder, so that relative links between docs, benchmarks and notebooks are the same on the
site and in the repository, and no page is copied.
"""

import contextlib
import io
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import l2p  # noqa: E402
from l2p.commands import cli  # noqa: E402

project = "l2p"
copyright = "the l2p developers"
version = release = l2p.__version__

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "docs/*.md",
    "benchmarks/README.md",
    "benchmarks/pages/*.md",
    "checkpoints/README.md",
    "notebooks/*.ipynb",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
suppress_warnings = [
    "myst.header",  # a page of a study may begin below its title
    "misc.highlighting_failure",  # SQL with a command of psql
]

# Pages are written for GitHub first: its anchors, its tables, its plain links.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"  # notebooks are committed with their outputs, and pytest executes them

# Docstrings are plain text with names in single backticks.
default_role = "code"
highlight_language = "none"  # a fence that names no language is what a command prints
autodoc_typehints = "none"  # a docstring says what it takes, with shapes
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"l2p {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

#: A page with this comment shows there, on the site, what the command prints.
PRINTED = "<!-- on the site: l2p protectors -->"


def insert_methods(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the list of methods that this version has where a page asks for it."""
    if PRINTED not in source[0]:
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main(["protectors"])
    source[0] = source[0].replace(PRINTED, f"```text\n{printed.getvalue()}```")


def link_files(app: Sphinx, page: nodes.document) -> None:
    """Make a link to a file that is no page of the site a download, and one to a folder plain text.

    tests/test_docs.py holds that both exist.
    """
    for link in page.findall(addnodes.pending_xref):
        if link["refdomain"] == "doc" and link["reftarget"] not in app.env.found_docs:
            file = addnodes.download_reference(refdoc=link["refdoc"], reftarget=f"/{link['reftarget']}.md")
            link.replace_self(file + link.children[0])
        elif link["reftype"] == "myst" and (ROOT / Path(link["refdoc"]).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def as_written(app: Sphinx, kind: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings mean |v| as a length, and not as a substitution of reStructuredText."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def start_page(app: Sphinx, error: Exception | None) -> None:
    """Lead from the site's address to its first page."""
    (Path(app.outdir) / "index.html").write_text('<meta http-equiv="refresh" content="0; url=docs/index.html">\n')


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", insert_methods)
    app.connect("doctree-read", link_files, priority=400)  # before Sphinx collects what is downloaded
    app.connect("autodoc-process-docstring", as_written)
    app.connect("build-finished", start_page)
