"""What znodes there are, for tests that look behind the store's back."""


# SPDX-License-Identifier: Apache-2.0


def tree(client, path) -> dict:
    """path -> (data, is ephemeral, version, ACL) of everything at and below a znode."""
    data, stat = client.get(path)
    acls, _ = client.get_acls(path)
    found = {
        path: (
            data,
            stat.ephemeralOwner != 0,
            stat.version,
            [f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in acls],
        )
    }
    for name in client.get_children(path):
        found |= tree(client, f"{path}/{name}")
    return found


def root_of(uri) -> str:
    return "/" + uri.partition("://")[2].partition("/")[2]
