"""Sphinx configuration. Neither building nor reading the site needs network.

Formulas are drawn by KaTeX, whose styles and fonts are in `static`. Names of GPflow, TensorFlow and
Python are links by the inventories of `inventories.py`. Sphinx warns of names that do not exist;
`make docs` treats warnings as errors.
"""

import ast
import base64
import configparser
import importlib
import inspect
import re
import textwrap
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

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = configparser.ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")
ADDRESS = SETTINGS["metadata"]["url"]

project = "gpflow_pep"
author = "gpflow_pep contributors"
copyright = author
release = version = gpflow_pep.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.katex",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
# `notebooks` is a link to the repository's notebooks, which have their outputs.
nb_execution_mode = "off"
# Beside the pages of recipes there are notebooks to download, and a table of times.
exclude_patterns = ["_build", "recipes/*.ipynb", "**sg_execution_times.rst"]
suppress_warnings = ["myst.xref_missing.inv"]

highlight_language = "text"
copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor outputs are copied

sphinx_gallery_conf = {
    "examples_dirs": "../recipes",
    "gallery_dirs": "recipes",
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (400, 280),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": True,
}

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "static/logo.svg"
html_theme_options = {
    "top_of_page_buttons": ["edit"],
    "footer_icons": [
        {"name": "Repository", "url": ADDRESS, "html": "Repository", "class": "label"},
        {
            "name": "Issues",
            "url": f"{ADDRESS}/issues",
            "html": "Issues",
            "class": "label",
        },
    ],
}
html_title = f"gpflow_pep {release}"
html_copy_source = False
html_show_sourcelink = False
katex_css_path = "katex/katex.min.css"

# Single backticks in docstrings: a link if they name an object of this documentation or of GPflow,
# code otherwise.
default_role = "py:obj"
nitpicky = True
autoclass_content = "both"  # arguments are documented at the constructor
# `mend_docstring` adds them, as written, without the unions behind names.
autodoc_typehints = "none"
autosummary_generate = False  # tables of the API's first page only
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


# --- documented members ---------------------------------------------------------------------------


def defined_here(member: Any) -> bool:
    """
    Return True if the package defines the member, False if it is inherited from GPflow or
    TensorFlow.
    """
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


SHAPE_LINES = (  # of check_shapes, which writes them into docstrings
    (r"\*batch\*\.\.\.", "..."),
    (r"\* \*\*return\*\* has shape \[\]", "* A scalar"),
    (r"\* \*\*return\*\* has shape", "* The result has shape"),
    (r"\* \*\*return\[0\]\*\* has shape", "* The first result has shape"),
    (r"\* \*\*return\[1\]\*\* has shape", "* The second result has shape"),
    (r"\(not \*(\w+)\*\)", r"not *\1*"),
)


def types_of(value: Any) -> dict[str, str]:
    """
    Return the types of a function's arguments, or of a constructor's, as they are written; none of
    a part of a model, which is no function.
    """
    function = value.__init__ if inspect.isclass(value) else value
    function = inspect.unwrap(getattr(function, "__func__", function))
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(definition, ast.FunctionDef):
        return {}
    arguments = definition.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return {
        each.arg: ast.unparse(each.annotation).strip("'")
        for each in named
        if each.annotation is not None
    }


def show_constructor(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str,
    returned: str,
) -> tuple[str, str] | None:
    """Show a model's arguments, not those of the `__call__` of GPflow's metaclass."""
    if what != "class" or not (signature or "").startswith("(*args"):
        return None
    _, *parameters = inspect.signature(value.__init__).parameters.values()
    bare = [each.replace(annotation=each.empty) for each in parameters]
    return str(inspect.Signature(bare)), returned


def mend_docstring(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Add types of parameters, remove generated lines, and write shapes as sentences."""
    lines[:] = [
        line
        for line in lines
        if not line.startswith(("Create new instance of ", "Alias for field number "))
    ]
    for number, line in enumerate(lines):
        if " has shape [" in line:
            for pattern, text in SHAPE_LINES:
                line = re.sub(pattern, text, line)
            lines[number] = line
    if any(line.startswith(":param ") for line in lines):
        types = types_of(value)
        mended = []
        for line in lines:
            field = re.match(r":param (\w+):", line)
            kind = types.get(field[1], "Any") if field else "Any"
            if kind != "Any":  # else the text says what is accepted
                mended.append(f":type {field[1]}: ``{kind}``")
            mended.append(line)
        lines[:] = mended


# --- edit links -----------------------------------------------------------------------------------

SOURCES = {
    "changelog": "CHANGELOG.md",
    "citation": "CITATION.cff",
    "contributing": "CONTRIBUTING.md",
    "recipes/index": "recipes/README.rst",
}


def link_to_source(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: Any
) -> None:
    """Let "Edit this page" lead to the file that is edited: of notebooks and recipes the script."""
    if document is None:
        return
    if page in SOURCES:
        file = SOURCES[page]
    elif page.startswith(("notebooks/", "recipes/")):
        file = f"{page}.py"
    else:
        file = f"docs/{page}.md"
    if not (ROOT / file).is_file():
        logger.warning("the source of page %s is not %s", page, file)
    context["theme_source_edit_link"] = f"{ADDRESS}/edit/main/{file}"


# --- references -----------------------------------------------------------------------------------


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
    """
    Resolve references that neither Sphinx nor an inventory has: other names of documented objects,
    or code.
    """
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


# --- formulas -------------------------------------------------------------------------------------


def check_formulas(app: Sphinx, document: nodes.document) -> None:
    """
    Align displayed formulas of several lines; warn of formulas that are not LaTeX, since a browser
    would do so.
    """
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


# --- gallery --------------------------------------------------------------------------------------


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
    app.connect("html-page-context", link_to_source)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("autodoc-process-docstring", mend_docstring)
    app.connect("missing-reference", resolve, priority=900)  # after the inventories
    app.connect("doctree-read", check_formulas)
    return {"parallel_read_safe": True}
