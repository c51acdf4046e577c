"""
Reading Java-properties files with BookKeeper's key names into options.

Knows: the file format, the overrides from the environment, which key is which field; that an unknown key is
refused with the nearest one named, and that one line says which keys mean something else here or nothing.
Does not know: what an option does, or what a key without one means (`treatment`).

Order of strength: the environment, then the file, then the default.
"""

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import Key, file_value, key_of, listed, range_text
from quire.conf.treatment import Treatment, of_script, served, summary, unserved

# SPDX-License-Identifier: Apache-2.0

M = TypeVar("M", bound=BaseModel)

ENVIRONMENT_PREFIXES = ("BK_", "PULSAR_PREFIX_")  # of the images of BookKeeper and of Pulsar
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"
# Together they replace metadataServiceUri where that is missing (metadata-rules.md 1.1).
ZK_SERVERS, ZK_ROOT, URI = "zkServers", "zkLedgersRootPath", "metadataServiceUri"
LAYOUT_CLASS, LAYOUT_TYPE = "ledgerManagerFactoryClass", "ledgerManagerType"
LAYOUTS = {
    "HierarchicalLedgerManagerFactory": "hierarchical",
    "LongHierarchicalLedgerManagerFactory": "longhierarchical",
    "FlatLedgerManagerFactory": "flat",
    "hierarchical": "hierarchical",
    "longhierarchical": "longhierarchical",
    "flat": "flat",
}

NUMBER = re.compile("-?[0-9]{1,1000}")


class ConfigurationError(ValueError):
    """A configuration that can't be used.  Names the file and line (or variable), the key and what is allowed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """One `key=value` and where it was found, as "file:line" or "environment variable BK_…"."""

    key: str
    value: str = dataclasses.field(repr=False)  # a secret, maybe
    where: str

    @property
    def shown(self) -> str:
        """The value for messages: a password's stays unsaid."""
        name = self.key.lower()
        secret = ("password" in name or "passwd" in name) and not name.endswith("path")
        return "(hidden)" if secret else self.value


def logical_lines(text: str) -> list[tuple[int, str]]:
    """(number of its first line from 1 on, line with its continuations joined), comments and blank lines left out."""
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start, line = at, lines[at].lstrip(BLANKS)
        at += 1
        if not line or line[0] in "#!":
            continue
        parts = []
        while (len(line) - len(line.rstrip("\\"))) % 2 and at < len(lines):
            parts.append(line[:-1])
            line = lines[at].lstrip(BLANKS)
            at += 1
        found.append((start + 1, "".join([*parts, line])))
    return found


