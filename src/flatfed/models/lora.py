"""Low-rank adapters: what is learned is a small correction to a frozen layer."""

from __future__ import annotations

from torch import Tensor, nn


class LowRank(nn.Module):
    """W·x + b + (α/r)·B·A·dropout(x): W and b are frozen, B is 0 at first, A has r rows."""

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        correction: Tensor = self.up(self.down(self.dropout(x)))
        outputs: Tensor = self.linear(x)
        return outputs.add(correction, alpha=self.scale)
