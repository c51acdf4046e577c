"""Pages of HTML: what is escaped, and which headers there are."""

import sys

import pytest
from jinja2 import UndefinedError

from quire.conf.extras import installs
from quire.conf.properties import ConfigurationError
from quire.console.views import HERE, STATIC, Views, ago, link

# SPDX-License-Identifier: Apache-2.0

COMMON = {"title": "T", "version": "1", "store": "s", "navigation": (), "here": "", "care": 0, "states": {}}


def test_values_are_escaped() -> None:
    """Foreign text is text, in attributes, too; and a page may run nothing but the script of the console."""
    answer = Views().page("failed", {**COMMON, "why": "<script>alert('1')</script>"}, 404)
    assert b"&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;" in answer.body
    policy = dict(answer.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (answer.status, answer.content_type) == (404, "text/html; charset=utf-8")


def test_text_that_is_no_unicode_is_shown() -> None:
    """A name from a file system may have half a character."""
    assert b"\\udcff" in Views().page("failed", {**COMMON, "why": "\udcff"}).body


def test_what_a_page_lacks_is_an_error() -> None:
    """A misspelt name in a template is found by the first test that shows the page."""
    with pytest.raises(UndefinedError):
        Views().page("failed", COMMON)


def test_no_page_names_another_host() -> None:
    """Nor has one a script or a style in it."""
    for path in [*HERE.glob("templates/*"), *HERE.glob("static/*")]:
        text = path.read_text()
        assert "//" not in text.replace("http://www.w3.org/2000/svg", "").replace("// ", ""), path
        assert "<style" not in text
        assert " style=" not in text
        assert " on" + "click" not in text
    assert [Views().file(path).content_type for path in STATIC] == list(STATIC.values())


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError) as refused:
        Views()
    assert str(refused.value) == f"the console needs a library that is missing (jinja2): {installs('console')}"


def test_links_and_ages() -> None:
    """Names are quoted in addresses; ages are in the unit that is read at once."""
    assert link("/log", name="a/b c&d", after=None) == "/log?name=a%2Fb+c%26d"
    assert [ago(each) for each in (None, 5, 600, 7200)] == ["not yet", "5 s ago", "10 min ago", "2.0 h ago"]
