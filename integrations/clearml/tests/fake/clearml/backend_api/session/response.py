"""What an answer says of itself."""


class ResponseMeta:
    def __init__(self, result_code, result_msg):
        self.result_code = result_code
        self.result_msg = result_msg

    @classmethod
    def from_raw_data(cls, status_code, text="", endpoint=None):
        return cls(status_code, text)
