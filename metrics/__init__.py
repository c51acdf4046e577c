"""
Measures that a process takes of itself, and the text that Prometheus reads.

In reading order: `histogram` (face), `operations` (face), `families` (face), `text` (face), `job_file` (face).
"""

# SPDX-License-Identifier: Apache-2.0
