"""Cells of sweeps: runs of experiments in processes of their own, recorded, at once or one after the other."""
