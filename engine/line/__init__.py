"""The line between two models: interpolation, barriers, merges, slices."""
