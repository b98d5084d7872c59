"""What both code emitters need to know of a message at one version: sizes, defaults, formats."""

from tools.notation import Field, Message

FORMATS = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""struct format and size of the types whose size never varies."""

ARRAY_FORMATS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
"""Element types whose arrays are read and written with one struct call."""


def is_compact(message: Message, version: int, field: Field) -> bool:
    return version in message.flexible and not field.plain


def untagged(fields: list[Field], version: int) -> list[Field]:
    return [f for f in fields if version in f.versions and f.tag is None]


def tagged(fields: list[Field], version: int) -> list[Field]:
    present = [f for f in fields if version in f.versions and f.tag is not None]
    return sorted(present, key=lambda f: f.tag or 0)


def size_min(message: Message, fields: list[Field], version: int) -> int:
    """Return the fewest bytes a struct of ``fields`` takes; never 0, so that counts are bounded."""
    sizes = [field_size_min(message, f, version) for f in untagged(fields, version)]
    return max(sum(sizes) + (version in message.flexible), 1)


def field_size_min(message: Message, field: Field, version: int) -> int:
    if field.is_array:
        return 1 if is_compact(message, version, field) else 4
    return element_size_min(message, field, version)


def element_size_min(message: Message, field: Field, version: int) -> int:
    if field.type in FORMATS:
        return FORMATS[field.type][1]
    if field.is_struct:
        nullable = version in field.nullable and not field.is_array
        return 1 if nullable else size_min(message, field.fields, version)
    if is_compact(message, version, field):
        return 1
    return 2 if field.type == "string" else 4


def default_expression(field: Field) -> str:
    """Return the Python source of the value that a field has when nobody set it."""
    if field.default == "null" or is_optional_struct(field):
        return "None"
    if field.is_array:
        return "[]"
    if field.is_struct:
        return f"{field.type}()"
    match field.type:
        case "bool":
            return str(field.default == "true")
        case "float64":
            return str(float(field.default or 0))
        case "string":
            return repr(field.default or "")
        case "bytes" | "records":
            return "b''"
        case "uuid":
            return "ZERO_UUID"
        case _:
            return str(int(field.default or "0", 0))


def is_optional_struct(field: Field) -> bool:
    """Whether None stands for "all defaults": a tagged struct is then not sent at all.

    A shared default instance would be cheaper still, but the first caller who assigns to one of
    its fields would change everybody's default.
    """
    nullable = field.nullable.first <= field.nullable.last
    return field.is_struct and not field.is_array and field.tag is not None and not nullable


def differs_from_default(field: Field, value: str) -> str:
    """Return the source of a test that is true when ``value`` is not the field's default."""
    default = default_expression(field)
    if default.endswith("()") and field.nullable.first <= field.nullable.last:
        return f"{value} is None or {value} != {default}"
    if default == "None":
        if field.is_struct and not field.is_array and field.nullable.first > field.nullable.last:
            return f"{value} is not None and {value} != {field.type}()"
        return f"{value} is not None"
    if default in ("[]", "b''", "''"):
        may_be_null = field.nullable.first <= field.nullable.last
        return f"({value} is None or {value})" if may_be_null else value
    if default in ("True", "False"):
        return f"not {value}" if default == "True" else value
    return f"{value} != {default}"
