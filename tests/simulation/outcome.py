"""Something that the code under test was asked, and its one answer."""

from typing import Any

from twisted.internet.defer import Deferred

UNEXPECTED = -999  # the code of a failure that is none of the ledger's


class Outcome:
    """What became of something that was asked."""

    def __init__(self, deferred: "Deferred[Any]", done: Any = None) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False
        self._then = done
        deferred.addCallbacks(self._succeeded, self._failed)

    def _succeeded(self, value: Any) -> None:
        self.done, self.value = True, value
        if self._then is not None:
            self._then(self)

    def _failed(self, failure: Any) -> None:
        self.done, self.error = True, failure.value
        if self._then is not None:
            self._then(self)

    @property
    def code(self) -> int:
        return 0 if self.error is None else int(getattr(self.error, "code", UNEXPECTED))
