"""The environment that the compat tests start programs in: this one, without our own variables."""
import os


def environment(**more: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("TENSORTAP")}
    return env | {"OMP_NUM_THREADS": "1"} | more
