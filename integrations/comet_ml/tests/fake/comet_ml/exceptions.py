class CometException(Exception):
    pass


class ExperimentNotFound(CometException):
    pass


class InvalidExperimentMode(CometException):
    pass


class InvalidAPIKey(CometException):
    def __init__(self, api_key, backend_host):
        super().__init__(api_key, backend_host)
