"""What Spark shows of an option that is wrong, as PySpark's workers write it down."""

import io

import pytest
from pyspark.sql.types import StructType
from pyspark.util import handle_worker_exception

from odradek.spark.options import OptionError
from odradek.spark.source import OdradekDataSource


@pytest.mark.parametrize("simplified", ["", "1"])
@pytest.mark.parametrize("method", ["reader", "streamReader", "writer", "streamWriter", "schema"])
def test_what_is_wrong_is_said_before_the_traceback(
    method: str, simplified: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    source = OdradekDataSource({"kafka.bootstrap.servers": "a:b", "topicc": "t", "subscribe": ""})
    arguments: tuple[object, ...] = () if method == "schema" else (StructType(),)
    if "riter" in method:
        arguments = (*arguments, False)
    shown = io.BytesIO()
    with pytest.raises(OptionError) as refused:
        getattr(source, method)(*arguments)
    try:
        raise refused.value
    except OptionError as error:
        handle_worker_exception(error, shown)
    first, *others = shown.getvalue()[8:].decode().splitlines()
    assert first == f"OptionError: {refused.value}"
    assert "Traceback (most recent call last):" in others
