"""Tables and figures of recorded runs, made from what is on disk."""
