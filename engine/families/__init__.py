"""The tables: one module a family, each with a `FAMILY`; a new file here is found by itself.

Modules whose name starts with an underscore hold rows that several tables share.
"""

import importlib
import pkgutil

from engine.family import Family

FAMILIES: tuple[Family, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
    if not module.name.startswith("_")
)
