"""What stands between objects and requests."""
