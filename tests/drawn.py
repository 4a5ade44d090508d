"""Altair's figures, read: what stands on their axes, in their colours, and under the pointer."""

from typing import Any

import altair as alt
import pandas as pd


class Drawn:
    """A figure's layers, counted from the one that is drawn first."""

    def __init__(self, chart: Any) -> None:
        with alt.data_transformers.enable("default", max_rows=None):
            self.spec = chart.to_dict(validate=False)
        self.layers = self.spec.get("layer", [self.spec])

    def rows(self, layer: int = 0) -> pd.DataFrame:
        """The data of a layer."""
        held = self.layers[layer].get("data") or self.spec["data"]
        return pd.DataFrame(self.spec["datasets"][held["name"]])

    def fields(self, layer: int = 0) -> dict[str, str]:
        """Which column stands in which channel, as `x: column`."""
        encoding = self.layers[layer]["encoding"]
        return {name: one["field"] for name, one in encoding.items() if "field" in one}

    def titles(self, layer: int = 0) -> dict[str, str]:
        """What is written on the axes and over the legends."""
        encoding = self.layers[layer]["encoding"]
        parts = {
            name: (one.get("axis") or {}) | (one.get("legend") or {}) | one
            for name, one in encoding.items()
            if name != "tooltip"
        }
        return {name: one["title"] for name, one in parts.items() if one.get("title")}

    def colours(self, layer: int = 0) -> dict[Any, str]:
        """The colour of every value, or of every place of a scale."""
        scale = self.layers[layer]["encoding"]["color"]["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))

    def tips(self, layer: int = 0) -> dict[str, tuple[str, str]]:
        """What stands under the pointer: each column's title and format."""
        tips = self.layers[layer]["encoding"]["tooltip"]
        tips = [tips] if isinstance(tips, dict) else tips
        return {
            one["field"]: (one.get("title", one["field"]), one.get("format", "")) for one in tips
        }

    def scale(self, channel: str, layer: int = 0) -> dict[str, Any]:
        """The scale of a channel."""
        return self.layers[layer]["encoding"][channel]["scale"]

    def mark(self, layer: int = 0) -> str:
        """The kind of mark."""
        return self.layers[layer]["mark"]["type"]
