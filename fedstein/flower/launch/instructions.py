"""The commands of a deployment, as text to copy: link, SuperExec, nodes and run, without encryption and with TLS."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from fedstein.errors import InputError
from fedstein.flower.launch.command import Value

OPEN = (
    "# Whoever reaches the link's port can start runs, and a run's server code runs where flower-superexec does.\n"
    "# Let other machines reach no path but /v1/fleet/ (docs/deploy.md, Who may start a run).\n"
    "# Nodes that are started as below run no code that travels with a run."
)


def node_settings(settings: Mapping[str, Value]) -> str:
    """Write a node config as the text that ``--node-config`` takes.

    Args:
        settings: Its keys and values.

    Returns:
        The text.

    Raises:
        InputError: A value would need escapes, which Flower does not support in this option.
    """
    words = []
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, str):
            quote = "'" if '"' in value or "\\" in value else '"'
            if quote in value or "\n" in value:
                raise InputError(f"expected {key} of a node without mixed quotes or line ends, got {value!r}")
            text = f"{quote}{value}{quote}"
        words.append(f"{key}={text}")
    return " ".join(words)


def print_commands(
    app: Path,
    nodes: Mapping[str, Mapping[str, Value]],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    certificates: Path = Path("certs"),
    threads: int = 1,
) -> str:
    """Write the commands for the link, each node and the run: without encryption for a trial, and with TLS.

    Args:
        app: The app folder.
        nodes: The node config of each node, by name.
        host: The host name or address at which nodes reach the link.
        port: The link's port.
        certificates: The folder of ``fedstein deploy certs``.
        threads: Threads of the computation.

    Returns:
        The commands, with comments.

    Raises:
        InputError: A node config cannot be written on a command line.
    """
    plain = _commands(app, nodes, host, port, threads, None)
    secure = _commands(app, nodes, host, port, threads, certificates)
    return (
        f"# Everywhere, before anything else\n{_exports(threads)}\n\n"
        f"# A. A trial on one machine, nothing encrypted: four or more terminals\n\n{plain}\n\n"
        f"# B. With TLS and node authentication (fedstein deploy certs {shlex.quote(str(certificates))} "
        f"--host {host} --nodes {','.join(nodes)})\n\n{secure}\n"
    )


def _exports(threads: int) -> str:
    return (
        "export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 \\\n"
        "  FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2 \\\n"
        f'  FLWR_HOME="$HOME/.fedstein/flwr" NPROC={threads} \\\n'
        '  JAX_COMPILATION_CACHE_DIR="$HOME/.fedstein/jax-cache" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0'
    )


def _commands(
    app: Path,
    nodes: Mapping[str, Mapping[str, Value]],
    host: str,
    port: int,
    threads: int,
    certificates: Path | None,
) -> str:
    def line(*words: str | Path) -> str:
        return " ".join(shlex.quote(str(word)) for word in words)

    address, connection = f"{host}:{port}", "fedstein" if certificates is None else "fedstein-tls"
    listen = "127.0.0.1" if host in ("127.0.0.1", "localhost") else "0.0.0.0"
    link: list[str | Path] = ["flower-superlink", "--host", listen, "--port", str(port)]
    link += ["--database", "link.db", "--isolation", "process"]
    executor: list[str | Path] = ["flower-superexec", "--runtime-api-address", address]
    client: list[str | Path] = ["--insecure"]
    trust = "insecure = true"
    if certificates is None:
        link += client
    else:
        folder = certificates.resolve()
        client = ["--root-certificates", folder / "ca.crt"]
        trust = f'root-certificates = "{folder / "ca.crt"}"'
        secret: list[str | Path] = ["--superexec-auth-secret-file", folder / "superexec.secret"]
        link += ["--ssl-ca-certfile", folder / "ca.crt", "--ssl-certfile", folder / "link.crt"]
        link += ["--ssl-keyfile", folder / "link.key", "--enable-supernode-auth", *secret]
        executor += secret
    parts = [OPEN, "# the link, and what starts server processes for it", line(*link), line(*executor, *client)]
    parts += ["", "# where flwr is used: how it finds the link (once)", 'mkdir -p "$FLWR_HOME"']
    parts += [
        'cat >> "$FLWR_HOME/config.toml" <<END',
        f"[superlink.{connection}]",
        f'address = "{address}"',
        trust,
        "END",
    ]
    if certificates is not None:
        parts += ["", "# let the nodes in (once)"]
        for name in nodes:
            parts.append(line("flwr", "supernode", "register", folder / f"node-{name}.pub", connection, "--name", name))
    copied = any("policy" in settings for settings in nodes.values())
    parts += ["", f"# each node, on its own machine{', with a copy of the app folder' if copied else ''}"]
    for name, settings in nodes.items():
        if "policy" in settings:  # the policy is made from the app folder, which holds the agreed config
            parts.append(f"{line('fedstein', 'node', 'policy', app)} > {shlex.quote(str(settings['policy']))}")
        words: list[str | Path] = ["fedstein", "node", address, *client]
        for key, value in settings.items():
            words += [f"--{key}", str(value)]
        words += ["--key", folder / f"node-{name}.key"] if certificates is not None else []
        parts.append(line(*words))
    parts += ["", "# the run", line("flwr", "run", app, connection, "--stream")]
    return "\n".join(parts)
