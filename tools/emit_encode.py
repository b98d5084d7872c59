"""Emits the encoder of one message at one version as straight-line Python.

Bytes are added to ``out``, a bytearray. Record bytes are not copied: ``out`` and then the record
buffer go to ``parts`` and a new ``out`` begins.
"""

from tools.layout import (
    ARRAY_FORMATS,
    FORMATS,
    differs_from_default,
    is_compact,
    tagged,
    untagged,
)
from tools.notation import Field, Message
from tools.source import Source, struct_name


class EncoderEmitter:
    def __init__(self, message: Message, version: int, class_names: dict[str, str]) -> None:
        self._message = message
        self._version = version
        self._class_names = class_names
        self._flexible = version in message.flexible
        self._source = Source(depth=1)
        self._pending: list[tuple[str, str]] = []
        """Fixed-size writes not emitted yet: struct format, value."""
        self._out = "out"
        self._depth = 0

    def body(self) -> str:
        self._struct("m", self._message.fields)
        self._flush()
        self._source.line("return out")
        return self._source.text()

    def _struct(self, value: str, fields: list[Field]) -> None:
        for field in fields:
            if self._version not in field.versions and not field.ignorable:
                self._refuse_lost_field(value, field)
        for field in untagged(fields, self._version):
            self._field(f"{value}.{field.name}", field)
        if self._flexible:
            self._tags(value, tagged(fields, self._version))

    def _refuse_lost_field(self, value: str, field: Field) -> None:
        test = self._class_named(differs_from_default(field, f"{value}.{field.name}"))
        self._flush()
        with self._source.indent(f"if {test}:"):
            # The name, not the number: versions of one layout must give one text.
            self._source.line(f'raise lost_field("{field.name}", version)')

    def _class_named(self, expression: str) -> str:
        for plain, unique in self._class_names.items():
            if expression.endswith(f" {plain}()"):
                return expression.replace(f" {plain}()", f" {unique}()")
        return expression

    def _field(self, value: str, field: Field) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(value, field, nullable=nullable)
        elif field.is_struct:
            self._struct_field(value, field, nullable=nullable)
        else:
            self._primitive(value, field, nullable=nullable)

    def _struct_field(self, value: str, field: Field, *, nullable: bool) -> None:
        name = self._enter("x")
        self._flush()
        self._source.line(f"{name} = {value}")
        if nullable:
            with self._source.indent(f"if {name} is None:"):
                self._source.line(f"{self._out}.append({255 if field.tag is None else 0})")
            with self._source.indent("else:"):
                self._write("b", "1")
                self._struct(name, field.fields)
                self._flush()
        else:
            self._struct(name, field.fields)
            self._flush()
        self._depth -= 1

    def _primitive(self, value: str, field: Field, *, nullable: bool) -> None:
        if field.type in FORMATS:
            self._write(FORMATS[field.type][0], value)
            return
        compact = is_compact(self._message, self._version, field)
        if not nullable:
            self._bytes_like(value, field, compact)
            return
        self._flush()
        with self._source.indent(f"if {value} is None:"):
            self._source.line(self._null(field, compact))
        with self._source.indent("else:"):
            self._bytes_like(value, field, compact)
            self._flush()

    def _null(self, field: Field, compact: bool) -> str:
        if compact:
            return f"{self._out}.append(0)"
        width = 2 if field.type == "string" and not field.is_array else 4
        minus_one = b"\xff" * width
        return f"{self._out} += {minus_one!r}"

    def _bytes_like(self, value: str, field: Field, compact: bool) -> None:
        line = self._source.line
        if field.type != "string":
            line(f"s = {value}")
        elif field.name == "error_message":
            line(f"s = message_bytes({value})")
        else:
            line(f"s = {value}.encode()")
        if compact:
            self._count("s")
        else:
            self._write("h" if field.type == "string" else "i", "len(s)")
        self._flush()
        if field.type != "records":
            line(f"{self._out} += s")
            return
        assert self._out == "out", "records inside a tagged field would have to be copied"
        line("parts.append(out)")
        line("parts.append(s)")
        line("out = bytearray()")

    def _count(self, name: str) -> None:
        """Emit the compact length of ``name``, plus one because 0 means null."""
        self._flush()
        line = self._source.line
        line(f"n = len({name}) + 1")
        with self._source.indent("if n < 128:"):
            line(f"{self._out}.append(n)")
        with self._source.indent("else:"):
            line(f"write_uvarint({self._out}, n)")

    def _array(self, value: str, field: Field, *, nullable: bool) -> None:
        items = self._enter("items")
        compact = is_compact(self._message, self._version, field)
        self._flush()
        self._source.line(f"{items} = {value}")
        if nullable:
            with self._source.indent(f"if {items} is None:"):
                self._source.line(self._null(field, compact))
            with self._source.indent("else:"):
                self._elements(items, field, compact)
        else:
            self._elements(items, field, compact)
        self._depth -= 1

    def _elements(self, items: str, field: Field, compact: bool) -> None:
        line = self._source.line
        if compact:
            self._count(items)
        else:
            self._write("i", f"len({items})")
        self._flush()
        if field.type in ARRAY_FORMATS:
            formats = ARRAY_FORMATS[field.type]
            line(f'{self._out} += struct.pack(f">{{len({items})}}{formats}", *{items})')
            return
        element = f"x{self._depth}"
        with self._source.indent(f"for {element} in {items}:"):
            if field.is_struct:
                self._struct(element, field.fields)
            else:
                self._primitive(element, field, nullable=False)
            self._flush()

    def _tags(self, value: str, fields: list[Field]) -> None:
        line = self._source.line
        self._flush()
        if not fields:
            with self._source.indent(f"if {value}.unknown_tags:"):
                line(f"write_tags({self._out}, list({value}.unknown_tags))")
            with self._source.indent("else:"):
                line(f"{self._out}.append(0)")
            return
        tags = self._enter("tags")
        line(f"{tags} = list({value}.unknown_tags)")
        for field in fields:
            self._tag(tags, f"{value}.{field.name}", field)
        with self._source.indent(f"if {tags}:"):
            line(f"write_tags({self._out}, {tags})")
        with self._source.indent("else:"):
            line(f"{self._out}.append(0)")
        self._depth -= 1

    def _tag(self, tags: str, value: str, field: Field) -> None:
        outer, self._out = self._out, self._enter("tagged")
        test = self._class_named(differs_from_default(field, value))
        with self._source.indent(f"if {test}:"):
            self._source.line(f"{self._out} = bytearray()")
            self._field(value, field)
            self._flush()
            self._source.line(f"{tags}.append(({field.tag}, {self._out}))")
        self._out = outer
        self._depth -= 1

    def _write(self, formats: str, value: str) -> None:
        self._pending.append((formats, value))

    def _flush(self) -> None:
        if not self._pending:
            return
        formats = "".join(f for f, _ in self._pending)
        values = ", ".join(v for _, v in self._pending)
        self._source.line(f"{self._out} += {struct_name('pack', formats)}({values})")
        self._pending.clear()

    def _enter(self, stem: str) -> str:
        self._depth += 1
        return f"{stem}{self._depth}"
