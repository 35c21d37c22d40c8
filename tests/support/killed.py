"""
Trainings that kill themselves, one after the other, each in a process of its own:

    python killed.py '[[NAME, CHECKPOINT, VALUES, WHERE, COUNT, SIGNAL], ...]'

WHERE is "record" or "write": at the COUNT-th record, or in the midst of the COUNT-th replacement of
the checkpoint. At the end the model's values are in the file VALUES. The processes are forked from
this one, which has imported everything and started nothing of TensorFlow; it writes how each ended:
its exit code, and whether VALUES exists.
"""

import json
import os
import sys

import numpy as np
from small_models import MAKERS, data_for, options_for, values

from gpflow_pep.training import fit


def train(name, checkpoint, result, where, count, number):
    left = [count]

    def report(*_):
        left[0] -= where == "record"
        if where == "record" and left[0] == 0:
            os.kill(os.getpid(), number)

    replace = os.replace

    def replace_or_die(*paths):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), number)
        replace(*paths)

    if where == "write":
        os.replace = replace_or_die
    model = MAKERS[name]()
    fit(
        model,
        data_for(name),
        checkpoint=checkpoint,
        checkpoint_seconds=0.0,
        callback=report,
        **options_for(name),
    )
    np.savez(result, **values(model))


def ended(arguments):
    """The exit of a training process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(*arguments)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.path.exists(arguments[2])


if __name__ == "__main__":
    print(json.dumps([ended(arguments) for arguments in json.loads(sys.argv[1])]))
