"""The `egs` command. Whatever a command does not need is not imported, so that each starts at once."""
