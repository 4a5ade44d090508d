"""The tables: one module a family, each with a `FAMILY`; a new file here is found by itself."""

import importlib
import pkgutil

from engine.family import Family

FAMILIES: tuple[Family, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
)
