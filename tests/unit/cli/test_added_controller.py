"""What ``add-controller`` reads in the config file of a controller, and how it refuses others'."""

from pathlib import Path, PurePath

import pytest

from odradek.cli.added_controller import AddedController
from odradek.cli.tool_options import ToolError
from odradek.client.admin.brokers import QuorumEndpoint
from odradek.core.ids import Uuid
from odradek.storage.disk import OsDisk
from odradek.storage.log_dir_files import MetaProperties, write_meta_properties

DIRECTORY_ID = Uuid(b"directory of two")
IS_IT = "Is this a valid controller configuration file?"


def properties(folder: Path, **changes: str | None) -> dict[str, str]:
    found = {
        "node.id": "2",
        "process.roles": "controller",
        "log.dirs": f"{folder},/elsewhere",
        "listeners": "CONTROLLER://:9093,OTHER://127.0.0.1:9094",
        "controller.listener.names": "controller",
    }
    for name, value in changes.items():
        key = name.replace("_", ".")
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    meta = MetaProperties(cluster_id="c", node_id=2, directory_id=DIRECTORY_ID)
    write_meta_properties(OsDisk(), PurePath(tmp_path), meta)
    return tmp_path


def test_a_controller_is_what_its_config_file_and_its_directory_say(folder: Path) -> None:
    found = AddedController.of(properties(folder))
    assert found == (2, DIRECTORY_ID, (QuorumEndpoint("CONTROLLER", "localhost", 9093),))
    advertised = properties(
        folder,
        advertised_listeners="CONTROLLER://[::1]:9999",
        controller_listener_names="CONTROLLER,OTHER",
        log_dirs="/elsewhere",
        metadata_log_dir=str(folder),
    )
    assert AddedController.of(advertised).endpoints == (
        QuorumEndpoint("CONTROLLER", "::1", 9999),
        QuorumEndpoint("OTHER", "127.0.0.1", 9094),
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"node_id": None}, f"node.id not found in configuration file. {IS_IT}"),
        ({"node_id": "-1"}, f"node.id was negative in configuration file. {IS_IT}"),
        (
            {"process_roles": "broker"},
            f"process.roles did not contain 'controller' in configuration file. {IS_IT}",
        ),
        ({"log_dirs": None}, f"Neither metadata.log.dir nor log.dirs were found. {IS_IT}"),
        ({"log_dirs": "/nowhere"}, "Unable to read meta.properties from /nowhere"),
        ({"controller_listener_names": None}, f"controller.listener.names was not found. {IS_IT}"),
        (
            {"controller_listener_names": "THIRD"},
            "Cannot find information about controller listener name: THIRD",
        ),
    ],
)
def test_another_file_is_refused_in_the_words_of_kafka(
    folder: Path, changes: dict[str, str | None], problem: str
) -> None:
    with pytest.raises(ToolError) as refused:
        AddedController.of(properties(folder, **changes))
    assert str(refused.value) == problem


def test_a_directory_that_an_old_version_formatted_has_no_id(tmp_path: Path) -> None:
    meta = MetaProperties(cluster_id="c", node_id=2)
    write_meta_properties(OsDisk(), PurePath(tmp_path), meta)
    with pytest.raises(ToolError, match="No directory id found in"):
        AddedController.of(properties(tmp_path))
