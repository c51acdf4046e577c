"""One command on the reactor, as a process: its clock, and how it ends at one signal and at two."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from quire.security.jaas import MODULE
from tests.security.authority import Authority
from tests.tools.command import environment, ok, warm

# SPDX-License-Identifier: Apache-2.0

PATIENT = """
    from twisted.internet.defer import Deferred
    from twisted.internet.task import deferLater
    from quire.tools.terminal.running import run

    async def story(reactor):
        try:
            print("begun", flush=True)
            await Deferred()
        finally:
            print("ending", flush=True)
            await deferLater(reactor, 0.5)
            print("ended", flush=True)

    try:
        run(story)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """


def started(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_command_measures_by_a_clock_that_is_never_set() -> None:
    """The reactor of a command uses the monotonic clock."""
    program = """
        import time
        from quire.tools.terminal.running import run

        async def story(reactor):
            return reactor.seconds is time.monotonic

        print(run(story))
        """
    with started(program) as process:
        assert process.communicate(timeout=60) == ("True\n", "")


def test_the_collector_looks_seldom_at_what_a_client_reads(tmp_path: Path) -> None:
    """And never again at what the start of the command made."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    program = f"""
        import gc
        from quire.tools.terminal.running import GC_THRESHOLDS, with_client

        async def story(reactor, client):
            return gc.get_threshold() == GC_THRESHOLDS and gc.get_freeze_count() > 10_000

        print(with_client({uri!r}, story))
        """
    subprocess.run([sys.executable, "-m", "quire.tools", "metadata", "init", "--metadata", uri], check=True, timeout=60)
    with started(program) as process:
        assert process.communicate(timeout=60) == ("True\n", "")


def test_what_is_put_away_at_a_signal_is_put_away_also_when_another_comes() -> None:
    """Ctrl-C pressed twice gives no other end, and no traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with started(PATIENT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            assert process.stdout.readline() == "ending\n"
            process.send_signal(number)
            assert process.communicate(timeout=60) == ("ended\ninterrupted\n", "")
            assert process.returncode == 0


def test_two_signals_that_come_before_the_reactor_sees_the_first() -> None:
    """Both ask it to stop in one turn: the second changes nothing and prints nothing."""
    program = PATIENT.replace("await Deferred()", "[os.kill(os.getpid(), 2) for _ in 'ab']; await Deferred()")
    with started("    import os" + program) as process:
        assert process.communicate(timeout=60) == ("begun\nending\nended\ninterrupted\n", "")


def test_what_a_command_does_after_its_work_can_be_interrupted() -> None:
    """As the reading of a bookie's files, once the metadata store was asked: the reactor keeps no signal for itself."""
    program = """
        import signal
        from quire.tools.terminal.running import run

        async def story(reactor):
            return "done"

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(run(story))
        for number in signal.SIGINT, signal.SIGTERM:
            try:
                signal.raise_signal(number)
                print("goes on")
            except KeyboardInterrupt:
                print("interrupted")
        """
    with started(program) as process:
        assert process.communicate(timeout=60) == ("done\ninterrupted\ninterrupted\n", "")


def test_secrets_that_everybody_can_read_are_warned_of(tmp_path: Path) -> None:
    """A ledger's password in a file, and the account and the key of a client's configuration; the command goes on."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=uri)
    pair = Authority(tmp_path).issue("client")
    files = {name: tmp_path / name for name in ("password", "client.jaas")}
    files["password"].write_text("a password\n")
    files["client.jaas"].write_text(f'BookKeeper {{ {MODULE} required username="u" password="p"; }};\n')
    conf = tmp_path / "client.conf"
    conf.write_text(
        "tlsProviderFactoryClass=true\ntlsClientAuthentication=true\nclientAuthProviderFactoryClass=sasl\n"
        f"clientTrustStore={tmp_path}/authority.pem\ntlsCertificatePath={pair.certificate}\nclientKeyStore={pair.key}\n"
        f"saslJaasFile={files['client.jaas']}\n"
    )
    secrets = [*map(str, files.values()), pair.key]
    for mode, warned in ((0o640, []), (0o644, secrets)):
        for path in secrets:
            Path(path).chmod(mode)
        words = ["ledger", "read", "7", "--password-file", str(files["password"])]
        done = warm().run(words, b"", {**environment(uri), "QUIRE_CONF": str(conf)})
        told = [path for path in secrets if f"can read the secrets in {path}: chmod o-r {path}\n" in done.err]
        assert told == warned, done.err
        assert "NoSuchLedger" in done.err


def test_a_configuration_that_can_not_be_read_ends_no_command_that_does_without(tmp_path: Path) -> None:
    """A store in a file is looked at without it; what needs its options says how to go on."""
    uri = f"sqlite://{tmp_path}/metadata.db"
    ok("metadata", "init", metadata=uri)
    closed = {**environment(uri), "QUIRE_CONF": str(tmp_path)}  # root could read a file of any mode
    done = warm().run(["metadata", "show"], b"", closed)
    assert done.code == 0, done.err
    done = warm().run(["ledger", "read", "7"], b"", closed)
    assert f"{tmp_path}: Is a directory; run this as a user who may read it" in done.err
    assert "QUIRE_CONF=/dev/null" in done.err
    assert "NoSuchLedger" in warm().run(["ledger", "read", "7"], b"", {**closed, "QUIRE_CONF": "/dev/null"}).err
