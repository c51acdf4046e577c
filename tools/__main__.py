"""`python -m quire.tools` is `quire`."""

from quire.tools.main import main

# SPDX-License-Identifier: Apache-2.0

if __name__ == "__main__":
    main()
