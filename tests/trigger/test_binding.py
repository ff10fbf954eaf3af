"""What a handler takes: each kind of body by annotation, and a body that does not fit is dead-lettered with the field named.

TR-45, O09: no value of a body is in an error, which goes to logs and to properties."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from jmsclient import Delivery, Message, Worker
from jmsclient.errors import ConfigurationError, MessageFormatError
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.trigger.binding import bind

Q = "queue:///orders"
Until = Callable[..., None]
SECRET = "4711-secret"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    article: str
    price: float
    colour: Colour = Colour.RED


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    id: int
    lines: list[Line] = dataclasses.field(default_factory=list)
    note: str | None = None
    kind: Literal["sale", "return"] = "sale"
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    replaces: Order | None = None
    anything: Any = None
    total: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("an id is never negative")


class StructLine(msgspec.Struct):
    article: str


class StructOrder(msgspec.Struct):
    id: int
    lines: list[StructLine] = []


class ModelLine(pydantic.BaseModel):
    article: str


class ModelOrder(pydantic.BaseModel):
    id: int
    lines: list[ModelLine] = []


def taking(annotation: Any) -> Callable[[Any], Any]:
    """A call of a handler with such a parameter, which returns what it was given."""

    def handler(body: Any) -> Any:
        return body

    handler.__annotations__["body"] = annotation
    call = bind(handler)
    return lambda body: call(Message(body), Delivery.__new__(Delivery))


def test_text_bytes_and_dictionaries_come_as_they_are() -> None:
    assert taking(str)("é") == "é"
    assert taking(bytes)(b"\0") == b"\0"
    assert taking(bytes)("é") == "é".encode()
    assert taking(dict)({"a": 1}) == {"a": 1}
    assert taking(dict)('{"a": [1]}') == {"a": [1]}
    assert taking(dict)(b'{"a": null}') == {"a": None}
    assert taking(dict[str, int])({"a": 1}) == {"a": 1}


ORDER = {
    "id": 1,
    "lines": [{"article": "tea", "price": 2}, {"article": "cup", "price": 7.5, "colour": "blue"}],
    "note": None,
    "kind": "return",
    "tags": {"urgent": 1},
    "replaces": {"id": 2, "note": "wrong"},
    "anything": [1, {"x": None}],
}


def test_a_dataclass_is_made_with_what_is_in_it() -> None:
    order = taking(Order)(json.dumps(ORDER))
    assert order == Order(
        id=1,
        lines=[Line("tea", 2.0), Line("cup", 7.5, Colour.BLUE)],
        kind="return",
        tags={"urgent": 1},
        replaces=Order(id=2, note="wrong"),
        anything=[1, {"x": None}],
    )
    assert type(order.lines[0].price) is float
    assert taking(Order)({"id": 3}) == Order(id=3)  # a MAP message


@dataclasses.dataclass
class Bill:
    """Of what JSON has as text only."""

    id: UUID
    when: datetime
    day: date | None = None
    at: time = time(12)
    amount: Decimal = Decimal(0)


BILL = {"id": "12345678-1234-5678-1234-567812345678", "when": "2026-01-31T10:20:30+01:00"}


def test_dates_times_decimals_and_uuids_are_read_from_text() -> None:
    bill = taking(Bill)(json.dumps({**BILL, "day": "2026-02-01", "at": "08:30", "amount": "1.10"}))
    when = datetime(2026, 1, 31, 10, 20, 30, tzinfo=timezone(timedelta(hours=1)))
    assert bill == Bill(UUID(BILL["id"]), when, date(2026, 2, 1), time(8, 30), Decimal("1.10"))
    assert taking(Bill)({**BILL, "amount": 7}).amount == Decimal(7)  # a MAP message


class Place(TypedDict):
    x: int
    name: NotRequired[str]
    inside: NotRequired[Place]


@dataclasses.dataclass
class Route:
    places: tuple[Place, ...] = ()
    size: tuple[int, float] | None = None
    tags: set[str] = dataclasses.field(default_factory=set)
    days: frozenset[date] = frozenset()
    rest: tuple = ()  # type: ignore[type-arg]  # of anything


def test_tuples_sets_and_typed_dictionaries_are_read_from_what_json_has() -> None:
    """No message could ever fill such a field, or it was given a list."""
    text = {"places": [{"x": 1, "inside": {"x": 2, "name": "b"}}], "size": [1, 2], "tags": ["a", "a"], "days": ["2026-02-01"]}
    assert taking(Route)(json.dumps({**text, "rest": [1, "x"]})) == Route(
        ({"x": 1, "inside": {"x": 2, "name": "b"}},), (1, 2.0), {"a"}, frozenset({date(2026, 2, 1)}), (1, "x")
    )


@pytest.mark.parametrize("kind", [StructOrder, ModelOrder])
def test_a_struct_and_a_model_are_made_by_their_libraries(kind: Any) -> None:
    order = taking(kind)('{"id": 1, "lines": [{"article": "tea"}]}')
    assert type(order) is kind
    assert (order.id, order.lines[0].article) == (1, "tea")
    assert taking(kind)({"id": 1}).lines == []


@pytest.mark.parametrize(
    ("annotation", "body", "says"),
    [
        (str, b"x", "the body is a bytes; the handler takes str"),
        (bytes, {"a": 1}, "the body is a dict; the handler takes bytes"),
        (str, None, "the body is a None; the handler takes str"),
        (dict, SECRET, "the body is no JSON object"),
        (dict, f'["{SECRET}"]', "the body is a JSON list; the handler takes an object"),
        (dict, "null", "the body is a JSON null; the handler takes an object"),
        pytest.param(Order, "[" * 100_000, "the body is no JSON object: maximum recursion depth exceeded", id="nested too deeply"),
        (Bill, {**BILL, "id": SECRET}, "field 'id' of Bill is no UUID"),
        (Bill, {**BILL, "when": SECRET}, "field 'when' of Bill is no datetime"),
        (Bill, {**BILL, "when": 1767225600}, "field 'when' of Bill is a int, expected datetime as text"),
        (Bill, {**BILL, "day": SECRET}, "field 'day' of Bill is a str, expected date or None"),
        (Bill, {**BILL, "at": SECRET}, "field 'at' of Bill is no time"),
        (Bill, {**BILL, "amount": SECRET}, "field 'amount' of Bill is no Decimal"),
        (Bill, {**BILL, "amount": 1.1}, "field 'amount' of Bill is a float, expected Decimal as text"),
        (dict[str, int], {"a": SECRET}, "field 'a' is a str, expected int"),
        (Order, SECRET.encode(), "the body is no JSON object"),
        (Order, {}, "field 'id' of Order is missing"),
        (Order, {"id": SECRET}, "field 'id' of Order is a str, expected int"),
        (Order, {"id": True}, "field 'id' of Order is a bool, expected int"),
        (Order, {"id": None}, "field 'id' of Order is a None, expected int"),
        (Order, {"id": 1, "total": 3.0}, "field 'total' of Order is not one of Order"),
        (Order, '{"id": 1, "lines": {}}', "field 'lines' of Order is a dict, expected list"),
        (Order, '{"id": 1, "lines": [{"article": "a", "price": 1}, 2]}', "field 'lines[1]' of Order is a int, expected Line"),
        (
            Order,
            f'{{"id": 1, "lines": [{{"article": "a", "price": "{SECRET}"}}]}}',
            "field 'lines[0].price' of Order is a str, expected float",
        ),
        (Order, '{"id": 1, "lines": [{"price": 1}]}', "field 'lines[0].article' of Order is missing"),
        (
            Order,
            f'{{"id": 1, "lines": [{{"article": "a", "price": 1, "colour": "{SECRET}"}}]}}',
            "field 'lines[0].colour' of Order is no value of Colour",
        ),
        (Order, {"id": 1, "note": 2}, "field 'note' of Order is a int, expected str or None"),
        (Order, {"id": 1, "kind": SECRET}, "field 'kind' of Order is none of 'sale', 'return'"),
        (Order, f'{{"id": 1, "tags": {{"x": "{SECRET}"}}}}', "field 'tags.x' of Order is a str, expected int"),
        (Order, '{"id": 1, "replaces": {"id": "2"}}', "field 'replaces.id' of Order is a str, expected int"),
        (Order, '{"id": 1, "replaces": {"id": -2}}', "field 'replaces' of Order does not fit Order: an id is never negative"),
        (Order, {"id": -1}, "the body does not fit Order: an id is never negative"),
        (Route, json.dumps({"places": [{}]}), "field 'places[0].x' of Route is missing"),
        (Route, json.dumps({"places": [{"x": 1, "y": 2}]}), "field 'places[0].y' of Route is not one of Place"),
        (
            Route,
            json.dumps({"places": [{"x": 1, "inside": {"x": SECRET}}]}),
            "field 'places[0].inside.x' of Route is a str, expected int",
        ),
        (Route, json.dumps({"places": [3]}), "field 'places[0]' of Route is a int, expected Place"),
        (Route, json.dumps({"tags": SECRET}), "field 'tags' of Route is a str, expected list"),
        (Route, json.dumps({"tags": [1]}), "field 'tags[0]' of Route is a int, expected str"),
        (Route, json.dumps({"size": [1]}), "field 'size' of Route is a list, expected tuple or None"),
        (Route, json.dumps({"rest": {}}), "field 'rest' of Route is a dict, expected list"),
        (StructOrder, f'{{"id": "{SECRET}"}}', "the body does not fit: Expected `int`, got `str` - at `$.id`"),
        (StructOrder, "{}", "missing required field `id`"),
        (StructOrder, '{"id": 1, "lines": [{}]}', "$.lines[0]"),
        (ModelOrder, f'{{"id": "{SECRET}"}}', "the body does not fit: field 'id': Input should be a valid integer"),
        (ModelOrder, "{}", "field 'id': Field required"),
        (ModelOrder, f'{{"id": 1, "lines": [{{"article": ["{SECRET}"]}}]}}', "field 'lines.0.article'"),
    ],
)
def test_what_does_not_fit_is_said_by_field_and_without_its_value(annotation: Any, body: Any, says: str) -> None:
    with pytest.raises(MessageFormatError) as caught:
        taking(annotation)(body)
    assert says in str(caught.value)
    assert SECRET not in str(caught.value)


@dataclasses.dataclass
class Unresolved:
    field: Missing  # type: ignore[name-defined]  # noqa: F821  that is what it is about


@pytest.mark.parametrize("annotation", [int, list[str], object, Order | None, set, Unresolved])
def test_what_no_body_can_become_is_refused_when_it_is_declared(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match="annotat"):
        taking(annotation)


@pytest.mark.parametrize("kind", [Order, StructOrder, ModelOrder])
@pytest.mark.parametrize("is_async", [False, True])
def test_tr45_a_body_that_does_not_fit_is_dead_lettered_and_the_trigger_goes_on(until: Until, kind: Any, is_async: bool) -> None:
    booked: list[int] = []
    worker = Worker(history="memory:")

    def book(order: Any, delivery: Delivery) -> None:
        booked.append(order.id)

    async def book_async(order: Any, delivery: Delivery) -> None:
        booked.append(order.id)

    handler = book_async if is_async else book
    handler.__annotations__["order"] = kind
    worker.trigger(Q, max_retries=5)(handler)  # fatal: it is not retried
    with TestBroker(worker) as broker:
        broker.send(Q, '{"id": "x"}')
        broker.send(Q, '{"id": 2}')
        broker.send(Q, b"\xff\xfe")
        broker.send(Q, {"id": 3})
        until(lambda: worker.triggers[Q].counters["completed"] == 4)
        dead = broker.messages("queue:///DLQ")
        assert (worker.triggers[Q].counters["failed"], worker.triggers[Q].counters["retrying"]) == (2, 0)
    assert booked == [2, 3]
    assert [one.body for one in dead] == ['{"id": "x"}', b"\xff\xfe"]
    assert [one.properties["JMS_jmsclient_error_type"] for one in dead] == ["MessageFormatError"] * 2
    assert "id" in str(dead[0].properties["JMS_jmsclient_error_text"])


def test_a_handler_that_takes_nothing_gets_nothing(backend: ScriptedBackend, until: Until) -> None:
    """So a body that nobody reads is never in the way."""
    calls: list[int] = []
    worker = Worker(backend.url)

    @worker.trigger(Q)
    def count(delivery: Delivery) -> None:
        calls.append(delivery.delivery_count)

    with worker:
        backend.deliver(Q, [b"\xff", "text"])
        until(lambda: calls == [1, 1])
