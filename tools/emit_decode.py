"""Emits the decoder of one message at one version as straight-line Python.

Neighbouring fields of fixed size, and the length that follows them, are read with one
``unpack_from``. Reading past the end raises IndexError or struct.error, which the caller of all
decoders turns into CorruptionError; slices do not raise, so lengths are always checked first.
"""

from tools.layout import (
    ARRAY_FORMATS,
    FORMATS,
    default_expression,
    element_size_min,
    is_compact,
    tagged,
    untagged,
)
from tools.notation import Field, Message
from tools.source import Source, struct_name


class DecoderEmitter:
    def __init__(self, message: Message, version: int, class_names: dict[str, str]) -> None:
        self._message = message
        self._version = version
        self._class_names = class_names
        self._flexible = version in message.flexible
        self._source = Source(depth=1)
        self._pending: list[tuple[str, int, str]] = []
        """Fixed-size reads not emitted yet: struct format, size, target."""
        self._uuids: list[str] = []
        """Targets among them that hold raw bytes until wrapped."""
        self._depth = 0

    def body(self) -> str:
        line = self._source.line
        line("end = len(buf)")
        line("budget = ELEMENTS_MAX")
        line(f"m = _new({self._class_names[self._message.name]})")
        self._struct("m", self._message.fields)
        line("return m, pos")
        text = self._source.text()
        if text.count("budget") == 1:
            text = text.replace("    budget = ELEMENTS_MAX\n", "")
        return text

    # A struct is its untagged fields in order, then the tagged ones.

    def _struct(self, target: str, fields: list[Field]) -> None:
        for field in fields:
            if self._version not in field.versions or field.tag is not None:
                self._source.line(f"{target}.{field.name} = {self._default(field)}")
        for field in untagged(fields, self._version):
            self._field(f"{target}.{field.name}", field)
        if self._flexible:
            self._tags(target, tagged(fields, self._version))
        else:
            self._flush()
            self._source.line(f"{target}.unknown_tags = ()")

    def _default(self, field: Field) -> str:
        expression = default_expression(field)
        for plain, unique in self._class_names.items():
            if expression == f"{plain}()":
                return f"{unique}()"
        return expression

    def _field(self, target: str, field: Field) -> None:
        if field.is_array:
            self._array(target, field)
        elif field.is_struct:
            self._struct_field(target, field)
        else:
            self._primitive(target, field, nullable=self._version in field.nullable)

    def _struct_field(self, target: str, field: Field) -> None:
        name = self._enter("x")
        if self._version in field.nullable:
            # Before a struct that may be null stands an int8, -1 or 1; in a tagged field it is an
            # unsigned varint, 0 or 1.
            self._read("b", 1, "n")
            self._flush()
            with self._source.indent("if n < 0:" if field.tag is None else "if n == 0:"):
                self._source.line(f"{target} = None")
            with self._source.indent("else:"):
                self._new_struct(name, field)
                self._source.line(f"{target} = {name}")
        else:
            self._new_struct(name, field)
            self._source.line(f"{target} = {name}")
        self._depth -= 1

    def _new_struct(self, name: str, field: Field) -> None:
        self._flush()
        self._source.line(f"{name} = _new({self._class_names[field.type]})")
        self._struct(name, field.fields)
        self._flush()

    def _primitive(self, target: str, field: Field, *, nullable: bool) -> None:
        if field.type in FORMATS:
            formats, size = FORMATS[field.type]
            self._read(formats, size, target)
            if field.type == "uuid":
                self._uuids.append(target)
            return
        compact = is_compact(self._message, self._version, field)
        self._length(compact, is_string=field.type == "string")
        offset = 1 if compact else 0
        first = 1 if compact else 0
        if nullable:
            with self._source.indent(f"if n < {first}:"):
                self._source.line(f"{target} = None")
            with self._source.indent("else:"):
                self._slice(target, field, offset)
        else:
            self._not_null(f"n < {first}", field)
            self._slice(target, field, offset)

    def _length(self, compact: bool, *, is_string: bool) -> None:
        """Emit code that leaves a length (compact: plus one) in ``n``."""
        if compact:
            self._read("B", 1, "n")
            self._flush()
            rest = "string_length_rest" if is_string else "uvarint_rest"
            with self._source.indent("if n > 127:"):
                self._source.line(f"n, pos = {rest}(buf, pos, n)")
        else:
            formats, size = FORMATS["int16" if is_string else "int32"]
            self._read(formats, size, "n")
            self._flush()

    def _not_null(self, condition: str, field: Field) -> None:
        with self._source.indent(f"if {condition}:"):
            self._source.line(f'raise null_field("{field.name}")')

    def _slice(self, target: str, field: Field, offset: int) -> None:
        line = self._source.line
        line("stop = pos + n - 1" if offset else "stop = pos + n")
        with self._source.indent("if stop > end:"):
            line(f'raise too_short("{field.name}", stop - end)')
        part = "buf[pos:stop]"
        match field.type:
            case "string":
                line(f"{target} = {part}.tobytes().decode()")
            case "bytes":
                line(f"{target} = bytes({part})")
            case _:
                line(f"{target} = {part}")
        line("pos = stop")

    def _array(self, target: str, field: Field) -> None:
        compact = is_compact(self._message, self._version, field)
        self._length(compact, is_string=False)
        first = 1 if compact else 0
        if self._version in field.nullable:
            with self._source.indent(f"if n < {first}:"):
                self._source.line(f"{target} = None")
            with self._source.indent("else:"):
                self._elements(target, field, compact)
        else:
            self._not_null(f"n < {first}", field)
            self._elements(target, field, compact)

    def _elements(self, target: str, field: Field, compact: bool) -> None:
        line = self._source.line
        if compact:
            line("n -= 1")
        size = element_size_min(self._message, field, self._version)
        needed = "n" if size == 1 else f"n * {size}"
        line("budget -= n")
        with self._source.indent(f"if {needed} > end - pos or budget < 0:"):
            line(f'raise too_many("{field.name}", n)')
        if field.type in ARRAY_FORMATS:
            formats = ARRAY_FORMATS[field.type]
            line(f'{target} = list(struct.unpack_from(f">{{n}}{formats}", buf, pos))')
            line(f"pos += {needed}")
            return
        items = self._enter("items")
        line(f"{items} = []")
        with self._source.indent("for _ in REPEAT[n] if n < 32 else range(n):"):
            element = f"x{self._depth}"
            if field.is_struct:
                self._new_struct(element, field)
            else:
                self._primitive(element, field, nullable=False)
                self._flush()
            line(f"{items}.append({element})")
        line(f"{target} = {items}")
        self._depth -= 1

    def _tags(self, target: str, fields: list[Field]) -> None:
        line = self._source.line
        self._read("B", 1, "n")
        self._flush()
        if not fields:
            with self._source.indent("if n:"):
                line(f"{target}.unknown_tags, pos, budget = unknown_tags(buf, pos, n, budget)")
            with self._source.indent("else:"):
                line(f"{target}.unknown_tags = ()")
            return
        line(f"{target}.unknown_tags = ()")
        with self._source.indent("if n:"):
            self._known_tags(target, fields)

    def _known_tags(self, target: str, fields: list[Field]) -> None:
        line = self._source.line
        unknown, stop = self._enter("unknown"), f"tag_stop{self._depth}"
        line("n, pos, budget = tag_count(buf, pos, n, budget)")
        line(f"{unknown} = []")
        with self._source.indent("for _ in range(n):"):
            line("tag, pos = uvarint(buf, pos)")
            line("n, pos = uvarint(buf, pos)")
            line(f"{stop} = pos + n")
            with self._source.indent(f"if {stop} > end:"):
                line(f'raise too_short("a tagged field", {stop} - end)')
            keyword = "if"
            for field in fields:
                with self._source.indent(f"{keyword} tag == {field.tag}:"):
                    self._field(f"{target}.{field.name}", field)
                    self._flush()
                keyword = "elif"
            with self._source.indent("else:"):
                line(f"{unknown}.append((tag, bytes(buf[pos:{stop}])))")
                line(f"pos = {stop}")
            with self._source.indent(f"if pos != {stop}:"):
                line(f"raise bad_tag_size(tag, {stop} - pos)")
        with self._source.indent(f"if {unknown}:"):
            line(f"{target}.unknown_tags = tuple({unknown})")
        self._depth -= 1

    def _read(self, formats: str, size: int, target: str) -> None:
        self._pending.append((formats, size, target))

    def _flush(self) -> None:
        if not self._pending:
            return
        line = self._source.line
        formats = "".join(f for f, _, _ in self._pending)
        size = sum(s for _, s, _ in self._pending)
        targets = [t for _, _, t in self._pending]
        if formats == "B":
            line(f"{targets[0]} = buf[pos]")
        elif len(targets) == 1:
            line(f"({targets[0]},) = {struct_name('unpack', formats)}(buf, pos)")
        else:
            line(f"{', '.join(targets)} = {struct_name('unpack', formats)}(buf, pos)")
        line(f"pos += {size}")
        for target in self._uuids:
            line(f"{target} = Uuid({target})")
        self._pending.clear()
        self._uuids.clear()

    def _enter(self, stem: str) -> str:
        self._depth += 1
        return f"{stem}{self._depth}"
