"""Recognisable secrets in the options of a format, and the search for them."""

PLANTED = {
    name: f"planted-{name}-7c61"
    for name in ("basic", "bearer", "key", "proxy", "producer", "wrong")
}

REGISTRY = {
    "url": f"http://reader:{PLANTED['basic']}@127.0.0.1:9",
    "properties": {"proxy": f"http://reader:{PLANTED['proxy']}@127.0.0.1:9"},
    "retry_seconds": 0,
}

ALL = {
    **REGISTRY,
    "ssl_key_password": PLANTED["key"],
}  # except that a client with this option needs a certificate


def leaks(text: str, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if secret in text]
