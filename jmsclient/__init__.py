"""JMS-style consumers for Python. The public names; see the documentation for what each promises."""

from jmsclient.destination import (
    Queue,
    ReadAheadAllowed,
    ReadAheadClosePolicy,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
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
    TransactionInDoubtError,
    TransactionRolledBackError,
    TransientError,
    UnsupportedFeatureError,
)
from jmsclient.intake import CloseReport
from jmsclient.jms.browser import QueueBrowser
from jmsclient.jms.connection import Connection, connect
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.producer import MessageProducer
from jmsclient.jms.session import Session
from jmsclient.message import Message, MessageKind
from jmsclient.options import AcknowledgeMode, ConnectionOptions, ConsumerOptions, DefaultReadAhead, TriggerOptions, WorkerOptions
from jmsclient.transport.capabilities import Capabilities
from jmsclient.trigger.decision import AskResolver, Decision, Duplicate, InDoubt, InProgress, New, Status, classify
from jmsclient.trigger.delivery import Delivery, ResolverRequest
from jmsclient.worker import StopReport, Worker

__all__ = [
    "AcknowledgeMode",
    "AskResolver",
    "Capabilities",
    "CloseReport",
    "CloseTimeout",
    "ConfigurationError",
    "Connection",
    "ConnectionLostError",
    "ConnectionOptions",
    "ConsumerOptions",
    "Decision",
    "DefaultReadAhead",
    "Delivery",
    "DestinationPausedError",
    "Duplicate",
    "HistoryUnavailableError",
    "IllegalStateError",
    "InDoubt",
    "InProgress",
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
    "New",
    "Queue",
    "QueueBrowser",
    "ReadAheadAllowed",
    "ReadAheadClosePolicy",
    "RequestTimeoutError",
    "ResolverRequest",
    "ResourceAllocationError",
    "SendError",
    "Session",
    "Status",
    "StopReport",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "TransactionInDoubtError",
    "TransactionRolledBackError",
    "TransientError",
    "TriggerOptions",
    "UnsupportedFeatureError",
    "Worker",
    "WorkerOptions",
    "classify",
    "connect",
]
