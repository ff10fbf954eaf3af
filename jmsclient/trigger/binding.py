"""From a handler's annotations to its arguments: `Message`, `Delivery`, and one body parameter; of a batch, lists of these.

The plan is made once, when the trigger is declared; a handler that cannot be called that way is refused there. A body that
does not fit (`bodies.py`) raises MessageFormatError naming the field; the trigger treats that as a fatal error, so it is
dead-lettered, never a crash.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from jmsclient.errors import ConfigurationError
from jmsclient.history.contract import HistoryTransaction
from jmsclient.jms.session import Session
from jmsclient.message import Message
from jmsclient.trigger.bodies import converter
from jmsclient.trigger.delivery import Delivery

Argument = Callable[[Message, Delivery], Any]


def bind(function: Callable[..., Any], *, transacted: bool = False) -> Callable[[Message, Delivery], Any]:
    """A call of `function` from a message and its delivery; of an `async def` it returns what is to be awaited. Raises
    ConfigurationError for a parameter it cannot fill, and for a generator."""
    arguments = _arguments(function, lambda hint: hint, transacted=transacted)
    checked = _checked(function)

    def call(message: Message, delivery: Delivery) -> Any:
        return checked(*[argument(message, delivery) for argument in arguments])

    if arguments == [_the_message]:
        return CallWithMessage(function, function)
    if not any(argument in (_the_delivery, _the_transaction, _the_session) for argument in arguments):
        nobody_looks: Any = None
        return CallWithMessage(function, lambda message: function(*[argument(message, nobody_looks) for argument in arguments]))
    return call


class CallWithMessage:
    """A call of `handler` that needs nothing but the message: `function` takes that, and no Delivery need be made. What it returned
    is for `check`."""

    __slots__ = ("_awaited", "_handler", "function")

    def __init__(self, handler: Callable[..., Any], function: Callable[[Message], Any]) -> None:
        self._handler = handler
        self._awaited = is_async(handler)
        self.function = function

    def __call__(self, message: Message, _: Delivery) -> Any:
        returned = self.function(message)
        self.check(returned)
        return returned

    def check(self, returned: Any) -> None:
        """Raises ConfigurationError where nothing of the handler has run."""
        if returned is not None and not self._awaited:
            _refuse_what_did_not_run(self._handler, returned)


def is_async(function: Callable[..., Any]) -> bool:
    """It returns something to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same; a plain one raises ConfigurationError where nothing of it has run."""
    if is_async(function):
        return function

    def call(*arguments: Any) -> Any:
        returned = function(*arguments)
        if returned is not None:
            _refuse_what_did_not_run(function, returned)
        return returned

    return call


def _refuse_what_did_not_run(function: Callable[..., Any], returned: Any) -> None:
    """A plain function returned a coroutine or a generator: nothing of it has run, so its message must not be completed."""
    if isinstance(returned, Coroutine | Generator):
        returned.close()  # nobody will await it, and the interpreter need not say so
    elif not isinstance(returned, Awaitable | AsyncGenerator):
        return
    raise ConfigurationError(
        f"handler {_name(function)} returned a {type(returned).__name__}, of which nothing has run: declare it `async def`, or "
        "await or iterate in it, and return nothing"
    )


class BatchCall:
    """A call of `function` with lists: each of its parameters takes `list[…]` of what `bind` knows (TR-48)."""

    def __init__(self, function: Callable[..., Any], *, transacted: bool = False) -> None:
        """Raises ConfigurationError as `bind` does."""
        self._function = _checked(function)
        self._arguments = _arguments(function, _of_a_list, transacted=transacted)

    def row(self, message: Message, delivery: Delivery) -> tuple[Any, ...]:
        """The arguments of one message. Raises MessageFormatError where its body does not fit."""
        return tuple(argument(message, delivery) for argument in self._arguments)

    def __call__(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        columns = zip(*rows, strict=True)
        calls = zip(columns, self._arguments, strict=True)
        return self._function(*[column[0] if argument is _the_session else list(column) for column, argument in calls])


class SetCall:
    """A call of `function` for the complete set of an AND join: its parameters take `list[…]`, one element a destination, or the
    one Delivery (TR-63)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises ConfigurationError as `bind` does."""
        self._function = _checked(function)
        self._arguments = _arguments(function, _of_a_set, transacted=False)

    def __call__(self, messages: Sequence[Message], delivery: Delivery) -> Any:
        rows = [[argument(message, delivery) for argument in self._arguments] for message in messages]
        columns = zip(zip(*rows, strict=True), self._arguments, strict=True)
        return self._function(*[column[0] if argument is _the_delivery else list(column) for column, argument in columns])


def _of_a_set(hint: Any) -> Any:
    """A set has one Delivery, and of all else one for each of its messages."""
    return hint if hint is Delivery else _of_a_list(hint)


def _of_a_list(hint: Any) -> Any:
    """What is in the list; None where it is no list of one type. A batch has one Session."""
    if hint is Session:
        return hint
    return get_args(hint)[0] if get_origin(hint) is list and len(get_args(hint)) == 1 else None


def _arguments(function: Callable[..., Any], each: Callable[[Any], Any], *, transacted: bool) -> list[Argument]:
    """One for each parameter; `each` gives from a parameter's annotation what one message is to become."""
    if not callable(function) or inspect.isclass(function):
        raise ConfigurationError(
            f"handler {_name(function)}: expected a function, or an object that can be called, not a "
            f"{'class' if inspect.isclass(function) else type(function).__name__}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"handler {_name(function)} is a generator: calling it runs nothing; return instead of yield")
    try:
        hints = get_type_hints(_annotated(function))
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"handler {_name(function)}: its annotations cannot be resolved: {error}") from error
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:  # some of those written in C
        raise ConfigurationError(f"handler {_name(function)}: {error}; wrap it in a function with annotations") from error
    arguments: list[Argument] = []
    bodies = 0
    for parameter in parameters:
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            if parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY:
                raise ConfigurationError(f"handler {_name(function)}: keyword-only parameter {parameter.name!r} cannot be filled")
            continue
        argument = _argument(each(hints.get(parameter.name)), hints.get(parameter.name), parameter.name, function, each)
        bodies += argument not in (_the_message, _the_delivery, _the_transaction, _the_session)
        arguments.append(argument)
    if _the_session in arguments and not transacted:
        raise ConfigurationError(f"handler {_name(function)}: only a trigger with transacted=True gives its handler a Session")
    if bodies > 1:
        raise ConfigurationError(f"handler {_name(function)}: only one parameter can take the body")
    return arguments


