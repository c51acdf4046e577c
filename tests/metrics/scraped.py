"""What a scrape of a collector gives."""

import re

from quire.metrics.text import Collector, Metrics

# SPDX-License-Identifier: Apache-2.0


def scraped(*collectors: Collector) -> dict[str, float]:
    """The value of each sample, by its name and labels as they are in the text; the process' own are left out."""
    text = Metrics(*collectors).text().decode()
    found = re.findall(r"^([^#p]\S*(?: [^{}]*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}
