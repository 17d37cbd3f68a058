"""Scripts and data inside a self-contained page, and the policy that allows only these."""

import base64
import hashlib


def escape_script(text: str) -> str:
    """JSON that is safe inside a script element: no `<` can end it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def content_security_policy(*scripts: str) -> str:
    """A policy without any requests, and with no scripts but these."""
    sums = " ".join(f"'sha256-{_sha(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {sums}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _sha(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
