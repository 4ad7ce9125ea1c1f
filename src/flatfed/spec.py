"""What a run is, as a TOML file: read, checked, completed, written out in full."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flatfed.errors import SpecError, nearest

Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
NOTHING = "none"  # TOML has no word for it


class Section(BaseModel):
    """One table of the file; values are of their type and nothing else: "20" is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Open(Section):
    """A table that also takes the keys of whatever it names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @property
    def settings(self) -> dict[str, Any]:
        """Those keys."""
        return dict(self.model_extra or {})


class RunSection(Section):
    seed: Whole = 0
    rounds: Positive = 100
    evaluate_every: Positive = 1
    checkpoint_every: Positive = 10
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    out: str | None = None
    watch: list[Literal["tensorboard", "mlflow", "wandb"]] = []


class DataSection(Open):
    source: str = "fashion-mnist-small"
    partition: str = "dirichlet"
    partition_seed: Whole = 0
    augment: str = "none"


class ModelSection(Open):
    name: str = "mlp2"
    precision: Literal["full", "bfloat16"] = "full"


class MethodSection(Open):
    name: str = "fedavg"


class LocalSection(Section):
    lr: float | None = None
    lr_decay: float | None = None
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    decay: Literal["outside", "inside"] | None = None
    clip: float | None = None
    clip_scope: Literal["direction", "data"] | None = None


class CompressSection(Open):
    name: str = "none"
    kept: Literal["exact", "synced"] = "exact"


class CohortSection(Section):
    size: int | None = None
    fraction: float | None = None
    sampling: Literal["uniform", "cyclic"] = "uniform"
    drop: float = 0.0


class EngineSection(Section):
    name: Literal["local"] = "local"
    workers: Positive | None = None  # None: one for every core
    timeout: Annotated[float, Field(gt=0)] | None = None


class Spec(Section):
    """All of it. What the file leaves out has the default that its owner gives it."""

    run: RunSection = RunSection()
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    method: MethodSection = MethodSection()
    local: LocalSection = LocalSection()
    compress: CompressSection = CompressSection()
    cohort: CohortSection = CohortSection()
    engine: EngineSection = EngineSection()
    methods: dict[str, dict[str, Any]] = {}  # settings of each, when they are compared

    @classmethod
    def of(cls, tables: Mapping[str, Any], origin: str = "the spec") -> Self:
        """From tables that are already read; the word none is nothing where nothing is allowed."""
        try:
            return cls.model_validate(_with_nothing(tables))
        except ValidationError as error:
            raise SpecError(f"{origin}: {_said(error)}") from None

    @classmethod
    def read(cls, file: str | Path, settings: Iterable[tuple[str, Any]] = ()) -> Self:
        """From a file, with some keys (section.key) set otherwise."""
        tables = _tables(Path(file))
        for key, value in settings:
            *path, last = key.split(".")
            if not path:
                raise SpecError(
                    f"--set got {key}={value!r}, expected section.key=value.\n"
                    "Write for example --set method.rho=0.05 or --set run.rounds=200."
                )
            table = tables
            for name in path:
                table = table.setdefault(name, {})
                if not isinstance(table, dict):
                    raise SpecError(f"--set got {key}={value!r}, but {name!r} is no section.")
            table[last] = NOTHING if value is None else value
        return cls.of(tables, str(file))

    def given(self) -> dict[str, dict[str, Any]]:
        """What was said, without defaults."""
        return self.model_dump(exclude_unset=True)

    def replaced(self, **tables: Mapping[str, Any]) -> Self:
        """The same with some keys of some sections set otherwise."""
        new = self.given()
        for name, table in tables.items():
            new[name] = {**new.get(name, {}), **table}
        return type(self).of(new)

    def cell(self, method: str, seed: int) -> Self:
        """One run of a comparison: its method with the settings of [methods.NAME], and its seed.

        What [method] says besides a name is that method's own, but for `weights`.
        """
        settings = self.method.settings
        if method != self.method.name:
            settings = {key: value for key, value in settings.items() if key == "weights"}
        settings |= self.methods.get(method, {})
        local = {key: settings.pop(key) for key in {*settings} & {*LocalSection.model_fields}}
        tables = self.given()
        tables.pop("methods", None)
        return type(self).of(
            {
                **tables,
                "run": {**tables.get("run", {}), "seed": seed},
                "method": {**settings, "name": method},
                "local": {**tables.get("local", {}), **local},
            },
            f"[methods.{method}]",
        )

    def toml(self) -> str:
        """As a file."""
        written = {
            name: {k: NOTHING if v is None else v for k, v in table.items()}
            for name, table in self.model_dump().items()
            if name != "methods"
        }
        return tomli_w.dumps(written | ({"methods": self.methods} if self.methods else {}))

    def flat(self) -> dict[str, Any]:
        """Every value under section.key."""
        tables = self.model_dump(exclude={"methods"})
        return {f"{name}.{key}": v for name, table in tables.items() for key, v in table.items()}


def _tables(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(
            f"{file} is not there, expected a spec in TOML.\n"
            "Write one, or copy one out of a run's folder (spec.toml)."
        ) from None
    except IsADirectoryError:
        raise SpecError(f"{file} is a folder, expected a spec in TOML.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(
            f'{file} is no TOML: {error}.\nText values need quotes: name = "fedtoga".'
        ) from None


def _with_nothing(tables: Mapping[str, Any]) -> dict[str, Any]:
    new = {}
    for name, table in tables.items():
        field = Spec.model_fields.get(name)
        # Where a string is expected, none is a word like any other.
        words = {
            key
            for key, known in getattr(field and field.annotation, "model_fields", {}).items()
            if type(None) not in getattr(known.annotation, "__args__", ())
        }
        new[name] = table
        if isinstance(table, Mapping) and name != "methods":
            new[name] = {
                key: None if value == NOTHING and key not in words else value
                for key, value in table.items()
            }
    return new


def _said(error: ValidationError) -> str:
    """The first of what is wrong: the key, the value, what is allowed and the nearest name."""
    first = error.errors()[0]
    name, *keys = (str(part) for part in first["loc"])
    value, kind = first["input"], first["type"]
    if kind == "extra_forbidden" and not keys:
        return f"no section [{name}].\n{nearest(name, Spec.model_fields)}"
    if kind == "extra_forbidden":
        known = getattr(Spec.model_fields[name].annotation, "model_fields", {})
        return f"[{name}] has no key {keys[0]!r}.\n{nearest(keys[0], known)}"
    if kind in ("model_type", "dict_type"):
        table = ".".join((name, *keys))
        return f"{table} = {value!r}, expected a section.\nWrite [{table}]."
    expected = first["msg"].removeprefix("Input should be ")
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    return f"[{name}] {keys[0]} = {value!r}, expected {expected}."
