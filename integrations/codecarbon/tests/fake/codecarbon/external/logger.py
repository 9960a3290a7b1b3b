"""A log of its own on the console, which says all that is worth a note until somebody sets its level."""

import logging

logger = logging.getLogger("codecarbon")
logger.propagate = False
logger.setLevel("INFO")


def set_logger_level(level=None):
    logger.setLevel((level or "INFO").upper())


def set_logger_format(custom_preamble=""):
    logger.handlers = [logging.StreamHandler()]


set_logger_format()
