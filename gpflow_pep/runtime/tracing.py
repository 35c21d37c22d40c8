"""
How TensorFlow traces what models compute, and how the graphs are released with the models.

TensorFlow registers every custom gradient that is traced in a graph, under a name of its own ("CustomGradient-12"), and
never drops it. The gradient holds tensors of the graph. So the graph, the graphs nested in it and what was compiled
from them stay in memory. TensorFlow Probability's cache of what bijectors have transformed keeps tensors of graphs,
too. Every graph that reads a GPflow parameter is concerned: the transform of a parameter is a bijector, and softplus
has a custom gradient. :func:`hand_over` says what is done about it.
"""

import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PREFIX = "CustomGradient-"  # of the names that tf.custom_gradient registers


def no_autograph(function: _Function) -> _Function:
    """
    Decorate a function that users may call in functions that they compile.

    AutoGraph leaves the function, and all that it calls, as it is. Nothing here branches or loops in Python on the
    values of tensors, so that there is nothing to convert; and to find that out by reading the source of everything
    would take most of the time that tracing an objective takes.

    Custom gradients that were traced are handed over to their graphs (see :func:`hand_over`).
    """

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            if not tf.executing_eagerly():
                hand_over()

    return cast(_Function, tf.autograph.experimental.do_not_convert(traced))


def in_xla() -> bool:
    """
    Whether the operations that are made now belong to a function that XLA compiles (``jit_compile=True``).

    There nothing can be printed, no error can be raised while the function runs, and shapes do not depend on values.
    Known when the function is traced, also in functions, loops, branches and gradients nested in it. False when
    functions run eagerly.

    (TensorFlow marks the graph of such a function, and graphs know which one they are nested in. The function that
    looks for the mark is private to TensorFlow.)
    """
    if tf.executing_eagerly():
        return False
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def refuse_xla(what: str) -> None:
    """
    Raise an error where XLA compiles what is traced now.

    :param what: what XLA cannot compile.
    :raises NotImplementedError: in a function with ``jit_compile=True``.
    """
    if in_xla():
        raise NotImplementedError(f"XLA cannot compile {what}: leave out jit_compile=True.")


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """
    Decorate a function or a method that runs as a graph: ``tf.function`` of what is :func:`no_autograph`.

    The graphs of a method are kept by the instance, and are released with it. (``tf.function`` keeps them in the class,
    in a table with weak keys, where an instance stays for ever if one of its graphs refers to it.) Copies of an
    instance compile their own; checkpoints and exported models leave compiled methods out.

    :param function: what to compile; left out where the decorator is given options.
    :param options: those of ``tf.function``, such as ``reduce_retracing=True`` and ``input_signature=[...]``.
    """
    return functools.partial(_Compiled, **options) if function is None else _Compiled(function, **options)


def shared(function: Callable[..., Any], **options: Any) -> Any:
    """
    Decorate a part of larger functions: it is traced once for all graphs that call it, and not where it runs eagerly.

    :param options: those of ``tf.function``.
    """
    run = compiled(function, reduce_retracing=True, **options)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return (function if tf.executing_eagerly() else run)(*args)

    return call


def on_demand(function: Callable[..., Any]) -> Any:
    """
    Let a function be :func:`shared`, and its graph be optimized and instantiated when it is first run, not with the
    graphs that call it: callers do not pay for a branch that rarely runs.
    """
    return shared(function, experimental_attributes={"_noinline": True})


