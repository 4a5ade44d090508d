"""The arguments and options that commands of the command line share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Using(StrEnum):
    """By what coordinates are matched."""

    weights = "weights"
    activations = "activations"


class Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


class Known(StrEnum):
    """What the matching is compared with."""

    planted = "planted"
    identity = "identity"
    none = "none"


Model = Annotated[str, typer.Argument(metavar="MODEL")]
A = Annotated[str, typer.Argument(metavar="A", help="the reference")]
B = Annotated[
    str, typer.Argument(metavar="B", help="what is compared with A, or put into its coordinates")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, float64: where models run")]
Json = Annotated[bool, typer.Option("--json", help="the record as JSON on stdout")]
Out = Annotated[Path, typer.Option(help="a new folder")]
Text = Annotated[
    str,
    typer.Option(
        help="a text file, or hf:owner/name, a data set; default: a demo model's own, else bundled"
    ),
]
Tokens = Annotated[str, typer.Option(help="a JSON file, lists of token ids, instead of a text")]
Inputs = Annotated[
    str,
    typer.Option(help="a .safetensors or .npz file instead: pixel_values or input_ids, labels"),
]
MOST = 10_000_000
"""Most tokens that are read: more would not be held, nor run to an end."""
Count = Annotated[int, typer.Option(min=256, max=MOST, help="how many tokens to run on")]
Few = Annotated[int, typer.Option(min=2, max=MOST, help="how many tokens to run on")]
Length = Annotated[int, typer.Option(min=2, help="how many tokens a window has")]
Only = Annotated[str, typer.Option(help="coordinates, comma-separated: res,ffn,heads,rot,val")]
By = Annotated[Using, typer.Option(help="by what coordinates are matched; see Barriers, measured")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of the random gauge")]
Signs = Annotated[Switch, typer.Option(help="off searches S_d only, as git re-basin does")]


class Aggregates(StrEnum):
    """Which positions of a window are read."""

    mean = "mean"
    last = "last"


class Costs(StrEnum):
    """By which distance heads are matched."""

    auto = "auto"
    rotary = "rotary"
    published = "published"


class Scores(StrEnum):
    """By which score neurons are matched."""

    invariant = "invariant"
    published = "published"


class Depth(StrEnum):
    """How much is solved inside the heads."""

    full = "full"
    orthogonal = "orthogonal"
    none = "none"


Layer = Annotated[int, typer.Option(help="which layer, from 0")]
Inside = Annotated[
    Depth,
    typer.Option(help="inside heads: everything, turns and orthogonal matrices only, or nothing"),
]
