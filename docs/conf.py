"""Sphinx configuration. Neither building nor reading the site needs network.

Formulas are drawn by KaTeX, whose styles and fonts are in `static`. Names of GPflow, TensorFlow and Python are links by
the inventories of `inventories.py`. Sphinx warns of names that do not exist; `make docs` treats warnings as errors.
"""

import base64
import importlib
import inspect
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

import gpflow_pep

project = "gpflow_pep"
author = "gpflow_pep contributors"
copyright = author
release = version = gpflow_pep.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_design",
    "sphinxcontrib.katex",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `notebooks` is a link to the repository's notebooks, which have their outputs
exclude_patterns = ["_build"]
suppress_warnings = ["myst.xref_missing.inv"]

highlight_language = "text"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"gpflow_pep {release}"
html_copy_source = False
html_show_sourcelink = False
katex_css_path = "katex/katex.min.css"

# Single backticks in docstrings: a link if they name an object of this documentation or of GPflow, code otherwise.
default_role = "py:obj"
nitpicky = True
autoclass_content = "both"  # arguments are documented at the constructor
autodoc_typehints = "none"  # docstrings say shapes and units
smartquotes = False
autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "inherited-members": True}

intersphinx_mapping = {
    "gpflow": (
        "https://gpflow.github.io/GPflow/develop/api/",
        "inventories/gpflow.inv",
    ),
    "tensorflow": (
        "https://www.tensorflow.org/api_docs/python/tf/",
        "inventories/tensorflow.inv",
    ),
    "python": ("https://docs.python.org/3/", "inventories/python.inv"),
}

logger = logging.getLogger(__name__)


# --- documented members ----------------------------------------------------------------------------------------------


def defined_here(member: Any) -> bool:
    """Return True if the package defines the member, False if it is inherited from GPflow or TensorFlow."""
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "__func__", member))
    owner = getattr(member, "__objclass__", member)
    return str(getattr(owner, "__module__", "gpflow_pep")).startswith("gpflow_pep")


def skip_inherited(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Skip members that models inherit from GPflow: its own documentation has them."""
    # The type of annotations without a value is autodoc's own, before Sphinx 9 `object`.
    is_field = f"{type(member).__module__}.".startswith("sphinx.")
    is_field = is_field or type(member) is object
    return None if is_field or defined_here(member) else True


def leave_out_generated(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Remove generated lines from the docstrings of named tuples and data classes."""
    lines[:] = [
        line
        for line in lines
        if not line.startswith(("Create new instance of ", "Alias for field number "))
    ]


# --- references ------------------------------------------------------------------------------------------------------


def named(name: str) -> Any:
    """Return the object of a dotted name of this package, or None."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for attribute in parts[count:]:
            value = getattr(value, attribute, None)
        return value
    return None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element
) -> nodes.Element | None:
    """Resolve references that neither Sphinx nor an inventory has: other names of documented objects, or code."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip(".")
    wanted = (
        named(target)
        if target.startswith("gpflow_pep")
        else getattr(gpflow_pep, target, None)
    )
    if wanted is not None:
        for name, entry in env.domains.python_domain.objects.items():
            if (
                not entry.aliased
                and name.rpartition(".")[2] == target.rpartition(".")[2]
                and named(name) is wanted
            ):
                return make_refnode(
                    app.builder,
                    node["refdoc"],
                    entry.docname,
                    entry.node_id,
                    contnode,
                    name,
                )
    if node["reftype"] == "obj":  # single backticks
        return nodes.literal("", node.astext())
    return None


# --- formulas --------------------------------------------------------------------------------------------------------


def check_formulas(app: Sphinx, document: nodes.document) -> None:
    """Align displayed formulas of several lines; warn of formulas that are not LaTeX, since a browser would do so."""
    for formula in document.findall(nodes.math_block):
        text = formula.astext()
        if "\\\\" in text and r"\begin{" not in text:
            formula.children = [nodes.Text(rf"\begin{{aligned}}{text}\end{{aligned}}")]
    for formula in document.findall(
        lambda node: isinstance(node, nodes.math | nodes.math_block)
    ):
        try:
            tex2mathml(formula.astext(), as_block=isinstance(formula, nodes.math_block))
        except (MathError, SyntaxError) as error:
            logger.warning("a formula cannot be read: %s", error, location=formula)


# --- gallery ---------------------------------------------------------------------------------------------------------


def draw_gallery(app: Sphinx) -> None:
    """Write the first picture of every notebook to images/notebooks."""
    folder = Path(app.srcdir) / "images" / "notebooks"
    folder.mkdir(exist_ok=True)
    for path in (Path(app.srcdir) / "notebooks").glob("*.ipynb"):
        outputs = [
            output
            for cell in nbformat.read(path, as_version=4).cells
            for output in cell.get("outputs", ())
        ]
        pictures = [
            output.data["image/png"]
            for output in outputs
            if "image/png" in output.get("data", {})
        ]
        (folder / f"{path.stem}.png").write_bytes(base64.b64decode(pictures[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this file."""
    app.connect("builder-inited", draw_gallery)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", leave_out_generated)
    app.connect("missing-reference", resolve, priority=900)  # after the inventories
    app.connect("doctree-read", check_formulas)
    return {"parallel_read_safe": True}
