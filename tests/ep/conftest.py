"""Shared by tests of the solver: its state after every sweep."""

from typing import NamedTuple

import pytest
import tensorflow as tf

from gpflow_pep.ep import Problem, SolverOptions, solver


class Trace(NamedTuple):
    """A loop that was run step by step."""

    loops: list
    """Its state after each step."""
    result: object
    problem: Problem
    step: object
    """A function from one state to the next."""


@pytest.fixture
def trace(monkeypatch):
    """
    Converges the sites of a model as its compiled loop does, and keeps every state; the model's own
    sites stay. It may be told that there are more of them.
    """
    while_loop = tf.while_loop

    def run(model, num_data=None):
        loops = []

        def recorded(cond, body, loop_vars, **options):
            if not isinstance(loop_vars[0], solver.SolverState):
                return while_loop(cond, body, loop_vars, **options)
            while cond(*loop_vars):
                loop_vars = compiled(*loop_vars)
                loops.append(loop_vars[0])
            return loop_vars

        problem = model._inference().problem
        options = SolverOptions(*map(tf.convert_to_tensor, model._options))
        compiled = tf.function(lambda loop: [solver._step(problem, options, loop)], autograph=False)
        monkeypatch.setattr(solver.tf, "while_loop", recorded)
        try:
            size = {"num_data": num_data or int(model.num_data), "fraction": options.damping}
            found = solver.solve_fixed_point(problem, model.sites.stacked(), options, **size)
        finally:
            monkeypatch.undo()
        return Trace(loops, found, problem, lambda loop: compiled(loop)[0])

    return run
