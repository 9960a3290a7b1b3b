"""What decides whether wandb prints."""

_silent = False
