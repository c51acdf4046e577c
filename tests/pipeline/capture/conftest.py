"""The modules of docs/examples/capture, which import each other as their program does."""

import sys
from pathlib import Path

# SPDX-License-Identifier: Apache-2.0

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "capture"
sys.path.append(str(EXAMPLE))
