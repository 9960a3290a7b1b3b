"""What a user has set, by files and by variables: all of it text."""

import configparser
import os
from pathlib import Path

from codecarbon.external.logger import logger


def get_hierarchical_config():
    config = {}
    for folder in (Path.home(), Path.cwd()):
        parser = configparser.ConfigParser()
        parser.read(folder / ".codecarbon.config")
        if parser.has_section("codecarbon"):
            config |= parser["codecarbon"]
    prefix = "codecarbon_"
    lower = {name.lower(): value for name, value in os.environ.items()}
    config |= {name[len(prefix) :]: value for name, value in lower.items() if name.startswith(prefix)}
    logger.info("Codecarbon configuration: %s", sorted(config))
    return config
