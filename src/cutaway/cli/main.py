"""The entry point of the command line; turns every error into one message and an exit status."""

import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError

from cutaway import __version__
from cutaway.cli import caches, library, sources, studies, tools, verbs
from cutaway.console import PrintableStream, print_message
from cutaway.core.errors import CutawayError
from cutaway.core.lookup import suggestion

EXIT_DONE, EXIT_WRONG_REQUEST, EXIT_FAILED = 0, 2, 1
# Signals that end a command as Ctrl-C does; its exit status is 128 plus their number.
ENDING_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# Errors of a full disk; without a file name they are about stdout.
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

MIN_ADDRESS_SPACE = 2**30
# How libraries word it that memory could not be had.
NO_MEMORY_ERRORS = ("can't allocate memory", "cannot allocate memory", "failed to map segment")

app = App(
    name="cutaway",
    version=__version__,
    help="Open a transformer language model the way a cutaway drawing opens an engine.",
    default_parameter=Parameter(negative_iterable=(), consume_multiple=True),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for module in (verbs, studies, tools, sources, library, caches):
    module.register(app)


def main(words: Sequence[str] | None = None) -> None:
    """Run one command and exit with its status."""
    # By default a fifth of the time of importing torch and transformers is garbage collection.
    gc.set_threshold(50_000, 10, 10)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Print file names that are not valid UTF-8 too.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Warnings, logs and tracebacks of libraries may quote names from files.
    sys.stderr = PrintableStream(sys.stderr)
    _end_on_signals()
    sys.exit(run(sys.argv[1:] if words is None else words))


class Ended(KeyboardInterrupt):
    """A signal has asked this process to end."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number


def _end_on_signals() -> None:
    """End as on Ctrl-C, so that workers end too and what is finished stays on the disk."""

    def end(number: int, frame: object) -> None:
        raise Ended(number)

    for number in ENDING_SIGNALS:
        # `nohup` ignores SIGHUP; then it stays ignored.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def run(words: Sequence[str]) -> int:
    """The exit status: 0 done, 2 wrong request, 1 failed, 128 + n ended by signal n."""
    status = EXIT_DONE
    if (_address_space() or MIN_ADDRESS_SPACE) < MIN_ADDRESS_SPACE:
        # Below this, libraries end the process while they load.
        print_message(f"cutaway: {_memory_message()}")
        return EXIT_FAILED
    try:
        status = _run_command(words)
        # A closed pipe or a full disk may only show on flush; do it while errors can be reported.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe.
        _drop_stdout()
        return status
    except SystemExit as error:
        # How rich reports a closed pipe.
        if isinstance(error.__context__, BrokenPipeError):
            return EXIT_DONE
        raise
    except OSError as error:
        if error.filename is not None or error.errno not in DISK_FULL_ERRORS:
            return _refuse(f"{error.strerror or error}: {error.filename or 'no file named'}.")
        _drop_stdout()
        print_message(
            f"cutaway: The output can't be written: {error.strerror}. Free some space, or "
            "redirect the output, and repeat the command; finished pieces are kept."
        )
        return EXIT_FAILED


def _drop_stdout() -> None:
    """Discard buffered output, which Python would otherwise fail to write on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(words: Sequence[str]) -> int:
    try:
        words = verbs.mark_text(verbs.add_positional_flag(words))
        app(words, exit_on_error=False, print_error=False)
        return EXIT_DONE
    except CycloptsError as error:
        return _refuse(_parser_message(error))
    except CutawayError as error:
        print_message(f"cutaway: {error}")
        return error.exit_status
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        print_message(
            f"cutaway: interrupted by {signal.Signals(number).name}. Finished pieces are kept; "
            "repeat the command to go on."
        )
        return 128 + number
    except Exception as error:
        if _is_out_of_memory(error):
            print_message(f"cutaway: {_memory_message()}")
            return EXIT_FAILED
        if (refused := _spec_message(error)) is None:
            raise
        return _refuse(refused)


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory could not be had; under a limit of the address space any library may fail."""
    limited = (ImportError, SystemError, RuntimeError, OSError)
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or any(part in text for part in NO_MEMORY_ERRORS)
        or (_address_space() is not None and isinstance(error, limited))
    )


def _memory_message() -> str:
    space = _address_space()
    limit = (
        f" Its address space is limited to {space / 2**20:,.0f} MB (ulimit -v)." if space else ""
    )
    return (
        f"This command needs more memory than it could get.{limit} Raise the limit, close other "
        "programs or choose a smaller model or batch, and repeat the command; finished pieces "
        "are kept."
    )


def _address_space() -> int | None:
    """The limit of this process's address space in bytes; None without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _refuse(message: str) -> int:
    print_message(f"cutaway: {message}")
    return EXIT_WRONG_REQUEST


def _parser_message(error: CycloptsError) -> str:
    """An option that doesn't exist, what the spec refuses, or the parser's message."""
    if error.app is not None and not isinstance(error, UnknownCommandError):
        # A mistyped flag explains why the right one is missing, so it is named first.
        known = {n for argument in error.app.assemble_argument_collection() for n in argument.names}
        given = [word.partition("=")[0] for word in error.unused_tokens or []]
        for word in given:
            if word.startswith("--") and word not in known:
                return f"Unknown option {word!r}. {suggestion(word, known)}{_help_hint(error)}"
    if (refused := _spec_message(error.__cause__ or error.__context__)) is not None:
        return refused
    return f"{' '.join(str(error).split())} {_help_hint(error)}"


def _spec_message(error: BaseException | None) -> str | None:
    """What a spec refuses; None for any other error."""
    # Imported here: `--help` needs no spec, and pydantic would take a third of its time.
    from pydantic import ValidationError

    from cutaway.core.spec import explain_validation_error

    return explain_validation_error(error) if isinstance(error, ValidationError) else None


def _help_hint(error: CycloptsError) -> str:
    return f"See: {' '.join(['cutaway', *(error.command_chain or ())])} --help"
