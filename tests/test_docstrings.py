"""
Examples in docstrings are executed and print what they say; every public model and function has
one.

They may use np, tf, gpflow and the public names of gpflow_pep without importing them.
"""

import doctest
import importlib
import inspect
import pkgutil

import gpflow
import numpy as np
import tensorflow as tf
from quick import partly_slow

import gpflow_pep

NAMES = {name: getattr(gpflow_pep, name) for name in gpflow_pep.__all__}
FINDER = doctest.DocTestFinder(recurse=True)


def examples():
    """The examples of the package, by the name of the documented object."""
    found = {}
    for info in pkgutil.walk_packages(gpflow_pep.__path__, "gpflow_pep."):
        module = importlib.import_module(info.name)
        for each in FINDER.find(module, extraglobs={"np": np, "tf": tf, "gpflow": gpflow, **NAMES}):
            if each.examples:
                found[each.name] = each
    return found


EXAMPLES = examples()
# These train models that take seconds to compile; tests of each train it, too.
LONG = ("StreamingPEP", "StreamingSVGP", "BTSVGP", "ARPEP", "select_num_inducing")


@partly_slow("name", EXAMPLES, quick=[name for name in EXAMPLES if name.split(".")[-1] not in LONG])
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(EXAMPLES[name], out=said.append).failed == 0, "".join(said)


def test_public_models_and_functions_have_an_example():
    """
    But for results of functions, what compiled functions call, and models that are used like one
    with an example.
    """
    results = {gpflow_pep.AlphaSelection, gpflow_pep.FitResult, gpflow_pep.NumInducingSelection}
    alike = {gpflow_pep.APEP, gpflow_pep.RPAPEP, gpflow_pep.PEPSVGP}
    exceptions = results | alike | {gpflow_pep.inducing.greedy_conditional_variance}
    packages = [gpflow_pep, gpflow_pep.likelihoods, gpflow_pep.inducing]
    public = {getattr(package, name) for package in packages for name in package.__all__}
    called = {
        value for value in public if inspect.isclass(value) or inspect.isfunction(value)
    } - exceptions
    assert {f"{value.__module__}.{value.__name__}" for value in called} <= EXAMPLES.keys()
