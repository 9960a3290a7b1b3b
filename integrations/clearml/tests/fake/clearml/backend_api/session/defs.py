"""What is missing where nobody has said which server to use."""


class MissingConfigError(ValueError):
    pass
