"""A reactor that can keep what threads hand to it, as if the process of a store slept while its library went on."""

# SPDX-License-Identifier: Apache-2.0


class Sleeper:
    """The reactor in all else.  `hops` is how much was handed over."""

    def __init__(self, reactor) -> None:
        self._reactor = reactor
        self._awaited = None
        self.asleep = False
        self.kept = []
        self.hops = 0
        self.seconds = reactor.seconds
        self.callLater = reactor.callLater

    def callFromThread(self, fn, *args) -> None:
        """From any thread."""
        self._reactor.callFromThread(self._hand, fn, args)

    def _hand(self, fn, args) -> None:
        self.hops += 1
        if not self.asleep:
            fn(*args)
            return
        self.kept.append((fn, args))
        if self._awaited is not None and self._awaited[0](args):
            (_, deferred), self._awaited = self._awaited, None
            deferred.callback(None)

    def until(self, wanted, deferred):
        """Fires the Deferred when something is kept whose arguments are as wanted."""
        self._awaited = wanted, deferred
        if any(wanted(args) for _, args in self.kept):
            self._awaited = None
            deferred.callback(None)
        return deferred

    def wake(self, before=None) -> None:
        """
        Hands over what was kept, in order: all of it, or what came before something with such arguments, and sleeps on.
        """
        while self.kept and not (before is not None and before(self.kept[0][1])):
            fn, args = self.kept.pop(0)
            fn(*args)
        self.asleep = before is not None
