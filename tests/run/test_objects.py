import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.run.objects import name_objects

TEXTS = TextSet("mine", ("a", "b"), labels=np.array([0, 1]), task="binary")


def names(value):
    named, objects = name_objects({"x": value, "other": 1}, ("x", "absent"))
    assert named["other"] == 1
    return named["x"], objects


def test_names_stay_names():
    assert names(["a", "b"]) == (["a", "b"], {})


def test_an_object_gets_a_name_under_which_it_is_found():
    estimator = LinearDiscriminantAnalysis()
    given, objects = names(["lda", estimator])
    assert given[0] == "lda"
    assert objects[given[1]] is estimator
    assert given[1].startswith("LinearDiscriminantAnalysis#")


def test_other_settings_other_name_same_settings_same_name():
    one, two, again = (names(KNeighborsClassifier(k))[0] for k in (1, 2, 1))
    assert one == again != two


def test_a_text_set_is_named_by_its_rows():
    assert names(TEXTS)[0] == [f"mine#{TEXTS.digest[:8]}"]
    assert names(TEXTS.take([0]))[0] != names(TEXTS)[0]


def test_of_several_where_one_is_taken_none_is_dropped_in_silence():
    given = {"model": ["a", "b"], "data": ["d"], "text": None}
    with pytest.raises(BadSpec, match="model takes one, got 2: a, b"):
        name_objects(given, ("model",), single=("model",))
    named, _ = name_objects(given, ("model", "data", "text"), single=("data", "text"))
    assert named == {"model": ["a", "b"], "data": "d", "text": None}
