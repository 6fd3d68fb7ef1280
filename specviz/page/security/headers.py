"""The security headers: which scripts may run, and which sites may frame the page."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from .sites import HUB

_SCRIPT = re.compile(rb"<script\b", re.IGNORECASE)
_ANY_SITE = re.compile(rb"SameSite=none", re.IGNORECASE)
# Gradio's manifest is not needed here. Without a link to an icon, a browser asks for one at the
# root of the host, which may belong to another site.
_MANIFEST = re.compile(rb'<link rel="manifest"[^>]*>')
_ICON = b'<link rel="icon" type="image/svg+xml" href="favicon.ico">'


def security_headers(nonce: str, frames: Sequence[str] = ()) -> dict[str, str]:
    """Headers by name. nonce: of the inline scripts that may run. frames: the sites that may show
    the page in a frame, beside the page itself.

    Gradio compiles templates and listeners in the browser, so scripts may evaluate text
    ('unsafe-eval'); its components and Plotly set styles inline. Scripts in attributes, or in
    elements that are added later, do not run.
    """
    return {
        "content-security-policy": "; ".join(
            f"{name} {value}" for name, value in _policy(nonce, frames).items()
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    }


def strict_cookie(cookie: bytes, *, framed: bool, https: bool) -> bytes:
    """A `Set-Cookie` of Gradio for this page: other sites do not send it, unless one of them shows
    the page in a frame, and it does not travel over plain HTTP if the page came over HTTPS."""
    if not framed:
        cookie = _ANY_SITE.sub(b"SameSite=lax", cookie)
    return cookie if not https or b"secure" in cookie.lower().split(b"; ") else cookie + b"; Secure"


def _policy(nonce: str, frames: Sequence[str]) -> dict[str, str]:
    # On a Space, Gradio loads its top bar from the hub.
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
        "frame-ancestors": " ".join(["'self'", *frames]),
    }


def with_nonce(page: bytes, nonce: str) -> bytes:
    """The page with the nonce in its own inline scripts, and with its icon. The page holds no text
    of visitors, so all its scripts are its own."""
    page = _MANIFEST.sub(_ICON, page)
    return _SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), page)
