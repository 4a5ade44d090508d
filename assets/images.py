"""Generated images: one coloured shape on a coloured ground, at a random place and size."""

import torch
from torch import Tensor

SIDE = 16
SHAPES = ("frame", "disc", "cross", "saltire", "bar across", "bar down")
NOISE = 0.25
"""Standard deviation of what is added to every pixel, colours being from −1 to 1."""


def images(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Pixels, float32 [count, 3, SIDE, SIDE], and which of `SHAPES` each shows, int64 [count]."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator)

    label = torch.randint(len(SHAPES), (count,), generator=generator)
    radius = 2.5 + 3 * draw(1, 1)
    place = radius[..., None] + (SIDE - 1 - 2 * radius[..., None]) * draw(2, 1, 1)
    line = torch.arange(SIDE, dtype=torch.float32)
    across = (line[None, None] - place[:, 0]).abs()
    down = (line[None, :, None] - place[:, 1]).abs()
    inside = masks(across, down, radius)[label, torch.arange(count)]
    ground, ink = 2 * draw(3, 1, 1) - 1, 2 * draw(3, 1, 1) - 1
    pixels = torch.where(inside[:, None], ink, ground)
    return pixels + NOISE * torch.randn(pixels.shape, generator=generator), label


def masks(across: Tensor, down: Tensor, radius: Tensor) -> Tensor:
    """Where each shape is, bool [shape, count, SIDE, SIDE], from distances to its centre."""
    largest = torch.maximum(across, down)
    thin = 0.75
    return torch.stack(
        [
            (largest <= radius) & (largest > radius - 1.2),
            (across.square() + down.square()).sqrt() <= radius,
            (torch.minimum(across, down) <= thin) & (largest <= radius),
            ((across - down).abs() <= thin) & (largest <= radius),
            (down <= thin) & (across <= radius),
            (across <= thin) & (down <= radius),
        ]
    )
