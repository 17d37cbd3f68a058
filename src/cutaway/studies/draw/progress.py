"""A drawing that is being filled: tracks of runs that are there, and steps for the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cutaway.core.errors import CutawayError
from cutaway.core.names import short_name
from cutaway.core.shell_words import join_words
from cutaway.methods.shortcut.fit import OUTPUT as MAPS_FILE
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.models.lm import LM, model_facts
from cutaway.recipe import life_cycle
from cutaway.report.drawing.sentences import with_sentences
from cutaway.report.drawing.values import Drawing, LayerWord, Track
from cutaway.store.results import Record, results
from cutaway.studies.draw import plan
from cutaway.studies.draw.found_runs import find_track, is_of_model
from cutaway.studies.draw.spec import TRACKS, DrawSpec
from cutaway.studies.draw.weights import moved_track, skill_file_track, skill_run_track
from cutaway.studies.draw.words import layer_words

SHARED_OPTIONS = (
    "model", "revision", "runs", "engine", "device", "dtype", "quantise", "bos", "seed", "offline",
)  # fmt: skip
SKILL_COMMAND = "cutaway graft learn --base {model} --tuned CHECKPOINT --task TASK"


@dataclass
class DrawingProgress:
    """The tracks so far, by name, and the steps of those that are missing."""

    spec: DrawSpec
    lm: LM
    context: life_cycle.Context
    sentence: str
    tracks: dict[str, Track] = field(default_factory=dict)
    words: tuple[LayerWord | None, ...] = ()
    steps: dict[str, plan.Step] = field(default_factory=dict)
    maps: ShortcutMaps | None = None

    @property
    def missing(self) -> list[str]:
        """Names of the tracks that are not measured yet, in the order in which they will be."""
        return list(self.steps)

    @property
    def options(self) -> dict[str, Any]:
        """The options of every run that is made."""
        return {name: getattr(self.spec, name) for name in SHARED_OPTIONS}

    def begin(self, sets: Sequence[plan.ProbeSet]) -> None:
        """Use the runs that are there, outline the other tracks, and read the words."""
        facts = model_facts(self.lm)
        records = [one for one in results(self.spec.runs) if is_of_model(one, facts)]
        self._add_weights(records)
        for step in plan.steps(self.lm, self.spec, sets, self.options):
            self._find_or_outline(step, records)
        self._read_words()

    def _add_weights(self, records: list[Record]) -> None:
        """The tracks that need no run: a skill's weights, and what tuning moved."""
        spec, lm = self.spec, self.lm
        if "skill" in spec.tracks:
            found = skill_file_track(lm, spec.skill) if spec.skill else None
            self.tracks["skill"] = found or skill_run_track(records, lm) or Track(
                "skill", "skill", "graft", "Where a skill sits", "share of its weights",
                command=SKILL_COMMAND.format(model=spec.model),
            )  # fmt: skip
        if "movement" in spec.tracks and spec.tuned:
            self.tracks["movement"] = moved_track(lm, spec)

    def _find_or_outline(self, step: plan.Step, records: list[Record]) -> None:
        name, found = step.empty.name, find_track(records, step)
        if found is not None and (name != "linearity" or self._use_maps(found[0])):
            self.tracks[name] = found[1]
            return
        words = ["cutaway", "draw", self.spec.model, f"--tracks={step.empty.kind}"]
        words += [f"--data={step.options['data']}"] if step.empty.kind == "property" else []
        self.steps[name] = step
        self.tracks[name] = replace(step.empty, command=join_words(words))

    def _use_maps(self, record: Record) -> bool:
        """Load the maps of a fit; False if its file is lost."""
        for path in (record.path / MAPS_FILE.name, Path(str(record.summary.get("out")))):
            try:
                self.maps = load_maps(path, self.lm)
                return True
            except CutawayError:
                continue
        return False

    def measure(self, name: str) -> None:
        """Run one step; what the model can't do is reported, and the track stays outlined."""
        step, console = self.steps.pop(name), self.context.console
        if step.words == "shortcut eval":
            if self.maps is None:
                return
            step = plan.with_maps(step, str(self.maps.artefact.path))
        console.print(f"\n{step.empty.question} ({name})")
        context = life_cycle.Context(console, {**self.context.objects, self.spec.model: self.lm})
        try:
            record = life_cycle.run(step.verb, step.spec(), context).record
        except CutawayError as error:
            console.print(f"No track {name!r}: {error}")
            self.tracks[name] = replace(self.tracks[name], command="", sentence=str(error))
            return
        track = step.read(record)
        if track is not None:
            self.tracks[name] = track
        if name == "linearity" and self._use_maps(record):
            self._read_words()

    def _read_words(self) -> None:
        """The word of every layer, through the maps once there are some; none without a head."""
        if self.lm.has_head:
            self.words = layer_words(self.lm, self.maps, self.sentence)
        else:
            self.words = (None,) * (self.lm.layers + 1)

    def drawing(self) -> Drawing:
        """What is measured so far."""
        lm = self.lm
        order = sorted(self.tracks.values(), key=lambda track: TRACKS.index(track.kind))
        runs = len({track.run for track in order if track.run})
        made = datetime.now(UTC).date().isoformat()
        facts = {n: getattr(lm, n) for n in ("family", "kind", "width", "parameters")}
        return with_sentences(
            Drawing(
                short_name(lm.name), lm.layers, facts, title="", sentence=self.sentence,
                words=self.words, tracks=tuple(order), footer=f"{runs} runs, {made}.",
            )
        )  # fmt: skip
