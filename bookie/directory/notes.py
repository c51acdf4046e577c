"""
The small files of a ledger directory in which a bookie notes what a later start must know.

`quire.lost`: ledger directories that have failed while others went on, written in the others before the journal frees
what was meant for them: the paths of the failed directories, a line each, and a last line with the CRC32C of those
before it in hex.  At the next start the ledgers of such a directory are put in limbo, whether the directory is back as
it was or an empty one took its place (`lifecycle.limbo`).

`quire.doubted`: the ledgers of which the index that Apache left may lack entries, written in all of them before Apache
is kept out, until those that exist are in limbo: their ids, otherwise as above.

`quire.restoring`: in a directory that lost its data, until it has its cookie, so that an interrupted restore begins
again.  `quire.limbo`: in every ledger directory while any ledger is in limbo, with the word COPYING until each was
copied once.  `DIRTY`: in every ledger directory while a bookie runs on it, as Apache's has it; it holds the id of the
machine's boot, and whether the journal is synced.  One that is not outlives a killed process, but not the machine: then
all ledgers are in limbo after the start.

Knows: these files.  Does not know: why a directory fails, how a storage keeps limbo.
"""

from collections.abc import Collection, Iterable, Sequence

from crc32c import crc32c

from quire.bookie.layout import DIRTY, DOUBTED, LIMBO, LOST, RESTORING, current
from quire.conf.bookie import BookieOptions
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

SYNCED, UNSYNCED = b"synced", b"unsynced"  # the last word in DIRTY, which is an empty file of Apache's
# what LIMBO says: not every ledger was compared yet; some wait for their writer or for a peer
COPYING, WAITING = b"copying\n", b"waiting\n"


def note_failed(files: Files, living: Iterable[str], failed: Sequence[str]) -> None:
    """`living`, `failed`: paths as they are configured.  Durable on return; `OSError`."""
    text = _with_sum([path.encode("utf-8", "surrogateescape") for path in failed])
    _note(files, living, LOST, text)


def noted_failed(files: Files, directories: Sequence[str]) -> list[str]:
    """Returns the configured ledger directories that have failed.  `StorageError` names a damaged file; `OSError`."""
    named = set().union(*(named_failed(files, directory) for directory in directories))
    return [directory for directory in directories if directory in named]


def named_failed(files: Files, directory: str) -> set[str]:
    """The failed directories that the note in one directory names."""
    return {line.decode("utf-8", "surrogateescape") for line in _lines(files, current(directory, LOST))}


def forget_failed(files: Files, directories: Iterable[str]) -> None:
    """Removes the note of failed directories: their ledgers are in limbo now, durably."""
    _note(files, directories, LOST, None)


def note_doubted(files: Files, directories: Iterable[str], ledgers: Iterable[int]) -> None:
    """Durable on return; `OSError`."""
    text = _with_sum([b"%d" % ledger for ledger in sorted(ledgers)])
    _note(files, directories, DOUBTED, text)


def noted_doubted(files: Files, directory: str) -> set[int]:
    """The ledgers that the note in one directory names.  `StorageError` that names a damaged file, `OSError`."""
    return set(map(int, _lines(files, current(directory, DOUBTED))))


def forget_doubted(files: Files, directories: Iterable[str]) -> None:
    """Removes the note of doubted ledgers: those that exist are in limbo now, durably."""
    _note(files, directories, DOUBTED, None)


def _note(files: Files, directories: Iterable[str], name: str, text: bytes | None) -> None:
    """Puts a note into each of the directories, durably; None removes it."""
    for directory in directories:
        path = current(directory, name)
        if text is None:
            files.unlink(path)
        else:
            files.replace(path, text)


def _with_sum(lines: Iterable[bytes]) -> bytes:
    text = b"".join(line + b"\n" for line in lines)
    return text + b"%08x\n" % crc32c(text)


def _lines(files: Files, path: str) -> list[bytes]:
    text = files.read_file(path)
    if text is None:
        return []
    lines, check = text[:-9], text[-9:]
    if check != b"%08x\n" % crc32c(lines):
        raise StorageError(
            f"{path} at offset {len(lines)}: damaged (its checksum is wrong); each ledger directory has the same note: "
            "copy it from another one, and where none is whole, start with --restore on empty directories"
        )
    return lines.splitlines()


def note_restoring(files: Files, directory: str) -> None:
    """The directory lost its data, and is being restored."""
    files.make_directories(current(directory))
    files.replace(current(directory, RESTORING), b"")


def is_restoring(files: Files, directory: str) -> bool:
    return files.exists(current(directory, RESTORING))


def forget_restoring(files: Files, directories: Iterable[str]) -> None:
    """The directories have their cookies."""
    _note(files, directories, RESTORING, None)


def whole(files: Files, directory: str, options: BookieOptions, boot: bytes) -> bool | None:
    """
    True if what the last run in a directory acknowledged is there, whatever became of its process: it synced its
    journal, or the machine was not started since (`boot`).  None: it ended cleanly, or there was none.  What that run
    was configured to do counts, not what this one is; a note that does not say, as Apache's, is taken to be of a run
    like this one.
    """
    note = files.read_file(current(directory, DIRTY))
    if note is None:
        return None
    words = note.split()
    synced = words[-1] == SYNCED if words and words[-1] in (SYNCED, UNSYNCED) else options.journal_sync_data
    return synced or (bool(boot) and words[:-1] == boot.split())


def has_run(files: Files, directory: str) -> bool:
    """True if a bookie of ours opened its journals in a directory and did not end cleanly."""
    words = (files.read_file(current(directory, DIRTY)) or b"").split()
    return bool(words) and words[-1] in (SYNCED, UNSYNCED)


def unclean(files: Files, options: BookieOptions, boot: bytes, stale: Collection[str] = ()) -> bool:
    """
    True if the last run may have lost what it acknowledged: it did not sync, did not end cleanly, and the machine was
    started since.  `stale`: ledger directories whose notes are of an earlier run, for they failed in it or before it.
    """
    return any(
        whole(files, directory, options, boot) is False
        for directory in options.ledger_directories
        if directory not in stale
    )


def note_running(files: Files, options: BookieOptions, boot: bytes | None) -> None:
    """Says in every ledger directory that a bookie runs on it, since the boot with this id; None: it ended cleanly."""
    synced = SYNCED if options.journal_sync_data else UNSYNCED
    text = None if boot is None else b" ".join((*boot.split(), synced)) + b"\n"
    _note(files, options.ledger_directories, DIRTY, text)


def note_limbo(files: Files, options: BookieOptions, state: bytes | None) -> None:
    """Says in every ledger directory whether ledgers are in limbo (None: none is)."""
    _note(files, options.ledger_directories, LIMBO, state)


def noted_limbo(files: Files, options: BookieOptions) -> bytes | None:
    """COPYING, WAITING, or None: no ledger is in limbo."""
    in_limbo = [
        note
        for directory in options.ledger_directories
        if (note := files.read_file(current(directory, LIMBO))) is not None
    ]
    if not in_limbo:
        return None
    return WAITING if set(in_limbo) == {WAITING} else COPYING
