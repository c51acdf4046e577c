"""
The role that a certificate gives its owner, where Apache's bookies look for it: the subject's first OU.

    OU=0:Superuser,Client;1:Cluster1        the role is Superuser

Values stand between `;`, each a number, `:` and names between `,`.  Those of value 0 are roles, and the first counts.

Knows: that form.  Does not know: whether the certificate is good (`context` has it verified), what a role may do.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

# SPDX-License-Identifier: Apache-2.0

UNIT = "2.5.4.11"  # OU, organizationalUnitName
VALUE = re.compile("([0-9]+):(.*)")
ROLES = "0"


def role_of(subject: "x509.Name") -> str | None:
    """None: it gives none."""
    units = [each.value for each in subject if each.oid.dotted_string == UNIT]
    if not units or not isinstance(units[0], str):
        return None
    names = ""
    for part in units[0].split(";"):
        value = VALUE.fullmatch(part)
        if value is not None and value[1] == ROLES:
            names = value[2]  # the last one, as there
    return names.split(",")[0].strip() or None
