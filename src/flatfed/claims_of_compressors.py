"""What the conformance suite claims of compressors, tried on them alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from flatfed.method import Method
from flatfed.part import Compressor, View
from flatfed.toy import LAYOUT, first_model
from flatfed.vec import Layout, Named, Vec, lay_out, length_of


def encodes_purely(method: Method) -> Iterator[str]:
    """Compressors and memories see what finish made; nobody may change it."""
    x = first_model()
    for name in (n for n in method.uploads if n not in method.apart):
        a = torch.tensor([0.3, -0.0, 2.0], dtype=x.dtype)
        # Not zero, which could be added unseen; empty ones are drawn anew.
        kept = {kind: method.compress.init(kind, a) + 0.1 for kind in method.compress.keep}
        before = [a.clone(), *(v.clone() for v in kept.values())]
        _encode(method.compress, a, LAYOUT, kept)
        if not all(map(torch.equal, before, [a, *kept.values()])):
            yield (
                f"{type(method.compress).__name__}.encode changes what it is given for {name!r}."
                "\nReturn new vectors: a + e, not a.add_(e)."
            )


def sizes_are_true(method: Method) -> Iterator[str]:
    """A compressor's bytes are those of its message on other layouts than the toy's too."""
    compress = method.compress
    for shapes in ({"weight": (7, 5), "bias": (7,)}, {"bias": (1,)}, {"a": (3, 4, 5)}):
        layout = lay_out(shapes)
        a = torch.linspace(-1, 1, length_of(layout), dtype=torch.float64)
        kept = {kind: compress.init(kind, a) for kind in compress.keep}
        sent = _encode(compress, a, layout, kept)
        size = sum(tensor.nbytes for tensor in sent)
        if size != compress.nbytes(layout, 8):
            yield (
                f"{type(compress).__name__} sends {size} bytes of {length_of(layout)} numbers, its "
                f"nbytes says {compress.nbytes(layout, 8)}."
            )


def _encode(compress: Compressor, a: Vec, layout: Layout, kept: Named) -> tuple[Tensor, ...]:
    names = {"x": a, "t": 0, "k": 1, "K": 1, "layout": layout, "seed": lambda purpose: 7, **kept}
    return compress.encode(a, View(type(compress).__name__, names))[0]