def unescaped(text: str, where: str) -> str:
    """Backslash escapes undone; `ConfigurationError` for a broken \\u one."""
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter != "\\" or at == len(text):
            if letter != "\\":
                out.append(letter)
            continue
        letter = text[at]
        at += 1
        if letter == "u":
            digits = text[at : at + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigurationError(f"{where}: \\u{digits} is not a character") from None
            at += 4
        else:
            out.append(ESCAPES.get(letter, letter))
    return "".join(out)


def parse(text: str, source: str) -> list[Property]:
    """The properties of a file's text in order; `source` is its name for messages."""
    found = []
    for number, line in logical_lines(text):
        where = f"{source}:{number}"
        end = 0
        while end < len(line) and line[end] not in "=:" + BLANKS:
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(BLANKS)
        found.append(Property(unescaped(line[:end], where), unescaped(rest, where).strip(), where))
    return found


def read(path: str) -> list[Property]:
    """The properties of a file; `ConfigurationError` when it can't be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as failure:
        raise ConfigurationError(f"{path}: {failure.strerror or failure}") from failure
    try:
        return parse(data.decode("utf-8"), path)
    except UnicodeDecodeError:
        return parse(data.decode("latin-1"), path)  # what Java reads


def overrides(environment: Mapping[str, str]) -> list[Property]:
    """The variables that name keys, ordered by name; those of scripts keep their whole names."""
    found = []
    for name, value in sorted(environment.items()):
        prefix = next((each for each in ENVIRONMENT_PREFIXES if name.startswith(each)), None)
        if prefix is not None or of_script(name):
            key = name if prefix is None or of_script(name) else name.removeprefix(prefix)
            found.append(Property(key, value.strip(), f"environment variable {name}"))
    return found


def settled(found: Sequence[Property]) -> dict[str, Property]:
    """One property per key.  The environment wins; two values in a file are refused, for readers differ on them."""
    chosen: dict[str, Property] = {}
    for item in found:
        before = chosen.get(item.key)
        from_file = not item.where.startswith("environment")
        if before is not None and from_file and before.value != item.value:
            raise ConfigurationError(
                f"{item.where}: {item.key} is set again, to {item.shown!r}; {before.where} says {before.shown!r}: "
                "leave one of them, for a key is changed where it stands"
            )
        chosen[item.key] = item
    return chosen


def metadata_uri(chosen: Mapping[str, Property]) -> Property | None:
    """The URI that zkServers and its companions mean, where metadataServiceUri is missing or blank."""
    given = chosen.get(URI)
    servers = chosen.get(ZK_SERVERS)
    if (given is not None and given.value) or servers is None or not servers.value:
        return None
    root = chosen[ZK_ROOT].value if ZK_ROOT in chosen and chosen[ZK_ROOT].value else "/ledgers"
    layout = next((layout_of(chosen[key].value) for key in (LAYOUT_CLASS, LAYOUT_TYPE) if key in chosen), None)
    scheme = f"zk+{layout}" if layout else "zk"
    return Property(URI, f"{scheme}://{servers.value.replace(',', ';').replace(' ', '')}{root}", servers.where)


def layout_of(name: str) -> str | None:
    """The layout that a class of BookKeeper's, in whatever package, or its old short name means."""
    return LAYOUTS.get(name.rpartition(".")[2])


def of_store(key: str, value: str, derived: bool) -> Treatment | None:
    """The treatment of the companions of zkServers; None for another key."""
    if key not in (ZK_SERVERS, ZK_ROOT, LAYOUT_CLASS, LAYOUT_TYPE):
        return None
    if not derived:
        return Treatment("honoured", f"{URI} is stronger")
    if value and key in (LAYOUT_CLASS, LAYOUT_TYPE) and layout_of(value) is None:
        return Treatment("differs", "the layout is the one that the store has")
    return Treatment("honoured")


def value_of(item: Property, key: Key, annotation: object) -> object:
    """A property's value in the field's own unit, still to be checked by the model."""
    text = item.value
    if annotation == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(","))
    if key["scale"] != 1 and NUMBER.fullmatch(text):
        return int(text) * key["scale"]
    return text


class Fault(NamedTuple):
    """A reason to stop a start, and the property that it is about; None: several that do not fit, or a missing one."""

    item: Property | None
    why: str

    @property
    def text(self) -> str:
        return self.why if self.item is None else f"{self.item.where}: {self.why}"


