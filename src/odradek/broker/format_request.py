"""From the config of a node and the options of ``storage format`` to what shall be formatted."""

from dataclasses import dataclass
from pathlib import PurePath
from random import Random
from typing import Final

from odradek.broker.feature_choice import choose_features, parse_feature, release_named
from odradek.broker.formatting import FormatError, FormatPlan
from odradek.core.config import BrokerConfig
from odradek.core.ids import Uuid
from odradek.quorum.initial_voters import InitialVoter, find_controller_listener, parse_voters

_VOTERS: Final = "controller.quorum.voters"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    """The options, as they were given."""

    cluster_id: str
    ignore_formatted: bool = False
    release_version: str | None = None
    features: tuple[str, ...] = ()
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None

    @property
    def ways_to_name_voters(self) -> int:
        """How many of the three options were given that exclude each other."""
        is_listed = self.initial_controllers is not None
        return self.standalone + self.no_initial_controllers + is_listed


def all_directories(config: BrokerConfig) -> tuple[PurePath, ...]:
    """Return the log directories and the one of the metadata log, sorted, each once."""
    return tuple(map(PurePath, sorted({*config.log_dirs, config.metadata_log_dir})))


def make_plan(config: BrokerConfig, request: FormatRequest, random: Random) -> FormatPlan:
    """Put options and config together.

    Raises:
        FormatError: They contradict each other, or say too little.
        FeatureError: The features are impossible.
        VoterError: The voters are malformed.
    """
    release = None if request.release_version is None else release_named(request.release_version)
    chosen = dict(map(parse_feature, request.features))
    has_voters_config = bool(config.elements(_VOTERS))
    voters = _choose_voters(config, request, random, has_voters_config)
    features = choose_features(release, chosen, dynamic_quorum=not has_voters_config)
    return FormatPlan(
        cluster_id=request.cluster_id,
        node_id=config.node_id,
        directories=all_directories(config),
        metadata_directory=PurePath(config.metadata_log_dir),
        features=features,
        voters=tuple(voters),
        controller_listener=next(iter(config.controller_listener_names), ""),
        ignore_formatted=request.ignore_formatted,
    )


def _choose_voters(
    config: BrokerConfig, request: FormatRequest, random: Random, has_voters_config: bool
) -> list[InitialVoter]:
    is_named = request.standalone or request.initial_controllers is not None
    if has_voters_config and is_named:
        raise FormatError(
            f"{_VOTERS} is set, so the voters are not in the log: remove it and set "
            "controller.quorum.bootstrap.servers, or leave out --standalone and "
            "--initial-controllers."
        )
    if request.initial_controllers is not None:
        return parse_voters(request.initial_controllers)
    if request.standalone:
        return [_standalone_voter(config, random)]
    is_left_open = config.is_controller and not has_voters_config
    if is_left_open and not request.no_initial_controllers:
        raise FormatError(
            f"{_VOTERS} is not set on this controller: say who the voters are with one of "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    return []


def _standalone_voter(config: BrokerConfig, random: Random) -> InitialVoter:
    if not config.is_controller:
        raise FormatError("--standalone is only for a node with the role controller.")
    listener = find_controller_listener(config)
    if listener is None:
        raise FormatError(
            "--standalone writes down where this controller listens, and controller.listener.names "
            "names no listener. Add one; or do not format: odradek serve needs neither."
        )
    return InitialVoter.at(listener, config.node_id, Uuid.random(random))
