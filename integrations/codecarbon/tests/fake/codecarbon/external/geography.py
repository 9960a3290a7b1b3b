"""Places, and the services that tell of them: what they answer here is put into `ANSWERS` by a test."""

import time
from dataclasses import dataclass

ANSWERS = {}


def asked_for(what):
    answer = ANSWERS.get(what)
    ANSWERS.setdefault("asked", []).append(what)
    if isinstance(answer, Exception):
        raise answer
    if answer == "silence":
        time.sleep(3)
    return answer


@dataclass
class CloudMetadata:
    provider: str | None
    region: str | None

    @property
    def is_on_private_infra(self):
        return self.provider is None and self.region is None

    @classmethod
    def from_utils(cls):
        return cls(*(asked_for("cloud") or (None, None)))


class GeoMetadata:
    def __init__(
        self,
        country_iso_code,
        country_name=None,
        region=None,
        latitude=None,
        longitude=None,
        country_2letter_iso_code=None,
    ):
        self.country_iso_code = country_iso_code and country_iso_code.upper()
        self.country_name = country_name
        self.region = region and region.lower()
        self.latitude = latitude
        self.longitude = longitude
        self.country_2letter_iso_code = country_2letter_iso_code and country_2letter_iso_code.upper()

    @classmethod
    def from_geo_js(cls, url):
        assert url == "https://get.geojs.io/v1/ip/geo.json"
        return cls(*(asked_for("country") or ("CAN", "Canada", "Quebec", 46.8, -71.2, "CA")))
