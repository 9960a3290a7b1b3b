import copy
import enum
import json
import math
import os
import time
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.values import REDACTED, describe, encodable, flatten, is_secret_key, redact, scalar


class Tensor:
    """A tensor on some device, as far as anyone looks at it: a shape, `item()`, `tolist()`."""

    def __init__(self, *values):
        self.values, self.shape = values, (len(values),)

    def item(self):
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with several elements cannot be converted to Scalar")
        return self.values[0]

    def tolist(self):
        return list(self.values)


class Switch(str, enum.Enum):
    on = "switched-on"


class Level(enum.IntEnum):
    high = 3


@dataclass
class Nested:
    n: int = 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1),
        (True, 1),
        (1.5, 1.5),
        (Level.high, 3),
        (10**30, 10**30),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), 1),
        (np.array(2.0), 2.0),
        (np.array([[2.5]]), 2.5),
        (Tensor(1.25), 1.25),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 4), 0.25),
        (-math.inf, -math.inf),
    ],
)
def test_a_number_of_any_kind_becomes_a_float_or_an_int(value, number):
    found = scalar(value)
    assert found == number
    assert type(found) in (int, float)
    assert type(found) is type(number)


@pytest.mark.parametrize(
    "value",
    [None, "1.5", b"1", [1.0], (1,), {}, 1j, np.complex64(1), np.array([1, 2]), np.array([]), np.str_("2"),
     Tensor(1, 2), Tensor(), 10**400, Fraction(10**400), np.float32, float, object(), np.datetime64("2020-01-01")],
)  # fmt: skip
def test_what_is_no_number_is_none(value):
    assert scalar(value) is None


def test_nan_stays_nan():
    assert math.isnan(scalar(np.float16("nan")))


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ({"m": Nested(), "dl": [{"a": 1}, {"b": 2}]}, {"m/n": 1, "dl/0/a": 1, "dl/1/b": 2}),
        ({"a": None, "b": [None], "c": ["CT", "MRI"], "d": 3, "e": ""}, None),
        ({2: 3, Switch.on: 4}, {"2": 3, "switched-on": 4}),
        ({"a/b": 1, "a": {"b": 2}, "0": 3, 0: 4}, {"a/b": 1, "a/b_": 2, "0": 3, "0_": 4}),
        ({"empty": {}, "list": []}, {"empty": {}, "list": []}),
    ],
)
def test_nesting_becomes_paths_and_plain_lists_stay(values, flat):
    before = copy.deepcopy(values)
    assert flatten(values) == (flat or values)
    assert values == before


def test_lists_of_numbers_become_paths_on_request_unless_they_are_long():
    assert flatten({"f1": [0.5, {"a": 1}]}, expand=True) == {"f1/0": 0.5, "f1/1/a": 1}
    assert flatten({"logits": [0.0] * 65}, expand=True) == {"logits": [0.0] * 65}


def test_the_undecodable_bytes_of_a_file_name_become_question_marks_and_all_else_stays():
    name = os.fsdecode(b"caf\xe9-\xc3\xa9.bin")
    assert encodable(name) == "caf?-é.bin"
    assert encodable("loss 日本 🙂\x00") == "loss 日本 🙂\x00"


Point = namedtuple("Point", "x y")


class Config:
    def __init__(self, **values):
        self.values = values

    def to_dict(self):
        return self.values


class Broken:
    def to_dict(self):
        raise RuntimeError("not now")

    def __str__(self):
        raise RuntimeError("not now either")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Switch.on, "switched-on"),
        (Nested(), {"n": 1}),
        (Config(a=Nested(), b=(1, None)), {"a": {"n": 1}, "b": [1, None]}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (OrderedDict(a=1), {"a": 1}),
        ({0: 1, Switch.on: 2}, {"0": 1, "switched-on": 2}),
        ({3, 1, 2}, [1, 2, 3]),
        (deque([1]), [1]),
        (Path("a") / "b", str(Path("a") / "b")),
        (date(2020, 1, 2), "2020-01-02"),
        (np.array([1, 2]), [1, 2]),
        (np.zeros((9, 9)), "<numpy.ndarray of shape (9, 9)>"),
        (Nested, f"{__name__}.Nested"),
        (len, "builtins.len"),
        (range(3), "range(0, 3)"),
        (b"x", "b'x'"),
        (Broken(), f"<{__name__}.Broken>"),
        (object(), "<object object>"),
        (Decimal("0.5"), 0.5),
    ],
)
def test_anything_can_be_described_as_plain_data(value, plain):
    assert describe(value) == plain
    json.dumps(describe(value))


