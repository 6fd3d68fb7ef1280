"""What every answer tells the browser: whose scripts may run, and who may frame the page."""

from __future__ import annotations

import os
import re

HUB = "https://huggingface.co"
_SCRIPT = re.compile(rb"<script\b", re.IGNORECASE)
# Gradio's manifest is of no use here, and a browser that is told of no icon asks for one at the
# root of the host, which may be another site's.
_MANIFEST = re.compile(rb'<link rel="manifest"[^>]*>')
_ICON = b'<link rel="icon" type="image/svg+xml" href="favicon.ico">'


def security_headers(nonce: str) -> dict[str, str]:
    """Headers by name. nonce: the mark of the inline scripts that may run.

    Gradio compiles templates and listeners in the browser, so scripts may evaluate text
    ('unsafe-eval'); its components and Plotly set styles inline. Scripts in attributes or added
    elements run nowhere.
    """
    return {
        "content-security-policy": "; ".join(
            f"{name} {value}" for name, value in _policy(nonce).items()
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    }


def _policy(nonce: str) -> dict[str, str]:
    # On a Space, Gradio asks the hub for the bar at the top, and the hub shows the page in a frame.
    hub = f" {HUB}" if os.environ.get("SPACE_ID") else ""
    return {
        "default-src": "'self'",
        "script-src": f"'self' 'nonce-{nonce}' 'unsafe-eval'",
        "script-src-attr": "'none'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": f"'self' data: blob:{hub}",
        "font-src": "'self' data:",
        "connect-src": f"'self' data:{hub}",  # Plotly's pictures are data: addresses
        "worker-src": "'none'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": f"'self' {HUB} https://*.hf.space",
    }


def with_nonce(page: bytes, nonce: str) -> bytes:
    """The page with its mark on its own inline scripts, and its icon. No visitor's text stands in
    it."""
    page = _MANIFEST.sub(_ICON, page)
    return _SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), page)
