"""Which TLS certificates of model servers are trusted: the system's and configured authorities."""

from __future__ import annotations

import logging
import os
import ssl

log = logging.getLogger("mnemogate")


def trust(ca_file: str = "", client_cert: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities, or certifi's without any.

    ca_file: a PEM file of more authorities. client_cert: a PEM file of a certificate and its key,
    for servers that ask. SSL_CERT_FILE and SSL_CERT_DIR replace the system's, as in OpenSSL. Raises
    OSError for a file that cannot be used.
    """
    context = ssl.create_default_context()
    if (cert_file := os.environ.get("SSL_CERT_FILE")) and not os.path.isfile(cert_file):
        log.warning(
            "SSL_CERT_FILE is %s, which is not a file: no authorities are loaded from it", cert_file
        )
    if not context.cert_store_stats()["x509_ca"] and not _has_certificate_folder():
        # Comes with httpx.
        import certifi

        context.load_verify_locations(certifi.where())
    if ca_file:
        context.load_verify_locations(os.path.expanduser(ca_file))
    if client_cert:
        context.load_cert_chain(os.path.expanduser(client_cert))
    return context


def _has_certificate_folder() -> bool:
    """Tell whether the system has a folder of authorities, which are only read on use."""
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(os.scandir(folder))
