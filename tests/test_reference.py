"""Every public name of a face has documentation, which `make reference` shows and `help()`, too."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType

from release.reference import FACES

# SPDX-License-Identifier: Apache-2.0


def undocumented(module: str) -> Iterator[str]:
    """The public names of a face, and of its classes, without a docstring of their own."""
    face = import_module(module)
    for name in getattr(face, "__all__", None) or [each for each in vars(face) if not each.startswith("_")]:
        found = getattr(face, name)
        if not isinstance(found, type | FunctionType) or not found.__module__.startswith("quire."):
            continue
        if not found.__doc__:
            yield f"{module}.{name}"
        for inner, each in vars(found).items() if isinstance(found, type) else ():
            if not inner.startswith("_") and isinstance(each, FunctionType | property) and not inspect.getdoc(each):
                yield f"{module}.{name}.{inner}"


def test_every_public_name_is_documented() -> None:
    """Functions, classes, and the methods and properties of these."""
    assert not [name for module in FACES for name in undocumented(module)]
    assert "session" in dir(import_module("quire.pipeline"))
