"""
Messages that are put become drafts: records whose place is not known yet.

Knows: which member of a message is which field or property of its record; what a store does not take; unique ids.
Does not know: where records are placed (`core.assign`), logs.

Batch first: messages of a call share the forms of their records, the draw of their ids, and the look for characters
that no property may have.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from random import Random
from typing import NamedTuple

from quire.conf.messages import StoreSettings
from quire.log.core.batch import BODY_BYTES_MAX, RECORDS_MAX, room_of
from quire.messages.core.assign import Draft, Kind
from quire.messages.core.layout import FILLER_BYTES, fits
from quire.messages.core.record import (
    LEVEL_DIGITS,
    NAME_END,
    VALUE_END,
    Flag,
    Form,
    form,
    pack_properties,
    store_time_at,
)
from quire.messages.message import KEYS, TAGS, UNIQUE_ID, Message, host_of
from quire.protocol.message_errors import MessageIllegal

# SPDX-License-Identifier: Apache-2.0

LEVEL, LEVELS = "DELAY", re.compile(f"-?[0-9]{{1,{LEVEL_DIGITS}}}")
OF_BATCHES, CRC = frozenset({"INNER_BASE", "INNER_NUM"}), "__CRC32#"
DELAYS = frozenset({LEVEL, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
NOT_PUT = Flag.UNWRAP | Flag.INNER_BATCH | Flag.PREPARED  # a rollback record has the last bit, too
HOSTS = Flag.BORN_IPV6 | Flag.STORE_IPV6
BEYOND = 1 << 31  # the least number that has no room in 32 bits
IDS_AT_ONCE = 64
FORMS_MAX = 1024  # that are kept
SHARED = attrgetter("topic", "queue", "flag", "sys_flag", "born_host", "reconsume_times", "prepared_offset")
OWN = attrgetter("body", "born_ms", "tags", "keys", "properties", "unique_id")


class UniqueIds:
    """Gives unique ids, 32 random hex digits each; many are drawn at a time.  In any thread."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._drawn: list[str] = []

    def take(self, count: int) -> list[str]:
        """Gives so many that nobody had."""
        if count >= IDS_AT_ONCE:
            return self._draw(count)
        taken: list[str] = []
        while len(taken) < count:
            try:
                taken.append(self._drawn.pop())
            except IndexError:  # perhaps another thread took the last one
                self._drawn.extend(self._draw(IDS_AT_ONCE))
        return taken

    def _draw(self, count: int) -> list[str]:
        digits = f"{self._random.getrandbits(128 * count):0{32 * count}X}"
        return [digits[at : at + 32] for at in range(0, len(digits), 32)]


class Sort(NamedTuple):
    """The part that is the same in all drafts of messages that share all members of `SHARED`."""

    kind: Kind
    form: Form


