"""Changes of a metadata store that wait until a test lets them go."""

from twisted.internet.defer import Deferred

# SPDX-License-Identifier: Apache-2.0


class Gate:
    """Holds an operation of an object: `reached` fires when it is asked for first, and `open()` lets all of them go."""

    def __init__(self, of, name, after=False):
        """`after`: it takes effect at once, and its answer waits."""
        self.reached = Deferred()
        self._after = after
        self._operation = getattr(of, name)
        self._waiting = []
        self._is_open = False
        setattr(of, name, self._held)

    def _held(self, *arguments):
        return Deferred.fromCoroutine(self._run(arguments))

    async def _run(self, arguments):
        answer = self._operation(*arguments) if self._after else None
        if not self.reached.called:
            self.reached.callback(None)
        if not self._is_open:
            self._waiting.append(Deferred())
            await self._waiting[-1]
        return await (answer or self._operation(*arguments))

    def open(self):
        """What waits goes, and what comes."""
        self._is_open = True
        for each in self._waiting:
            each.callback(None)
