"""Stacks of a model's layers in any order: run once per shared prefix, read, mapped, cut."""