def test_a_description_is_the_same_in_every_process():
    assert " at 0x" not in describe(partial(lambda x: x, object()))


def test_what_contains_itself_can_be_described():
    values = {"n": 1}
    values["self"] = values
    shared = [1]
    assert describe(values) == {"n": 1, "self": "<builtins.dict again>"}
    assert describe([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("nest", [lambda inner: [inner], lambda inner: {"k": inner}, lambda inner: Config(k=inner)])
def test_what_is_nested_without_end_is_described_as_far_as_anyone_reads(nest):
    values = 0.5
    for _ in range(5000):
        values = nest(values)
    plain = describe({"deep": values, "loss": 2.0})
    assert plain["loss"] == 2.0
    json.dumps(redact(flatten(plain, expand=True), {}))


class Proxy:
    """Answers every question with itself, as remote objects and mocks do."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self


class Unreadable(dict):
    def items(self):
        raise RuntimeError("gone")


class MetaTensor(Tensor):
    """A tensor that has a shape and no data."""

    def item(self):
        raise RuntimeError("cannot be called on meta tensors")

    tolist = item


@dataclass
class HalfMade:
    later: int = field(init=False)


@pytest.mark.parametrize(
    "value", [Proxy(), Unreadable(a=1), MetaTensor(1.0), MetaTensor(1.0, 2.0), HalfMade(), (i for i in "ab")]
)
def test_what_fails_when_it_is_looked_at_is_named_and_hides_nothing_beside_it(value):
    plain = describe({"odd": [value, 1.5], "loss": 2.0})
    assert plain == {"odd": [f"<{type(value).__module__}.{type(value).__qualname__}>", 1.5], "loss": 2.0}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.sampled_from([Switch.on, Nested(), np.float32(1), Tensor(1.0), object(), len, Broken()]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(ANYTHING)
def test_a_description_is_always_plain_and_stays_as_it_is_when_described_again(value):
    plain = describe(value)
    json.dumps(plain)
    assert repr(describe(plain)) == repr(plain)


@given(st.dictionaries(st.text(), ANYTHING), st.booleans())
def test_flattening_never_loses_a_value(values, expand):
    def leaves(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return sum(map(leaves, inner)) or 1

    plain = describe(values)
    flat = flatten(plain, expand=expand)
    assert all(isinstance(key, str) for key in flat)
    if expand:
        assert sum(leaves(value) for value in flat.values()) == (leaves(plain) if plain else 0)


@pytest.mark.parametrize(
    "key",
    ["password", "db_password", "DB-PASSWORD", "clientSecret", "credentials", "aws_credential", "api_key", "passwd",
     "OPENAI_API_KEY", "wandb/apiKey", "aws_secret_access_key", "private_key", "token", "hub_token", "HF_TOKEN",
     "--hub-token", "PGPASSWORD", "passwords", "secrets", "ssh_passphrase", "apikey", "OPENAI_APIKEY", "api_keys"],
)  # fmt: skip
def test_these_keys_hold_secrets(key):
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    ["max_tokens", "tokenizer_name", "num_key_value_heads", "pad_token", "bos_token", "image_token", "tokens", "key",
     "secretary", "password_length", "num_input_tokens_seen", "primary_key", "api_key_name", "", "learning_rate",
     "eos_token", "mask-token", "token_type_ids"],
)  # fmt: skip
def test_these_keys_hold_none(key):
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("value", "redacted"),
    [
        ({"hub_token": "hf_SECRET", "a": [{"api_key": "sk-x"}]}, {"hub_token": "***", "a": [{"api_key": "***"}]}),
        ({"token": 5, "password": None, "api_key": "", "secret": True}, None),
        ({"credentials": {"user": "me", "port": 5}}, {"credentials": {"user": "***", "port": 5}}),
        ({"max_tokens": "many", "pad_token": "<pad>", "tokenizer_name": "bert"}, None),
        (["train.py", "--hub_token", "abc", "--lr", "1"], ["train.py", "--hub_token", "***", "--lr", "1"]),
        (["--api-key=abc", "--tokens=5"], ["--api-key=***", "--tokens=5"]),
        ("train.py --hub_token abc --lr 1", "train.py --hub_token *** --lr 1"),
        ("curl -H 'Authorization: Bearer abcdefgh1234'", "curl -H 'Authorization: Bearer ***'"),
        ("HF_TOKEN=abc python x.py", "HF_TOKEN=*** python x.py"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("https://u:TOKEN@host/r", "https://***@host/r"),
        ("https://TOKEN@host/r.git", "https://***@host/r.git"),
        ("postgresql://me:pw@db:5432/runs", "postgresql://***@db:5432/runs"),
        ("ssh://git@host/r", None),
        ("git@github.com:me/r", None),
        ("git+https://TOKEN@host/r", "git+https://***@host/r"),
        ("postgresql://me:p@ss@db/runs", "postgresql://***@db/runs"),
        ("https://u:pw@host?to=me@home", "https://***@host?to=me@home"),
        ("https://host/r?token=abc&x=1", "https://host/r?token=***&x=1"),
        ("refused: hf_AbCdEfGhIj0123456789", "refused: ***"),
        ("sk-proj-Ab12Cd34Ef56", "***"),
        ("ghp_abcdefghij0123456789", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("run_ghp_abcdefghij0123456789", "run_***"),
        ("run_hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123", "run_***"),
        ("Config(password='two words', n=1)", "Config(password='***', n=1)"),
        ('{"private_key": "-----BEGIN KEY-----\\nMII", "n": 1}', '{"private_key": "***", "n": 1}'),
        (r"{\"api_key\": \"a, b\", \"n\": 1}", r"{\"api_key\": \"***\", \"n\": 1}"),
        (r'api_key="a \" b" n=1', 'api_key="***" n=1'),
        ("password='cut off", "password='***'"),
        (["--password=two words", "+api_key=a b", "n=1"], ["--password=***", "+api_key=***", "n=1"]),
        ("a basic transformer", None),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("the next token: cat", None),
        ("sk-learn and hf_hub_download are libraries", None),
        ("the password is long", None),
        ("password: hunter2", "password: ***"),
        ("primary_key: 5, pad_token: <pad>", None),
    ],
)
def test_secrets_are_hidden_and_all_else_stays(value, redacted):
    before = copy.deepcopy(value)
    assert redact(value, environ={}) == (value if redacted is None else redacted)
    assert value == before


def test_values_of_secret_variables_are_hidden_wherever_they_stand():
    environ = {"WANDB_API_KEY": "0123456789abcdef", "HOME": "/home/somebody", "TOKEN": "a", "MY_PASSWORD": ""}
    text = "login 0123456789abcdef failed at /home/somebody"
    assert redact({"error": [text]}, environ) == {"error": ["login *** failed at /home/somebody"]}


def test_a_long_text_takes_no_longer_than_its_length():
    for piece in ("a-", "sk-", "eyJ", "token='", "http://a:", "password ", "\\"):
        started = time.process_time()
        redact(piece * 50_000, {})
        assert time.process_time() - started < 5


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["token", "api_key"]), inner),
    max_leaves=10,
)


@given(PLAIN)
def test_redaction_keeps_the_shape_and_every_number(value):
    def shape(value, hide_texts):
        if isinstance(value, dict):
            return sorted((shape(item, hide_texts) for item in value.values()), key=repr)
        if isinstance(value, list):
            return [shape(item, hide_texts) for item in value]
        return "" if isinstance(value, str) else value

    assert repr(shape(redact(value, {}), True)) == repr(shape(value, True))


@given(st.from_regex(r"[A-Za-z0-9]{8,20}", fullmatch=True), PLAIN)
def test_no_secret_survives_at_any_depth(secret, around):
    hidden = redact(
        [around, {"deep": {"hub_token": secret, "argv": ["--api_key", secret, f"--password={secret}"]}}], {}
    )
    deep = hidden[1]["deep"]
    assert secret not in json.dumps(deep).replace(REDACTED, "")
