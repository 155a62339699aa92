"""The ``kvsim`` command. Its subcommands live in the modules of this package and are imported when used.

Nothing here computes: a command reads its options, calls one function of the library, and prints. Errors are one
line on stderr and exit code 2.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any, NoReturn

import click

import kvsim
from kvsim.errors import KvsimError, unknown

# command -> (module of this package, line for `kvsim --help`); the module is imported only when the command runs
COMMANDS: dict[str, tuple[str, str]] = {
    "compare": ("compare", "The same requests through several allocators: where memory goes, what it costs."),
    "sweep": ("sweep", "Every combination of settings, every seed: a tidy table that can be resumed."),
    "capacity": ("capacity", "The highest request rate at which an objective holds."),
    "tune": ("tune", "Block size, pool, watermark or batch for a model, a card and traffic."),
    "reproduce": ("reproduce", "The vLLM paper's tables and figures, published beside simulated."),
    "memory": ("memory", "Weights, KV cache, what fits a device, and what training needs."),
    "workloads": ("workloads", "What there is to serve, with the means of each."),
    "trace": ("trace", "Look at request traces, convert them, fit workloads to them, draw streams."),
    "lesson": ("lesson", "A page on which paging is seen: memory beside memory, step by step."),
    "quiz": ("quiz", "Seeded questions on KV-cache memory, with their working; sheets to print."),
}


class NearestGroup(click.Group):
    """A group that offers the nearest name for one that it does not know."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Refuse an unknown command with the nearest known one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise unknown(f"command of {ctx.info_name}", args[0], known)
        return super().resolve_command(ctx, args)


class LazyGroup(NearestGroup):
    """A group that imports a command's module only when that command is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which they are declared."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"kvsim.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kvsim.__version__, prog_name="kvsim")
def cli() -> None:
    """Where the KV-cache memory of LLM serving goes, and what that costs."""


def main() -> NoReturn:
    """Run the command line: exit code 0, 2 for input that cannot be meant, 130 for Ctrl-C."""
    try:
        cli.main(prog_name="kvsim", standalone_mode=False)
    except click.ClickException as error:
        fail(error.format_message())
    except KvsimError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror}")
    except MemoryError as error:
        fail(f"out of memory: {str(error) or 'no more of it is to be had'}; smaller pools or fewer requests need less")
    except (KeyboardInterrupt, click.Abort):
        click.echo("kvsim: interrupted; nothing was written", err=True)
        sys.exit(130)
    gc.freeze()  # the interpreter would look through all that numba and matplotlib left, for half a second, to no end
    sys.exit(0)


def fail(message: str) -> NoReturn:
    """Say one line on stderr and exit with code 2."""
    click.echo(f"kvsim: {' '.join(message.split())}", err=True)
    sys.exit(2)