def _annotated(function: Callable[..., Any]) -> Any:
    """What bears the annotations: the function inside a partial, the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _the_message(message: Message, _: Delivery) -> Message:
    return message


def _the_delivery(_: Message, delivery: Delivery) -> Delivery:
    return delivery


def _the_transaction(_: Message, delivery: Delivery) -> HistoryTransaction | None:
    return delivery.transaction


@functools.lru_cache(maxsize=1024)
def takes_transaction(function: Callable[..., Any]) -> bool:
    """It asks for the history's transaction (TR-36)."""
    return HistoryTransaction in get_type_hints(_annotated(function)).values()


def _the_session(_: Message, delivery: Delivery) -> Session:
    assert delivery.session is not None  # refused when it was declared
    return delivery.session


def _argument(hint: Any, annotation: Any, name: str, function: Callable[..., Any], each: Callable[[Any], Any]) -> Argument:
    if hint is Message:
        return _the_message
    if hint is Delivery:
        return _the_delivery
    if hint is Session:
        return _the_session
    if hint is HistoryTransaction:
        return _the_transaction
    convert = converter(hint)
    if convert is None:
        of = "list[…] of " if each in (_of_a_list, _of_a_set) else ""
        has = "is not annotated" if annotation is None else f"is annotated {annotation!r}"
        has += " (of a method, decorate the bound one)" if name == "self" and annotation is None else ""
        raise ConfigurationError(
            f"handler {_name(function)}: parameter {name!r} {has}; expected {of}Message, Delivery, "
            "HistoryTransaction, str, bytes, dict, a dataclass, a msgspec Struct or a pydantic model"
        )
    return lambda message, _: convert(message.body)
