"""`paddle pserver`: the parameter servers of a node, one process a port.

Paddle is imported once and the process forked for each port: importing it is most of what starting takes.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.arguments import Arguments
from elasticdl.paddle_compat.cluster.network import check_ports, interface_address, interfaces
from elasticdl.paddle_compat.command.roles import hosts_of, server_variables
from elasticdl.paddle_compat.config.loader import is_fleet_script, load_configuration, load_provider
from elasticdl.platforms.local.process_tree import die_with_parent


def serve(arguments: Arguments) -> int:
    config = Path(arguments.text("config"))
    is_script = is_fleet_script(config)
    address = _own_address(arguments)
    first = arguments.number("port")
    ports = range(first, first + arguments.number("ports_num"))
    check_ports(address, ports)
    # Before forking, so that its modules are shared.
    import paddle  # noqa: F401

    parent = os.getpid()
    children = {}
    for port in ports:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            die_with_parent(parent)
            os.environ.update(server_variables(arguments, address, port))
            code = 1
            try:
                code = (
                    _serve_script(config, arguments) if is_script else _serve_configuration(config, arguments)
                )
            except UserError as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
                code = 2
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else int(error.code is not None)
            except BaseException:  # noqa: BLE001 - the exit code of the process
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children[child] = port
    return _wait(children)


def _wait(children: dict[int, int]) -> int:
    """The first failure ends the others."""
    result = 0
    while children:
        child, status = os.wait()
        if child not in children:
            continue
        port = children.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code != 0 and result == 0:
            result = 128 - code if code < 0 else code
            print(
                f"The parameter server on port {port} exited with code {result}", file=sys.stderr, flush=True
            )
            for other in children:
                os.kill(other, signal.SIGKILL)
    return result


def _own_address(arguments: Arguments) -> str:
    if arguments.text("address"):
        return arguments.text("address")
    hosts = hosts_of(arguments)
    if len(hosts) == 1:
        return hosts[0]
    try:
        found = interface_address(arguments.text("nics").split(",")[0])
    except LookupError as error:
        raise UserError(
            f"--nics={arguments.text('nics')}: there is no such network interface with an address.",
            hint=f"There are {', '.join(interfaces())}; or name this host's address with --address.",
        ) from error
    if found not in hosts:
        raise UserError(f"The address {found} of --nics={arguments.text('nics')} is not one of --pservers.")
    return found


def _serve_configuration(config: Path, arguments: Arguments) -> int:
    from paddle.distributed import fleet

    from elasticdl.paddle_compat.command.fleet_program import distribute

    configuration = load_configuration(config, config_args=arguments.text("config_args"))
    distribute(configuration, load_provider(configuration, config))
    fleet.init_server()
    fleet.run_server()
    return 0


def _serve_script(config: Path, arguments: Arguments) -> int:
    sys.argv = [str(config), *filter(None, arguments.text("config_args").split(","))]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_path(str(config), run_name="__main__")
    return 0
