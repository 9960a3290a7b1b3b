"""A few of the countries and clouds."""

GRAMS = {"FRA": 50.0, "CAN": 170.0, "DEU": 350.0}
NAMES = {"FRA": "France", "CAN": "Canada", "DEU": "Germany"}


class DataSource:
    geo_js_url = "https://get.geojs.io/v1/ip/geo.json"

    def get_global_energy_mix_data(self):
        return {code: {"country_name": NAMES[code], "carbon_intensity": grams} for code, grams in GRAMS.items()}

    def get_carbon_intensity_per_source_data(self):
        return {"coal": 995, "world_average": 475}

    def get_cloud_emissions_data(self):
        return {"provider": ["gcp", "gcp"], "region": ["europe-west1", "us-central1"], "impact": [100, 400]}
