"""One mask after the other: its scores on the test rows, and its predictions as samples."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.patch import patched_weights
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.task_evaluator import TaskEvaluator, TaskOutputs
from cutaway.recipe.result import Row
from cutaway.store.samples import SamplePieces, text_digests
from cutaway.training.predictions import prediction_samples
from cutaway.training.task_scores import block_scores
from cutaway.training.task_split import TaskSplit

LEARNED = "learned"


class MaskJob(NamedTuple):
    """One mask to measure: how it is chosen, its size, its seed."""

    kind: str
    size: int
    seed: int

    @property
    def key(self) -> str:
        """The name of the finished piece."""
        return "-".join(map(str, self))


@dataclass(frozen=True, eq=False)
class LearnRequest:
    """Both models, the task's rows, and what masks are evaluated on."""

    spec: LearnSpec
    pair: ModelPair
    split: TaskSplit
    evaluator: TaskEvaluator
    text_digest: str | None

    @property
    def identity(self) -> dict[str, Any]:
        """Both checkpoints, the task with its rows, and the held-out text."""
        return {
            "model": self.pair.lm.identity,
            "base": self.pair.facts["base"]["checksum"],
            "tuned": self.pair.facts["tuned"]["checksum"],
            "data": self.split.digest,
            "text": self.text_digest,
            **self.pair.identity,
        }

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds to learn with."""
        return self.spec.seeds or (self.spec.seed,)

    def search(self, console: Console, folder: Path | None = None) -> MaskSearch:
        """The mask search, with nothing ranked yet; unfinished masks are saved in `folder`."""
        return MaskSearch(self.spec, self.pair, self.evaluator, self.split.train, console, folder)


@dataclass(frozen=True, eq=False)
class MaskMeasurement:
    """Measures masks one by one, compared with the outputs of base and tuned model."""

    request: LearnRequest
    search: MaskSearch
    folder: Path
    """Where the skills of learned masks are kept until the run is saved."""
    base: TaskOutputs
    tuned: TaskOutputs
    samples: SamplePieces | None = None

    @property
    def coordinates(self) -> GraftCoordinates:
        """The coordinates that all rows share."""
        facts = self.request.pair.facts
        return GraftCoordinates(
            self.request.pair.lm.name, facts["tuned"]["name"], self.request.split.task.name
        )

    def rows(self, job: MaskJob) -> list[Row]:
        """The rows of one mask; the skill of a learned mask is saved in the folder."""
        return self._learned_rows(job) if job.kind == LEARNED else self._baseline_rows(job)

    def output_rows(self, kind: str, outputs: TaskOutputs, **cell: Any) -> list[Row]:
        """Scores and reliability diagram of one model on the test rows."""
        evaluator, cell = self.request.evaluator, {"data": self.request.split.texts.name, **cell}
        self._keep_predictions(kind, outputs, cell)
        scores = evaluator.scores(outputs, self.base, self.tuned)
        diagram = evaluator.reliability(outputs)
        bins = [] if diagram is None else self.coordinates.bins(kind, diagram, **cell)
        examples = evaluator.test_examples
        blocks = block_scores(examples, outputs.probabilities)
        return [
            *self.coordinates.scores(kind, scores, **cell),
            *self.coordinates.blocks(kind, examples.metric, blocks, **cell),
            *bins,
        ]

    def _keep_predictions(self, kind: str, outputs: TaskOutputs, cell: Mapping[str, Any]) -> None:
        """The predictions on the test rows as samples, if they are wanted."""
        if self.samples is None:
            return
        texts, evaluator = self.request.split.texts, self.request.evaluator
        table = prediction_samples(
            {**asdict(self.coordinates), "kind": kind, "seed": None, **cell},
            evaluator.test_examples, outputs.probabilities, rows=evaluator.test,
            digests=self.digests, classes=texts.classes,
        )  # fmt: skip
        self.samples.put(f"{kind} {cell}", table)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of every text of the set."""
        return text_digests(self.request.split.texts)

    def cell(self, size: int, seed: int) -> dict[str, Any]:
        """The coordinates of one mask."""
        share = size / self.request.pair.total
        return {"sparsity": share, "seed": seed, "data": self.request.split.texts.name}

    def skill_path(self, job: MaskJob) -> Path:
        """The skill file of a learned mask."""
        return self.folder / f"{job.key}.safetensors"

    def _learned_rows(self, job: MaskJob) -> list[Row]:
        search, pair, cell = self.search, self.request.pair, self.cell(job.size, job.seed)
        start = None
        if self.request.spec.keep_gain is not None:
            start = load_skill(self.folder / "smallest.safetensors").patch.mask
        learned = search.learn(job.size, job.seed, start, name=job.key)
        patch = search.patch(learned.mask)
        search.skill(patch).save(self.skill_path(job))
        with patched_weights(pair.params, patch):
            outputs = self.request.evaluator.outputs(language=True)
        rows = self.output_rows(LEARNED, outputs, **cell)
        facts = {"size": float(patch.size), "judge": learned.score}
        rows += self.coordinates.scores(LEARNED, facts, **cell)
        for point in learned.curve:
            step = cell | {"step": int(point["step"])}
            values = {f"mask_{name}": float(point[name]) for name in ("loss", "score", "ones")}
            rows += self.coordinates.scores(LEARNED, values, **step)
        return rows

    def _baseline_rows(self, job: MaskJob) -> list[Row]:
        try:
            patch = self.search.baseline(*job)
        except Missing as error:
            self.search.console.print(f"{job.kind}: {error}")
            return []
        cell = self.cell(job.size, job.seed)
        with patched_weights(self.request.pair.params, patch):
            rows = self.output_rows(job.kind, self.request.evaluator.outputs(), **cell)
        return rows + self.coordinates.scores(job.kind, {"size": float(patch.size)}, **cell)
