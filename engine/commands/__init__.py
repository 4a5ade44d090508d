"""The commands, one file for each group; `engine.cli` is the application."""
