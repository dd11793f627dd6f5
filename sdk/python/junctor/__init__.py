"""The Python SDK of junctor.

:class:`Client` and :class:`AsyncClient` call the capabilities of a server. :class:`Endpoint`
offers modules to it. :class:`Node` joins a gateway with functions that others call.
"""

from ._version import __version__
from .client import Approval, AsyncClient, CallOptions, Capability, Client, Event, Invoked, NodeInfo, Reply, Run, Task
from .endpoint import Endpoint, Server
from .errors import Error
from .module import (
    ActionResult, Evaluator, EvaluatorCall, FieldCall, FieldEffect, FieldEvaluator, Module, ProviderResult, ResponseEvaluator, RouteRequest,
    RouteResponse,
)
from .node import Context, Node

__all__ = [
    "ActionResult", "Approval", "AsyncClient", "CallOptions", "Capability", "Client", "Context", "Endpoint", "Error", "Evaluator",
    "EvaluatorCall",
    "Event", "FieldCall", "FieldEffect", "FieldEvaluator", "Invoked", "Module", "Node", "NodeInfo", "ProviderResult", "Reply",
    "ResponseEvaluator", "RouteRequest", "RouteResponse", "Run", "Server", "Task", "__version__",
]
