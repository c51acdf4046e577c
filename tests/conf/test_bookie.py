"""
The options of a bookie: every field is documented, carries a key of BookKeeper or says that it is our own, and the
sample shows the code.
"""

import pytest
from pydantic import ValidationError

from quire.conf.bookie import BookieOptions
from quire.conf.known_keys import CLIENT, SERVER
from quire.conf.options import key_of
from quire.conf.properties import load, parse
from quire.conf.sample_files import DIRECTORY, text_of

# SPDX-License-Identifier: Apache-2.0

REQUIRED = {"metadata_uri": "memory://a", "journal_directories": ("/j",), "ledger_directories": ("/l",)}


def test_every_option_is_documented() -> None:
    """Description and key everywhere; a number of bytes or milliseconds says so in its name."""
    for name, field in BookieOptions.model_fields.items():
        key = key_of(field)
        assert field.description, name
        assert key["names"], name
        if key["unit"] in ("bytes", "MiB"):
            assert "_bytes" in name
        if key["unit"] == "ms":
            assert "_ms" in name


def test_keys_are_bookkeepers_or_say_that_they_are_ours() -> None:
    """A key that Apache BookKeeper does not have is described as our own."""
    for field in BookieOptions.model_fields.values():
        for name in key_of(field)["names"]:
            assert (name in SERVER | CLIENT) != ("our own key" in (field.description or "")), name


def test_no_key_is_two_options() -> None:
    """Each key belongs to one option."""
    names = [name for field in BookieOptions.model_fields.values() for name in key_of(field)["names"]]
    assert len(set(names)) == len(names)


def test_the_sample_is_the_code() -> None:
    """Render it again with `python -m quire.conf.sample_files` when this fails."""
    assert (DIRECTORY / "bookie.conf").read_text() == text_of("bookie.conf")


def test_the_sample_works_as_it_is() -> None:
    """The sample file loads without a warning."""
    found, warnings = load(BookieOptions, str(DIRECTORY / "bookie.conf"), {})
    assert found.journal_directories == ("/var/lib/quire/journal",)
    assert warnings == []


def test_the_samples_comments_are_the_defaults() -> None:
    """Taking the # away from every line changes nothing."""
    lines = [
        line.removeprefix("#") if line.startswith("#") and not line.startswith("# ") else line
        for line in text_of("bookie.conf").splitlines()
    ]
    from quire.conf.properties import options

    loud, _ = options(BookieOptions, parse("\n".join(lines), "f"))
    quiet, _ = options(BookieOptions, parse(text_of("bookie.conf"), "f"))
    assert loud == quiet


def test_options_are_frozen_and_closed() -> None:
    """Assigning an option or naming an unknown one raises."""
    made = BookieOptions(**REQUIRED)
    with pytest.raises(ValidationError):
        made.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        BookieOptions(**REQUIRED, prot=1)


def test_directories_have_no_default() -> None:
    """Options without journal and ledger directories are refused."""
    with pytest.raises(ValidationError):
        BookieOptions(metadata_uri="memory://a")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("by_bytes", "entries", "limits"),
    [(None, 9, (9, 7)), (None, 0, (0, 7)), (True, 9, (0, 7)), (False, 9, (9, 0)), (False, 0, (0, 7))],
)
def test_compaction_is_limited_by_entries_or_bytes_or_both(
    by_bytes: bool | None, entries: int, limits: tuple[int, int]
) -> None:
    """As `isThrottleByBytes` says; by entries only where there is such a limit."""
    rates = {"compaction_entries_per_second": entries, "compaction_bytes_per_second": 7}
    assert BookieOptions(**REQUIRED, **rates, compaction_by_bytes=by_bytes).compaction_limits == limits


def test_a_low_water_mark_is_below_the_threshold() -> None:
    """Both keys are named."""
    with pytest.raises(ValidationError, match=r"diskUsageLwmThreshold 0\.96 is above diskUsageThreshold 0\.95"):
        BookieOptions(**REQUIRED, disk_usage_low_water_mark=0.96)
