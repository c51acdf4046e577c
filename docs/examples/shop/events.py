"""
One day of a shop's orders, as its gateway gets them: JSON from a site and an app, most of it right.  Some come late
and out of order, some twice, and some are broken in the ways that real senders break them.

Knows: the shop's products, what went wrong on that day (`INCIDENTS`), and how to draw all of it from a seed.
Does not know: logs or Spark.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

DAY = datetime(2026, 11, 27, tzinfo=UTC)
MINUTES = 24 * 60
PRODUCTS = [  # the table that orders are joined with: sku, product, category, price in cents
    ("cof-1", "espresso beans 1 kg", "coffee", 2290),
    ("cof-2", "filter coffee 500 g", "coffee", 1290),
    ("cof-3", "decaf beans 500 g", "coffee", 1490),
    ("tea-1", "Darjeeling 250 g", "tea", 1350),
    ("tea-2", "sencha 100 g", "tea", 1180),
    ("tea-3", "mint 100 g", "tea", 590),
    ("cho-1", "dark chocolate 85 %", "chocolate", 420),
    ("cho-2", "pralines 24 pieces", "chocolate", 1950),
    ("equ-1", "hand grinder", "equipment", 5900),
    ("equ-2", "kettle 1 l", "equipment", 4450),
]
MOST = 100  # of a product in one order
POPULAR = [10, 12, 4, 6, 5, 5, 9, 4, 2, 2]
OFFER = [20, 24, 8, *POPULAR[3:]]  # while coffee is on offer
CITIES = ["Köln", "Zürich", "Paris", "Genève", "Wien", "Praha", "Łódź"]


class Incident(NamedTuple):
    """What happened on that day, from one minute to another, in the chart's words."""

    begin: int
    end: int
    text: str


CUT = Incident(4 * 60, 4 * 60 + 45, "a full disk\ncuts lines")
RELEASE = Incident(14 * 60, 15 * 60 + 30, "new app writes\nquantities as words")
FLASH = Incident(20 * 60, 21 * 60, "coffee\non offer")
INCIDENTS = [CUT, RELEASE, FLASH]


class Arrival(NamedTuple):
    """A record of the log: when the gateway took it, whose it is, and what was sent."""

    time_ms: int
    key: bytes
    value: bytes


def day(seed: int, orders: int) -> list[Arrival]:
    """Returns what the gateway gets on that day, in the order of arrival."""
    rng = random.Random(seed)
    arrivals = []
    minutes = rng.choices(range(MINUTES), [rate(minute) for minute in range(MINUTES)], k=orders)
    for number, minute in enumerate(sorted(minutes)):
        at = DAY + timedelta(minutes=minute, milliseconds=rng.randrange(60_000))
        app = rng.random() < 0.45
        order = {
            "order": f"o{number:06}",
            "at": at.isoformat(timespec="milliseconds"),
            "sku": rng.choices(PRODUCTS, OFFER if is_in(FLASH, minute) else POPULAR)[0][0],
            "quantity": rng.choices([1, 2, 3, 6], [70, 20, 7, 3])[0],
            "channel": "app" if app else "site",
            "city": rng.choice(CITIES),
        }
        arrival = Arrival(
            int((at + delay(rng, app)).timestamp() * 1000),
            f"customer {rng.randrange(4000)}".encode(),
            sent(rng, order, at, minute),
        )
        arrivals.append(arrival)
        if rng.random() < 0.03:  # no answer came in time, so it was sent again
            arrivals.append(arrival._replace(time_ms=arrival.time_ms + rng.randrange(1000, 120_000)))
    return sorted(arrivals)


def rate(minute: int) -> float:
    """Returns how much is ordered in a minute of the day, beside the others: little at night, most in the evening."""
    hour = minute / 60
    usual = 0.12 + bump(hour, 10, 2) * 0.5 + bump(hour, 14, 3) * 0.6 + bump(hour, 19.5, 2.5)
    return usual * (1.6 if is_in(FLASH, minute) else 1)


def bump(hour: float, middle: float, width: float) -> float:
    """Returns 1 in the middle, and less to both sides of it."""
    return float(2 ** -(((hour - middle) / width) ** 2))


def is_in(incident: Incident, minute: int) -> bool:
    """True if the incident goes on in this minute."""
    return incident.begin <= minute < incident.end


def delay(rng: random.Random, app: bool) -> timedelta:
    """Returns how long an order is on its way: seconds; of a phone without a network up to hours."""
    drawn = rng.random()
    if app and drawn < 0.006:
        return timedelta(minutes=rng.uniform(31, 240))  # more than anybody waits for
    if app and drawn < 0.12:
        return timedelta(minutes=rng.uniform(1, 28))
    return timedelta(seconds=rng.expovariate(1 / 3))


def sent(rng: random.Random, order: dict[str, object], at: datetime, minute: int) -> bytes:
    """Returns the bytes of an order: JSON, or what became of it."""
    drawn = rng.random()
    if order["channel"] == "app" and is_in(RELEASE, minute):
        order["quantity"] = {1: "one", 2: "two", 3: "three", 6: "six"}[int(str(order["quantity"]))]
    elif drawn < 0.003:
        del order[rng.choice(["sku", "at", "quantity"])]
    elif drawn < 0.007:
        order["sku"] = f"tea-{rng.randrange(90, 99)}"  # sold out, and off the table
    elif drawn < 0.009:
        order["at"] = (at + timedelta(days=365)).isoformat(timespec="milliseconds")  # a phone of next year
    elif drawn < 0.011:
        return json.dumps(order | {"city": "Zürich"}, ensure_ascii=False).encode("latin-1")
    elif drawn < 0.013:
        order["quantity"] = rng.choice([0, -1, 999_999_999])
    value = json.dumps(order, ensure_ascii=False).encode()
    if 0.02 < drawn < 0.0205:
        return value + value  # the end of a line was lost between two
    if drawn > (0.6 if is_in(CUT, minute) else 0.999):
        value = value[: rng.randrange(1, len(value))]
    return value
