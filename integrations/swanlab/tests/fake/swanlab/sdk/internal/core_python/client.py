"""Whether the program is signed in."""

_signed_in = False


def new(api_key, base_url, timeout=10):
    global _signed_in
    _signed_in = True


def exists():
    return _signed_in


def reset():
    global _signed_in
    _signed_in = False
