"""Digests: the same weights have one name, other weights another."""

import hashlib
import json
import os
import shutil

import pytest

from cutaway.core.digest import digest_json
from cutaway.models import digests
from cutaway.models.digests import file_digest, recorded_digest, tokenizer_digest, weights_digest
from cutaway.models.load import open_model
from tests.tiny import tiny


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))


def test_a_file_is_hashed_once_until_it_changes(tmp_path, monkeypatch) -> None:
    path, reads, real = tmp_path / "weights", [], hashlib.file_digest
    path.write_bytes(b"one")
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: reads.append(1) or real(*a))
    assert file_digest(path) == file_digest(path) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 1
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) == hashlib.sha256(b"two").hexdigest()


def test_the_hubs_own_hash_is_believed(tmp_path) -> None:
    blob = tmp_path / "blobs" / ("ab" * 32)
    blob.parent.mkdir()
    blob.write_bytes(b"not read")
    link = tmp_path / "model.safetensors"
    link.symlink_to(blob)
    assert recorded_digest(link) == file_digest(link) == "ab" * 32
    small = tmp_path / "blobs" / ("ab" * 20)
    small.write_bytes(b"git blob")
    assert recorded_digest(small) is None


def test_a_home_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "file" / "home"))
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    assert file_digest(path) == hashlib.sha256(b"one").hexdigest()


def test_the_same_weights_elsewhere_have_the_same_digest_others_another(tmp_path) -> None:
    one = tiny("gpt2", tmp_path / "one")
    copy = shutil.copytree(one, tmp_path / "copy")
    other = tiny("gpt2", tmp_path / "other", seed=1)
    digest = {folder: open_model(folder, check=False).digest for folder in (one, copy, other)}
    assert digest[one] == digest[copy] != digest[other]


def test_what_the_config_changes_in_the_numbers_changes_the_digest(tmp_path) -> None:
    (tmp_path / "w").write_bytes(b"weights")
    config = tmp_path / "config.json"

    def digest(**fields) -> str:
        config.write_text(json.dumps(fields))
        return weights_digest([tmp_path / "w"], config)

    plain = digest(layer_norm_eps=1e-5)
    assert digest(layer_norm_eps=1e-5, transformers_version="9", dtype="float16") == plain
    assert digest(layer_norm_eps=1e-6) != plain
    assert {"dtype", "transformers_version"} <= digests.IGNORED_CONFIG_FIELDS


def test_numbers_without_end_have_a_digest_and_the_others_keep_theirs(tmp_path) -> None:
    (tmp_path / "w").write_bytes(b"weights")
    config = tmp_path / "config.json"

    def digest(value) -> str:
        config.write_text(json.dumps({"time_step_limit": [0.0, value], "deep": {"x": value}}))
        return weights_digest([tmp_path / "w"], config)

    odd = [digest(value) for value in (float("inf"), float("-inf"), float("nan"))]
    assert len({*odd, digest(1.0)}) == 4
    # As before there was a rule for infinite numbers: another digest would lose every shelf.
    files = {"w": hashlib.sha256(b"weights").hexdigest()}
    kept = {"time_step_limit": [0.0, 1.0], "deep": {"x": 1.0}}
    assert digest(1.0) == digest_json({"files": files, "config": kept})


def test_a_tokenizer_is_known_by_what_it_does(lm_of, folder_of) -> None:
    lm = open_model(folder_of("llama"), check=False)
    before = tokenizer_digest(lm.tokenizer)
    lm.tokenizer(["one", "two and three"], padding=True, truncation=True, max_length=2)
    assert tokenizer_digest(lm.tokenizer) == before == lm_of("llama").tokenizer_digest
    lm.tokenizer.eos_token = "<unk>"
    assert tokenizer_digest(lm.tokenizer) != before
    assert lm_of("gpt2").tokenizer_digest != before
