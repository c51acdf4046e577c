"""The blocking faces are the asyncio ones in other words."""

import inspect
import re
from importlib import import_module

import pytest

from quire.tools import faces

# SPDX-License-Identifier: Apache-2.0

MADE = [*faces.FACES, *faces.FACES.values()]


@pytest.mark.parametrize("source", faces.FACES)
def test_a_blocking_face_is_what_the_asyncio_one_says(source: str) -> None:
    """After a change of an asyncio face: `make manual`."""
    made = faces.ROOT / faces.FACES[source]
    assert made.read_text(encoding="utf-8") == faces.blocking(source)


def test_every_word_is_needed() -> None:
    """What no asyncio face says any more is no longer put into other words."""
    text = "".join((faces.ROOT / source).read_text(encoding="utf-8") for source in faces.FACES)
    assert [word for word in faces.WORDS if word not in text] == []


@pytest.mark.parametrize("path", MADE)
def test_every_operation_has_its_own_words(path: str) -> None:
    """`help()` says what each does, with `await` on the asyncio face and without on the blocking one."""
    module = import_module("quire." + path.removesuffix(".py").replace("/", "."))
    shown = {module.__name__: module}
    for kind in vars(module).values():
        if inspect.isclass(kind) and kind.__module__ == module.__name__:
            shown |= {f"{kind.__name__}.{name}": each for name, each in vars(kind).items() if not name.startswith("_")}
            shown[kind.__name__] = kind
    assert len(shown) > 10
    docs = {name: inspect.getdoc(each) or "" for name, each in shown.items()}
    assert [name for name, doc in docs.items() if not doc] == []
    foreign = r"`(with|for)`" if path in faces.FACES else r"\b(await|async|asyncio)\b"
    assert [name for name, doc in docs.items() if re.search(foreign, doc)] == []
