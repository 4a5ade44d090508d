"""The parts of each page, in the order in which they are read."""
