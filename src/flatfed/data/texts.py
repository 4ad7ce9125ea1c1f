"""Texts as token ids: the most frequent words of the training texts, cut or padded to one length.

Id 0 is padding and 1 every word that is not in the vocabulary.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable
from itertools import count

import numpy as np
import torch
from torch import Tensor

WORD = re.compile(r"\w+")
PADDING, UNKNOWN = 0, 1
OWN = 2  # ids that are no word


class Tokens:
    """Texts split into words once; a word's number is its place in the order of appearance."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, int] = defaultdict(count().__next__)

    def split(self, texts: Iterable[str]) -> list[array[int]]:
        """The numbers of the words of each text, in lower case."""
        numbers, words = self.numbers, WORD.findall
        return [array("i", [numbers[word] for word in words(text.lower())]) for text in texts]


def encode(
    train: Iterable[str], test: Iterable[str], *, vocabulary: int, length: int
) -> tuple[Tensor, Tensor, int]:
    """Training and test texts as int32 (n, length), and how many ids there are, at most vocabulary.

    Words as frequent as each other enter in the order of the alphabet.
    """
    tokens = Tokens()
    learnt = tokens.split(train)
    words = list(tokens.numbers)
    asked = tokens.split(test)
    times = np.bincount(np.concatenate(learnt), minlength=len(words))
    frequent = sorted(range(len(words)), key=lambda number: (-times[number], words[number]))
    frequent = frequent[: vocabulary - OWN]
    ids = np.full(len(tokens.numbers), UNKNOWN, np.int32)
    ids[frequent] = np.arange(OWN, OWN + len(frequent))
    return padded(learnt, ids, length), padded(asked, ids, length), OWN + len(frequent)


def padded(texts: list[array[int]], ids: np.ndarray, length: int) -> Tensor:
    rows = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(rows, texts, strict=True):
        numbers = np.asarray(text)[:length]
        row[: len(numbers)] = ids[numbers]
    return torch.from_numpy(rows)
