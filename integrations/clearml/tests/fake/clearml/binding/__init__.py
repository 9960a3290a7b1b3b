"""What the SDK patches."""
