"""Constants of a piece of hardware: value, unit and source of each, read from `configs/hardware`.

Pure once loaded. All figures are for one rank: a 910B card, a die of a 910C package, a CPU process.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from sglang_ascend.comm.hardware_constants import (
    OPTIONAL,
    REQUIRED,
    TIME_UNITS,
    UNITS,
    Constant,
    check_range,
)
from sglang_ascend.comm.topology import LinkClass
from sglang_ascend.errors import ConfigError

__all__ = [
    "UNITS",
    "Constant",
    "Hardware",
    "Link",
    "from_constants",
    "hardware_folder",
    "known_hardware",
    "load_hardware",
]


@dataclass(frozen=True)
class Link:
    """One rank's port onto a class of link; each direction carries the bandwidth.

    Attributes:
        bytes_per_s: what is reached in practice, bandwidth times efficiency.
        latency_s: of a message without payload.
    """

    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, eq=False)
class Hardware:
    """Constants by dotted name, as in REQUIRED and OPTIONAL. Hashed by identity, which is cheap."""

    name: str
    description: str = field(repr=False)
    constants: Mapping[str, Constant] = field(repr=False)

    def si(self, key: str) -> float:
        """Value of a constant in SI units.

        Raises:
            ConfigError: this hardware does not give the constant.
        """
        if key not in self.constants:
            close = difflib.get_close_matches(key, self.constants, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"hardware {self.name} has no constant {key!r}; {hint}add it to its YAML file with "
                "value, unit and source"
            )
        return self.constants[key].si

    def link(self, link_class: LinkClass) -> Link:
        """The port of a rank onto links of this class, efficiency included."""
        prefix = f"link.{link_class.value}"
        return Link(
            self.si(f"{prefix}.bandwidth") * self.si(f"{prefix}.efficiency"),
            self.si(f"{prefix}.latency"),
        )

    def operations_per_s(self, dtype: str) -> float:
        """Peak rate of matrix multiplication in `dtype`, a multiply-add counted as two."""
        return self.si(f"compute.{dtype}")

    def with_values(self, values: Mapping[str, float], source: str) -> Hardware:
        """A copy in which the named constants have other values, in the units that they had.

        Args:
            values: dotted name -> value, in the unit of the constant that it replaces.
            source: what the new values rest on.
        """
        for key in values:
            self.si(key)
        changed = {
            key: Constant(value, self.constants[key].unit, source) for key, value in values.items()
        }
        return from_constants(self.name, self.description, {**self.constants, **changed})

    def ideal(self) -> Hardware:
        """A copy at its peak rates: efficiency 1, and neither latency nor fixed cost."""
        values = {
            key: 1.0 if key.endswith("efficiency") else 0.0
            for key, constant in self.constants.items()
            if key.endswith("efficiency") or constant.unit in TIME_UNITS
        }
        return self.with_values(values, "ideal: peak rates and no fixed cost")


def hardware_folder() -> Path:
    """Folder of the YAML files, in a checkout and in an installed package alike."""
    return Path(__file__).resolve().parents[1] / "configs" / "hardware"


def known_hardware() -> tuple[str, ...]:
    """Names that `load_hardware` takes without a path."""
    return tuple(sorted(path.stem for path in hardware_folder().glob("*.yaml")))


def load_hardware(name_or_path: str | Path) -> Hardware:
    """Read a known hardware by its name, or any by the path of its YAML file.

    The file has the keys `description`, `constants` and, if it changes but a few constants of
    another one, `base`: the name or path of that one.

    Raises:
        ConfigError: neither a known name nor a file; or the file lacks a constant, has one too
            many, or gives one without value, unit or source.
    """
    name, description, constants = _read(str(name_or_path), ())
    return from_constants(name, description, constants)


def _read(name_or_path: str, above: tuple[str, ...]) -> tuple[str, str, dict[str, Constant]]:
    """Name, description and constants of a file, with those of the file that it is based on."""
    known = name_or_path in known_hardware()
    path = hardware_folder() / f"{name_or_path}.yaml" if known else Path(name_or_path)
    if not path.is_file():
        close = difflib.get_close_matches(name_or_path, known_hardware(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"hardware {name_or_path!r} is neither a known name nor a YAML file; {hint}known "
            f"names: {', '.join(known_hardware())}"
        )
    if str(path) in above:
        raise ConfigError(f"{path}: base leads back to this file; name another one")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get("constants"), dict):
        raise ConfigError(f"{path}: expected the keys description and constants at the top level")
    if unknown := set(content) - {"description", "base", "constants"}:
        raise ConfigError(
            f"{path}: unknown key {sorted(map(str, unknown))[0]!r}; accepted: description, base, "
            "constants"
        )
    base = {}
    if "base" in content:
        base = _read(str(content["base"]), (*above, str(path)))[2]
    own = {
        str(key): _constant(f"{path}: {key}", given) for key, given in content["constants"].items()
    }
    return path.stem, str(content.get("description", "")).strip(), {**base, **own}


def from_constants(name: str, description: str, constants: Mapping[str, Constant]) -> Hardware:
    """Check a set of constants for completeness, units and range, and make hardware of it.

    Raises:
        ConfigError: a constant is missing or unknown, or its unit or value is out of range.
    """
    missing = [key for key in REQUIRED if key not in constants]
    if missing:
        raise ConfigError(
            f"hardware {name} lacks {', '.join(missing)}; give value, unit and source"
        )
    allowed = {**REQUIRED, **OPTIONAL}
    for key, constant in constants.items():
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; accepted: {', '.join(allowed)}"
            raise ConfigError(f"hardware {name}: unknown constant {key!r}{hint}")
        check_range(f"hardware {name}: {key}", constant, allowed[key])
    return Hardware(name, description, MappingProxyType(dict(constants)))


def _constant(where: str, given: Any) -> Constant:
    if not isinstance(given, dict) or set(given) != {"value", "unit", "source"}:
        raise ConfigError(f"{where}: expected exactly value, unit and source, got {given!r}")
    value, unit, source = given["value"], given["unit"], given["source"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: value must be a number, got {value!r}")
    if not isinstance(source, str) or not source.strip():
        raise ConfigError(f'{where}: source is empty; write "unmeasured: ..." if there is none')
    return Constant(float(value), str(unit), " ".join(source.split()))
