import re
from pathlib import Path

import pytest

from cutaway.core.errors import BadSpec, Missing, UnknownName
from cutaway.core.spec import spec_to_dict
from cutaway.data.tasks import TaskFile, find_task, known_tasks, read_task
from cutaway.data.templates import fill_template

NEXTWORD = ("sst2", "sst2_fine", "imdb", "mpqa", "cr", "agnews")
GRAFT = (
    *("SST-2", "imdb", "mr", "cr", "mpqa", "sst-5", "CoLA", "subj", "MRPC", "QQP", "STS-B"),
    *("MNLI", "SNLI", "QNLI", "RTE", "trec", "ag_news"),
)
PROBE = (
    *("amazon_polarity", "app_reviews", "colbert", "dutch_social", "hate_speech18", "liar"),
    *("humicroedit", "sst", "tweets_hate_speech_detection", "ethics"),
)
SENTIMENT_SUBSET = (
    *(":)", ":(", "great", "charming", "flawed", "classic", "interesting", "boring", "sad"),
    *("happy", "terrible", "fantastic", "exciting", "strong"),
)
MINE = """
name = "mine"
description = "x"
kind = "binary"
classes = ["no", "yes"]
template = "{text} It was {mask}."
label_words = ["bad", "good"]
[columns]
text = "text"
label = "label"
"""


def mine(old: str = "", new: str = "") -> TaskFile:
    return read_task(MINE.replace(old, new) if old else MINE, "mine.toml")


@pytest.mark.parametrize("name", [*NEXTWORD, *GRAFT, *PROBE])
def test_every_task_of_the_methods_is_known(name: str) -> None:
    task = find_task(name)
    assert name.lower() in {s.lower() for s in (task.name, *task.aliases)}
    assert task.description.endswith("?") or task.description.endswith(".")
    assert task.source is not None


@pytest.mark.parametrize("name", NEXTWORD)
def test_next_word_tasks_have_a_prompt_and_word_lists(name: str) -> None:
    task = find_task(name)
    assert task.prompt.startswith(" ") and task.prompt.endswith(" ")
    assert task.class_words and task.subset_words


def test_tasks_of_two_methods_are_one_file() -> None:
    for one, other in (("sst2", "SST-2"), ("sst2_fine", "sst-5"), ("agnews", "ag_news")):
        assert find_task(one) is find_task(other)


def test_the_word_lists_are_those_of_the_paper() -> None:
    assert find_task("sst2").subset_words == SENTIMENT_SUBSET
    assert find_task("sst2").prompt == " This movie is "
    assert find_task("mpqa").prompt == find_task("cr").prompt == " The sentiment is "
    assert find_task("agnews").prompt == " This article is about "
    assert find_task("agnews").class_words == ("foreign", "sports", "financial", "scientific")


@pytest.mark.parametrize("name", ["mpqa", "cr"])
def test_sets_without_a_test_part_are_split_ten_times(name: str) -> None:
    protocol = find_task(name).protocol
    assert (protocol.kind, protocol.repeats, protocol.test_share) == ("repeats", 10, 0.1)


@pytest.mark.parametrize("name", GRAFT)
def test_graft_tasks_can_be_asked(name: str) -> None:
    task = find_task(name)
    pair = "A pair." if task.columns.pair else None
    asked = fill_template(task.template, "A text.", pair=pair, mask="<mask>", edits=task.edits)
    assert asked.count("<mask>") == 1 and "{" not in asked
    assert len(task.label_words) == (len(task.classes) or 2)


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("SST-2", "A text. It was <mask>.", ("terrible", "great")),
        ("CoLA", "A text. This is <mask>.", ("incorrect", "correct")),
        ("MRPC", "A text. <mask>, a pair.", ("No", "Yes")),
        ("MNLI", "A text? <mask>, a pair.", ("No", "Yes", "Maybe")),
        ("ag_news", "<mask>: A text.", ("World", "Sports", "Business", "Tech")),
    ],
)
def test_templates_are_those_of_the_paper(name: str, asked: str, words) -> None:
    task = find_task(name)
    pair = "A pair." if task.columns.pair else None
    assert (
        fill_template(task.template, "A text.", pair=pair, mask="<mask>", edits=task.edits) == asked
    )
    assert task.label_words == words


def test_causal_models_are_asked_as_in_the_paper() -> None:
    ask = {n: find_task(n).autoregressive for n in ("SST-2", "MNLI", "ag_news")}
    assert ask["SST-2"].template == '"{text}" has a tone that is'
    assert ask["MNLI"].template == " {text}\n question: {pair} true, false, or neither?\n answer:"
    assert ask["ag_news"].words == ("World", "Sports", "Business", "Science")


