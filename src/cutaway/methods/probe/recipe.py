"""`cutaway probe`: what information do the hidden states encode?

One forward pass per model and data set, then a grid of layers, poolers and classifiers.
"""

from dataclasses import dataclass
from typing import Any

from cutaway.core.textset import TextSet
from cutaway.data.labels import check_learnable
from cutaway.data.load import load_text_set
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.probe.details import DETAILS_FILE, dump_details
from cutaway.methods.probe.grid import ProbeGrid
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.rows import load_results, probe_table
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.probe.summary import summarise
from cutaway.models.lm import model_facts
from cutaway.pool import needs_attention
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects, with_unique_names
from cutaway.recipe.open_for_spec import SpecModels
from cutaway.recipe.result import data_facts, one_or_many


@dataclass(frozen=True)
class ProbeRequest:
    """The models and data sets of a grid."""

    spec: ProbeSpec
    models: SpecModels
    sets: list[TextSet]
    facts: list[dict[str, Any]]
    """Facts about each model."""
    identity: dict[str, Any]


def resolve(spec: ProbeSpec, context: Context) -> ProbeRequest:
    """Load the data sets and open the models; refuse a grid that can't be measured."""
    texts = (load_texts(spec, name, context.objects) for name in spec.data)
    sets = list(with_unique_names(texts, lambda one: one.digest, option="--data"))
    kernel = spec.attention
    if kernel == "auto":
        kernel = "eager" if needs_attention(spec.pool) else "sdpa"
    options = {"revision": spec.revision, "attention": kernel}
    models = SpecModels(spec, context.objects, options)
    facts, identities = [], []
    for lm in models:
        for one in sets:
            ProbeInputs(spec, lm, one, context.objects, context.console).check()
        facts.append(model_facts(lm))
        identities.append(lm.identity)
    identity = {"models": identities, "data": [one.digest for one in sets]}
    return ProbeRequest(spec, models, sets, facts, identity)


def measure(request: ProbeRequest, run: Run) -> Outcome:
    """Every cell of the grid on every model and data set."""
    spec, keys = request.spec, []
    for lm in request.models:
        for texts in request.sets:
            inputs = ProbeInputs(spec, lm, texts, run.objects, run.console)
            keys += ProbeGrid(inputs, run.progress).measure()
    results = load_results(run.progress, keys)
    table = probe_table(results.rows)
    summary, baselines = summarise(
        table, request.sets, results.resampling, curve=spec.protocol == "curve"
    )
    return Outcome(
        table,
        summary,
        baselines,
        model=one_or_many(request.facts),
        data=one_or_many([data_facts(texts) for texts in request.sets]),
        files={DETAILS_FILE: dump_details(results.details)},
    )


def estimate(request: ProbeRequest) -> list[Estimate]:
    """The cost of the forward passes, one estimate per model and data set."""
    context = Context()
    return [
        estimate_pass(lm, texts, ProbeInputs(request.spec, lm, texts, {}, context.console).request)
        for lm in request.models
        for texts in request.sets
    ]


def load_texts(spec: ProbeSpec, name: str, objects: Objects) -> TextSet:
    """A labelled data set of the spec."""
    columns = {k: getattr(spec, k) for k in ("text_column", "pair_column", "label_column")}
    texts = load_text_set(
        objects.get(name, name), **columns, as_task=spec.as_, drop_empty=spec.drop_empty,
        limit=spec.limit, seed=spec.seed, offline=spec.offline,
    )  # fmt: skip
    return check_learnable(texts)
