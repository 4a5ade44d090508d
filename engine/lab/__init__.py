"""The lab: presets, false tables, elements with a dial, and the experiment itself."""
