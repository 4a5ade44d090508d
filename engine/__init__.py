"""The engine of Gaugescope: checkpoints in, records out. It knows no user interface."""

VERSION = "2"
"""Part of every key of the results store: raise it when a change alters a result."""
