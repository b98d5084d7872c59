"""Prints the APIs this package speaks, one per line: ``KEY NAME MIN-MAX``."""

from odradek.protocol.apis import ALL_APIS


def main() -> None:
    for api in ALL_APIS:
        print(f"{api.key} {api.name} {api.version_min}-{api.version_max}")


if __name__ == "__main__":
    main()
