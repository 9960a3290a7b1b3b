"""Where the computer stands, and so which electricity it uses: known before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from trackside.deadline import later

LOOK_UP_SECONDS = 2.0

# What CodeCarbon says without a word where nobody answers it: country, latitude and longitude.
UNANSWERED = ("CAN", 46.8, -71.2)


class Place(NamedTuple):
    """A place as CodeCarbon has it: a country, with a region if it is known, or a region of a cloud."""

    geo: Any
    cloud: Any


def place_in(settings: Mapping[str, Any]) -> Place | None:
    """The place that the user has set, if he has; raises for one that CodeCarbon has no data of."""
    from codecarbon.external.geography import CloudMetadata, GeoMetadata

    country, provider, region = (settings.get(name) for name in ("country_iso_code", "cloud_provider", "cloud_region"))
    if provider and not _is_known_cloud(provider, region):
        raise ValueError(
            f"there is no data of cloud_region {region!r} of cloud_provider {provider!r}; set country_iso_code instead"
        )
    if not (country or provider):
        return None
    geo = GeoMetadata(
        country_iso_code=country,
        country_name=_name_of(country) if country else None,
        region=settings.get("region"),
        country_2letter_iso_code=settings.get("country_2letter_iso_code"),
    )
    return Place(geo, CloudMetadata(provider=provider or None, region=region if provider else None))


def look_up() -> Place | None:
    """The place by the computer's address, and by its cloud, if it stands in one; None if nobody answers in time."""
    from codecarbon.external.geography import CloudMetadata, GeoMetadata
    from codecarbon.input import DataSource

    until = time.monotonic() + LOOK_UP_SECONDS
    asked_for_country = later(lambda: GeoMetadata.from_geo_js(DataSource().geo_js_url))
    asked_for_cloud = later(CloudMetadata.from_utils)
    geo = _answer(asked_for_country, until)
    cloud = _answer(asked_for_cloud, until)
    has_country = geo is not None and (geo.country_iso_code, geo.latitude, geo.longitude) != UNANSWERED
    has_cloud = cloud is not None and cloud.provider is not None and _is_known_cloud(cloud.provider, cloud.region)
    if not (has_country or has_cloud):
        return None
    return Place(geo if has_country else _no_country(), cloud if has_cloud else _no_cloud())


def anywhere() -> Place:
    """No place: CodeCarbon takes the average of the world for it."""
    return Place(_no_country(), _no_cloud())


def world_average() -> float:
    """The grams of CO2eq of a kWh somewhere in the world."""
    from codecarbon.input import DataSource

    return float(DataSource().get_carbon_intensity_per_source_data()["world_average"])


def _no_country() -> Any:
    from codecarbon.external.geography import GeoMetadata

    return GeoMetadata(country_iso_code=None)


def _no_cloud() -> Any:
    from codecarbon.external.geography import CloudMetadata

    return CloudMetadata(provider=None, region=None)


def _name_of(country: str) -> str:
    from codecarbon.input import DataSource

    countries = DataSource().get_global_energy_mix_data()
    if country.upper() not in countries:
        raise ValueError(f"there is no data of country_iso_code {country!r}; it takes three letters, such as FRA")
    return str(countries[country.upper()]["country_name"])


def _is_known_cloud(provider: str | None, region: str | None) -> bool:
    from codecarbon.input import DataSource

    clouds = DataSource().get_cloud_emissions_data()
    return (provider, region) in set(zip(clouds["provider"], clouds["region"], strict=True))


def _answer(future: Future[Any], until: float) -> Any:
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except Exception:  # too late, or refused in one of many ways
        return None
