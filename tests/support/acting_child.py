"""`experiments.cells.child` with fake cells: each performs the action named by its "act".

It appends the names of started cells, one per line, to the file "begun" beside the folder of the runs.
"""

import os
import signal
import sys

from experiments.cells import child


def perform(cell, runs):
    act, name = cell.updates["act"], cell.updates["name"]
    with open(runs.parent / "begun", "a") as file:
        file.write(f"{name}\n")
    if act == "fail":
        raise ValueError("M is 500;\nwhole numbers are accepted.")
    begun = (runs.parent / "begun").read_text().split()
    if act == "die" or (act == "die once" and begun.count(name) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "leave":
        print("the last words", file=sys.stderr)
        os._exit(3)
    if act == "interrupt":  # as Ctrl-C does; whoever started this goes on to end it
        os.kill(os.getppid(), signal.SIGINT)
        while True:  # a call that waits might begin to wait when the signal that ends it has come
            pass
    print("this is no answer")
    threads = {name: of for name, of in os.environ.items() if name.endswith("_NUM_THREADS")}
    return {"name": name, "process": os.getpid(), "threads": threads, "budget": sys.argv[1]}


if __name__ == "__main__":
    child.perform, child._limit_threads = perform, lambda threads: None
    child.main()
