"""The settings."""


class ConfigTree(dict):
    def put(self, key, value):
        self[key] = value


class ConfigWrapper:
    _cache = ConfigTree(default_base_dir="~/.clearml/cache")

    @classmethod
    def get(cls, key):
        if key != "sdk.storage.cache":
            raise KeyError(key)
        return cls._cache


config_obj = ConfigWrapper