class Drafting:
    """Makes the drafts of one store.  In any thread."""

    def __init__(self, settings: StoreSettings, ids: UniqueIds) -> None:
        self._settings = settings
        self._ids = ids
        self._sort = lru_cache(FORMS_MAX, typed=True)(self._sort_of)

    def drafts(self, messages: Sequence[Message], now_ms: int) -> list[Draft]:
        """
        The drafts of messages, each by itself, with new unique ids where they have none.  `MessageIllegal`,
        `PropertiesTooLong`.
        """
        try:
            return self._made(messages, now_ms)
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            raise MessageIllegal(f"a member of the message can't be in a record: {error}") from None

    def group(self, messages: Sequence[Message], now_ms: int) -> list[Draft]:
        """The drafts of messages that are put as one.  `MessageIllegal`, `PropertiesTooLong`."""
        if not messages:
            raise MessageIllegal("a group has at least one message")
        first = messages[0]
        if any((each.topic, each.queue) != (first.topic, first.queue) for each in messages):
            raise MessageIllegal("a group is of one topic and queue")
        if any(DELAYS & set(each.properties) for each in messages):
            raise MessageIllegal("a message of a group has no delay")
        made = self.drafts(messages, now_ms)
        size = sum(map(len, made))
        self._check_fits(size, "group")
        if size > room_of(len(made)):
            raise MessageIllegal(
                f"the group has {len(made)} records of {size} bytes: one batch of the log holds {RECORDS_MAX} records,"
                f" and {BODY_BYTES_MAX} bytes with 8 for each record; put it as several groups"
            )
        for draft in made:
            draft.group = 0
        made[0].group = size
        return made

    def _made(self, messages: Sequence[Message], now_ms: int) -> list[Draft]:
        sort_of, body_most, most = self._sort, self._settings.max_body, self._settings.file_bytes - FILLER_BYTES
        ids = iter(self._ids.take(len(messages)))
        made: list[Draft] = []
        texts: list[str] = []  # of properties, whose characters nobody looked at
        pairs = 0  # in them
        members = zip(map(SHARED, messages), map(OWN, messages), strict=True)
        for shared, (body, born_ms, tags, keys, properties, unique_id) in members:
            kind, form = sort_of(*shared)
            if len(body) > body_most:
                raise MessageIllegal(
                    f"the body has {len(body)} bytes: the store takes {body_most} (its setting max_body)"
                )
            if properties:
                unique_id = unique_id or properties.get(UNIQUE_ID) or next(ids)
                packed = pack_properties(_pairs(tags, keys, unique_id, properties))
            else:
                unique_id = unique_id or next(ids)
                text = f"{UNIQUE_ID}{NAME_END}{unique_id}{VALUE_END}"
                pairs += 1
                if tags:
                    text = f"{TAGS}{NAME_END}{tags}{VALUE_END}{text}"
                    pairs += 1
                if keys:
                    text = f"{KEYS}{NAME_END}{keys}{VALUE_END}{text}"
                    pairs += 1
                texts.append(text)
                packed = text.encode(errors="replace")
            draft = Draft(form.record(body, now_ms if born_ms is None else born_ms, packed))
            if len(draft) > most:
                self._check_fits(len(draft), "record")
            draft.kind, draft.unique_id = kind, unique_id
            made.append(draft)
        together = "".join(texts)
        if together.count(NAME_END) != pairs or together.count(VALUE_END) != pairs:
            for each in messages:
                pack_properties(_pairs(each.tags, each.keys, each.unique_id, each.properties))
        return made

    def _sort_of(
        self,
        topic: str,
        queue: int,
        flag: int,
        sys_flag: int,
        born_host: str,
        reconsume_times: int,
        prepared_offset: int,
    ) -> Sort:
        if sys_flag & NOT_PUT:
            raise MessageIllegal(
                f"the system flag {sys_flag:#x} marks an inner batch, or a prepared or rollback record: such a"
                " record can be imported, not put"
            )
        if not 0 <= queue < BEYOND:
            raise MessageIllegal(f"queue is {queue}: it has 32 bits, and begins at 0")
        for name, number in (("flag", flag), ("reconsume_times", reconsume_times)):
            if not -BEYOND <= number < BEYOND:
                raise MessageIllegal(f"{name} is {number}: it has 32 bits")
        if "\0" in topic or topic in (".", ".."):
            raise MessageIllegal(f"the topic is {topic!r}: one with a zero, or a directory's name, is of no broker")
        settings = self._settings
        store_host = host_of(settings.address)
        born = host_of(born_host) if born_host else store_host
        made = form(
            topic,
            queue=queue,
            flag=flag,
            sys_flag=sys_flag & ~HOSTS,
            born_host=born,
            store_host=store_host,
            reconsume_times=reconsume_times,
            prepared_offset=prepared_offset,
            with_crc=settings.record_crc,
        )
        return Sort(((topic, queue), store_time_at(born), settings.record_crc), made)

    def _check_fits(self, size: int, what: str) -> None:
        """`MessageIllegal` for what no file of the store could hold."""
        file_bytes = self._settings.file_bytes
        if not fits(size, file_bytes):
            raise MessageIllegal(
                f"the {what} has {size} bytes: a file of {file_bytes} holds {file_bytes - FILLER_BYTES} (file_bytes)"
            )


def _pairs(tags: str, keys: str, unique_id: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a record, those that are members of the message first."""
    pairs = {KEYS: keys} if keys else {}
    if tags:
        pairs[TAGS] = tags
    pairs[UNIQUE_ID] = unique_id
    for name, value in properties.items():
        if name in OF_BATCHES:
            raise MessageIllegal(f"the property {name} marks an inner batch, which can be imported, not put")
        if name == LEVEL and (not LEVELS.fullmatch(value) or not -BEYOND <= int(value) < BEYOND):
            raise MessageIllegal(f"the property {name} is the level of a delay, a number of 32 bits")
        if name != CRC:  # of another record; a store with `record_crc` adds its own
            pairs.setdefault(name, value)
    return pairs
