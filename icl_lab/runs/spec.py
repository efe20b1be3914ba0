"""Specification of a run, resolved to the last field, and the text that changes a field."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from typing import Any

import msgspec
import torch

from icl_lab import normalizers, tasks
from icl_lab.base.errors import BadValue, UnknownOption
from icl_lab.base.rescale import FIRST, Rescaling
from icl_lab.base.rng import stream
from icl_lab.model import positions
from icl_lab.model.gpt2 import GPT2, ModelSpec, TokenSpec, check_mask
from icl_lab.runs import presets
from icl_lab.runs.measure import TestSpec
from icl_lab.tasks.base import Task
from icl_lab.tasks.capabilities import Rescalable
from icl_lab.training import scaling
from icl_lab.training.recipe import TrainSpec

MOST_LENGTHS = 4096  # of a curriculum that are looked at before training


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Everything that a run's numbers depend on, but for the seed, the machine and the versions.

    The hash leaves out every field that has its default, so a field that is new in a later version renames no finished
    run. For the same reason the default of a field never changes; a preset may.
    """

    task: str
    attn: str
    preset: str
    model: ModelSpec
    train: TrainSpec
    test: TestSpec

    @cached_property
    def hash(self) -> str:
        """Eight hexadecimal digits that name the run: equal for equal specifications, whatever the preset is called."""
        fields = {name: value for name, value in _changed(self).items() if name != "preset"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def training(self) -> "RunSpec":
        """The specification without its test and its name: equal for runs that are trained alike."""
        return msgspec.structs.replace(self, task=tasks.trained_as(self.task), test=None, preset="")

    @property
    def name(self) -> str:
        """Name of a specification: ``task/normalizer/preset-hash``."""
        return f"{self.task}/{self.attn}/{self.preset}-{self.hash}"

    def whole(self) -> dict[str, Any]:
        """Return every field, those with their default included: all that is written and can be changed."""
        return dict(msgspec.to_builtins(self))

    def untrained(self, task: Task, seed: int) -> GPT2:
        """Return the model before its first step, on the CPU: its weights are drawn from the training seed."""
        model = GPT2(self.model, self.reading(task), self.attn, stream(seed, "init"))
        scaling.scale_start(model, self.train)
        return model

    def reading(self, task: Task) -> TokenSpec:
        """Input and output of the model; the longest training prompt is the last that the curriculum reaches."""
        rescaling = _usual_rescaling(task) if self.model.read_in == "scaled" else None
        tokens = task.tokens(self.train.longest)
        return TokenSpec(task.width, task.outputs, task.roles, tokens, task.vocabulary, rescaling)


def resolve(task: str, attn: str, preset: str = "lite", settings: Sequence[str] = (), draws: str = "ours") -> RunSpec:
    """Resolve names and ``a.b=value`` settings to a specification, and check it before anything is computed.

    Raises ``LabError`` on an unknown task, normalizer, option, preset or field, and on a value out of bounds.
    """
    built = tasks.build(task)
    spec = change(preset_spec(task, attn, preset, draws), dict(map(_pair, settings)))
    if spec.train.switch_to:
        spec = change(spec, {"train.switch_to": normalizers.canonical(spec.train.switch_to)})
    check(spec, built)
    return spec


def preset_spec(task: str, attn: str, preset: str, draws: str = "ours") -> RunSpec:
    """Return the specification of a preset as it is, without a look at whether the normalizer and the task fit it.

    Raises ``LabError`` on an unknown task, normalizer, option or preset.
    """
    chosen = presets.named(preset)
    built = tasks.build(task)
    axes = {axis: [float(value) for value in values] for axis, values in built.axes[chosen.grid].items()}
    spec = RunSpec(
        task=tasks.pinned(task),
        attn=normalizers.canonical(attn),
        preset=preset,
        model=chosen.model,
        train=chosen.train,
        test=TestSpec(prompts=chosen.prompts, axes=axes),
    )
    if draws != "ours":
        length = built.published_length if draws == "paper" else None
        spec = change(spec, {"test.draws": draws} | ({"test.axes.length": str(length)} if length else {}))
    return change(spec, built.usual)


def change(spec: RunSpec, settings: Mapping[str, Any]) -> RunSpec:
    """Return ``spec`` with fields changed: ``{"train.steps": "2000", "test.axes.length": "10,20"}``.

    ``model.rope_theta`` is short for ``test.positions=rotary:theta=...``: another base of the angles at test only.
    ``train.switch_step=7/8`` is that share of ``train.steps``, whatever these are in the end.

    Raises ``LabError`` on a field that does not exist and on a value out of bounds.
    """
    fields, training = spec.whole(), tasks.build(spec.task).training
    share = ""
    for path, value in settings.items():
        if path == "model.rope_theta":  # the papers' name for it
            path, value = "test.positions", f"rotary:theta={value}"
        if path == "train.switch_step":
            share = value if isinstance(value, str) and "/" in value else ""
            if share:
                continue
        # The task and the normalizer are not fields to be set: they have their own names and options.
        place: Any = {group: fields[group] for group in ("model", "train", "test")}
        place["train"]["shift"] = {**training, **place["train"]["shift"]}
        *parents, last = path.split(".")
        for depth, key in enumerate((*parents, last)):
            owner = ".".join(parents[:depth]) or "a run"
            if not isinstance(place, dict):
                raise BadValue(f"--set {path}: {owner} is a single value and has no field '{key}'.")
            if key not in place:
                raise UnknownOption(f"--set {path}: {owner}", key, place)
            if depth < len(parents):
                place = place[key]
        if isinstance(place[last], dict):
            raise BadValue(f"--set {path}: this is a group; name one of its fields: {', '.join(place[last])}.")
        place[last] = _read(path, value, place[last]) if isinstance(value, str) else value
    if share:
        fields["train"]["switch_step"] = _share(share, float(fields["train"]["steps"]))
    try:
        made = msgspec.convert(fields, RunSpec, strict=False)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`")
        asked = next((f" (got '{value}')" for path, value in settings.items() if field and path.startswith(field)), "")
        if asked and (words := _wanted(field)):
            reason = f"it takes {words}"
        raise BadValue(f"{field or 'the specification'}: {reason}{asked}.") from None
    wider = {
        axis: value for axis, value in made.train.shift.items() if value != training[axis]
    }  # what need not be said
    return msgspec.structs.replace(made, train=msgspec.structs.replace(made.train, shift=wider))


def _share(text: str, steps: float) -> int:
    try:
        return round(Fraction(text.replace(" ", "")) * int(steps))
    except (ValueError, ZeroDivisionError):
        raise BadValue(f"--set train.switch_step: a step or a share of the steps such as 7/8, got '{text}'.") from None


def _changed(part: msgspec.Struct) -> dict[str, Any]:
    """The fields that do not equal their default (``omit_defaults`` of msgspec asks for the same object instead)."""
    found = {}
    for field in _fields(type(part)):
        value = getattr(part, field.name)
        made = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if value != made:
            found[field.name] = _changed(value) if isinstance(value, msgspec.Struct) else value
    return found


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a part; a ledger asks for the hashes of thousands of specifications."""
    return msgspec.structs.fields(kind)


def _pair(setting: str) -> tuple[str, str]:
    path, equals, value = (part.strip() for part in setting.partition("="))
    if not (path and equals and value):
        raise BadValue(f"--set '{setting}' is not of the form field=value, such as train.steps=2000.")
    return path, value


def _read(path: str, text: str, old: object) -> Any:
    """Read text as the kind of value that it replaces; bounds are checked when the specification is whole again."""
    if isinstance(old, list):
        return [_read(path, item, 0.0) for item in text.split(",")]
    if isinstance(old, bool):
        return {"yes": True, "no": False}.get(text, text)
    if isinstance(old, int | float):
        try:
            finite = math.isfinite(float(text))
        except ValueError:
            finite = False
        if not finite:
            raise BadValue(f"--set {path}: it takes {_wanted(path) or 'a finite number'}, got '{text}'.")
    return text


def _wanted(path: str) -> str:
    """Values of a field in words, such as "a whole number of at least 1"; empty where they are not numbers."""
    kind: Any = msgspec.inspect.type_info(RunSpec)
    for name in path.split("."):
        kind = next((field.type for field in getattr(kind, "fields", ()) if field.name == name), None)
    if isinstance(kind, msgspec.inspect.BoolType):
        return "yes or no"
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return ""
    bounds = {"above": kind.gt, "of at least": kind.ge, "below": kind.lt, "of at most": kind.le}
    said = " and ".join(f"{words} {bound:,}" for words, bound in bounds.items() if bound is not None)
    return f"{'a whole' if isinstance(kind, msgspec.inspect.IntType) else 'a finite'} number {said}".strip().replace(
        "and of", "and"
    )


def check(spec: RunSpec, task: Task) -> None:
    """Raise ``BadValue`` for what no single field can know."""
    _drawable(spec, task)
    _rescalable(spec, task)
    scaling.check(spec.model, spec.train)
    if spec.model.mask == "full" and not task.bidirectional:
        there = ", ".join(tasks.bidirectional()) or "no task yet"
        raise BadValue(
            f"model.mask=full would show the tokens of {task.name} their own answers, which stand in its prompts; "
            f"it is for {there}."
        )
    head_dim, reading = spec.model.width // spec.model.heads, spec.reading(task)
    check_swap(spec, spec.train.switch_to)
    chosen = [
        normalizers.build(attn, heads=spec.model.heads, head_dim=head_dim, train_tokens=reading.train_tokens)
        for attn in (spec.attn, spec.train.switch_to)
        if attn
    ]
    for normalizer in chosen:
        check_mask(spec.model, normalizer)
    for name, longest in (
        (spec.model.positions, spec.train.longest),
        (spec.test.positions or spec.model.positions, spec.test.lengths[-1]),
    ):
        with torch.device("meta"):  # a table of any size takes no memory there
            code = positions.build(name, spec.model.width, head_dim, reading.train_tokens)
        for normalizer in chosen:
            positions.check_scores(code, normalizer)
        if code.limit is not None and task.tokens(longest) > code.limit:
            tokens = task.tokens(longest)
            raise BadValue(
                f"prompts of {longest} examples are {tokens} tokens, more than the {code.limit} places of '{name}'; "
                f"set model.positions=learned:rows={tokens}, none or rotary, or shorter lengths."
            )
    if spec.test.positions:
        with torch.device("meta"):
            own, width = spec.model.positions, spec.model.width
            positions.exchange(own, spec.test.positions, width, head_dim, reading.train_tokens)


def _usual_rescaling(task: Task) -> Rescaling:
    """Rescaling of the first part that the task declares, as ``model.read_in=scaled`` does."""
    able = tasks.require(task, Rescalable)
    return able.rescaling(able.rescales[0])


def _rescalable(spec: RunSpec, task: Task) -> None:
    """Raise ``BadValue`` where prompts of a test cannot be rescaled as it says."""
    test = spec.test
    if test.rescale == "none":
        if test.rescale_from != FIRST:
            raise BadValue("test.rescale_from needs test.rescale: say which part of a prompt is rescaled.")
        return
    tasks.rescaling(spec.task, test.rescale)
    if spec.model.read_in == "scaled":
        raise BadValue("model.read_in=scaled rescales prompts in tests already: leave test.rescale=none.")
    if test.lengths[0] <= test.rescale_from:
        raise BadValue(
            f"test.rescale_from={test.rescale_from}: prompts of {test.lengths[0]} examples have no answer after the "
            f"first {test.rescale_from}; take longer ones or a smaller test.rescale_from."
        )


def check_swap(spec: RunSpec, normalizer: str) -> None:
    """Raise ``BadValue`` where a normalizer (empty: none) is to be put into a model without attention."""
    if normalizer and not spec.model.attention:
        raise BadValue(f"a model without attention (model.attention=no) has no normalizer to swap for {normalizer}.")


def _drawable(spec: RunSpec, task: Task) -> None:
    """Raise ``BadValue`` for a length or shift, in training or in a test, of which the task can draw no prompts."""
    climb, shifts = spec.train.curriculum, spec.test.shifts()
    for axis, usual in task.training.items():
        # A shift is a factor unless training has none of it.
        if usual and 0 in (spec.train.shift.get(axis), *spec.test.axes.get(axis, ())):
            raise BadValue(f"{axis} must be finite and > 0, got '0'.")
    steps = range(climb.start, spec.train.longest + 1, 1 if climb.mixed else max(1, climb.rise))
    # More lengths than a curriculum has in practice: a range of a thousand million must not hold up its refusal.
    for length in (*steps[:MOST_LENGTHS], spec.train.longest):
        task.check_length(length, **spec.train.shift)
    first = task.scored_from
    for length, shift in product(spec.test.lengths, shifts):
        if length <= first:
            raise BadValue(
                f"test.axes: length must be whole numbers >= {first + 1} (scores start at index {first}), got {length}."
            )
        task.check_length(length, **shift)
    if spec.test.draws == "paper":
        for shift in shifts:
            _published(task, spec.test.lengths[0], tuple(shift.items()))


@cache
def _published(task: Task, length: int, shift: tuple[tuple[str, float], ...]) -> None:
    """Raise ``BadValue`` without published prompts; cached per process, since every variant asks."""
    task.published(length, **dict(shift))
