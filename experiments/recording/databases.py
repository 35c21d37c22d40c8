"""
Records in a database, beside the folder of the run: ``--sql URL`` and
``--mongo_db HOST:PORT:DATABASE``.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sacred.observers import RunObserver, SqlObserver
from sacred.serializer import flatten
from sacred.utils import SacredError


class SqlRuns(SqlObserver):
    """
    Sacred's observer for SQL, which has one number for a result and no metrics.

    The column `info` of the table `run` also holds ``result`` and ``metrics`` of the run, as JSON.
    """

    def __init__(self, observer: SqlObserver):
        vars(self).update(vars(observer))
        self._metrics: dict[str, dict[str, list[Any]]] = {}

    def started_event(self, *arguments: Any, **options: Any) -> Any:
        """
        Start the record. If the database is locked or cannot be reached, raise an error of one
        sentence.
        """
        from sqlalchemy.exc import OperationalError  # an extra

        try:
            return super().started_event(*arguments, **options)  # type: ignore[no-untyped-call]
        except OperationalError as error:
            reason = f"--sql {self.engine.url!s}: {error.orig}."
            raise SacredError(reason, print_traceback=False) from error

    def log_metrics(
        self, metrics_by_name: Mapping[str, Mapping[str, list[Any]]], info: dict[str, Any]
    ) -> None:
        """Keep the values since the last heartbeat."""
        for name, new in metrics_by_name.items():
            known = self._metrics.setdefault(name, {"steps": [], "values": []})
            for part, values in known.items():
                values.extend(new[part])

    def heartbeat_event(
        self, info: dict[str, Any], captured_out: str, beat_time: datetime, result: Any
    ) -> None:
        """Write metrics, output and result."""
        known = info | {"metrics": self._metrics, "result": result}
        super().heartbeat_event(known, captured_out, beat_time, result=None)  # type: ignore[no-untyped-call]

    def completed_event(self, stop_time: datetime, result: Any) -> None:
        """Write the end of the run and its result."""
        row: Any = self.run
        row.info = json.dumps(json.loads(row.info) | {"result": flatten(result)})
        super().completed_event(stop_time, result=None)  # type: ignore[no-untyped-call]


def numbered_by_itself(observer: RunObserver) -> RunObserver:
    """
    Let a database number the run, and the folder as well: several folders may share a database.
    """
    started: Any = observer.started_event

    def started_event(**event: Any) -> None:
        started(**event)  # and returns no number

    setattr(observer, "started_event", started_event)  # noqa: B010
    return observer
