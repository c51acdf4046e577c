"""
The output of the commands: results on standard output (lines for people, JSON with --json), everything else on standard
error.

Knows: the --json rule (one document, or one a line for lists), and how lines, tables and progress look on a terminal
and elsewhere.
Does not know: what is printed.  rich is imported only when a bar is drawn.
"""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

# SPDX-License-Identifier: Apache-2.0

PLAIN_INTERVAL_S = 5.0  # between two plain progress lines
DRAW_INTERVAL_S = 0.1  # between two updates of a bar
FOLD = "    "  # before what goes on from the line above


def note(text: str) -> None:
    """A line for the user: standard error."""
    print(text, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """True if results are shown to a person as they come."""
    return sys.stdout.isatty()


def as_json(value: object) -> str:
    """One line of JSON; bytes become text where they are UTF-8, else `hex:…`."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def document(json_wanted: bool, value: Mapping[str, Any], lines: Sequence[str] | str | None = None) -> None:
    """One result: the JSON document, or `lines` (else `key: value` for each item)."""
    if json_wanted:
        print(as_json(value), flush=True)
        return
    if lines is None:
        width = max((len(key) for key in value), default=0) + 1
        lines = [f"{key + ':':<{width}} {_text(item)}" for key, item in value.items()]
    text = lines if isinstance(lines, str) else "\n".join(lines)
    print("\n".join(folded(line, columns_shown()) for line in text.split("\n")), flush=True)


def columns_shown() -> int | None:
    """How wide the terminal is on which results are shown; None: elsewhere a line stays whole, for scripts."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def folded(line: str, columns: int | None) -> str:
    """A line as it is, or over several ones where a terminal is too narrow for it."""
    if columns is None or len(line) <= columns:
        return line
    parts = textwrap.wrap(line, columns, subsequent_indent=FOLD, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


class Table:
    """
    A list as it is found: one JSON document a line, or columns of the given widths under a heading.  On a terminal that
    is too narrow for all columns those that are left go on in the next line.
    """

    def __init__(self, json_wanted: bool, columns: Mapping[str, int]) -> None:
        self._json = json_wanted
        self._columns = columns
        self._shown = columns_shown()
        self._begun = False

    def row(self, value: Mapping[str, Any]) -> None:
        if not self._begun and not self._json:
            self._line({name: name.upper().replace("_", " ") for name in self._columns})
        self._begun = True
        if self._json:
            print(as_json(value), flush=True)
        else:
            self._line(value)

    def end(self, empty: str) -> None:
        """After the last row: where there was none, says so on standard error."""
        if not self._begun:
            note(empty)

    def _line(self, value: Mapping[str, Any]) -> None:
        lines = [""]
        for name, width in self._columns.items():
            cell = f"{_text(value.get(name)):<{width}}"
            room = None if self._shown is None else self._shown - len(lines[-1])
            if room is not None and lines[-1].strip() and max(width, len(name)) > room:
                lines.append(FOLD)
            lines[-1] += f"{cell}  "
        print("\n".join(folded(line.rstrip(), self._shown) for line in lines), flush=True)


def size_text(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def iso_time(ms: int, timespec: str = "milliseconds") -> str:
    """A time in UTC, from ms since 1970; the number where it is in no year of a calendar, as who wrote it may say."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec=timespec)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def time_text(ms: int) -> str:
    """Makes a time for people, to the second."""
    return iso_time(ms, "seconds").replace("T", " ").replace("+00:00", "Z")


class ProgressBar:
    """
    How far a long piece of work is: a bar with rate and time left on a terminal, else a line every five seconds.

    `total` may be None: unknown.  `advance` is meant to be called per batch, not per entry.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        unit: str = "entries",
        stream: TextIO | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0
        self._stream = sys.stderr if stream is None else stream
        self._seconds = seconds
        self._start = self._last = seconds()
        self._bar: RichProgress | None = None

    def __enter__(self) -> "ProgressBar":
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._task = self._bar.add_task(self.title, total=self.total, unit=self.unit, rate="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()
        elif kind is None:
            self._print(f"{self.title}: {self._amount(self.done)} in {self.elapsed:.1f} s, {self._rate()}")

    @property
    def elapsed(self) -> float:
        return max(self._seconds() - self._start, 1e-9)

    def advance(self, count: int) -> None:
        self.done += count
        now = self._seconds()
        if self._bar is not None:
            if now - self._last >= DRAW_INTERVAL_S:
                self._last = now
                self._draw()
        elif now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            self._print(f"{self.title}: {self._amount(self.done)}{self._share()}, {self._rate()}{self._left()}")

    def note(self, text: str) -> None:
        """A line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._print(text)

    def _draw(self) -> None:
        assert self._bar is not None
        self._bar.update(self._task, completed=self.done, total=self.total, rate=self._rate())

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _amount(self, count: float) -> str:
        return size_text(count) if self.unit == "bytes" else f"{count:,.0f} {self.unit}"

    def _rate(self) -> str:
        return self._amount(self.done / self.elapsed) + "/s"

    def _share(self) -> str:
        return f" of {self._amount(self.total)} ({100 * self.done / self.total:.0f} %)" if self.total else ""

    def _left(self) -> str:
        if not self.total or not self.done:
            return ""
        return f", {self.elapsed * (self.total - self.done) / self.done:.0f} s left"


class Events:
    """How far a long piece of work is, for programs: a JSON document a line every five seconds, and one at its end."""

    def __init__(self, event: str, stream: TextIO | None = None, seconds: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._stream = sys.stderr if stream is None else stream
        self._seconds = seconds
        self._start = self._last = seconds()

    @property
    def elapsed(self) -> float:
        return max(self._seconds() - self._start, 1e-9)

    def tell(self, value: Callable[[float], Mapping[str, Any]], *, last: bool = False) -> None:
        """`value` is asked for only when it is time, with the seconds since the beginning."""
        now = self._seconds()
        if last or now - self._last >= PLAIN_INTERVAL_S:
            self._last = now
            elapsed = self.elapsed
            print(
                as_json({"event": self._event, "seconds": round(elapsed, 3), **value(elapsed)}),
                file=self._stream,
                flush=True,
            )


def _bar(stream: TextIO) -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=stream),
        auto_refresh=False,
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items())
    return str(_plain(value)) if isinstance(value, bytes) else str(value)


def _plain(value: object) -> object:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"hex:{data.hex()}"
    return str(value)
