"""Errors of the API server, with its messages and codes."""

from typing import Any

from dovetail.ports import AlreadyExists, ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, Resource
from dovetail.sim.server.kinds import kind_of

OPTIMISTIC_LOCK = "the object has been modified; please apply your changes to the latest version and try again"


def group_resource(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def group_kind(resource: Resource[Any]) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def not_found(resource: Resource[Any], name: str) -> NotFound:
    return NotFound(f'{group_resource(resource)} "{name}" not found', code=404, reason="NotFound")


def already_exists(resource: Resource[Any], name: str, *, deleting: bool = False) -> AlreadyExists:
    prefix = "object is being deleted: " if deleting else ""
    return AlreadyExists(
        f'{prefix}{group_resource(resource)} "{name}" already exists', code=409, reason="AlreadyExists"
    )


def conflict(resource: Resource[Any], name: str, why: str) -> Conflict:
    message = f'Operation cannot be fulfilled on {group_resource(resource)} "{name}": {why}'
    return Conflict(message, code=409, reason="Conflict")


def forbidden(resource: Resource[Any], name: str, why: str) -> Forbidden:
    message = f'{group_resource(resource)} "{name}" is forbidden: {why}'
    return Forbidden(message, code=403, reason="Forbidden")


def terminating(resource: Resource[Any], name: str, namespace: str) -> Forbidden:
    """A namespace that is being deleted refuses new objects. The port adds the cause to the message."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(resource, name, f"{why} namespace {namespace} is being terminated")


def invalid(resource: Resource[Any], name: str, faults: list[str]) -> Invalid:
    """422; each fault starts with its field: `spec.weight: Invalid value: 0: …`."""
    listed = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return Invalid(f'{group_kind(resource)} "{name}" is invalid: {listed}', code=422, reason="Invalid")


def wrong_type(resource: Resource[Any], field: str, actual: str, wanted: str) -> Invalid:
    """The body has another kind or version than the path."""
    if kind_of(resource).custom:
        return Invalid(f'{field}: Invalid value: "{actual}": must be {wanted}', code=422, reason="Invalid")
    return bad_request(f"the {field} in the data ({actual}) does not match the expected {field} ({wanted})")


def bad_request(message: str) -> Invalid:
    return Invalid(message, code=400, reason="BadRequest")


def not_allowed(message: str) -> ApiError:
    return Invalid(message, code=405, reason="MethodNotAllowed")


def expired(message: str) -> Gone:
    return Gone(message, code=410, reason="Expired")


def no_such_resource(resource: Resource[Any], subresource: str) -> NotFound:
    what = f"{group_resource(resource)}/{subresource}"
    return NotFound(f"the server could not find the requested resource: {what}", code=404, reason="NotFound")


def unsupported_patch() -> Invalid:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
        ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
    )
    return Invalid(message, code=415, reason="UnsupportedMediaType")
