"""The catalogue: every published method by its paper's name.

    >>> from flatfed import methods
    >>> print(methods.fedgamma(rho=0.05, lr=0.1, steps=10).bill())
    down 2d, up 2d (1d would do), kept 1d, 2 gradients a step

Every factory takes its paper's parameters, and after them the settings of local work (`lr`,
`lr_decay`, `steps` or `epochs` with `batch_size`, `weight_decay`, `decay`, `clip`, `clip_scope`),
with the paper's own as defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatfed.errors import SpecError, nearest
from flatfed.method import Method
from flatfed.methods.dp_fedsam import dp_fedsam
from flatfed.methods.dynafed import dynafed
from flatfed.methods.fedacg import fedacg
from flatfed.methods.fedasam import fedasam
from flatfed.methods.fedavg import fedavg
from flatfed.methods.fedavgm import fedavgm
from flatfed.methods.fedcm import fedcm
from flatfed.methods.feddc import feddc
from flatfed.methods.feddyn import feddyn
from flatfed.methods.fedgamma import fedgamma
from flatfed.methods.fedgf import fedgf
from flatfed.methods.fedgloss import fedgloss
from flatfed.methods.fedgmt import fedgmt
from flatfed.methods.fedlesam import fedlesam, fedlesam_d, fedlesam_s
from flatfed.methods.fednova import fednova
from flatfed.methods.fedopt import fedadam, fedyogi
from flatfed.methods.fedprox import fedprox
from flatfed.methods.fedrcl import fedrcl
from flatfed.methods.fedsam import fedsam, mofedsam
from flatfed.methods.fedsmoo import fedsmoo
from flatfed.methods.fedsol import fedsol
from flatfed.methods.fedspeed import fedspeed
from flatfed.methods.fedswa import fedmo, fedmoswa, fedswa
from flatfed.methods.fedsynsam import fedsynsam
from flatfed.methods.fedtoga import fedtoga
from flatfed.methods.fedvssam import fedvssam
from flatfed.methods.fedwmsam import fedwmsam
from flatfed.methods.scaffold import scaffold
from flatfed.parts.local import LocalWork

CATALOGUE: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedprox": fedprox,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fednova": fednova,
    "scaffold": scaffold,
    "fedcm": fedcm,
    "feddyn": feddyn,
    "feddc": feddc,
    "fedacg": fedacg,
    "fedsam": fedsam,
    "mofedsam": mofedsam,
    "fedasam": fedasam,
    "fedspeed": fedspeed,
    "fedgamma": fedgamma,
    "fedsmoo": fedsmoo,
    "dp-fedsam": dp_fedsam,
    "fedrcl": fedrcl,
    "fedsol": fedsol,
    "fedlesam": fedlesam,
    "fedlesam-s": fedlesam_s,
    "fedlesam-d": fedlesam_d,
    "fedgf": fedgf,
    "fedtoga": fedtoga,
    "fedgloss": fedgloss,
    "fedvssam": fedvssam,
    "fedgmt": fedgmt,
    "fedswa": fedswa,
    "fedmoswa": fedmoswa,
    "fedmo": fedmo,
    "dynafed": dynafed,
    "fedsynsam": fedsynsam,
    "fedwmsam": fedwmsam,
}

__all__ = ["CATALOGUE", "build", "parameters", *(f.__name__ for f in CATALOGUE.values())]


def parameters(name: str, /) -> dict[str, Any]:
    """A method's own parameters with their defaults."""
    signature = inspect.signature(_find(name))
    return {
        key: parameter.default
        for key, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def build(name: str, /, **settings: Any) -> Method:
    """A method by its name, with some of its parameters, its local work or `weights` set.

    >>> build("fedsam", rho=0.05).perturb
    SAM(rho=0.05)
    """
    own = parameters(name)
    known = {*own, *LocalWork.__annotations__, "weights"}
    for key in settings:
        if key not in known:
            raise SpecError(f"{name} has no parameter {key!r}.\n{nearest(key, known)}")
    # How the mean is weighted is the composition's; only two papers make it their own.
    of_method = {key: settings.pop(key) for key in ("weights",) if key in {*settings} - {*own}}
    return replace(_find(name)(**settings), **of_method)


def _find(name: str) -> Callable[..., Method]:
    if name not in CATALOGUE:
        raise SpecError(f"{name!r} is no method of flatfed.\n{nearest(name, CATALOGUE)}")
    return CATALOGUE[name]
