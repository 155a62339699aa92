"""Models and devices by name, from the tables that ship with kvsim or from a file of the user's."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kvsim.errors import ConfigError, unknown
from kvsim.models.config import model_from_config, model_type_family
from kvsim.models.device import Device
from kvsim.models.model import Experts, Family, FieldError, LatentAttention, Model, Quantization
from kvsim.units import parse_size

_HERE = Path(__file__).parent
_MODELS: dict[str, Any] = tomllib.loads((_HERE / "models.toml").read_text(encoding="utf-8"))
_DEVICES: dict[str, Any] = tomllib.loads((_HERE / "devices.toml").read_text(encoding="utf-8"))

MODELS: tuple[str, ...] = tuple(_MODELS["models"])
DEVICES: tuple[str, ...] = tuple(_DEVICES["devices"])

_MODEL_KEYS = {field.name for field in fields(Model)} - {"nominal_parameters"} | {"parameters"}
_DEVICE_KEYS = {"name", "label", "memory", "system", "bandwidth", "flops", "source"}
_GROUPS: dict[str, type[Any]] = {"experts": Experts, "latent": LatentAttention, "quantization": Quantization}
_SEPARATORS = re.compile(r"[\s_-]+")
_COUNTED = re.compile(r"([0-9]+)\s*[xX*×]\s*(.+)")


def get_model(name_or_path: str) -> Model:
    """Return a model.

    Parameters
    ----------
    name_or_path : str
        A name of ``MODELS`` in any case (``facebook/`` and the like before it are ignored); the path of a Hugging Face
        ``config.json`` or of the folder that holds it; or the path of a TOML file with the keys of ``models.toml``.

    Raises
    ------
    ConfigError
        The name is unknown (the nearest is offered), or the file says which field is missing or contradicts another.
    """
    path = Path(name_or_path)
    if path.suffix in (".json", ".toml") or path.is_dir():
        return _model_from_file(path / "config.json" if path.is_dir() else path)
    name = _find("model", name_or_path.rsplit("/", 1)[-1], MODELS)
    return _build_model(_MODELS["models"][name], name)


def get_device(name_or_path: str) -> Device:
    """Return a device, or several alike.

    Parameters
    ----------
    name_or_path : str
        A name of ``DEVICES`` in any case, a count before it (``"4xA100-40GB"``), or the path of a TOML file with the
        keys of ``devices.toml``.

    Raises
    ------
    ConfigError
        The name is unknown (the nearest is offered), or the file cannot be meant.
    """
    counted = _COUNTED.fullmatch(name_or_path.strip())
    count, name = (int(counted[1]), counted[2]) if counted else (1, name_or_path)
    path = Path(name)
    if path.suffix == ".toml":
        table = _read_toml(path)
        device = _build_device(table.get("device", table), path.stem, f"{path}: ")
    else:
        name = _find("device", name.strip(), DEVICES)
        device = _build_device(_DEVICES["devices"][name], name)
    return replace(device, count=count)


def _find(kind: str, name: str, known: Iterable[str]) -> str:
    """Find a name without regard to case, spaces and hyphens."""
    folded = {_SEPARATORS.sub("", candidate).casefold(): candidate for candidate in known}
    key = _SEPARATORS.sub("", name).casefold()
    if key not in folded:
        raise unknown(kind, name, folded.values())
    return folded[key]


def _model_from_file(path: Path) -> Model:
    if path.suffix == ".toml":
        table = _read_toml(path)
        return _build_model(table.get("model", table), path.stem, f"{path}: ")
    return model_from_config(path, lambda model_type: Family(**_MODELS["families"][model_type_family(model_type)]))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _build_model(table: Mapping[str, Any], name: str, where: str = "") -> Model:
    """Build a model from a table in the form of ``models.toml``."""
    _check_keys(table, _MODEL_KEYS, ("layers", "hidden", "heads"), where)
    values = dict(table)
    family_name = values.pop("family", "llama")
    family = Family(**_MODELS["families"][_find("family", str(family_name), _MODELS["families"])])
    values["nominal_parameters"] = values.pop("parameters", 0)
    values["pattern"] = tuple(values.get("pattern", ("full",)))
    values["notes"] = tuple(values.get("notes", ()))
    values.setdefault("name", name)
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("tied_embeddings", family.tied_embeddings)
    try:
        for key in _GROUPS.keys() & values.keys():
            _check_keys(values[key], {field.name for field in fields(_GROUPS[key])}, (), f"{where}{key}: ")
            values[key] = _GROUPS[key](**values[key])
        if "head_dim" not in values:
            values["head_dim"] = values["hidden"] // values["heads"]
        return Model(family=family, **values)
    except FieldError as error:
        raise ConfigError(f"{where}{error}") from error
    except (TypeError, ZeroDivisionError) as error:
        raise ConfigError(f"{where}not a table of a model: {error}") from error


def _build_device(table: Mapping[str, Any], name: str, where: str = "") -> Device:
    """Build a device from a table in the form of ``devices.toml``."""
    _check_keys(table, _DEVICE_KEYS, ("memory", "bandwidth", "flops"), where)
    sizes = {key: parse_size(str(table[key])) for key in ("memory", "label", "system") if key in table}
    return Device(
        name=table.get("name", name),
        memory_bytes=sizes["memory"],
        bandwidth_bytes_per_s=table["bandwidth"],
        flops_per_s=table["flops"],
        label_bytes=sizes.get("label", 0),
        system_bytes=sizes.get("system", 0),
        source=table.get("source", ""),
    )


def _check_keys(table: object, known: Iterable[str], required: Iterable[str], where: str) -> None:
    """Refuse a table with an unknown key, or without a required one."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}a table is expected, not {table!r}")
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}{unknown('key', key, known)}")
    missing = [key for key in required if key not in table]
    if missing:
        raise ConfigError(f"{where}missing: {', '.join(missing)}")
