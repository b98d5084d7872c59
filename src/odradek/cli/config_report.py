"""What ``odradek configs --describe`` prints."""

from typing import Final

import click

from odradek.cli.tables import print_json
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigEntry, ConfigResource
from odradek.client.errors import KafkaError
from odradek.core.config import ConfigResourceType, ConfigSource
from odradek.core.topic_names import check_topic_name

_SET_BY_HAND: Final = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}


async def describe(
    entity_type: str,
    kind: ConfigResourceType,
    name: str | None,
    admin: Admin,
    *,
    show_all: bool,
    as_json: bool,
) -> None:
    """Print the configs of one entity, or of all there are."""
    if name is not None and kind is ConfigResourceType.TOPIC:
        check_topic_name(name)
    if name and not show_all and name not in await _existing(admin, kind):
        problem = f"'{name}' doesn't exist and doesn't have dynamic config."
        click.echo(f"The {entity_type[:-1]} {problem}")
        return
    names = [name] if name is not None else await _existing(admin, kind)
    documents = []
    for each in names:
        resource = ConfigResource(kind, each)
        results = await admin.describe_configs([resource], include_synonyms=True)
        entries = [
            entry
            for _, entry in sorted(results[resource].unwrap().items())
            if show_all or entry.source is _source(resource)
        ]
        if as_json:
            documents.append(_document(entity_type, each, entries))
            continue
        click.echo(_head(entity_type, each, show_all=show_all))
        for entry in entries:
            click.echo(_line(entry))
    if as_json:
        print_json(documents)


async def _existing(admin: Admin, kind: ConfigResourceType) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return [each.name for each in await admin.list_topics(include_internal=True)]
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            brokers = (await admin.describe_cluster()).brokers
            return [*(str(each.node_id) for each in brokers), ""]
        case ConfigResourceType.GROUP:
            groups = [each.group_id for each in await admin.list_groups()]
            return sorted({*groups, *await _with_configs(admin, kind)})
        case _:
            return await _with_configs(admin, kind)


async def _with_configs(admin: Admin, kind: ConfigResourceType) -> list[str]:
    try:
        return [each.name for each in await admin.list_config_resources([kind])]
    except KafkaError:
        if kind is ConfigResourceType.GROUP:  # brokers before 4.1 cannot tell
            return []
        raise


def _source(resource: ConfigResource) -> ConfigSource:
    if resource == ConfigResource.broker():
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return _SET_BY_HAND.get(resource.type, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)


def _head(entity_type: str, name: str, *, show_all: bool) -> str:
    if not name:
        return f"Default configs for {entity_type} in the cluster are:"
    which = "All" if show_all else "Dynamic"
    return f"{which} configs for {entity_type[:-1]} {name} are:"


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{each.source.name}:{each.name}={_value(each.value)}" for each in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_value(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _document(entity_type: str, name: str, entries: list[ConfigEntry]) -> dict[str, object]:
    return {
        "entityType": entity_type,
        "entityName": name,
        "configs": [
            {
                "name": each.name,
                "value": each.value,
                "source": each.source.name,
                "sensitive": each.is_sensitive,
                "readOnly": each.is_read_only,
            }
            for each in entries
        ],
    }
