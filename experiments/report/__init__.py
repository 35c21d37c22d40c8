"""Tables and figures of recorded runs, made from files."""
