"""A join as it was declared (TR-63). Must not know how its messages are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jmsclient.destination import Destination
from jmsclient.errors import ConfigurationError
from jmsclient.message import Message
from jmsclient.options import choice, seconds

JoinKind = Literal["and", "or", "xor"]
Activation = str | Callable[[Message], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinSpec:
    """A join as declared; `activation` names a property, or gives the activation id of a message."""

    kind: JoinKind
    destinations: tuple[Destination, ...]
    activation: Activation
    expires: float

    def __post_init__(self) -> None:
        choice("kind", self.kind, ("and", "or", "xor"))
        seconds("expires", self.expires, least=0.001)
        if len(self.destinations) < 2 or len({one.address for one in self.destinations}) < len(self.destinations):
            raise ConfigurationError("destinations: a join needs two or more, each once")
        if not callable(self.activation) and not (isinstance(self.activation, str) and self.activation):
            raise ConfigurationError(f"activation={self.activation!r}: expected the name of a property or a function of a message")

    @property
    def gathers(self) -> bool:
        """Its messages are joined before anything runs."""
        return self.kind != "or"

    def activation_of(self, message: Message) -> str | None:
        """The activation id; None for none. Raises what the application's function raises."""
        found = self.activation(message) if callable(self.activation) else message.properties.get(self.activation)
        return str(found) if found is not None and str(found) else None
