"""Sphinx configuration. Neither building nor reading needs network: formulas are MathML.

References to GPflow, TensorFlow and Python are resolved from the installed packages, without downloading inventories.
Sphinx warns of a reference to a name that does not exist, and `make docs` treats warnings as errors.
"""

import builtins
import importlib
import inspect
from typing import Any

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

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["myst.xref_missing.inv"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["formulas.css"]
html_title = f"gpflow_pep {release}"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False

# Single backticks in docstrings: a link if they name an object of this documentation or of GPflow, code otherwise.
default_role = "py:obj"
nitpicky = True
autoclass_content = "both"  # arguments are documented at the constructor
autodoc_typehints = "none"  # docstrings say shapes and units
smartquotes = False
autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "inherited-members": True}

GPFLOW = "https://gpflow.github.io/GPflow/develop/api/"
TENSORFLOW = "https://www.tensorflow.org/api_docs/python/"
PYTHON = "https://docs.python.org/3/library/"

logger = logging.getLogger(__name__)


# --- documented members ----------------------------------------------------------------------------------------------


def defined_here(member: Any) -> bool:
    """Return True if the package defines the member, False if it is inherited from GPflow or TensorFlow."""
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "__func__", member))
    owner = getattr(member, "__objclass__", member)
    return str(getattr(owner, "__module__", "gpflow_pep")).startswith("gpflow_pep")


def skip_inherited(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip members that models inherit from GPflow: its own documentation has them."""
    return None if defined_here(member) else True


def leave_out_generated(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Remove generated lines from the docstrings of named tuples."""
    lines[:] = [line for line in lines if not line.startswith(("Create new instance of ", "Alias for field number "))]


# --- references ------------------------------------------------------------------------------------------------------


def split(name: str) -> tuple[str, list[str]] | None:
    """Split a dotted name into its module and attributes; None if one does not exist."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for attribute in parts[count:]:
            if not hasattr(found, attribute):
                return None
            found = getattr(found, attribute)
        return ".".join(parts[:count]), parts[count:]
    return None


def named(name: str) -> Any:
    """Return the object of a dotted name, or None."""
    found = split(name)
    if found is None:
        return None
    value: Any = importlib.import_module(found[0])
    for attribute in found[1]:
        value = getattr(value, attribute)
    return value


def external(name: str) -> str | None:
    """Return the address of a name of GPflow, TensorFlow or Python."""
    if name.startswith("gpflow."):
        found = split(name)
        return found and f"{GPFLOW}{found[0].replace('.', '/')}/index.html" + (f"#{name}" if found[1] else "")
    if name.startswith("tf."):
        return None if split(f"tensorflow.{name[3:]}") is None else TENSORFLOW + name.replace(".", "/")
    if hasattr(builtins, name):
        kind = getattr(builtins, name)
        page = "exceptions" if inspect.isclass(kind) and issubclass(kind, BaseException) else "functions"
        return f"{PYTHON}{page}.html#{name}"
    return None


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element) -> nodes.Element | None:
    """Resolve references that Sphinx did not find: aliases of documented objects, and names of other packages."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip(".")
    uri = external(target)
    if uri is not None:
        return nodes.reference("", "", contnode, internal=False, refuri=uri)
    wanted = named(target) if target.startswith("gpflow_pep") else getattr(gpflow_pep, target, None)
    if wanted is not None:
        for name, entry in env.domains.python_domain.objects.items():
            if not entry.aliased and name.rpartition(".")[2] == target.rpartition(".")[2] and named(name) is wanted:
                return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, name)
    if node["reftype"] == "obj":  # single backticks
        return nodes.literal("", node.astext())
    return None


# --- formulas --------------------------------------------------------------------------------------------------------


def mathml(self: Any, node: nodes.Element, as_block: bool) -> None:
    """Write a formula as MathML, which browsers display without scripts."""
    text = node.astext()
    if as_block and "\\\\" in text and r"\begin{" not in text:
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    try:
        formula = tex2mathml(text, as_block=as_block)
    except (MathError, SyntaxError) as error:
        logger.warning("a formula cannot be read: %s", error, location=node)
        formula = nodes.unescape(text)
    self.body.append(f'<div class="math">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def inline_math(self: Any, node: nodes.Element) -> None:
    """Write a formula in a line of text."""
    mathml(self, node, as_block=False)


def displayed_math(self: Any, node: nodes.Element) -> None:
    """Write a displayed formula."""
    mathml(self, node, as_block=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this file."""
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", leave_out_generated)
    app.connect("missing-reference", resolve)
    app.add_html_math_renderer("mathml", (inline_math, None), (displayed_math, None))
    return {"parallel_read_safe": True}
