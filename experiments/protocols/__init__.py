"""What the commands have in common: their arguments, many runs in a row, and what the demonstration shows."""
