"""Guards of copies between clusters, as `mutants.py` has those of ledgers."""

from tests.simulation.guards import mutant

MIRROR = "quire.log.mirror.mirror:Mirror"
WAY_OVER = "await self.copy_until(await self.fence())"
PLACED = ("quire.log.owner.appending.encoder:Encoder._check_place",
          "(self.index, self.position) != original[:2] or original.stamp < self.stamp", "False")  # fmt: skip

MIRROR_MUTANTS = (
    mutant("a log goes over without a fence", "mirroring.md, going over", "log mirror",
           (f"{MIRROR}.switch", WAY_OVER, "await self.copy_until()")),
    mutant("a log goes over without its last records", "mirroring.md, going over", "log mirror",
           (f"{MIRROR}.switch", WAY_OVER, "await self.fence()")),
    mutant("a log with records of its own becomes a copy", "mirroring.md, failing back", "log mirror",
           (f"{MIRROR}._turn", "check_copy(lineage, name, end, Lineage(source.id, source.origins))", "pass"),
           (f"{MIRROR}._check",
            "check_copy(Lineage(copy.id, copy.origins), self.copy_name, end, Lineage(source.id, source.origins))",
            "pass"),
           (f"{MIRROR}._check", "if not self._unseen and mine != theirs:", "if False:")),
    mutant("a mirror that goes on begins with the first record", "mirroring.md, begin a copy", "log mirror",
           (f"{MIRROR}.begin", "self._lag = Lag(self._clock.seconds(), owner.end.index)",
            "self._lag = Lag(self._clock.seconds(), self._begin)"),
           PLACED),
    mutant("a round of copying ends with appends under way", "mirroring.md, begin a copy", "log mirror",
           ("quire.log.mirror.carrying:Carrying.carry", "await self._drained()", "pass"), PLACED),
)  # fmt: skip
