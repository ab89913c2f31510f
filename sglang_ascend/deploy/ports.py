"""Is the address that the server is to listen on free?"""

from __future__ import annotations

import errno
import os
import socket

from sglang_ascend.errors import ConfigError


def check(host: str, port: int, flag: str = "--port") -> None:
    """Bind ``host``:``port`` and let go again.

    Raises:
        ConfigError: port out of range, taken, or not allowed; host unknown or not this machine's.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(f"{flag} {port} is out of range; choose one from 1 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(
            f"--host {host!r} cannot be resolved ({error}); use 127.0.0.1, or 0.0.0.0 for every "
            "interface"
        ) from error
    with socket.socket(family, kind, protocol) as probe:
        # As the HTTP server does: a port whose last connections linger counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise ConfigError(_reason(error, host, port, flag)) from error


def _reason(error: OSError, host: str, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; end what listens there or choose another {flag}"
    if error.errno == errno.EACCES:
        return (
            f"port {port} needs privileges that user {os.getuid()} does not have; choose a {flag} "
            "of 1024 or more"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine; use 127.0.0.1 or 0.0.0.0"
    return f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or {flag}"
