"""Convolutions over a sequence of words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flatfed.errors import ModelError

KERNELS = (3, 4, 5)


def textcnn(
    *, classes: int = 14, vocabulary: int = 30_000, shape: Sequence[int] = (128,)
) -> TextCNN:
    """The TextCNN of FedVSSAM on DBpedia-14; its dropout is not stated, ours is one half.

    Takes token ids of shape (n, length). Padding is a word like any other: its row is trained.
    """
    if len(shape) != 1 or shape[0] < max(KERNELS):
        raise ModelError(
            f"textcnn got shape={tuple(shape)}, expected (length,) of at least {max(KERNELS)} "
            "tokens.\nPad the texts to a common length; images need another model."
        )
    return TextCNN(classes, vocabulary)


class TextCNN(nn.Module):
    """The strongest response of every filter to a text, wherever it is."""

    def __init__(self, classes: int, vocabulary: int, width: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, kernel) for kernel in KERNELS)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(width * len(KERNELS), classes)

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.embedding(tokens).transpose(1, 2)  # (n, width, length)
        found = [convolution(words).relu().max(dim=2).values for convolution in self.convolutions]
        outputs: Tensor = self.head(self.dropout(torch.cat(found, dim=1)))
        return outputs
