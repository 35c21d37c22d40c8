"""Common arguments of commands, and the settings of the demonstration."""
