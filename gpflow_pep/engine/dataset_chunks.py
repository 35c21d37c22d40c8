"""
Rows streamed from a tf.data.Dataset, read again in every pass, so that memory does not limit their
number.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf
from gpflow.config import default_float
from typing_extensions import override

from .. import validation
from ..runtime import Tensors, asserted, local_variable, refuse_xla, row_hashes, with_plain_errors
from .chunks import CHUNKS_IN_FLIGHT, Chunk, ChunkedData, Chunks, ChunkStep, State

_NONE = tf.int64.max  # no such row
_NOT_FINITE = "data: every value must be finite, got NaN or infinity in row"
_ROUNDED = (
    f"data: every integer must be exact as a floating point number; {validation.REMEDY}. The first "
    "that is not is in row"
)
_UNEQUAL = (
    "data: X and Y of a batch must have the same number of rows; they differ in the batch that "
    "starts at row"
)
_CHANGED = (
    "data: the dataset changed between passes: it must give the same rows in the same order in "
    "every pass, without shuffling, from files that do not change. If the numbers of rows are "
    "equal, values or their order differ. Rows in the first pass, and now:"
)

_REFUSALS = (_UNEQUAL, _ROUNDED, _NOT_FINITE)


class PassSummary(NamedTuple):
    """Summary of the rows that a pass has read."""

    rows: tf.Tensor  # Number of rows, []
    checksum: tf.Tensor  # Of the values in their order, []
    # The first row that is not accepted for each of `_REFUSALS`, `_NONE` if all are, [3]: of the
    # first batch whose X and Y differ in length, with an integer that conversion has changed, with
    # a value that is NaN or infinite.
    refused: tf.Tensor

    def plus(self, other: "PassSummary") -> "PassSummary":
        """Combine the summaries of two parts of a pass."""
        return PassSummary(
            rows=self.rows + other.rows,
            checksum=self.checksum + other.checksum,
            refused=tf.minimum(self.refused, other.refused),
        )


class DatasetChunks(Chunks):
    """
    Every row is a block; chunks are the batches (X [n, D], Y [n, P]) of a finite dataset. It is
    read once here, to count and check its rows, and again in every pass, whose checksum of all
    values, in order, must be the same.
    """

    count: None = None  # of the chunks, as in `ChunkLoop`: unknown until the end

    def __init__(self, dataset: tf.data.Dataset):
        """
        :raises ValueError: if the dataset is empty or infinite, or has other elements or values,
            naming the row.
        """
        super().__init__()
        self.dataset = dataset
        self.columns = _columns(dataset)
        self._batches, self._place = _numbered(dataset)
        found = self._read()
        if found[0] == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        self.num_data, self._checksum = (tf.constant(value, tf.int64) for value in found)

    @property
    def identity(self) -> tuple[int, int]:
        """Number of rows, and the checksum of their values."""
        return int(self.num_data), int(self._checksum)

    @override
    def place(self) -> str:
        return self._place()

    def check(self) -> None:
        """Read the dataset again; raise a ValueError if its rows differ from the first pass."""
        found = self._read()
        if found != self.identity:
            raise ValueError(f"{_CHANGED} {int(self.num_data)} {found[0]}.")

    def batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yield the batches (X, Y) of the dataset, without conversion of their numeric types."""
        batches = iter(self.dataset)
        batch = with_plain_errors(next, batches, None)
        while batch is not None:
            yield batch
            batch = with_plain_errors(next, batches, None)

    def __deepcopy__(self, memo: dict[int, object]) -> "DatasetChunks":
        return self  # it is immutable

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "data: a model with a tf.data.Dataset cannot be pickled. Save its parameters instead."
        )

    @override
    def split(self, data: Sequence[tf.Tensor] = ()) -> ChunkedData:
        """Return the chunks, with this object as the only loop; `data` is not used."""
        return ChunkedData([self])

    def run(self, step: ChunkStep, start: State) -> State:
        """
        Like :meth:`ChunkLoop.run`, but raise an error if the pass has not read the rows of the
        first pass.
        """
        summary, total = with_plain_errors(self._pass, step, start, place=self.place)
        rows = summary.rows
        for row, message in zip(tf.unstack(summary.refused), _REFUSALS, strict=True):
            rows = asserted(rows, tf.equal(row, _NONE), message, row)
        same = tf.equal(rows, self.num_data) & tf.equal(summary.checksum, self._checksum)
        rows = asserted(rows, same, _CHANGED, self.num_data, summary.rows)
        with tf.control_dependencies([rows]):
            return tuple(
                each.identity() if isinstance(each, tf.TensorArray) else tf.identity(each)
                for each in total
            )

    def _read(self) -> tuple[int, int]:
        """
        Read the whole dataset, eagerly; return :attr:`identity`. A ValueError names the row of a
        value or batch that is not accepted.
        """
        summary, _ = with_plain_errors(self._pass, lambda *_: (), (), place=self.place)
        for row, message in zip(summary.refused.numpy(), _REFUSALS, strict=True):
            if row != _NONE:
                raise ValueError(f"{message} {row}.")
        return int(summary.rows), int(summary.checksum)

    def _pass(self, step: ChunkStep, start: Tensors) -> tuple[PassSummary, Tensors]:
        """Return the summary of a pass and the total of all steps."""
        # By a loop in the graph: `Dataset.reduce` would run on the CPU and be prepared again in
        # every pass.
        refuse_xla("a model of a tf.data.Dataset, which is read while the function runs")
        batches = iter(self._batches)

        def body(batch: Any, number: tf.Tensor, summary: PassSummary, total: Any) -> State:
            (first, X, Y), own = batch.get_value()
            chunk = Chunk(
                (X, Y), lambda values: values[first : first + tf.shape(X, first.dtype)[0]]
            )
            following = batches.get_next_as_optional()
            return following, number + 1, summary.plus(own), step(number, chunk, total)

        # TensorFlow adds control dependencies between stateful operations, but not in functions
        # that it generates, such as the backward function of a compiled objective.
        operations = (
            [] if tf.executing_eagerly() else tf.compat.v1.get_default_graph().get_operations()
        )
        with tf.control_dependencies([each for each in operations if each.type == "MakeIterator"]):
            batch = batches.get_next_as_optional()
        zero = tf.constant(0, tf.int64)
        nothing = PassSummary(zero, zero, tf.constant([_NONE] * len(_REFUSALS), tf.int64))
        ended = tf.while_loop(
            lambda batch, *_: batch.has_value(),
            body,
            (batch, tf.constant(0), nothing, start),
            parallel_iterations=CHUNKS_IN_FLIGHT,
        )
        return ended[2:]


