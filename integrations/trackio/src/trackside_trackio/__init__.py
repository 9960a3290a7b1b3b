"""Reports a training run to Trackio: to its database on this machine, to a server, or to a Space."""

from trackside_trackio.reporter import TrackioCallback

__all__ = ["TrackioCallback"]
