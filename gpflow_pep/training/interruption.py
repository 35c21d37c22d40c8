"""Ctrl-C in training: end after the evaluation under way, with a result in place of a traceback."""

import signal
import threading
from types import FrameType, TracebackType

_SIGNAL = signal.SIGINT


class Interrupted(Exception):
    """Raised between evaluations of the objective, after Ctrl-C."""


class Interruption:
    """
    Context in which the first Ctrl-C is recorded, and the second one raises `KeyboardInterrupt`.

    It has no effect outside the main thread, which alone gets signals, and in programs with their own handler of
    SIGINT.
    """

    def __init__(self, *, enabled: bool = True):
        """
        :param enabled: whether the context has an effect.
        """
        self._enabled = enabled
        self.requested = False
        """Whether Ctrl-C has been pressed."""

    def __enter__(self) -> "Interruption":
        is_main = threading.current_thread() is threading.main_thread()
        self._enabled = self._enabled and is_main and signal.getsignal(_SIGNAL) is signal.default_int_handler
        if self._enabled:
            signal.signal(_SIGNAL, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            signal.signal(_SIGNAL, signal.default_int_handler)

    def raise_if_requested(self) -> None:
        """
        :raises Interrupted: if Ctrl-C has been pressed.
        """
        if self.requested:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True
