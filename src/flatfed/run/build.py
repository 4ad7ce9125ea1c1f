"""From a spec to the objects it names, and back to a spec that says everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flatfed import methods, models
from flatfed.cohort import Cohort
from flatfed.data import partition, sources
from flatfed.data.sets import DataSet
from flatfed.data.shares import Partition
from flatfed.engines.engine import Engine
from flatfed.engines.inprocess import InProcess
from flatfed.engines.processes import Processes, cores
from flatfed.errors import SpecError, nearest
from flatfed.federation import Federation
from flatfed.flatmodel import FlatModel
from flatfed.method import Method
from flatfed.part import Compressor
from flatfed.parts import compressors
from flatfed.parts.local import SGD, Falling
from flatfed.spec import Spec
from flatfed.training import Training


def training_of(spec: Spec) -> Training:
    """Everything that decides what is computed."""
    return Training(
        method=method_of(spec),
        federation=federation_of(spec),
        rounds=spec.run.rounds,
        cohort=cohort_of(spec),
        seed=spec.run.seed,
        evaluate_every=spec.run.evaluate_every,
    )


def method_of(spec: Spec) -> Method:
    """The [method], walking as [local] says."""
    for other in spec.methods:
        if other not in methods.CATALOGUE:
            listed = nearest(other, methods.CATALOGUE)
            raise SpecError(f"[methods.{other}] is for no method of flatfed.\n{listed}")
    name, settings = spec.method.name, spec.method.settings
    known = {*methods.parameters(name), "weights"}
    for key in settings:
        if key in type(spec.local).model_fields and key not in known:
            raise SpecError(f"[method] has no key {key!r}.\nIt is one of [local]: put it there.")
        if key not in known:
            raise SpecError(f"[method] {name} has no key {key!r}.\n{nearest(key, known)}")
    method = methods.build(name, **settings, **spec.local.model_dump(exclude_unset=True))
    return replace(method, compress=compressor_of(spec), kept=spec.compress.kept)


def compressor_of(spec: Spec) -> Compressor:
    """What [compress] names."""
    name, settings = spec.compress.name, spec.compress.settings
    known = compressors.parameters(name)
    for key in settings:
        if key not in known:
            listed = nearest(key, {*known, *type(spec.compress).model_fields})
            raise SpecError(f"[compress] {name} has no key {key!r}.\n{listed}")
    return compressors.build(name, **settings)


def data_of(spec: Spec) -> DataSet:
    """The samples of [data]."""
    return sources.load(spec.data.source, **_split(spec)[1])


def partition_of(spec: Spec) -> Partition:
    """Who is to hold them."""
    return partition.build(spec.data.partition, **_split(spec)[0])


def _split(spec: Spec) -> tuple[dict[str, Any], dict[str, Any]]:
    """What [data] says to the partition, and what to the source."""
    dealing = {*partition.parameters(spec.data.partition)}
    if spec.data.partition != "natural":
        dealing.add("clients")
    options = sources.options_of(spec.data.source)
    to_partition, to_source = {}, {}
    for key, value in spec.data.settings.items():
        if key in dealing and options and key in options:
            raise SpecError(
                f"[data] {key} = {value!r} is meant for {spec.data.source!r} or for "
                f"{spec.data.partition!r}: both take it.\nRename the function's parameter."
            )
        if key in dealing:
            to_partition[key] = value
        elif options is None or key in options:
            to_source[key] = value
        else:
            known = {*dealing, *options, *type(spec.data).model_fields}
            raise SpecError(
                f"[data] has no key {key!r} with source = {spec.data.source!r} and partition = "
                f"{spec.data.partition!r}.\n{nearest(key, known)}"
            )
    return to_partition, to_source


def federation_of(spec: Spec) -> Federation:
    """Data, dealt, and the model: its first values depend on the run's seed, the deal does not."""
    data = data_of(spec)
    given = {"seed": spec.run.seed, **data.sizes}
    for key in spec.model.settings:
        if key in given:
            raise SpecError(
                f"[model] has no key {key!r}: {key} = {given[key]!r} comes from the "
                f"{'run' if key == 'seed' else 'data'}.\nLeave it out."
            )
    module = models.build(spec.model.name, **given, **spec.model.settings)
    return Federation(
        data,
        FlatModel(module, precision=spec.model.precision),
        partition_of(spec),
        augment=spec.data.augment,
        partition_seed=spec.data.partition_seed,
    )


def cohort_of(spec: Spec) -> Cohort:
    """Who takes part."""
    return Cohort(**spec.cohort.model_dump())


def engine_of(spec: Spec) -> Engine:
    """Where clients train: on one core nobody needs a second process."""
    workers = spec.engine.workers or cores()
    if workers == 1:
        return InProcess(timeout=spec.engine.timeout)
    return Processes(workers=workers, timeout=spec.engine.timeout)


def completed(spec: Spec, method: Method) -> Spec:
    """The same, with every default written out: it still says the same when defaults change."""
    assert isinstance(method.local, SGD)
    rate = method.local.lr
    while isinstance(rate, Falling):  # the papers' methods that fall within a round set it anew
        rate = rate.lr
    local = {name: getattr(method.local, name) for name in type(spec.local).model_fields}
    own = methods.parameters(spec.method.name)
    tables: Mapping[str, Mapping[str, Any]] = {
        "method": {**own, "weights": method.weights, **spec.method.settings},
        "local": {**local, "lr": rate},
        "compress": {**compressors.parameters(spec.compress.name), **spec.compress.settings},
        "data": {**partition.parameters(spec.data.partition), **spec.data.settings},
    }
    return spec.replaced(**tables)
