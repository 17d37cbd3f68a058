"""The entry point of the command line; turns every error into one message and an exit status."""

import errno
import io
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from cutaway import __version__
from cutaway.cli import caches, library, sources, studies, tools, verbs
from cutaway.cli.output import print_message
from cutaway.core.errors import CutawayError
from cutaway.core.lookup import suggestion

EXIT_DONE, EXIT_WRONG_REQUEST, EXIT_FAILED, EXIT_INTERRUPTED = 0, 2, 1, 130
# Errors of a full disk; without a file name they are about stdout.
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

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
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Print file names that are not valid UTF-8 too.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if words is None else words))


def run(words: Sequence[str]) -> int:
    """The exit status of one command: 0 done, 2 wrong request, 1 failed, 130 interrupted."""
    status = EXIT_DONE
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
        app(verbs.add_positional_flag(words), exit_on_error=False, print_error=False)
        return EXIT_DONE
    except CycloptsError as error:
        return _refuse(_parser_message(error))
    except CutawayError as error:
        print_message(f"cutaway: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        print_message(
            "cutaway: interrupted. Finished pieces are kept; repeat the command to continue."
        )
        return EXIT_INTERRUPTED
    except ValueError as error:
        if (refused := _spec_message(error)) is None:
            raise
        return _refuse(refused)


def _refuse(message: str) -> int:
    print_message(f"cutaway: {message}")
    return EXIT_WRONG_REQUEST


def _parser_message(error: CycloptsError) -> str:
    """The parser's message, or what the spec refuses."""
    if (refused := _spec_message(error.__cause__ or error.__context__)) is not None:
        return refused
    unknown = [word for word in error.unused_tokens or [] if word.startswith("--")]
    if isinstance(error, MissingArgumentError) and unknown and error.app is not None:
        # A mistyped flag explains why the right one is missing, so name it first.
        known = [n for argument in error.app.assemble_argument_collection() for n in argument.names]
        return f"Unknown option {unknown[0]!r}. {suggestion(unknown[0], known)}{_help_hint(error)}"
    return f"{' '.join(str(error).split())} {_help_hint(error)}"


def _spec_message(error: BaseException | None) -> str | None:
    """What a spec refuses; None for any other error."""
    # Imported here: `--help` needs no spec, and pydantic would take a third of its time.
    from pydantic import ValidationError

    from cutaway.core.spec import explain_validation_error

    return explain_validation_error(error) if isinstance(error, ValidationError) else None


def _help_hint(error: CycloptsError) -> str:
    return f"See: {' '.join(['cutaway', *(error.command_chain or ())])} --help"
