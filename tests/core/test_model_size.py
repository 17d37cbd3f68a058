"""The memory of a command is the sum of its parts, or that of reading the file."""

from cutaway.core.model_size import PROGRAM_BYTES, MemoryNeed, ModelSize, WeightCopies

SIZE = ModelSize(weights=1_000, largest=400, width=10, layers=4, vocab=40)


def test_copies_are_counted_with_or_without_the_embeddings() -> None:
    assert SIZE.bytes(4) == 4_000
    assert SIZE.bytes(4, WeightCopies(3)) == 16_000
    assert SIZE.bytes(2, WeightCopies(3, embeddings=False)) == 2 * (1_000 + 3 * 600)


def test_training_keeps_the_states_of_every_layer_and_the_logits() -> None:
    assert SIZE.reading(200) == 2 * SIZE.reading(100) > 0
    logits = SIZE.training(100) - SIZE.layers * SIZE.reading(100)
    assert logits == 4 * 100 * 3 * SIZE.vocab


def test_the_peak_is_while_reading_the_file_or_while_working() -> None:
    assert MemoryNeed(10, 5, 1, file=8).total == 10 + 8 + PROGRAM_BYTES
    assert MemoryNeed(10, 5, 4, file=8).total == 10 + 9 + PROGRAM_BYTES


def test_the_parts_are_in_the_sentence() -> None:
    need = MemoryNeed(2_000_000_000, 4_000_000_000, 300_000_000)
    assert need.sentence("m") == (
        "Memory with m: about 7.2 GB (weights 2.0 GB, copies of weights 4.0 GB, "
        "activations 0.3 GB, libraries 0.9 GB)"
    )
    assert "copies" not in MemoryNeed(1, 0, 1).sentence("m")


def test_copies_in_files_are_not_counted_on_a_cpu_but_named() -> None:
    copies = WeightCopies(3.0, in_files=2.0)
    assert copies.on("cpu") == copies
    assert copies.on("cuda:0") == WeightCopies(5.0)
    need = MemoryNeed(1_000_000_000, 0, 0, views=2_000_000_000)
    assert need.total == 1_000_000_000 + PROGRAM_BYTES
    assert need.sentence("m").endswith(", and 2.0 GB of files if it is free")
