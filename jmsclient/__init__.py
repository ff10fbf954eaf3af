"""JMS-style consumers for Python. The public names; see the documentation for what each promises."""

from jmsclient.destination import Queue, ReadAheadAllowed, ReadAheadClosePolicy, Topic
from jmsclient.errors import (
    CloseTimeout,
    ConfigurationError,
    ConnectionLostError,
    DestinationPausedError,
    HistoryUnavailableError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    LeaseLostError,
    MessageFormatError,
    MessageNotWriteableError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    TransientError,
    UnsupportedFeatureError,
)
from jmsclient.intake import CloseReport
from jmsclient.jms.connection import Connection, connect
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.producer import MessageProducer
from jmsclient.jms.session import Session
from jmsclient.message import Message, MessageKind
from jmsclient.options import AcknowledgeMode, ConnectionOptions, ConsumerOptions, DefaultReadAhead
from jmsclient.transport.capabilities import Capabilities

__all__ = [
    "AcknowledgeMode",
    "Capabilities",
    "CloseReport",
    "CloseTimeout",
    "ConfigurationError",
    "Connection",
    "ConnectionLostError",
    "ConnectionOptions",
    "ConsumerOptions",
    "DefaultReadAhead",
    "DestinationPausedError",
    "HistoryUnavailableError",
    "IllegalStateError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JmsClientError",
    "LeaseLostError",
    "Message",
    "MessageConsumer",
    "MessageFormatError",
    "MessageKind",
    "MessageNotWriteableError",
    "MessageProducer",
    "Queue",
    "ReadAheadAllowed",
    "ReadAheadClosePolicy",
    "RequestTimeoutError",
    "ResourceAllocationError",
    "SendError",
    "Session",
    "Topic",
    "TransientError",
    "UnsupportedFeatureError",
    "connect",
]
