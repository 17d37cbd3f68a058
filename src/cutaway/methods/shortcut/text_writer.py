"""Writes texts with early exits or drafts, and finds out on the first ones how to draft.

The first tokens come from the full model, one at a time: they are part of the text, and show which
drafts would have been accepted. With many prompts the choice is checked on the next texts, drafted
and not drafted in turn. Costs are compared in processor time, which other programs don't change.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cutaway.methods.shortcut.decode import (
    DecodeResult,
    TokenPicker,
    early_exit_decode,
    plain_decode,
    speculative_decode,
    stop_token_ids,
)
from cutaway.methods.shortcut.draft_choice import (
    DRAFT_LENGTHS,
    Continuation,
    DraftSetting,
    choose_draft,
    make_drafter,
    pays,
)
from cutaway.methods.shortcut.machine_times import machine_times
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.fit import IDENTITY
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.spec import GenerateSpec
from cutaway.methods.shortcut.step_timing import TimeSpent
from cutaway.models.lm import LM
from cutaway.models.small_matmul import tuned_small_matmuls

# The longest draft and the token before it.
MAX_VERIFIED_TOKENS = max(DRAFT_LENGTHS) + 1
# Tokens of the first text that the choice of a draft is based on.
PILOT_TOKENS = 32
# Texts on which the choice is checked, and the number of prompts for which that is worth it.
TRIAL_TEXTS, MIN_PROMPTS_FOR_TRIAL = 4, 16


@dataclass(frozen=True)
class GenerateRequest:
    """The model, its maps, the prompts as token ids, and the maps to exit or draft with."""

    spec: GenerateSpec
    lm: LM
    maps: ShortcutMaps
    prompts: list[Tensor]
    candidates: list[tuple[str, int]]
    """Kinds and layers of maps: those requested, or all that may pay."""

    @property
    def identity(self) -> dict[str, Any]:
        """The model's weights and the maps."""
        return {"model": self.lm.identity, "maps": self.maps.digest}

    @property
    def given_setting(self) -> DraftSetting | None:
        """The draft, if the user has fixed where and how far to draft."""
        spec = self.spec
        if spec.mode == "exit" or spec.draft is None or len(spec.exit_layers) != 1:
            return None
        return DraftSetting(*self.candidates[0], spec.draft, 0.0)


@dataclass
class TextWriter:
    """Writes one text after the other."""

    request: GenerateRequest
    setup: TimeSpent = field(default_factory=TimeSpent)
    """The time that measurements took."""
    written: int = 0
    setting: DraftSetting | None = None
    _undecided: bool = False
    _trial: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})

    def __post_init__(self) -> None:
        """Measure what decoding costs with this model on this machine."""
        lm, spec = self.request.lm, self.request.spec
        with self.setup:
            self._times = machine_times(lm, MAX_VERIFIED_TOKENS)
        self.setting = self.request.given_setting
        can_draft = spec.mode == "speculative" and bool(self.request.candidates)
        self._undecided = can_draft and self.setting is None
        self._check = self._undecided and len(spec.prompt) >= MIN_PROMPTS_FOR_TRIAL

    def state(self) -> dict[str, Any]:
        """What was decided so far, as JSON, for `restore`."""
        return {
            "written": self.written,
            "setting": None if self.setting is None else asdict(self.setting),
            "undecided": self._undecided,
            "check": self._check,
            "trial": [self._trial[True], self._trial[False]],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        setting = state["setting"]
        self.written = state["written"]
        self.setting = None if setting is None else DraftSetting(**setting)
        self._undecided, self._check = state["undecided"], state["check"]
        self._trial = dict(zip((True, False), state["trial"], strict=True))

    @torch.inference_mode()
    def write(self, prompt: Tensor) -> tuple[DecodeResult, TimeSpent]:
        """The next text, and the time it took without measurements."""
        spec, watch = self.request.spec, TimeSpent()
        rng = torch.Generator().manual_seed(spec.seed) if spec.sample else None
        picker = TokenPicker(rng, spec.temperature)
        result, limit = DecodeResult(), spec.max_new_tokens
        self.written += 1
        with tuned_small_matmuls(self.request.lm, self._times.matmuls):
            if self._undecided:
                with watch:
                    result = self._decode(prompt, min(PILOT_TOKENS, limit), picker, None)
                with self.setup:
                    self.setting = self._choose(prompt, result.tokens)
                self._undecided = False
            ended = bool(result.tokens) and result.tokens[-1] in stop_token_ids(self.request.lm)
            if not ended and len(result.tokens) < limit:
                so_far = torch.cat([prompt, prompt.new_tensor([result.tokens]).long()], dim=1)
                setting = self.setting if self._drafts_now() else None
                with watch:
                    rest = self._decode(so_far, limit - len(result.tokens), picker, setting)
                self._record(setting is not None, watch, len(rest.tokens))
                result.extend(rest)
        return result, watch

    def _drafts_now(self) -> bool:
        """Whether this text is drafted: while the choice is checked, every second one."""
        trial = self._check and 2 <= self.written <= TRIAL_TEXTS + 1
        return not (trial and self.written % 2)

    def _record(self, drafted: bool, watch: TimeSpent, tokens: int) -> None:
        """Keep the cost per token of a text; after the trial, drop drafts that don't pay."""
        if not self._check or self.setting is None or self.written < 2:
            return
        self._trial[drafted].append(watch.cost(self.request.lm) / max(tokens, 1))
        if self.written == TRIAL_TEXTS + 1:
            self._check = False
            if sum(self._trial[True]) >= sum(self._trial[False]):
                self.setting = None

    def _choose(self, prompt: Tensor, tokens: list[int]) -> DraftSetting | None:
        """The best draft by measurement; None if none is expected to pay."""
        request = self.request
        text = Continuation(prompt[0].tolist() + tokens, len(tokens))
        lengths = DRAFT_LENGTHS if request.spec.draft is None else (request.spec.draft,)
        best = choose_draft(
            request.lm, request.maps, [text], request.candidates, self._times.steps, lengths
        )
        return best if pays(best, len(tokens)) else None

    def _decode(
        self, prompt: Tensor, limit: int, picker: TokenPicker, setting: DraftSetting | None
    ) -> DecodeResult:
        lm, maps, spec = self.request.lm, self.request.maps, self.request.spec
        head, shared = logits_fn(lm), {"limit": limit, "stops": stop_token_ids(lm)}
        decode: Callable[..., DecodeResult] = plain_decode
        cuts: list[int] = []
        if spec.mode == "exit":
            jumps = {n: maps.jump(n, lm.layers, kind) for kind, n in self.request.candidates}
            cuts, jumps[lm.layers] = list(jumps), IDENTITY
            decode = partial(early_exit_decode, jumps=jumps, lambda_=spec.lambda_value)
        elif setting is not None:
            draft = (setting.kind, setting.layer, setting.length, setting.floor)
            drafter = make_drafter(lm, maps, *draft, prompt[0].tolist())
            cuts, decode = [setting.layer], partial(speculative_decode, drafter=drafter)
        with segmented(lm, cuts) as model:
            return decode(model, prompt, head=head, picker=picker, **shared)
