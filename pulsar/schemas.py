"""
The schemas of a topic, from Pulsar's registry in bookies, and values by them.

Knows: where the registry keeps which version; how a value of each type is read (Avro with the extra `pulsar`).
Does not know: messages.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quire.client.api import Client
from quire.conf.extras import installs
from quire.protocol.pulsar_errors import MessageDamaged, NoSuchSchema, NotRead
from quire.pulsar.core import schema
from quire.pulsar.core.names import TopicName
from quire.pulsar.nodes import Nodes
from quire.pulsar.reading import opened

# SPDX-License-Identifier: Apache-2.0

TYPES = (
    *("UNKNOWN", "NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64"),
    *("FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME"),
    *("LOCAL_DATE_TIME", "PROTOBUF_NATIVE"),
)
NUMBERS = {"BOOLEAN": ">?", "INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "FLOAT": ">f", "DOUBLE": ">d"}
NUMBERS |= dict.fromkeys(("DATE", "TIME", "TIMESTAMP"), ">q")  # ms since 1970
VERSION = struct.Struct(">q")
WALKED_MAX = 10_000  # entries of one registry


@dataclass(frozen=True)
class Schema:
    """A schema.  `definition`: as the producer gave it, for AVRO and JSON a schema of Avro as JSON."""

    type: str
    version: int
    definition: bytes
    properties: Mapping[str, str]

    def value(self, data: bytes) -> Any:
        """
        A value of this schema; bytes as they are of a type that is not read here.  `MessageDamaged`, `NotRead`:
        a library is missing.
        """
        try:
            return self._read(data)
        except (ValueError, struct.error, EOFError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise MessageDamaged(f"{len(data)} bytes are no value of the schema {self.type}: {error}") from None

    @cached_property
    def _read(self) -> Callable[[bytes], Any]:
        if self.type == "JSON":
            return json.loads
        if self.type == "STRING":
            return lambda data: data.decode()
        if self.type in NUMBERS:
            return lambda data: struct.unpack(NUMBERS[self.type], data)[0]
        if self.type == "AVRO":
            return self._avro()
        return bytes

    def _avro(self) -> Callable[[bytes], Any]:
        try:
            import fastavro
        except ImportError:
            raise NotRead(f"a value in Avro can't be read here: `{installs('pulsar')}`") from None
        try:
            parsed = fastavro.parse_schema(json.loads(self.definition))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise MessageDamaged(f"version {self.version} of the schema can't be read: {error}") from None
        return lambda data: fastavro.schemaless_reader(io.BytesIO(data), parsed, None)


class Schemas:
    """The registries of one cluster."""

    def __init__(self, client: Client, nodes: Nodes) -> None:
        self._client = client
        self._nodes = nodes
        self._known: dict[tuple[TopicName, int], Schema] = {}

    async def schema(self, name: TopicName, version: bytes) -> Schema:
        """The schema of a message's `schema_version`.  `NoSuchSchema`, `MessageDamaged`."""
        if len(version) != VERSION.size:
            raise NoSuchSchema(f"{name.base}: {version!r} is no version of a schema")
        (number,) = VERSION.unpack(version)
        key = (name.base, number)
        if key not in self._known:
            self._known[key] = await self._found(name.base, number)
        return self._known[key]

    async def _found(self, name: TopicName, number: int) -> Schema:
        data = await self._nodes.schemas(name)
        if data is None:
            raise NoSuchSchema(f"{name} has no schemas in its registry")
        locator = schema.read(schema.SchemaLocator, data, f"{name}: the node of its schemas")
        places = [locator.info, *locator.index]
        for _ in range(WALKED_MAX):
            for each in places:
                if each.version == number:
                    return schema_of((await self._entry(name, each)).schema_data, number)
            oldest = min(places, key=lambda each: each.version)
            if oldest.version <= number:
                break
            older = [each for each in (await self._entry(name, oldest)).index if each.version < oldest.version]
            if not older:
                break
            places = older
        raise NoSuchSchema(f"{name} has no version {number} of its schema: the newest is {locator.info.version}")

    async def _entry(self, name: TopicName, place: Any) -> Any:
        ledger, entry = place.position.ledgerId, place.position.entryId
        reader = await opened(self._client, str(name), ledger)
        try:
            (found,) = await reader.read_unconfirmed(entry, entry)  # it is alone in its ledger, named by the node
        finally:
            await reader.close()
        return schema.read(schema.SchemaEntry, found.data, f"{name}: entry {ledger}:{entry} of its registry")


def schema_of(data: bytes, version: int) -> Schema:
    """A schema as the registry has it; `MessageDamaged`."""
    info = schema.read(schema.SchemaInfo, data, f"version {version} of a schema")
    name = TYPES[info.type] if 0 <= info.type < len(TYPES) else TYPES[0]
    return Schema(name, version, info.schema, schema.texts(info.props))