def _numbered(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, Callable[[], str]]:
    """
    Return pairs of a batch (index of its first row, X, Y) and its summary. Non-finite values become
    0, and X and Y are cut to the same number of rows: the summary locates the error, and nothing
    else fails before it is read.

    :return: the pairs, and a function that returns where reading has ended, in words for an error
        message.
    """
    dtype = default_float()
    # Passes begun, and batches read in the last one. A closure holds them, so that they are no
    # variable of the model.
    with tf.init_scope(), tf.device("CPU:0"):
        last = local_variable(tf.zeros(2, tf.int64), tf.int64)  # [2]

    @tf.autograph.experimental.do_not_convert
    def numbered(
        state: tuple[tf.Tensor, tf.Tensor], pair: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[Any, Any]:
        first, number = state
        last.assign([last[0] + tf.cast(tf.equal(number, 0), tf.int64), number + 1])
        X, Y = (tf.cast(values, dtype) for values in pair)
        rounded = tf.minimum(*map(_first_rounded, pair, (X, Y)))
        rounded = tf.where(rounded < _NONE, first + rounded, _NONE)
        return (first + tf.shape(X, tf.int64)[0], number + 1), (first, X, Y, rounded)

    @tf.autograph.experimental.do_not_convert
    def summarized(
        first: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, rounded: tf.Tensor
    ) -> tuple[Any, PassSummary]:
        n = tf.minimum(tf.shape(X, tf.int64)[0], tf.shape(Y, tf.int64)[0])
        is_equal = tf.equal(tf.shape(X)[0], tf.shape(Y)[0])
        values = tf.concat([X[:n], Y[:n]], axis=-1)  # [n, D + P]
        numbers, is_finite = first + tf.range(n), tf.math.is_finite(values)
        bad_rows = tf.where(tf.reduce_all(is_finite, axis=-1), _NONE, numbers)
        numbered_values = [tf.cast(part, tf.float64) for part in (numbers[:, None], values)]
        checksum = tf.reduce_sum(row_hashes(tf.concat(numbered_values, axis=-1)))  # modulo 2^64
        X, Y = tf.split(tf.where(is_finite, values, 0.0), [X.shape[1], Y.shape[1]], axis=-1)
        refused = [tf.where(is_equal, _NONE, first), rounded, tf.reduce_min(bad_rows)]
        return (first, X, Y), PassSummary(n, checksum, tf.stack(refused))

    options = tf.data.Options()  # no graph optimization: it takes longer than a pass over few rows
    options.autotune.enabled = options.experimental_optimization.apply_default_optimizations = False
    batches = dataset.scan((tf.constant(0, tf.int64), tf.constant(0, tf.int64)), numbered)
    # deterministic, for any options of the dataset
    pairs = batches.map(summarized, num_parallel_calls=CHUNKS_IN_FLIGHT, deterministic=True)

    def place() -> str:
        passes, number = last.numpy()
        if passes == 0:
            return " at its first batch"
        return f" after batch {number} of pass {passes}"

    return pairs.with_options(options), place


def _first_rounded(values: tf.Tensor, converted: tf.Tensor) -> tf.Tensor:
    """
    Return the first row [] with an integer that conversion has changed; `_NONE` if there is none.
    """
    if not values.dtype.is_integer:
        return tf.constant(_NONE, tf.int64)
    rows = tf.where(validation.rounded_integers(values, converted))[:, 0]
    return tf.reduce_min(tf.concat([rows, [_NONE]], axis=0))


def _columns(dataset: tf.data.Dataset) -> tuple[int, int]:
    spec = dataset.element_spec
    wanted = (
        "data must be a pair (X, Y) or a tf.data.Dataset of batches (X [n, D], Y [n, P]) of real "
        "numbers"
    )
    pair = (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(isinstance(part, tf.TensorSpec) for part in spec)
    )
    if not pair or any(
        part.shape.rank != 2 or not (part.dtype.is_floating or part.dtype.is_integer)
        for part in spec
    ):
        raise ValueError(f"{wanted}, got elements {spec}.")
    D, P = (part.shape[1] for part in spec)
    if 0 in (D, P):
        raise ValueError(f"{wanted}, of at least one column each, got elements {spec}.")
    if None in (D, P):
        raise ValueError(
            "data must be a dataset whose numbers of columns are known (output_signature), got "
            f"{spec}."
        )
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("data must be a finite dataset, got one that repeats without end.")
    return D, P