@dataclasses.dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """The reading of some properties by one model: the options unless there are faults, and each key's treatment."""

    made: M | None
    faults: Sequence[Fault]
    treated: Mapping[str, tuple[Property, Treatment]]


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model that have keys in files."""
    return {name: field for name, field in model.model_fields.items() if field.json_schema_extra is not None}


def reading(model: type[M], found: Sequence[Property], beside: Sequence[type[BaseModel]] = ()) -> Reading[M]:
    """
    Reads properties in rising strength into a model's options.  Keys of the models `beside` are theirs: other
    processes, or other parts of this one, read the same file.  `ConfigurationError` for a key that has two values.
    """
    chosen = settled(found)
    derived = metadata_uri(chosen)
    fields = fields_of(model)
    field_of = {key: name for name, field in fields.items() for key in key_of(field)["names"]}
    models: Sequence[type[BaseModel]] = (model, *beside)
    of_all = {key for each in models for field in fields_of(each).values() for key in key_of(field)["names"]}
    given = {key: item.value for key, item in chosen.items() if item.value}
    treated: dict[str, tuple[Property, Treatment]] = {}
    faults: list[Fault] = []
    for key, item in chosen.items():
        treatment = of_store(key, item.value, derived is not None)
        if treatment is None:
            treatment = served(key, given) if key in of_all else unserved(key, given)
        if treatment is None:
            near = difflib.get_close_matches(key, sorted(SERVER | CLIENT | of_all), n=1, cutoff=0.0)
            treatment = Treatment("refused", f"unknown key {key!r}; the nearest one is {near[0] if near else URI}")
            faults.append(Fault(item, treatment.why))
        treated[key] = item, treatment
    values, origin = _values(chosen if derived is None else {**chosen, URI: derived}, fields, field_of)
    made = None
    try:
        made = model.model_validate(values)
    except ValidationError as failure:
        faults += _faults(failure, fields, origin)
    else:
        for name, item in origin.items():
            why = taken(item, fields[name], getattr(made, name))
            if why and item.key in treated:
                treated[item.key] = item, Treatment("differs", why)
    return Reading(made, faults, treated)


def _values(
    chosen: Mapping[str, Property], fields: Mapping[str, FieldInfo], field_of: Mapping[str, str]
) -> tuple[dict[str, object], dict[str, Property]]:
    """The values of fields, still to be checked, and the properties that they are of."""
    values: dict[str, object] = {}
    origin: dict[str, Property] = {}
    for key, item in chosen.items():
        name = field_of.get(key)
        if name is None or not item.value:
            continue  # a blank value means the default, as in BookKeeper
        preferred = key_of(fields[name])["names"]
        if name in origin and preferred.index(origin[name].key) < preferred.index(key):
            continue
        origin[name] = item
        values[name] = value_of(item, key_of(fields[name]), fields[name].annotation)
    return values, origin


def _faults(
    failure: ValidationError, fields: Mapping[str, FieldInfo], origin: Mapping[str, Property]
) -> Iterator[Fault]:
    """The faults that a model found, with their keys, values and what is allowed."""
    for fault in failure.errors(include_url=False, include_context=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        said = fault["msg"].removeprefix("Value error, ")
        if name not in fields:
            yield Fault(None, said)
            continue
        key, allowed = key_of(fields[name])["names"][0], range_text(fields[name])
        item = origin.get(name)
        if item is None:
            example = key_of(fields[name])["example"]
            yield Fault(None, f"{key} is missing: {fields[name].description}; for example {key}={example}")
        else:
            yield Fault(item, f"{item.key}={item.shown} is not allowed: {allowed or said}")


def taken(item: Property, field: FieldInfo, made: object) -> str:
    """Says what an option took of a value in a file that it did not take as it is; empty where it did."""
    parts = listed(item.value)
    if isinstance(made, tuple) and isinstance(parts, tuple):
        lost = [part for part in parts if part and part not in made]
        return f"without {', '.join(lost)}: that is too old" if lost else ""
    if type(made) is int and NUMBER.fullmatch(item.value) and int(item.value) * key_of(field)["scale"] != made:
        return f"as {file_value(field, made)}: more can't be"
    return ""


def options(model: type[M], found: Sequence[Property], beside: Sequence[type[BaseModel]] = ()) -> tuple[M, list[str]]:
    """
    The options, and the lines to log: one, if some key means something else here or nothing.  Raises
    `ConfigurationError` for an unknown key, a bad value, a missing key or a broken relation, all of them in one text.
    """
    read_as = reading(model, found, beside)
    if read_as.made is None or read_as.faults:
        raise ConfigurationError("; ".join(fault.text for fault in read_as.faults))
    line = summary((key, item.shown, treatment) for key, (item, treatment) in read_as.treated.items())
    return read_as.made, [line] if line else []


def load(
    model: type[M],
    path: str | None,
    environment: Mapping[str, str],
    extra: Sequence[Property] = (),
    beside: Sequence[type[BaseModel]] = (),
) -> tuple[M, list[str]]:
    """Options from a file, the environment and `extra`, in rising strength; warnings.  `beside`: models beside it."""
    properties = read(path) if path is not None else []
    stronger = {item.key: item for item in [*overrides(environment), *extra]}
    return options(model, [*(item for item in properties if item.key not in stronger), *stronger.values()], beside)


def sample(model: type[BaseModel], title: str) -> str:
    """The documented sample file of a model: required keys with an example, others commented out with defaults."""
    out = [
        f"# {title}",
        "# Keys are BookKeeper's unless their text says otherwise; BK_<key> in the environment overrides.",
        "",
    ]
    for field in model.model_fields.values():
        key = key_of(field)
        name, unit = key["names"][0], key["unit"]
        allowed = range_text(field)
        facts = [part for part in (f"unit: {unit}" if unit else "", f"allowed: {allowed}" if allowed else "") if part]
        out.append(f"# {field.description}" + (f" ({', '.join(facts)})" if facts else ""))
        out.append(f"{name}={key['example']}" if field.is_required() else f"#{name}={file_value(field, field.default)}")
        out.append("")
    return "\n".join(out)
