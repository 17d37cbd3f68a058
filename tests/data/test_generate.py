import subprocess
import sys

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from cutaway.core.errors import BadSpec, UnknownName
from cutaway.data.generate import GENERATORS, generate, load_grammar
from cutaway.data.grammar import lexicon
from cutaway.data.lexicon_split import LEXICON_SHARES, stem, word_set

GRAMMARS = [name for name in GENERATORS if name != "arithmetic"]


@pytest.fixture(scope="module")
def sets():
    return {name: generate(f"gen:{name}") for name in GRAMMARS}


@pytest.mark.parametrize("name", GRAMMARS)
def test_thousands_of_distinct_sentences_come_in_three_balanced_parts(name: str, sets) -> None:
    made = sets[name]
    assert len(set(made.texts)) == len(made) == 3200
    for part, size in (("train", 2000), ("dev", 400), ("test", 800)):
        counts = np.bincount(made.part(part).labels)
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("seed", [0, 1])
def test_parts_share_closed_class_words_only(name: str, seed: int) -> None:
    made = generate(f"gen:{name}?n=3000", seed=seed)
    seen = {p: {w for t in made.part(p).texts for w in word_set(t)} for p in LEXICON_SHARES}
    for one, other in (("train", "test"), ("train", "dev"), ("dev", "test")):
        assert seen[one] & seen[other] <= load_grammar(name).function_words


@pytest.mark.parametrize("name", GRAMMARS)
def test_no_relative_of_a_training_word_is_in_test(name: str, sets) -> None:
    shared = load_grammar(name).function_words
    stems = {
        p: {stem(w) for w in sets[name].meta["lexicon"][p] if w not in shared}
        for p in LEXICON_SHARES
    }
    assert not stems["train"] & stems["test"]


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_bag_of_words_is_at_chance_on_test(name: str, sets) -> None:
    made = sets[name]
    train, test = made.part("train"), made.part("test")
    bag = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=500))
    bag.fit(train.texts, train.labels)
    chance = 1 / len(made.classes)
    assert bag.score(train.texts, train.labels) > 0.95
    assert bag.score(test.texts, test.labels) <= chance + 0.1


@pytest.mark.parametrize("name", GRAMMARS)
def test_templates_around_the_slots_are_closed_class_words(name: str) -> None:
    from cutaway.data.grammar import _SLOT

    for template in load_grammar(name).templates:
        assert word_set(_SLOT.sub(" ", template)) <= load_grammar(name).function_words, template


@pytest.mark.parametrize("name", GRAMMARS)
def test_sentences_are_whole(name: str, sets) -> None:
    for text in sets[name].texts:
        assert text[0].isupper() and text[-1] in ".!", text
        assert not set("{}[]|") & set(text), text
        assert "  " not in text, text


def test_the_lexicon_of_sentiment_is_rich() -> None:
    marked = load_grammar("sentiment").marked
    for side in ("positive", "negative"):
        assert sum(map(len, marked[side].values())) >= 250


@pytest.mark.parametrize("name", GRAMMARS)
def test_no_word_makes_two_classes(name: str) -> None:
    entries = [
        e for e in lexicon(load_grammar(name)) if sum(s is not None for s in e.spellings) == 1
    ]
    said = [(e.slot, next(s for s in e.spellings if s)) for e in entries]
    assert len(said) == len(set(said))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_decides_everything(name: str) -> None:
    one, same, other = (generate(f"gen:{name}?n=20", seed=s) for s in (3, 3, 4))
    assert one.digest == same.digest != other.digest
    assert generate(f"gen:{name}?n=20,seed=3").digest == one.digest


def test_other_processes_generate_the_same() -> None:
    code = (
        "from cutaway.data.generate import GENERATORS, generate;"
        "print([generate(f'gen:{n}?n=30').digest for n in GENERATORS])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(said) == 1


def test_sizes_can_be_chosen() -> None:
    made = generate("gen:tense?n=10,dev=3,test=5")
    assert [int((made.parts == p).sum()) for p in LEXICON_SHARES] == [10, 3, 5]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("gen:tens", UnknownName, "Did you mean 'tense'"),
        ("gen:tense?n=0", BadSpec, "train must have 1 to"),
        ("gen:tense?n=9999999", BadSpec, "train must have 1 to"),
        ("gen:tense?n=x", BadSpec, "n: .*'x'"),
        ("gen:tense?size=3", BadSpec, "no field 'size'"),
        ("gen:tense?n", BadSpec, "key=value"),
        ("gen:tense?seed=-1", BadSpec, "seed must be 0 or more, got -1"),
        ("gen:arithmetic?seed=-1", BadSpec, "seed must be 0 or more, got -1"),
    ],
)
def test_a_wrong_wish_is_refused(source: str, error, message: str) -> None:
    with pytest.raises(error, match=message):
        generate(source)
