"""What every daemon's process does: its pid file, its log, its heap.  Each kind has its own tests, too."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from quire.tools.daemons.process import AUTORECOVERY, BOOKIE, check_pidfile, is_running
from tests.tools.bookie_process import WAIT_S

# SPDX-License-Identifier: Apache-2.0


def test_its_log_is_put_aside_when_it_is_full(tmp_path: Path) -> None:
    """Old files are few; what the interpreter itself writes goes to the new one.  A device is written to as it is."""
    program = """
        import os, sys
        from twisted.logger import Logger
        from quire.tools.daemons import process
        path = sys.argv[1]
        process.begin_logging(process.log_file(path, 1000, 2))
        log = Logger(namespace="test")
        for number in range(100):
            log.info("line {number} of some words", number=number)
        os.write(2, b"by hand\\n")
        log.info("the last one")
        print(process.log_file("/dev/null") is sys.stderr)
        """
    log = tmp_path / "bookie.log"
    log.write_text("from before\n")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(log)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bookie.log", "bookie.log.1", "bookie.log.2"]
    assert all(path.stat().st_size < 1100 for path in tmp_path.iterdir())
    assert log.read_text().splitlines()[-2] == "by hand"
    assert log.read_text().endswith("the last one\n")
    assert "line 98 of" in log.read_text() + (tmp_path / "bookie.log.1").read_text()


def test_threads_share_one_heap(tmp_path: Path) -> None:
    """In glibc's own words; threads with heaps of their own would keep what others could use."""
    program = """if True:
        import ctypes, sys, threading
        from quire.tools.daemons.process import share_memory

        share_memory()
        together = threading.Barrier(5)
        fill = lambda: (together.wait(), [bytes(10_000) for _ in range(100)], together.wait())
        threads = [threading.Thread(target=fill) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        c = ctypes.CDLL(None)
        c.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(c.fopen(sys.argv[1].encode(), b"w"))
        c.malloc_info(0, file)
        c.fclose(file)
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "heaps")], check=True, timeout=WAIT_S)
    assert (tmp_path / "heaps").read_text().count("<heap nr=") == 1


def test_a_pid_file_counts_while_one_of_the_kind_runs(tmp_path: Path) -> None:
    """A process of another program, or a daemon of another kind, has only got the number; nonsense is no number."""
    path = tmp_path / "pid"
    check_pidfile(None, BOOKIE)
    check_pidfile(str(path), BOOKIE)
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, BOOKIE.module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        assert is_running(other.pid, BOOKIE)
        assert not is_running(other.pid, AUTORECOVERY)
        path.write_text(f"{other.pid}\n")
        check_pidfile(str(path), AUTORECOVERY)
        with pytest.raises(OSError, match="which is a running bookie; `quire bookie stop --pidfile"):
            check_pidfile(str(path), BOOKIE)
        other.communicate(timeout=WAIT_S)
    assert not is_running(other.pid, BOOKIE)
    for text in ("", "x", str(os.getpid())):
        path.write_text(text)
        check_pidfile(str(path), BOOKIE)


def test_the_collector_is_seldom_asked_during_the_start_and_not_at_all_for_what_it_made() -> None:
    """Each look would hold the start up."""
    program = """
        import gc
        from argparse import Namespace
        from quire.tools.daemons import process

        class Service:
            ending = None

            def __init__(self, reactor):
                self.reactor = reactor
                print(gc.get_threshold() == process.GC_THRESHOLDS)

            def begin(self):
                looks = sum(one["collections"] for one in gc.get_stats())
                process.settle_memory()
                print(gc.get_freeze_count() > 10_000, sum(one["collections"] for one in gc.get_stats()) == looks)
                self.reactor.callLater(0, self.reactor.stop)

            def stop(self):
                pass

        print(process.run(Namespace(daemon=False, stop_with_stdin=False), process.Prepared("", [], Service)))
        """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert found.stdout.split() == ["True", "True", "True", "None"]


def test_two_signals_in_one_turn_stop_it_once() -> None:
    """As `timeout` sends them, to a process and to its group: the log has no fault."""
    program = """
        import os, signal
        from argparse import Namespace
        from quire.tools.daemons import process

        class Service:
            ending = None

            def __init__(self, reactor):
                pass

            def begin(self):
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)

            def stop(self):
                print("stopped")

        print(process.run(Namespace(daemon=False, stop_with_stdin=False), process.Prepared("", [], Service)))
        """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert found.stdout.split() == ["stopped", "None"]
    assert "ReactorNotRunning" not in found.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_behind_daemon_that_is_interrupted_is_none(tmp_path: Path, number: signal.Signals) -> None:
    """What does not serve yet, as while the metadata store is away, is stopped, too; its pid file goes."""
    program = """
        import os, sys
        from argparse import Namespace
        from quire.tools.daemons import process

        said = int(sys.argv[1])

        class Service:
            ending = None

            def __init__(self, reactor):
                pass

            def begin(self):
                os.write(said, b"begun ")

            def stop(self):
                os.write(said, b"stopped")

        given = Namespace(daemon=True, stop_with_stdin=False, pidfile="pid", log="log")
        sys.exit(process.lived(process.BOOKIE, given, process.Prepared("log", [], Service)))
        """
    there, here = os.pipe()
    command = [sys.executable, "-c", textwrap.dedent(program), str(here)]
    with (
        os.fdopen(there, "rb", buffering=0) as said,
        subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, pass_fds=[here]) as process,
    ):
        os.close(here)
        assert said.read(6) == b"begun "
        process.send_signal(number)
        text = b"quire: interrupted; bookie is asked to stop, and its log is log\n"
        assert (process.communicate(timeout=WAIT_S)[1], process.returncode) == (text, 130)
        assert said.read() == b"stopped"  # and the end of the process
    assert not (tmp_path / "pid").exists()
