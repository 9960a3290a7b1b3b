"""The session that all objects share."""


class InterfaceBase:
    _default_session = None

    @classmethod
    def _set_default_session(cls, session):
        cls._default_session = session
