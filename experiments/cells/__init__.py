"""
Cells of sweeps: recorded runs of experiments in processes of their own, in parallel or in sequence.
"""
