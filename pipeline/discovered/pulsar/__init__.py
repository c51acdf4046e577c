"""
Spark looks here for `format("pulsar")`: it imports every installed module whose name begins with `pyspark_`.

In reading order: this module is all of it.
"""

# SPDX-License-Identifier: Apache-2.0


def __getattr__(name: str) -> type:
    if name != "DefaultSource":
        raise AttributeError(name)
    from quire.pipeline.sources.pulsar import PulsarSource

    return PulsarSource
