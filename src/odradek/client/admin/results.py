"""What became of many things that were asked for at once: each has its value or its error.

One bad item never fails its neighbours, so errors are data here. ``unwrap`` turns them back into
exceptions for callers who want all or nothing.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from odradek.client.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True)
class Result(Generic[V_co]):
    """One item's value, or why it has none."""

    value: V_co | None = None
    error: KafkaError | None = None

    def unwrap(self) -> V_co:
        """Return the value.

        Raises:
            KafkaError: There is none; this is why.
        """
        if self.error is not None:
            raise self.error
        return cast("V_co", self.value)


class Results(dict[K, Result[V]]):
    """A result for each item, in the order in which they were asked for.

    ``(await admin.create_topics(topics)).unwrap()`` raises the first error there is.
    """

    def unwrap(self) -> dict[K, V]:
        """Return all values.

        Raises:
            KafkaError: Of the first item that has none.
        """
        return {key: result.unwrap() for key, result in self.items()}

    @property
    def errors(self) -> dict[K, KafkaError]:
        return {key: each.error for key, each in self.items() if each.error is not None}
