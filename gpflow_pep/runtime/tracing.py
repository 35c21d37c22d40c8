"""Compiled functions and methods: when they are traced, and how their graphs are released."""

import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter, default_float
from gpflow.config import default_jitter
from gpflow.kernels import Kernel
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import record
from tensorflow.python.ops import control_flow_util

from .distribution import local_variable

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TRACES = "_traces"  # the attribute of an instance that holds its compiled methods
# The attribute of a part that holds the names of its parameters.
_PARAMETER_NAMES = "_parameter_names"
_PLAIN = (bool, int, float, str, np.generic)
_LEAVES_OUT = ContextVar("leaves_out", default=False)


def no_autograph(function: _Function) -> _Function:
    """
    Decorate a function that users may call in their compiled functions; see also
    :func:`release_graphs`.

    AutoGraph converts neither the function nor its callees. The package never branches or loops in
    Python on values of tensors, and the conversion would take most of the time of tracing an
    objective.
    """

    @functools.wraps(function)
    def traced(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            if not tf.executing_eagerly():
                release_graphs()

    return tf.autograph.experimental.do_not_convert(traced)


def in_xla() -> bool:
    """
    Return whether XLA will compile what is traced: it cannot print, raise errors, or let shapes
    depend on values.
    """
    graph = tf.compat.v1.get_default_graph()
    return not tf.executing_eagerly() and bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def refuse_xla(what: str) -> None:
    """
    Raise a NotImplementedError in functions with ``jit_compile=True``; `what`: description of the
    code.
    """
    if in_xla():
        raise NotImplementedError(f"XLA cannot compile {what}: leave out jit_compile=True.")


def may_be_recorded() -> bool:
    """Return whether a tape may record operations in this thread."""
    return bool(record.could_possibly_record())


def recording_is_stopped() -> bool:
    """Return whether recording is stopped for all tapes in this thread, including new tapes."""
    return bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """
    Decorate a function or method to run as a graph: ``tf.function`` of a :func:`no_autograph`
    function.

    The instance stores the graphs of its methods, which are released with it. (``tf.function``
    stores them in the class, which never drops an instance that its own graphs reference.) If the
    instance has a method `_structure`, all graphs are dropped when it changes. Copies are compiled
    separately; checkpoints and exports leave methods out.

    :param options: options of ``tf.function``, such as ``reduce_retracing=True`` and
        ``input_signature=[...]``.
    """
    if function is None:
        return functools.partial(Compiled, **options)
    return Compiled(function, **options)


def shared(function: Callable[..., Any], **options: object) -> Any:
    """
    Decorate a part of larger functions: trace it once for all graphs that call it; run it eagerly
    otherwise.
    """
    run = compiled(function, reduce_retracing=True, **options)

    @functools.wraps(function)
    def call(*args: object) -> Any:
        return (function if tf.executing_eagerly() else run)(*args)

    return call


def on_demand(function: Callable[..., Any]) -> Any:
    """
    Like :func:`shared`, but the graph is instantiated on its first run: a rare branch costs its
    callers nothing.
    """
    return shared(function, experimental_attributes={"_noinline": True})


@contextmanager
def enabled(flag: ContextVar[bool]) -> Iterator[None]:
    """Set a flag to True in this context and thread."""
    token = flag.set(True)
    try:
        yield
    finally:
        flag.reset(token)


def without_rare_branches() -> AbstractContextManager[None]:
    """Leave the branches of :func:`rarely` out of what is traced: it takes a quarter less time."""
    return enabled(_LEAVES_OUT)


def leaves_out_rare_branches() -> bool:
    """Return whether branches of :func:`rarely` are left out of what is traced."""
    return _LEAVES_OUT.get() and not tf.executing_eagerly()


class Compiled:
    """
    A compiled function; as a method, compiled separately for each instance. The ``tf.function`` of
    a method is ``instance.method.func``.
    """

    _name = ""

    def __init__(self, function: Callable[..., Any], **options: object):
        functools.update_wrapper(self, function)
        self._traced = no_autograph(function)
        self._options = options
        self._functions: dict[tuple[object, ...], Any] = {}

    def _function(self, functions: dict[tuple[object, ...], Any]) -> Any:
        """Return the ``tf.function`` for the context of the call, and store it in `functions`."""
        # XLA needs separate graphs, but tf.function would reuse existing ones.
        key = self._name, in_xla(), leaves_out_rare_branches()
        if key not in functions:
            function = tf.function(self._traced, autograph=False, **self._options)
            # TensorFlow counts the traces of a method over all instances of a class, and warns
            # after a few models.
            function._omit_frequent_tracing_warning = True
            functions.setdefault(key, function)
        return functions[key]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """
        Call the function. TensorFlow's graph optimizer is off: it takes about a second and makes no
        step faster.
        """
        context = eager_context.context()
        given = context.function_call_options
        context.function_call_options = eager_context.FunctionCallOptions(
            given.executor_type, _without_optimizer(given.config_proto_serialized)
        )
        try:
            return self._function(self._functions)(*args, **kwargs)
        finally:
            context.function_call_options = given

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__qualname__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        functions = compiled_functions(instance, _TRACES, getattr(instance, "_structure", list)())
        bound = self._function(functions).__get__(instance, owner)
        bound._omit_frequent_tracing_warning = True
        # Exports of a module would trace a tf.function among its attributes.
        return functools.partial(bound)


@functools.cache
def _without_optimizer(config: bytes) -> tf.compat.v1.ConfigProto:
    """Return this configuration, but without TensorFlow's graph optimizer."""
    proto = tf.compat.v1.ConfigProto.FromString(config)
    proto.graph_options.rewrite_options.disable_meta_optimizer = True
    return proto


class _Traces:
    """
    The compiled functions of an instance with a given structure. Copying or pickling the instance
    drops them.
    """

    def __init__(self, structure: list[object]):
        self.structure = structure
        self.functions: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def compiled_functions(instance: object, name: str, structure: list[object]) -> dict[Any, Any]:
    """
    Return what an instance has compiled and stores as attribute `name`; empty if its structure has
    changed.
    """
    traces: _Traces | None = vars(instance).get(name)
    if traces is None or differ(structure, traces.structure):
        traces = vars(instance)[name] = _Traces(structure)
    return traces.functions


def functions_of_model(model: object, name: str) -> dict[Any, Any]:
    """
    Return what a model has compiled and stores as attribute `name`; empty if its parts, the default
    jitter or the default type have changed.
    """
    structure = structure_of([model], [default_jitter(), default_float()])
    return compiled_functions(model, name, structure)


def resizable_copy(variable: tf.Variable, shape: object) -> tf.Variable:
    """
    Copy a variable so that its number of rows may change (TensorFlow's copy has a fixed shape).
    """
    return local_variable(variable.read_value(), variable.dtype, shape)


def structure_of(parts: Iterable[object], settings: Iterable[object]) -> list[object]:
    """List settings, parts, components of parts and their settings."""
    return [*settings, *_components(tuple(parts), set())]


def differ(a: Sequence[object], b: Sequence[object]) -> bool:
    """
    Return whether a part, component or setting was replaced, or a parameter became trainable or
    fixed.
    """
    return len(a) != len(b) or any(map(_is_another, a, b))


def _is_another(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):  # a setting; its value may be any callable
        return differ(a, b)
    return a is not b and not (
        isinstance(a, (*_PLAIN, bytes, MethodType)) and type(a) is type(b) and a == b
    )


def _components(whole: object, seen: set[int]) -> Iterator[object]:
    """
    List modules, parameters and variables in a module, with their settings; faster than
    TensorFlow's walk.
    """
    if id(whole) in seen:
        return
    seen.add(id(whole))
    parts: Iterable[object] = ()
    if isinstance(whole, Parameter):
        yield from (whole, whole.trainable, whole.prior)  # nothing else of a parameter can change
    elif isinstance(whole, tf.Variable):
        yield from (whole, whole.trainable)
    elif isinstance(whole, tf.Module):
        yield whole
        yield from _settings_of(whole)
        # Attributes of this prefix are TensorFlow's own lists of the same parts.
        parts = [value for name, value in vars(whole).items() if not name.startswith("_self_")]
    elif isinstance(whole, Mapping):
        parts = whole.values()
    elif isinstance(whole, list | tuple):
        parts = whole
    for part in parts:
        yield from _components(part, seen)


def remember_parameters(module: tf.Module) -> None:
    """
    Make :func:`structure_of` raise an error if a number takes a parameter's place; reject layers of
    Keras 3.
    """
    for part in (module, *module.submodules):
        for name, value in vars(part).items():
            for each in () if name.startswith("_self_") else _leaves(value):  # see `_components`
                origins = [
                    kind.__module__
                    for kind in type(each).__mro__
                    if kind.__module__.startswith("keras.")
                ]
                if (
                    origins
                    and getattr(each, "trainable", False)
                    and "preprocessing" not in origins[0]
                ):
                    raise ValueError(
                        f"{name} of {type(part).__name__} must be a layer of tf_keras, got "
                        f"{type(each).__name__} of Keras 3, whose weights would not be trained: "
                        "use `from gpflow.keras import tf_keras`, or set its trainable to False."
                    )
        names = {name for name, value in vars(part).items() if isinstance(value, Parameter)}
        vars(part)[_PARAMETER_NAMES] = names | vars(part).get(_PARAMETER_NAMES, set())


def _leaves(value: object) -> Iterator[object]:
    """List the values of nested mappings, lists and tuples."""
    if not isinstance(value, Mapping | list | tuple):
        yield value
        return
    for each in value.values() if isinstance(value, Mapping) else value:
        yield from _leaves(each)


def _settings_of(part: tf.Module) -> Iterator[tuple[str, Any]]:
    """List the settings of a module that are neither modules nor tensors."""
    for name in vars(part).get(_PARAMETER_NAMES, ()):
        value = getattr(part, name, None)
        is_other = isinstance(value, tf.Tensor) and value.dtype != default_float()
        if is_other or isinstance(value, (*_PLAIN, np.ndarray, list, tuple)):
            kind = type(part).__name__
            raise ValueError(
                f"{name} of {kind} must stay a parameter, got {value!r}: use .{name}.assign(value)."
            )
    if isinstance(part, Kernel):
        dims = part.active_dims
        yield (
            "active_dims",
            str(dims) if isinstance(dims, slice) else str(np.asarray(dims).tolist()),
        )
    for name, value in vars(part).items():
        if name.startswith("_"):  # private attributes: TensorFlow stores counters there
            continue
        if isinstance(value, np.ndarray):
            yield name, (value.shape, value.tobytes())
        elif isinstance(value, _PLAIN) or (callable(value) and not isinstance(value, tf.Module)):
            yield name, value


def release_graphs() -> None:
    """
    Make traced graphs collectable.

    TensorFlow registers every custom gradient that is traced in a graph ("CustomGradient-12"), such
    as softplus in the transform of a GPflow parameter, and never drops it. The gradient holds
    tensors of the graph, so that the graph and its compiled copy stay in memory; so does TensorFlow
    Probability's cache of transformed values.

    Custom gradients move from the registry to their graphs; the registry keeps a function that
    looks them up there and is removed with the graph, which can be differentiated and exported as
    before. The cache recomputes what is dropped. Both are private: if another version stores them
    differently, they are left unchanged, and graphs stay in memory.
    """
    entries = _registered_gradients()
    found = []
    # A list, since an entry may be removed with its graph at any time.
    for name in reversed(list(entries)):
        entry = entries.get(name)
        gradient = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(gradient, _InGraph):
            break  # earlier ones were moved to their graphs
        if name.startswith("CustomGradient-") and (graph := _graph_of(gradient)) is not None:
            found.append((name, entry, gradient, graph))
    for name, entry, gradient, graph in reversed(found):
        setattr(graph, name, gradient)
        entry["type"] = _InGraph(name, graph, entries)
    _forget_transformed()


def _registered_gradients() -> dict[str, object]:
    """Return TensorFlow's registry of gradients, which is private; an empty one if it has moved."""
    try:
        from tensorflow.python.framework import ops
    except ImportError:
        return {}
    return getattr(getattr(ops, "gradient_registry", None), "_registry", {})


class _InGraph:
    """A registered custom gradient that is stored in its graph."""

    def __init__(self, name: str, graph: tf.Graph, entries: dict[str, object]):
        self._name = name
        self._graph = weakref.ref(graph, lambda _: entries.pop(name, None))

    @tf.autograph.experimental.do_not_convert
    def __call__(self, operation: tf.Operation, *bars: tf.Tensor) -> Any:
        return getattr(self._graph(), self._name)(operation, *bars)


def _graph_of(gradient: object) -> tf.Graph | None:
    """
    Return the graph in which a custom gradient was traced; None if the registration is not
    tf.custom_gradient's.
    """
    results = tf.nest.flatten(
        _enclosed(_enclosed(gradient, "tape_grad_fn"), "result"), expand_composites=True
    )
    return next((each.graph for each in results if tf.is_symbolic_tensor(each)), None)


def _enclosed(function: object, name: str) -> Any:
    """Return the value of a variable in a function's closure, or None."""
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


def _tensors(key: Any, entry: Any) -> Iterator[object]:
    """List all tensors that an entry of the cache references, weakly or not."""
    for reference in (key, getattr(entry, "input_ref", None), getattr(entry, "output_ref", None)):
        yield from tf.nest.flatten(reference() if reference else None)
    yield from getattr(entry, "attributes", {}).values()
    yield from getattr(entry, "dependencies", None) or ()
