"""The dynamic configs of all resources, and the draft into which they are replayed."""

from collections.abc import Iterator, Mapping

from odradek.metadata.config_resource import ConfigResource, ResourceType
from odradek.metadata.draft import Draft
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.touched import Touched
from odradek.protocol.generated.metadata_records import ConfigRecord


class ConfigsDraft:
    def __init__(
        self, configs: Mapping[ConfigResource, Mapping[str, str]], touched: Touched
    ) -> None:
        self.resources = Draft(configs, touched.configs)

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(ResourceType(record.resource_type), record.resource_name)
        # Copied for each record: a resource has a handful of configs, not thousands.
        values = dict(self.resources.get(resource) or {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.resources.put(resource, values)
        else:
            self.forget(resource)

    def forget(self, resource: ConfigResource) -> None:
        self.resources.remove(resource)


def config_records(
    configs: Mapping[ConfigResource, Mapping[str, str]],
) -> Iterator[VersionedRecord]:
    for resource, values in sorted(configs.items()):
        for name, value in sorted(values.items()):
            record = ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
            yield VersionedRecord(record, 0)
