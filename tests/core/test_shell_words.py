"""A command as text gives the same words again in a shell, and shows no control characters."""

import shlex
import shutil
import subprocess

import pytest

from cutaway.core.shell_words import join_words

WORDS = [
    "probe", "--model=-dash", "--data=--out=/x", "--text=a b", "--text=it's", "--text=$(id)", "",
    "--x=", "--text=`id`;\n&& id", "--text=\x1b[31mred\x07", "-", "a=b c", "--a b=c", "é ü 😀",
    "--t=\u202eabc", "--p=\udcff.csv", "--t=\\n'\t\"", "--t=~", "--t=*", "\n", "!!", "--é=x y",
    "--t=\x85",
]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "ksh"])
def test_a_shell_splits_the_text_into_the_same_words(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = f"printf '%s\\0' {join_words(WORDS)}"
    said = subprocess.run([shell, "-c", script], capture_output=True, check=True).stdout
    assert said.split(b"\0")[:-1] == [word.encode("utf-8", "surrogateescape") for word in WORDS]


@pytest.mark.parametrize("word", WORDS)
def test_the_text_is_printable_and_shlex_reads_it_where_the_word_was(word: str) -> None:
    text = join_words(["cutaway", word])
    assert text.isprintable()
    if word.isprintable():
        assert shlex.split(text) == ["cutaway", word]


def test_only_the_value_is_quoted() -> None:
    assert join_words(["cutaway", "probe", "--data=my file.tsv", "--pool=last"]) == (
        "cutaway probe --data='my file.tsv' --pool=last"
    )
