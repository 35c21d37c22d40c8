"""
Fake cells without TensorFlow: each performs the action named by its "act", in place of
`processes.perform`.

It appends the names of started cells, one per line, to the file "begun" beside the folder of the
runs.
"""

import os
import signal
import time


def perform(cell, runs):
    act = cell.updates["act"]
    name = cell.updates["name"]
    with open(runs.parent / "begun", "a") as file:
        file.write(f"{name}\n")
    if act == "fail":
        raise ValueError("M is 500;\nwhole numbers are accepted.")
    begun = (runs.parent / "begun").read_text().split()
    if act == "die" or (act == "die once" and begun.count(name) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "leave":
        os._exit(3)
    if act == "linger":
        time.sleep(2.0)
    if act == "compute":
        import tensorflow as tf

        tf.reduce_sum(tf.matmul(tf.ones([500, 500]), tf.ones([500, 500]))).numpy()
        return {"tasks": len(os.listdir("/proc/self/task"))}
    if act == "interrupt":  # as Ctrl-C does, which reaches all processes
        os.kill(os.getppid(), signal.SIGINT)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            (runs.parent / "interrupted").touch()
    print("this is no table")
    threads = {variable: value for variable, value in os.environ.items() if "_NUM_" in variable}
    return {"name": name, "process": os.getpid(), "threads": threads}
