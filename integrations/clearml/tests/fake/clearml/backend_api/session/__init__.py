"""The session with a server."""
