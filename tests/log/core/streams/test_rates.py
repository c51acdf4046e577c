"""Buckets: a rate is kept over time, a batch larger than a bucket makes debt, other rates count at once."""

import math
from random import Random

from quire.log.core.streams.rates import UNLIMITED, Bucket, Rate

# SPDX-License-Identifier: Apache-2.0


def taken(bucket, rate, sizes, seconds, now=0.0):
    """Amounts that were taken in so many seconds by one who always wants more."""
    end, total = now + seconds, 0
    for size in sizes:
        now += bucket.wait_s(now, rate)
        if now >= end:
            return total
        bucket.take(size)
        total += size
    raise AssertionError("not enough sizes")


def test_a_rate_is_kept_over_time():
    """Within 5 % over ten seconds, with sizes from one to a hundredth of a second's worth."""
    dice = Random(1)
    for rate in (10_000, 1_000_000):
        sizes = [dice.randint(1, rate // 100) for _ in range(10_000)]
        assert 0.95 * 10 * rate <= taken(Bucket(), rate, sizes, 10) <= 1.05 * 10 * rate


def test_a_batch_larger_than_the_bucket_makes_debt():
    """It is taken at once, and the next waits until it is paid."""
    bucket = Bucket()
    assert bucket.wait_s(0.0, 100) == 0
    bucket.take(1000)
    assert bucket.wait_s(0.0, 100) == 10
    assert bucket.wait_s(4.0, 100) == 6
    assert bucket.wait_s(10.0, 100) == 0


def test_what_was_not_used_is_kept_for_a_second():
    """Never more."""
    bucket = Bucket()
    bucket.wait_s(0.0, 100)
    assert bucket.wait_s(3600.0, 100) == 0
    bucket.take(100)
    assert bucket.wait_s(3600.0, 100) == 0
    bucket.take(1)
    assert math.isclose(bucket.wait_s(3600.0, 100), 0.01)


def test_other_rates_count_at_once():
    """A debt is paid at the new one; without a rate there is none; 0 stops all."""
    bucket = Bucket()
    bucket.wait_s(0.0, 100)
    bucket.take(1000)
    assert bucket.wait_s(0.0, 1000) == 1
    assert bucket.wait_s(0.0, 0) == math.inf
    assert bucket.wait_s(0.0, UNLIMITED) == 0
    bucket.take(1 << 40)
    assert bucket.wait_s(0.0, 100) == 0


def test_a_clock_that_goes_back_gives_nothing():
    """Nor does it take anything."""
    bucket = Bucket()
    bucket.wait_s(10.0, 100)
    bucket.take(100)
    assert bucket.wait_s(5.0, 100) == 1
    assert bucket.wait_s(6.0, 100) == 0


def test_the_slower_of_records_and_bytes_counts():
    """Each has a bucket of its own."""
    rate = Rate()
    assert rate.wait_s(0.0, 10, 1000) == 0
    rate.take(20, 500)
    assert rate.wait_s(0.0, 10, 1000) == 2
    assert rate.wait_s(2.0, 10, 1000) == 0
    rate.take(1, 5000)
    assert math.isclose(rate.wait_s(2.0, 10, 1000), 4)  # a second's worth had come together
    assert rate.wait_s(2.0, UNLIMITED, UNLIMITED) == 0
