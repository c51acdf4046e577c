"""
Which bookies a ledger's entries go to.

Knows: a random choice among the bookies that can be written to, every one equally likely.
Does not know: who is registered (the caller says), racks and weights (their policies will stand beside this one).

The generator is an argument and every collection is sorted before it is used, so equal seeds give equal choices.
"""

from collections.abc import Collection, Sequence
from random import Random

from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0


class RandomPlacement:
    """Ensembles and replacements drawn with one generator."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def new_ensemble(self, available: Collection[str], size: int, exclude: Collection[str] = ()) -> list[str]:
        """
        `size` different bookies of `available`, none of `exclude`, in random order.  `NotEnoughBookies` names the numbers.
        """
        usable = sorted(set(available) - set(exclude))
        if len(usable) < size:
            raise NotEnoughBookies(f"{size} bookies are needed; {_of(available, exclude, len(usable))}")
        return self._random.sample(usable, size)

    def replacement(self, available: Collection[str], ensemble: Sequence[str], excluded: Collection[str] = ()) -> str:
        """One bookie of `available` that is neither in the ensemble nor excluded.  `NotEnoughBookies` names the numbers."""
        usable = sorted(set(available) - set(ensemble) - set(excluded))
        if not usable:
            raise NotEnoughBookies(f"a bookie is needed beside the {len(ensemble)} of the ensemble; {_of(available, {*ensemble, *excluded}, 0)}")
        return self._random.choice(usable)


def _of(available: Collection[str], barred: Collection[str], usable: int) -> str:
    """ "2 of the 3 writable ones can be used, 1 is excluded"."""
    writable = set(available)
    return f"{usable} of the {len(writable)} writable ones can be used, {len(writable & set(barred))} are excluded"
