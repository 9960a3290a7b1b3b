"""What the SDK prints."""


def report_text(text):
    print(text)  # noqa: T201 - as the real one does
