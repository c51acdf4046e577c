"""
Pages of HTML, made by Jinja2 from the templates beside this file, and the files that they use.

Knows: how numbers, times and names look, which headers a page has.  Does not know: what is on a page.

Safety: every value is escaped (autoescape), for names and entries are foreign bytes.  A page runs the one script and
the one style sheet that are here, asks no other host, is in no frame, and sends forms to this process alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from quire.bookie.admin.http import Answer
from quire.conf.extras import installs
from quire.conf.properties import ConfigurationError
from quire.console.charts import number_text
from quire.tools.terminal.output import size_text, time_text

if TYPE_CHECKING:
    from jinja2 import Environment

# SPDX-License-Identifier: Apache-2.0

HERE = Path(__file__).parent
HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # its style is inside it, and it has no script
COMMON = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),  # without any a form would come from the origin "null"
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
STATIC = {
    "/style.css": "text/css; charset=utf-8",
    "/live.js": "text/javascript; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}
SIGNS = {
    **{"writable": "●", "read-only": "◐", "silent": "?", "down": "✕"},
    **{"error": "✕", "warning": "▲", "note": "·"},
}


def environment() -> "Environment":
    """The templates; `ConfigurationError` where a library of the extra is missing."""
    try:
        import pygal  # type: ignore[import-untyped]  # noqa: F401  # it has no annotations
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as missing:
        raise ConfigurationError(
            f"the console needs a library that is missing ({missing.name}): {installs('console')}"
        ) from None

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "bytes": lambda count: "–" if count is None else size_text(count),
        "number": lambda value: "–" if value is None else number_text(value),
        "count": lambda value: "–" if value is None else f"{value:,}",
        "time": lambda ms: "–" if ms is None else time_text(int(ms)),
        "dash": lambda value: "–" if value is None or value == "" else value,
    }
    made.globals |= {"link": link, "sign": lambda state: SIGNS.get(state, "·"), "ago": ago}
    return made


def link(path: str, **query: object) -> str:
    """Makes the address of a page; what is None is left out."""
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def ago(seconds: float | None) -> str:
    """Says how old something is."""
    if seconds is None:
        return "not yet"
    if seconds < 100:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 6000 else f"{seconds / 3600:.1f} h ago"


class Views:
    """Makes answers of templates and values.  `ConfigurationError` as `environment`."""

    def __init__(self) -> None:
        self._templates = environment()
        self._static = {path: (HERE / "static" / path[1:]).read_bytes() for path in STATIC}

    def page(self, name: str, values: Mapping[str, Any], status: int = 200) -> Answer:
        """One page."""
        body = self._templates.get_template(f"{name}.html").render(values)
        headers = (("Content-Security-Policy", POLICY), *COMMON)
        return Answer(status, body.encode(errors="backslashreplace"), HTML, headers)

    def file(self, path: str) -> Answer:
        """One of the files that pages use."""
        return Answer(200, self._static[path], STATIC[path], COMMON)

    def picture(self, drawing: str) -> Answer:
        """One chart."""
        headers = (("Content-Security-Policy", PICTURE_POLICY), *COMMON)
        return Answer(200, drawing.encode(errors="backslashreplace"), "image/svg+xml", headers)