@pytest.mark.parametrize("name", GRAFT)
def test_every_masked_task_has_a_causal_prompt(name: str) -> None:
    task = find_task(name)
    pair = "A pair." if task.columns.pair else None
    asked = fill_template(task.autoregressive.template, "A text.", pair=pair)
    assert "A text." in asked and "{" not in asked and not asked[-1].isspace()
    assert len(task.autoregressive.words) == (len(task.classes) or 2)


def test_a_causal_prompt_has_its_own_edits() -> None:
    """The reference changes texts for masked models only."""
    pairs = [task for task in known_tasks().values() if task.autoregressive and task.columns.pair]
    assert {task.name for task in pairs} >= {"mnli", "rte", "stsb"}
    assert all(task.edits and task.autoregressive.edits == {} for task in pairs)
    assert "edits" not in spec_to_dict(find_task("sst2"))["autoregressive"]


def test_the_answers_of_entailment_stand_in_class_order() -> None:
    task = find_task("mnli")
    said = dict(zip(task.classes, task.autoregressive.words, strict=True))
    assert said == {"contradiction": "false", "entailment": "true", "neutral": "neither"}


@pytest.mark.parametrize("name", sorted(known_tasks()))
def test_a_shipped_file_bears_the_name_of_its_task(name: str) -> None:
    folder = Path(__file__).parents[2] / "src" / "cutaway" / "data" / "tasks"
    assert find_task(folder / f"{name}.toml") == known_tasks()[name]


def test_no_two_tasks_share_a_name() -> None:
    names = [n.lower() for t in known_tasks().values() for n in {t.name, *t.aliases}]
    spelled = [n for t in known_tasks().values() for n in {s.lower() for s in (t.name, *t.aliases)}]
    assert len(spelled) == len(set(spelled)) <= len(names)


@pytest.mark.parametrize("name", ["sst3", "MNLL", "agnewss"])
def test_an_unknown_task_gets_a_hint(name: str) -> None:
    with pytest.raises(UnknownName, match="Did you mean"):
        find_task(name)


def test_a_file_that_is_not_there_is_missing() -> None:
    with pytest.raises(Missing, match="No task file"):
        find_task("nowhere.toml")


def test_a_task_is_taken_as_it_is() -> None:
    task = mine()
    assert find_task(task) is task


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind", "kidn", r"mine\.toml: TaskFile has no field 'kidn'. Did you mean 'kind'"),
        ("label =", "lable =", "TaskColumns has no field 'lable'. Did you mean 'label'"),
        ('"binary"', '"binari"', "kind: .*'binari'"),
        ('["no", "yes"]', '["no"]', "classes has 1 names"),
        ('["bad", "good"]', '["bad"]', "label_words has 1 words, expected 2"),
        ("{mask}", "{maks}", r"lacks \{mask\}: expected exactly the fields \{text\}, \{mask\}"),
        (
            "[columns]",
            '[autoregressive]\ntemplate = "It was"\nwords = ["bad", "good"]\n[columns]',
            r"mine\.toml: autoregressive\.template 'It was' lacks \{text\}",
        ),
        ('name = "mine"', "name = ", "not valid TOML"),
        ("[columns]", "[labels]\nscale = { devide = 2 }\n[columns]", "'devide'.*'divide'"),
        ("[columns]", "[labels]\nscale = { divide = 0 }\n[columns]", "divide is 0"),
        ("[columns]", '[labels.names]\n"1" = "yess"\n[columns]', "'yess', which is not a class"),
        ("[columns]", '[parts]\nvalidation = "x"\n[columns]', "Unknown part 'validation'"),
        ("[columns]", "parts = 3\n[columns]", "parts is 3, expected a table"),
        ("[columns]", 'parts = ["train"]\n[columns]', "parts is .'train'., expected a table"),
        ("[columns]", "[parts]\ntrain = 3\n[columns]", "parts.train"),
        ("[columns]", "[protocol]\nfolds = 1\n[columns]", "folds"),
        ("[columns]", '[edits]\ntext = "bear"\n[columns]', "Did you mean 'bare'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(old: str, new: str, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        mine(old, new)


def examples() -> list[str]:
    page = Path(__file__).parents[2] / "docs" / "howto" / "add-a-task.md"
    return re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", examples())
def test_the_examples_of_the_how_to_are_tasks(text: str) -> None:
    assert read_task(text, "example").description.endswith("?")


def test_the_how_to_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "add-a-task.md").read_text("utf-8")
    assert [field for field in TaskFile.model_fields if field not in page] == []
