"""
The words of a command that fails: one line that names what went wrong and the next step, and the exit status.

Knows: which errors are a user's to act on, and a next step for each kind.
Does not know: any command.  An error that is not listed here is a fault of ours, and keeps its traceback.
"""

from quire.bookie.lifecycle.ids import BookieFailed, IdentityError
from quire.metadata.store import CookieExists, CookieNotFound
from quire.protocol import errors
from quire.protocol.log_errors import AppendUnknown, LogFenced, LogTrimmed, NotOwner
from quire.rows.files import StorageError
from quire.tools.local_cluster.etcd import EtcdMissing
from quire.tools.local_cluster.guarded import ServerFailed
from quire.tools.local_cluster.zookeeper import ZooKeeperMissing
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

FAILED, WRONG_USAGE = 1, 2

# The first class that fits; a subclass comes before its base.
NEXT_STEP: tuple[tuple[type[errors.LedgerError], str], ...] = (
    (NotOwner, "`quire log show` says more of it; --force takes the log from its owner"),
    (LogFenced, "another one took the log; what was acknowledged is in it, the rest may be appended again"),
    (AppendUnknown, "`quire log read` shows what is in the log"),
    (LogTrimmed, "`quire log show` says where the log begins; --on-trim skip begins there"),
    (errors.NotEnoughBookies, "`quire bookie list` shows those that are up"),
    (
        errors.UnauthorizedAccess,
        "give the ledger's password with --password-file, or have the right to it (docs/security.md, 9)",
    ),
    (errors.Security, "docs/security.md says how TLS is turned on, and what each refusal means"),
    (errors.NoSuchLedger, "`quire ledger list` shows those there are"),
    (errors.LedgerFenced, "another client recovered this ledger and closed it; write to a new one"),
    (errors.LedgerRecovery, "`quire ledger recover` may be run again when more of its bookies are up"),
    (errors.DigestMatch, "`quire ledger check` shows which copies are damaged"),
    (errors.MetaStoreRefused, "docs/security.md says how ZooKeeper and etcd are told who we are"),
    (CookieExists, "`quire cookie show` prints it"),
    (CookieNotFound, "`quire bookie list` shows the bookies that are known"),
    (errors.BookieHandleNotAvailable, "`quire bookie list` shows those that are up"),
    (errors.Timeout, "`quire bookie list` shows those that are up"),
    (errors.DataUnknown, "`quire ledger check` shows which copies are missing"),
)

STORE_DOWN = "check --metadata and whether the store is up"


def explained(error: BaseException) -> tuple[int, str] | None:
    """(exit status, text) of an error that a user can act on, else None."""
    if isinstance(error, Usage):
        return WRONG_USAGE, str(error)
    if isinstance(error, errors.LedgerError):
        name = type(error).__name__
        text = str(error)
        step = next((step for kind, step in NEXT_STEP if isinstance(error, kind)), None)
        if type(error) in {errors.MetaStore, errors.ZK}:  # those below them are answers of a store that is up
            step = STORE_DOWN
        # A message that already names a command to run needs no second one.
        hint = f"; {step}" if step and "`quire " not in text and step not in text else ""
        return FAILED, f"{name}: {text or 'no more is known'} (code {error.code}){hint}"
    if isinstance(error, ServerFailed | ZooKeeperMissing | EtcdMissing | StorageError | IdentityError | BookieFailed):
        return FAILED, str(error)
    if isinstance(error, OSError):
        return FAILED, _os_text(error)
    if isinstance(error, ValueError):
        return WRONG_USAGE, str(error)
    return None


def _os_text(error: OSError) -> str:
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
