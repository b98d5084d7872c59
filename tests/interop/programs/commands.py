"""How the client programs come to run: what is fetched or compiled first, and the command line."""

import os
import shutil
from pathlib import Path

from tests.interop.kafka_peer import PeerUnavailableError, resolve_jars
from tests.interop.kafka_peer.jars import cache_folder
from tests.interop.kafka_peer.tools import java_command
from tests.interop.programs.fetched import fetched, run, runtime, skip

HERE = Path(__file__).parent
GO_SOURCES = HERE / "go_clients"
NODE_SOURCES = HERE / "kafkajs_client"


def command(client: str) -> list[str]:
    """Command line of the client; a machine without its runtime skips the test."""
    match client:
        case "java":
            return _java()
        case "franz-go" | "sarama":
            return [str(_go_binary()), client]
        case "kafkajs":
            packages = f"NODE_PATH={_node_packages()}"
            return ["/usr/bin/env", packages, runtime("node"), str(NODE_SOURCES / "client.js")]
    raise ValueError(client)


def _java() -> list[str]:
    """`java` compiles the one file as it starts."""
    try:
        libs = resolve_jars()
    except PeerUnavailableError as missing:
        skip(str(missing))
    source = str(HERE / "JavaClient.java")
    return java_command(source, heap_mib=192, log_level="ERROR", libs=libs)


def _go_binary() -> Path:
    go = runtime("go")
    # -modcacherw: modules are otherwise read-only, and `rm -r .cache` would fail.
    flags = ("-buildvcs=false", "-mod=readonly", "-modcacherw", "-trimpath")
    # The standard library is compiled too: two thirds of the time without optimizing it.
    cheap = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")

    def make(folder: Path) -> None:
        command = [go, "build", *flags, *cheap, "-o", str(folder / "clients")]
        run(command, GO_SOURCES, os.environ | _go_caches(go))

    return fetched("go-clients", GO_SOURCES.iterdir(), make) / "clients"


def _go_caches(go: str) -> dict[str, str]:
    """Go's own, which clones on a machine share as they do npm's; ours where it has none."""
    own = run([go, "env", "GOCACHE", "GOMODCACHE"], GO_SOURCES).splitlines()
    if len(own) == 2 and all(map(_is_writable, own)):
        return dict(zip(("GOCACHE", "GOMODCACHE"), own, strict=True))
    home = cache_folder()
    return {"GOCACHE": str(home / "go-build"), "GOMODCACHE": str(home / "go-mod")}


def _is_writable(path: str) -> bool:
    """May the folder be written to, or made?"""
    folder = Path(path)
    nearest = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return folder.is_absolute() and os.access(nearest, os.W_OK)


def _node_packages() -> Path:
    npm = runtime("npm")
    sources = sorted(NODE_SOURCES.glob("*.json"))

    def make(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return fetched("kafkajs", sources, make) / "node_modules"
