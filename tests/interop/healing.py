"""AutoRecovery of both kinds as processes: Apache's, and ours."""

import pathlib
import sys

from tests.interop import peer

# SPDX-License-Identifier: Apache-2.0


class Healer:
    """One process; `id` is what its vote names."""

    def __init__(self, folder: pathlib.Path, metadata: str, ours: bool, **options: object) -> None:
        folder.mkdir()
        port = peer.free_port()
        settings = peer.bookie_settings(folder, metadata, port) | options
        if ours:
            settings = {
                "metadataServiceUri": metadata,
                "bookiePort": port,
                "advertisedAddress": "127.0.0.1",
                "allowLoopback": "true",
                "zkTimeout": settings["zkTimeout"],
            } | options
        conf = folder / "autorecovery.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.id = f"127.0.0.1:{port}"
        self.log = folder / "autorecovery.log"
        if ours:
            command = [sys.executable, "-m", "quire.tools.daemons.autorecovery", "--conf", str(conf)]
        else:
            main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
            command = peer.java_command(["-Xmx256m"], [main, "-c", str(conf)], folder)
        self.process = peer.Process(command, self.log)

    def complaints(self, lost: str) -> list[str]:
        """Lines of its log that tell of an error, other than that the lost bookie can't be reached."""
        return [
            line
            for line in self.log.read_text(errors="replace").splitlines()
            if (" ERROR " in line or "#error" in line or "Traceback" in line) and lost not in line
        ]
