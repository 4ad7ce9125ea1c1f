"""The catalogue: every compressor by its name.

>>> build("topk", fraction=0.25, feedback="ef")
ErrorFeedback(inner=TopK(fraction=0.25))
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flatfed.errors import SpecError, nearest
from flatfed.part import Compressor
from flatfed.parts.compress import Cast, Dense
from flatfed.parts.feedback import EF21, ErrorFeedback
from flatfed.parts.lowrank import LowRank
from flatfed.parts.quantise import QSGD, ScaledSign, Sign
from flatfed.parts.sparsify import RandomK, TopK

COMPRESSORS: dict[str, type[Any]] = {
    "none": Dense,
    "cast": Cast,
    "qsgd": QSGD,
    "sign": Sign,
    "scaled_sign": ScaledSign,
    "topk": TopK,
    "randomk": RandomK,
    "lowrank": LowRank,
}
FEEDBACK: dict[str | None, type[Any] | None] = {None: None, "ef": ErrorFeedback, "ef21": EF21}


def parameters(name: str, /) -> dict[str, Any]:
    """A compressor's own parameters with their defaults; what loses something has `feedback` too.

    >>> parameters("lowrank")
    {'rank': 4, 'feedback': None}
    """
    compressor = _find(name)
    own = {f.name: f.default for f in fields(compressor)}
    return own if compressor is Dense else {**own, "feedback": None}


def build(name: str, /, **settings: Any) -> Compressor:
    """A compressor by its name.

    >>> build("qsgd", bits=8, norm="l2", blocks=512)
    QSGD(bits=8, norm='l2', blocks=512, intervals='fixed')
    """
    known = parameters(name)
    for key in settings:
        if key not in known:
            listed = nearest(key, known) if known else "It has none."
            raise SpecError(f"{name} has no parameter {key!r}.\n{listed}")
    feedback = settings.pop("feedback", None)
    if not isinstance(feedback, str | None) or feedback not in FEEDBACK:
        raise SpecError(f"{name} got feedback={feedback!r}, expected 'ef', 'ef21' or none.")
    compressor: Compressor = _find(name)(**settings)
    around = FEEDBACK[feedback]
    return around(compressor) if around else compressor


def _find(name: str) -> type[Any]:
    if name not in COMPRESSORS:
        raise SpecError(f"{name!r} is no compressor of flatfed.\n{nearest(name, COMPRESSORS)}")
    return COMPRESSORS[name]
