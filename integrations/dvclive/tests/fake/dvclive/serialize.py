"""YAML, of which JSON is a part."""

import json


class RepresenterError(Exception):
    pass


def check(value):
    if isinstance(value, dict):
        for name, item in value.items():
            check(name)
            check(item)
    elif isinstance(value, list):
        for item in value:
            check(item)
    elif type(value) not in (str, int, float, bool, type(None)):
        raise RepresenterError(f"cannot represent an object: {value!r}")


def load_yaml(path, typ="safe"):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def dump_yaml(content, output_file):
    """As the real one, it has emptied the file before it finds what it cannot write."""
    with open(output_file, "w", encoding="utf-8") as file:
        check(content)
        file.write(json.dumps(content, ensure_ascii=False))
