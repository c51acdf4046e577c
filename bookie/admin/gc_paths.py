"""
The paths of garbage collection over HTTP.

    PUT /api/v1/bookie/gc                     a round now; body {"forceMajor": bool, "forceMinor": bool}, both true
                                              if not given
    GET /api/v1/bookie/gc                     {"is_in_force_gc": "true" or "false"} and our own status
    GET /api/v1/bookie/gc_details             a list: for each ledger directory the compactions so far
    PUT /api/v1/bookie/gc/suspend_compaction  {"suspendMajor": bool, "suspendMinor": bool}; a restart forgets it
    GET /api/v1/bookie/gc/suspend_compaction  {"isMajorGcSuspended": "true" or "false", "isMinorGcSuspended": …}
    PUT /api/v1/bookie/gc/resume_compaction   {"resumeMajor": bool, "resumeMinor": bool}

Paths and keys are BookKeeper's.
Knows: paths.  Does not know: what a round does.
"""

from typing import Any

from quire.bookie.admin.gate import Routes
from quire.bookie.admin.http import Answer, Asked, document
from quire.bookie.upkeep.garbage import Garbage
from quire.metadata.formats.json_text import parse_json

# SPDX-License-Identifier: Apache-2.0

GC = "/api/v1/bookie/gc"
DETAILS = "/api/v1/bookie/gc_details"
SUSPEND, RESUME = f"{GC}/suspend_compaction", f"{GC}/resume_compaction"


class GcPaths:
    """Answers requests for the garbage collection of one bookie."""

    def __init__(self, garbage: Garbage, bookie: str) -> None:
        self._garbage = garbage
        self._bookie = bookie
        self.routes: Routes = {
            **{("GET", path): self._show for path in (GC, DETAILS, SUSPEND)},
            **{("PUT", path): self._change for path in (GC, SUSPEND, RESUME)},
        }

    def _show(self, asked: Asked) -> Answer:
        return document(self._get(asked.path))

    def _change(self, asked: Asked) -> Answer:
        names = {
            GC: ("forceMajor", "forceMinor"),
            SUSPEND: ("suspendMajor", "suspendMinor"),
            RESUME: ("resumeMajor", "resumeMinor"),
        }[asked.path]
        wanted = flags(asked.body, names, asked.path == GC)
        if wanted is None:
            return Answer(
                400, f"the body must be a JSON object of {names[0]} and {names[1]}, each true or false\n".encode()
            )
        major, minor = wanted
        if asked.path == GC:
            self._garbage.force(minor=minor, major=major)
            return Answer(200, f"Triggered GC on BookieServer: {self._bookie}\n".encode())
        if major:
            self._garbage.major.suspended = asked.path == SUSPEND
        if minor:
            self._garbage.minor.suspended = asked.path == SUSPEND
        return document(self._get(SUSPEND))

    def _get(self, path: str) -> object:
        garbage = self._garbage
        if path == GC:
            return {"is_in_force_gc": text(garbage.forced), **garbage.status()}
        if path == SUSPEND:
            return {
                "isMajorGcSuspended": text(garbage.major.suspended),
                "isMinorGcSuspended": text(garbage.minor.suspended),
            }
        status = garbage.status()
        return [
            {
                "forceCompacting": garbage.forced,
                "majorCompacting": status["running"],
                "minorCompacting": status["running"],
                "majorCompactionCounter": garbage.major.count,
                "minorCompactionCounter": garbage.minor.count,
                **directory,
            }
            for directory in status["directories"]
        ]


def flags(body: bytes, names: tuple[str, str], otherwise: bool) -> tuple[bool, bool] | None:
    """Both truth values of a JSON object; an empty body means `otherwise` for both.  None: it is no such object."""
    try:
        given: Any = parse_json(body) if body.strip() else {}
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    first, second = (given.get(name, otherwise if not given else False) for name in names)
    return (first, second) if isinstance(first, bool) and isinstance(second, bool) else None


def text(value: bool) -> str:
    """A truth value as BookKeeper writes it here."""
    return "true" if value else "false"
