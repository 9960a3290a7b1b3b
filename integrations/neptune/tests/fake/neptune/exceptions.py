"""The exceptions that Neptune raises, each with a page for a message."""


class NeptuneException(Exception):
    def __init__(self, about=""):
        title = f"----{type(self).__name__}".ljust(70, "-")
        super().__init__(
            f"\n\x1b[95m\n{title}\n\x1b[0m\nTrouble of the kind\n{type(self).__name__} {about}.\n\nNeed help?"
        )


class MetadataInconsistency(NeptuneException):
    pass


class InactiveRunException(NeptuneException):
    pass


class MissingFieldException(NeptuneException, AttributeError, KeyError):
    pass


class TypeDoesNotSupportAttributeException(NeptuneException, AttributeError):
    pass


class NeptuneUserApiInputException(NeptuneException):
    pass


class NeptuneOfflineModeFetchException(NeptuneException):
    pass


class NeptuneRunResumeAndCustomIdCollision(NeptuneException):
    pass


class MetadataContainerNotFound(NeptuneException):
    pass


class RunNotFound(MetadataContainerNotFound):
    pass


class ProjectNotFound(NeptuneException):
    pass


class Unauthorized(NeptuneException):
    pass


class NeptuneConnectionLostException(NeptuneException):
    pass
