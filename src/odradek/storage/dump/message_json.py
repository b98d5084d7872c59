"""Messages as JSON documents, shaped like those of Kafka's generated JSON converters.

Names are in camel case and in the order of the definition. A field that the version lacks is left
out, and so is a tagged one that has its default; all others are there, null as null.

A generated class stands for every version of its message and does not say which version has which
field, so that is looked up in the definitions that it was made from.
"""

from typing import Any

from odradek.protocol.generated import MESSAGES
from odradek.protocol.message import Message, Struct
from odradek.storage.dump.definitions import Field, read_definitions


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Return what ``java_text.json_text`` writes: dicts, lists, and the values of fields."""
    name = type(message).__name__
    return _object(message, read_definitions(MESSAGES[name])[name], version)


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _object(struct: Struct, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    document, defaults = {}, type(struct)()
    for field in fields:
        value = getattr(struct, field.name)
        if not field.first_version <= version <= field.last_version:
            continue
        if field.is_tagged and value == getattr(defaults, field.name):
            continue
        document[camel_case(field.name)] = _value(value, field, version)
    return document


def _value(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, Struct):
        return _object(value, field.fields, version)
    if isinstance(value, list | tuple):
        return [_value(element, field, version) for element in value]
    return value
