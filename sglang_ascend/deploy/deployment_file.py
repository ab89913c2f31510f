"""Deployments as YAML: read with every key checked, and written so that reading gives the same."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from sglang_ascend.comm.hardware import load_hardware
from sglang_ascend.comm.topology import Topology
from sglang_ascend.deploy.architectures import nearest
from sglang_ascend.deploy.deployment import (
    Deployment,
    Features,
    Phase,
    Precision,
    Role,
    Speculation,
)
from sglang_ascend.errors import ConfigError

_TOP = ("name", "model", "hardware", "precision", "speculation", "roles")
_PLACE = ("nodes", "cards_per_node")


def folder() -> Path:
    """Of the deployments that come with the package."""
    return Path(__file__).resolve().parents[1] / "configs" / "deployments"


def read(name_or_path: str | Path) -> Deployment:
    """Read a deployment by the name of one in ``configs/deployments``, or by its path.

    Raises:
        ConfigError: no such file, no YAML, or a key that is unknown, missing or of a wrong type.
    """
    path = folder() / f"{name_or_path}.yaml"
    if not path.is_file():
        path = Path(name_or_path)
    if not path.is_file():
        known = sorted(p.stem for p in folder().glob("*.yaml"))
        close = ", ".join(nearest(str(name_or_path), known)) or "none"
        raise ConfigError(
            f"deployment {str(name_or_path)!r} is neither a file nor a known name; nearest: {close}"
        )
    return parse(read_yaml(path), str(path))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        ConfigError: it cannot be read or is no YAML.
    """
    try:
        return read_yaml_text(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def read_yaml_text(text: str, where: str = "the text") -> Any:
    """The content of YAML; ConfigError if it is none."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def parse(content: Any, where: str) -> Deployment:
    """Make a deployment of what a YAML file holds; ``where`` names it in errors."""
    top = _mapping(content, where, _TOP)
    for key in ("model", "hardware", "roles"):
        if key not in top:
            raise ConfigError(f"{where} lacks {key}; it has {', '.join(top) or 'nothing'}")
    hardware = load_hardware(str(top["hardware"]))
    dies, cards = (int(hardware.si(k)) for k in ("node.dies_per_card", "node.cards"))
    names = tuple(phase.value for phase in Phase)
    roles = [
        _role(Phase(name), given, f"{where}: roles.{name}", dies, cards)
        for name, given in _mapping(top["roles"], f"{where}: roles", names).items()
    ]
    if not roles:
        raise ConfigError(f"{where}: roles is empty; give one or more of {', '.join(names)}")
    return Deployment(
        name=str(top.get("name", Path(where).stem)),
        model=str(top["model"]),
        hardware=str(top["hardware"]),
        precision=build(Precision, top.get("precision") or {}, f"{where}: precision"),
        speculation=build(Speculation, top.get("speculation") or {}, f"{where}: speculation"),
        roles=tuple(roles),
    )


def _role(phase: Phase, given: Any, where: str, dies: int, cards: int) -> Role:
    fields = [f.name for f in dataclasses.fields(Role) if f.name not in ("phase", "topology")]
    content = dict(_mapping(given, where, (*_PLACE, *fields)))
    place = {
        "nodes": content.pop("nodes", 1),
        "cards_per_node": content.pop("cards_per_node", cards),
    }
    for key, value in place.items():
        place[key] = _convert(int, value, f"{where}: {key}")
    features = build(Features, content.pop("features", None) or {}, f"{where}: features")
    topology = Topology(**place, dies_per_card=dies)
    return build(Role, content, where, phase=phase, topology=topology, features=features)


def build(kind: type, given: Any, where: str, **fixed: Any) -> Any:
    """An instance of a dataclass from a mapping whose keys are its fields.

    Raises:
        ConfigError: an unknown key, or a value of another type than the field's.
    """
    hints = typing.get_type_hints(kind)
    accepted = tuple(f.name for f in dataclasses.fields(kind) if f.name not in fixed)
    values = {
        key: _convert(hints[key], value, f"{where}: {key}")
        for key, value in _mapping(given, where, accepted).items()
    }
    return kind(**values, **fixed)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        known = [member.value for member in hint]
        if value not in known:
            raise ConfigError(f"{where} is {value!r}; choose one of {', '.join(known)}")
        return hint(value)
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not fits:
        raise ConfigError(f"{where} is {value!r}; give a value of type {hint.__name__}")
    return value


def _mapping(given: Any, where: str, accepted: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: expected keys and values, got {type(given).__name__}")
    for key in given:
        if key not in accepted:
            close = ", ".join(nearest(str(key), accepted)[:1])
            raise ConfigError(
                f"{where}: unknown key {key!r}; did you mean {close}? (accepted: "
                f"{', '.join(accepted)})"
            )
    return given


def dump(deployment: Deployment) -> str:
    """The deployment as YAML; fields at their defaults are left out."""
    content: dict[str, Any] = {
        "name": deployment.name,
        "model": deployment.model,
        "hardware": deployment.hardware,
        "precision": dataclasses.asdict(deployment.precision),
    }
    if deployment.speculation.draft_tokens:
        content["speculation"] = dataclasses.asdict(deployment.speculation)
    content["roles"] = {role.phase.value: _role_content(role) for role in deployment.roles}
    return yaml.safe_dump(content, sort_keys=False)


def _role_content(role: Role) -> dict[str, Any]:
    place = {"nodes": role.topology.nodes, "cards_per_node": role.topology.cards_per_node}
    fields = _changed(role, skip=("phase", "topology", "features"))
    features = _changed(role.features)
    return {**place, **fields, **({"features": features} if features else {})}


def _changed(value: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields that differ from their defaults, enumerations as their plain values."""
    changed = {}
    for f in dataclasses.fields(value):
        own = getattr(value, f.name)
        if f.name not in skip and own != f.default:
            changed[f.name] = own.value if isinstance(own, StrEnum) else own
    return changed
