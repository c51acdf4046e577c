"""One thread, jobs in groups, in order, and an end."""

import threading

from quire.metadata.worker import GROUP_JOBS_MAX, Worker

# SPDX-License-Identifier: Apache-2.0


def test_jobs_are_done_in_order_on_one_thread():
    """All of them before the end, none twice, whatever the grouping."""
    done, threads = [], set()

    def perform(jobs):
        done.extend(jobs)
        threads.add(threading.current_thread().name)

    worker = Worker("named", perform)
    for number in range(1000):
        worker.submit(number)
    worker.end()
    assert worker.join(10)
    assert done == list(range(1000))
    assert threads == {"named"}


def test_what_waits_is_one_group():
    """While a job runs, the next ones gather; a group has a maximum."""
    begun, go = threading.Event(), threading.Event()
    sizes = []

    def perform(jobs):
        sizes.append(len(jobs))
        begun.set()
        go.wait(60)

    worker = Worker("w", perform)
    worker.submit(0)
    assert begun.wait(60)
    for number in range(GROUP_JOBS_MAX + 5):
        worker.submit(number)
    go.set()
    worker.end()
    assert worker.join(10)
    assert sizes == [1, GROUP_JOBS_MAX, 5]


def test_no_job_no_thread():
    """A worker that was never used has nothing to end."""
    before = threading.active_count()
    worker = Worker("w", lambda jobs: None)
    worker.end()
    assert worker.join(0)
    assert threading.active_count() == before
