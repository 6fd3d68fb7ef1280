"""Texts that have broken pages: each would act if a page treated it as more than text.

An act sets `window.__hit`, opens a dialog or adds an element marked `data-hit`.
"""

from __future__ import annotations

HIT = "window.__hit=1"

MARKUP = [
    f"<script>{HIT}</script>",
    f"</script><script>{HIT}</script>",
    f"<!--</script><script>{HIT}//-->",
    f"<img data-hit src=x onerror={HIT}>",
    f'"><img data-hit src=x onerror="{HIT}">',
    f"' autofocus onfocus='{HIT}' data-hit='",
    f"<svg data-hit onload={HIT}><script>{HIT}</script></svg>",
    f"<svg data-hit><animate onbegin={HIT} attributeName=x dur=1s></svg>",
    f"<math data-hit href=javascript:{HIT}>x</math>",
    f"<iframe data-hit srcdoc='<script>parent.{HIT}</script>'></iframe>",
    f"<details data-hit open ontoggle={HIT}>",
    f"<style data-hit>*{{animation:x}}</style><link rel=stylesheet href=javascript:{HIT}>",
    f"<base data-hit href=//evil.invalid/><form action=javascript:{HIT}>",
    f"[link](javascript:{HIT}) <a data-hit href='javascript:{HIT}'>x</a>",
    f"javascript:{HIT}",
    f"data:text/html,<script>{HIT}</script>",
    "</title></textarea></style><script>alert(1)</script>",
]
TEMPLATES = [
    f"{{{{{HIT}}}}}",
    f"${{{HIT}}}",
    f"`${{{HIT}}}`",
    f"{{{{constructor.constructor('{HIT}')()}}}}",
    f"<%= {HIT} %> #{{{HIT}}} {{% raw %}}",
    f"@{{{HIT}}} %s %n {{0.__class__}}",
    "__proto__",
    "constructor",
]
CHARACTERS = [
    "\u202eright to left\u202c \u2066isolated\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "\x1b[2J\x1b]0;title\x07",
    "null\x00byte",
    "\u2028line\u2029paragraph",
    "\ufffe\uffff",
    "e" + "\u0301" * 50,
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿" * 3,
]
OTHERS = [
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "file:///etc/passwd",
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    '"},{"a":"',
    "\\u003cscript\\u003e",
    "&lt;script&gt;&#x3c;",
    "'; DROP TABLE runs; --",
    "%3Cscript%3E%00%0d%0aSet-Cookie:x=1",
    "\r\nX-Injected: yes\r\n\r\n<b data-hit>",
]
CORPUS = [*MARKUP, *TEMPLATES, *CHARACTERS, *OTHERS]
LONG = "<b data-hit>" * 600
