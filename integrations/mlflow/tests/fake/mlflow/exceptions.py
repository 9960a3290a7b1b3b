"""The one error of mlflow."""


class MlflowException(Exception):
    def __init__(self, message, error_code="INTERNAL_ERROR"):
        super().__init__(message)
        self.error_code = error_code


def refuse(message):
    raise MlflowException(message, "INVALID_PARAMETER_VALUE")
