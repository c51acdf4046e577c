"""
Service information as the bytes of a registration (metadata-rules.md 5.2).

Knows: BookieServiceInfoFormat, and the empty data of bookies that are too old to write it.
Does not know: where registrations are kept.
"""

import re

from google.protobuf.message import DecodeError
from twisted.logger import Logger

from quire.metadata.formats.schema import BookieServiceInfoFormat, text
from quire.metadata.store import BOOKIE_ENDPOINT, Endpoint, ServiceInfo
from quire.protocol.errors import MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

log = Logger()

UNKNOWN = ServiceInfo(())  # registered, but it is unknown where it serves
PORT = re.compile("[0-9]{1,5}")


def encode(info: ServiceInfo) -> bytes:
    """The bytes that Apache BookKeeper's readers expect."""
    message = BookieServiceInfoFormat()
    for endpoint in info.endpoints:
        message.endpoints.add(
            id=endpoint.id,
            port=endpoint.port,
            host=endpoint.host,
            protocol=endpoint.protocol,
            auth=endpoint.auth,
            extensions=endpoint.extensions,
        )
    for key, value in sorted(info.properties.items()):
        message.properties.add(key=key, value=value)
    return bytes(message.SerializeToString())


def decode(bookie: str, data: bytes) -> ServiceInfo:
    """
    Decodes a bookie's announcement.  Empty data: one address, read from an id that is host:port (`UNKNOWN` from any
    other id).  `MetadataSerialization` when the bytes can't be read.
    """
    if not data:
        return _from_id(bookie)
    message = BookieServiceInfoFormat()
    try:
        message.ParseFromString(data)
        if not message.IsInitialized():
            raise ValueError("fields are missing")
        endpoints = tuple(
            Endpoint(
                text(found.id),
                text(found.host),
                found.port,
                text(found.protocol),
                tuple(map(text, found.auth)),
                tuple(map(text, found.extensions)),
            )
            for found in message.endpoints
        )
        return ServiceInfo(endpoints, {text(entry.key): text(entry.value) for entry in message.properties})
    except (DecodeError, ValueError) as error:
        raise MetadataSerialization(f"the registration of {bookie} can't be read: {error}") from error


def _from_id(bookie: str) -> ServiceInfo:
    parts = bookie.split(":")
    if len(parts) < 2 or not parts[0] or not PORT.fullmatch(parts[1]) or int(parts[1]) > 65535:
        return UNKNOWN
    return ServiceInfo((Endpoint(BOOKIE_ENDPOINT, parts[0], int(parts[1])),))


def decode_or_unknown(bookie: str, data: bytes) -> ServiceInfo:
    """
    For lists: one registration that can't be read must not hide the others, so it becomes `UNKNOWN` and a log line.
    """
    try:
        return decode(bookie, data)
    except MetadataSerialization as error:
        log.warn("{error}; this bookie can't be reached", error=str(error))
        return UNKNOWN
