import functools
import importlib.util
import sys

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.recipe.objects import name_objects

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


def written(folder, name: str, body: str):
    """What `name` is in a module with this body."""
    path = folder / f"{name.lower()}_{len(list(folder.iterdir()))}.py"
    path.write_text(body)
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mine"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


NET = "from torch import nn\n\nclass Net(nn.Module):\n    wide = {}\n"
OWN = """
from sklearn.base import BaseEstimator

class Own(BaseEstimator):
    def fit(self, x, y): return self
    def predict(self, x): return x[:, {}]
"""


def test_a_class_of_the_same_name_with_another_body_is_another_classifier(tmp_path):
    one, two, again = (names(written(tmp_path, "Net", NET.format(k)))[0] for k in (1, 2, 1))
    assert one == again != two


def test_an_edited_estimator_with_the_same_settings_is_another_one(tmp_path):
    one, two, again = (names(written(tmp_path, "Own", OWN.format(k))())[0] for k in (1, 2, 1))
    assert one == again != two


def test_an_edited_base_class_or_step_is_seen_too(tmp_path):
    def nested(k):
        return names(make_pipeline(written(tmp_path, "Own", OWN.format(k))()))[0]

    def derived(k):
        return names(type("Derived", (written(tmp_path, "Own", OWN.format(k)),), {}))[0]

    assert nested(1) == nested(1) != nested(2)
    assert derived(1) != derived(2)


def test_a_class_without_source_never_passes_for_another():
    space: dict = {"nn": nn}
    exec("class Net(nn.Module): pass", space)
    assert names(space["Net"])[0] != names(space["Net"])[0]


def test_a_module_is_named_by_its_weights_and_settings():
    def net(seed: int, rate: float = 0.1):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 3), nn.Dropout(rate), nn.Linear(3, 2))

    assert names(net(0))[0] == names(net(0))[0]
    assert len({names(one)[0][0] for one in (net(0), net(1), net(0, 0.2))}) == 3
    assert names(nn.Sequential(nn.LazyLinear(2)))[0]


def plain_factory(width, classes, hidden=8):
    return nn.Linear(width * hidden, classes)


def test_a_function_is_identified_by_its_source_its_defaults_and_bound_arguments():
    one, two, again = (functools.partial(plain_factory, hidden=k) for k in (1, 2, 1))
    assert names(one)[0] == names(again)[0] != names(two)[0]


def test_a_function_that_captures_variables_is_computed_every_time():
    def factory(hidden):
        return lambda width, classes: nn.Linear(width * hidden, classes)

    assert names(factory(1))[0] != names(factory(1))[0]


def test_long_arrays_among_the_settings_count_whole():
    class Weighted(ClassifierMixin, BaseEstimator):
        def __init__(self, prior):
            self.prior = prior

    zeros, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1
    one, two, again = (names(Weighted(p))[0] for p in (zeros, other, zeros.copy()))
    assert one == again != two


def test_what_cant_be_looked_into_never_passes_for_another():
    class Drawing(BaseEstimator):
        def __init__(self, rng):
            self.rng = rng

    one = Drawing(np.random.default_rng(0))
    assert names(one)[0] != names(one)[0]