class _Compiled:
    """A compiled function; as an attribute of a class, a method that each instance compiles for itself."""

    _key = ""  # of the instance's own one, in the instance

    def __init__(self, function: Callable[..., Any], **options: Any):
        functools.update_wrapper(self, function)
        self._new = functools.partial(_Compiled, function, **options)
        self._traced, self._options = no_autograph(function), options
        # Functions that XLA compiles need graphs of their own, but tf.function would give them what it has traced.
        self._functions: dict[bool, Any] = {}  # by whether it is for XLA

    def _function(self) -> Any:
        """The ``tf.function`` for where it is called."""
        of_xla = in_xla()
        if of_xla not in self._functions:
            function = tf.function(self._traced, autograph=False, **self._options)
            # TensorFlow counts how often all instances of a class trace a method, and warns after a few models.
            function._omit_frequent_tracing_warning = True
            self._functions.setdefault(of_xla, function)
        return self._functions[of_xla]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_compiled {owner.__qualname__}.{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if vars(instance).get(self._key) is None:
            vars(instance)[self._key] = self._new()
        bound = vars(instance)[self._key]._function().__get__(instance, owner)
        bound._omit_frequent_tracing_warning = True
        return bound

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Copies, also pickled ones, have none yet."""
        return type(None), ()


def forget(instance: Any) -> None:
    """Let go of what the compiled methods of an instance have traced; they are traced anew where they are called."""
    for key, value in list(vars(instance).items()):
        if isinstance(value, _Compiled):
            vars(instance)[key] = value._new()  # and not deleted: another thread may be about to call it


def hand_over() -> None:
    """
    Let all graphs that have been traced up to now be garbage collected.

    Custom gradients go from TensorFlow's registry to the graphs that they belong to. A function stays in the registry
    that looks the gradient up in its graph and is dropped with the graph; so a graph that exists can be differentiated
    and exported as before. Tensors of graphs are dropped from TensorFlow Probability's cache of transformed values,
    which a bijector computes again where they are missing.

    Registry and cache are private to TensorFlow and TensorFlow Probability. Where another version keeps them, or the
    gradients in them, in another way, they are left alone, and graphs stay in memory.
    """
    entries = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    for name, entry in _registered_since(entries):
        gradient = entry["type"]
        graph = _graph_of(gradient)
        if graph is not None:
            setattr(graph, name, gradient)
            entry["type"] = _InGraph(name, graph, entries)
    _forget_transformed()


class _InGraph:
    """What is registered in the place of a custom gradient which its graph keeps."""

    def __init__(self, name: str, graph: tf.Graph, entries: dict[str, Any]):
        self._name = name
        self._graph = weakref.ref(graph, lambda _: entries.pop(name, None))

    @tf.autograph.experimental.do_not_convert
    def __call__(self, operation: tf.Operation, *bars: tf.Tensor) -> Any:
        return getattr(self._graph(), self._name)(operation, *bars)


def _registered_since(entries: dict[str, Any]) -> list[tuple[str, Any]]:
    """
    Custom gradients that are still in the registry, the first one first.

    Those that have been handed over come before them: the registry is in the order of registration.
    """
    found = []
    for name in reversed(list(entries)):  # a list: entries may go at any time, with a graph
        entry = entries.get(name)
        gradient = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(gradient, _InGraph):
            break
        if name.startswith(_PREFIX) and gradient is not None:
            found.append((name, entry))
    return found[::-1]


def _graph_of(gradient: Any) -> tf.Graph | None:
    """The graph in which a custom gradient was traced; None if it is not one as tf.custom_gradient registers them."""
    results = tf.nest.flatten(_enclosed(_enclosed(gradient, "tape_grad_fn"), "result"), expand_composites=True)
    return next((each.graph for each in results if tf.is_symbolic_tensor(each)), None)


def _enclosed(function: Any, name: str) -> Any:
    """The value of a variable that a function encloses; None if there is none."""
    if not isinstance(function, types.FunctionType) or name not in function.__code__.co_freevars:
        return None
    return (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents


def _forget_transformed() -> None:
    """Drop tensors of graphs from the cache that all bijectors share."""
    storage = getattr(getattr(tfp.bijectors.Bijector, "_cache", None), "storage", {})
    for key in list(storage):
        entry = storage.get(key)
        if any(tf.is_symbolic_tensor(tensor) for tensor in _tensors(key, entry)):
            key.cancel()  # the callback, which would drop it a second time
            storage.pop(key, None)


def _tensors(key: Any, entry: Any) -> Iterator[Any]:
    """All that an entry of the cache refers to, weakly or not."""
    for reference in (key, getattr(entry, "input_ref", None), getattr(entry, "output_ref", None)):
        yield from tf.nest.flatten(reference() if reference else None)
    yield from getattr(entry, "attributes", {}).values()
    yield from getattr(entry, "dependencies", None) or ()
