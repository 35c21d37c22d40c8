"""What the commands have in common: their arguments, and what the demonstration shows."""
