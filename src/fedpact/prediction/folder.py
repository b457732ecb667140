"""The folder of a model: text as json, arrays as safetensors, nothing that is executed on reading.

    model.json              what the model is, how it decides, its features and recipe, its certificate
    parameters.safetensors  the parameters by name
    parties/NAME/           of personal models and over columns: a party's own model or part, the same two files

model.json is written last and has the digest of the parameters, so that a folder is whole or refused.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedpact.files import private_folder, write
from fedpact.prediction.forms import Form, OwnForm, SplitForm, form_of
from fedpact.prediction.predictor import Predictor
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.problem.decision_rule import DecisionRule

FORMAT = 1
WORDS, ARRAYS, PARTIES = "model.json", "parameters.safetensors", "parties"
LARGEST = 1e300  # of numbers; a file may hold integers that no float has room for
LONGEST = 150  # letters of a folder's name; file systems take 255, less where they encrypt names


def _text(thing: Any) -> bool:
    return isinstance(thing, str)


def _names(thing: Any) -> bool:
    return isinstance(thing, list) and all(map(_text, thing)) and len(set(thing)) == len(thing)


def _number(thing: Any) -> bool:
    return isinstance(thing, int | float) and not isinstance(thing, bool) and abs(thing) <= LARGEST


def _certificate(thing: Any) -> bool:
    """Whether what is read of it later is there: a few numbers, and constraints with their names."""
    if not isinstance(thing, dict):
        return False
    tolerance = thing.get("tolerance")
    numbers = (thing.get("feasibility"), *(tolerance if isinstance(tolerance, list) else (tolerance,)))
    constraints, words = thing.get("constraints", []), thing.get("words", [])
    return (
        all(number is None or _number(number) for number in numbers)
        and isinstance(words, list)
        and all(map(_text, words))
        and isinstance(constraints, list)
        and all(isinstance(c, dict) and _text(c.get("name")) and isinstance(c.get("broken"), bool) for c in constraints)
    )


FIELDS: dict[str, Callable[[Any], bool]] = {  # of model.json, with a check of each
    **dict.fromkeys(("fedpact", "status", "message"), _text),
    **dict.fromkeys(("model", "run"), lambda x: isinstance(x, dict)),
    "certificate": _certificate,
    "parameters": lambda x: isinstance(x, dict) and _text(x.get("sha256")),
    "problem": lambda x: isinstance(x, dict) and _text(x.get("digest")) and _text(x.get("text")),
    "decision": lambda x: x is None or isinstance(x, dict),
    "features": lambda x: x is None or _names(x),
    "recipe": lambda x: x is None or isinstance(x, dict),
    "split": lambda x: x in ("rows", "personal", "columns"),
    "parties": _names,
    "party": lambda x: x is None or _text(x),
}


def save(predictor: Predictor, folder: str | os.PathLike[str]) -> pathlib.Path:
    """Write a predictor into a folder, in place of the model that it may hold.

    Raises ValueError where the folder holds something else, and TypeError where it is no path.
    """
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise TypeError(f"save takes the folder of the model, such as 'model', not {folder!r}")
    path = pathlib.Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"save({str(path)!r}): that is a file; a model is saved in a folder of its own")
    ours = {WORDS, ARRAYS, PARTIES, *(f".{name}.part" for name in (WORDS, ARRAYS))}
    there = {each.name for each in path.iterdir()} if path.exists() else set()
    if not _is_model(path / WORDS) if WORDS in there else there - ours:
        raise ValueError(f"save({str(path)!r}): that holds something else; a model is saved in a folder of its own")
    for part in (path / PARTIES).glob(
        f"*/{WORDS}"
    ):  # of a model that was here: a new one must not be put together with it
        part.unlink()
    _write(predictor, path)
    return path


def _is_model(file: pathlib.Path) -> bool:
    """Whether it is ours: other programs call their files model.json too."""
    try:
        words = json.loads(file.read_bytes())
    except ValueError:
        return False
    return isinstance(words, dict) and {"format", "fedpact"} <= words.keys()


def _write(predictor: Predictor, path: pathlib.Path) -> None:
    arrays = save_arrays({name: np.asarray(array, order="C") for name, array in predictor.params.items()})
    rule = predictor.rule
    words = {
        "format": FORMAT,
        "fedpact": predictor.version,
        "model": predictor.form.words(),
        "parameters": {
            "sha256": hashlib.sha256(arrays).hexdigest(),
            "shapes": {name: list(np.shape(array)) for name, array in sorted(predictor.params.items())},
        },
        "decision": None
        if rule is None
        else vars(rule) | {name: list(map(_plain, getattr(rule, name))) for name in ("labels", "classes")},
        "features": None if predictor.features is None else list(predictor.features),
        "recipe": None if predictor.recipe is None else predictor.recipe.to_json(),
        "status": predictor.status,
        "message": predictor.message,
        "certificate": predictor.certificate,
        "problem": {"digest": predictor.digest, "text": predictor.problem},
        "run": predictor.run,
        "split": predictor.split,
        "parties": list(predictor.parties),
        "party": predictor.party,
    }
    text = json.dumps(words, indent=2, ensure_ascii=False, allow_nan=False).encode()
    # what can fail has been done: now the model that was here goes
    private_folder(path)
    (path / WORDS).unlink(missing_ok=True)
    write(path / ARRAYS, arrays)
    for name, part in predictor.parts.items():
        _write(part, path / PARTIES / _folder_name(name))
    write(path / WORDS, text)


def load(folder: str | os.PathLike[str], model: Any = None) -> Predictor:
    """A model that `result.save` or a deployed run left, to predict with. Nothing in the folder is executed.

    - `folder`: with model.json and parameters.safetensors. Of a saved or deployed run it is the subfolder "model".
    - `model`: for a model of your own code (`fp.model`, `fp.equinox_model`, a network with an activation of its own), that code:
      no file holds it. Others need none (default).

    Returns an `fp.Predictor`. Raises FileNotFoundError where there is no model, and ValueError where it is damaged, was saved by
    a later version, or does not fit `model`.

        labels = fp.load("model").predict(frame)
    """
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise TypeError(f"fp.load takes the folder of a model, that of result.save, not {folder!r}")
    path = pathlib.Path(folder)
    if path.is_file():
        raise FileNotFoundError(f"{path} is a file; fp.load takes the folder that it is in: {path.parent}")
    predictor = _read(path)
    parts = {}
    for name in predictor.parties if predictor.party is None and predictor.split != "rows" else ():
        below = path / PARTIES / _folder_name(name)
        if (below / WORDS).exists():
            parts[name] = part = _read(below)
            if (part.digest, part.split, part.party) != (predictor.digest, predictor.split, name):
                raise ValueError(f"{below} is not the part of {name!r} in this model; load it from its own folder")
    predictor = dataclasses.replace(predictor, parts=parts)
    return predictor if model is None else _with_code(predictor, model)


def _read(path: pathlib.Path) -> Predictor:
    file = path / WORDS
    if not file.exists():
        below = f"; there is one in {path / 'model'}" if (path / "model" / WORDS).exists() else ""
        raise FileNotFoundError(f"{path} holds no {WORDS}; result.save(folder) writes one{below}")
    try:
        words = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    version = words.get("format") if isinstance(words, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise ValueError(f"{file} is not that of a fedpact model")
    if version != FORMAT:
        raise ValueError(
            f"{file} has format {version}, saved by fedpact {words.get('fedpact')}; this one reads format {FORMAT}: install "
            "that version, or save the model again with this one"
        )
    wrong = [name for name, fits in FIELDS.items() if name not in words or not fits(words[name])]
    if wrong:
        raise ValueError(f"{file} is damaged: {wrong[0]} is invalid; restore it from a copy")
    arrays = _arrays(path / ARRAYS, words["parameters"]["sha256"])
    try:
        form = form_of(words["model"])
        rule = None if words["decision"] is None else _rule(words["decision"])
        recipe = None if words["recipe"] is None else AgreedRecipe.from_json(words["recipe"])
        fitting = form.shapes(arrays) == {name: array.shape for name, array in arrays.items()}
        fitting = fitting and _scores_fit(form, arrays, rule, words["features"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not fitting:
        raise ValueError(f"{file} is damaged: its parameters do not fit its model")
    if recipe is not None and words["features"] is not None and recipe.features != tuple(words["features"]):
        raise ValueError(f"{file} is damaged: its recipe makes other features than its model reads")
    return Predictor(
        form=form,
        params=arrays,
        rule=rule,
        features=None if words["features"] is None else tuple(words["features"]),
        recipe=recipe,
        status=words["status"],
        message=words["message"],
        certificate=words["certificate"],
        problem=words["problem"]["text"],
        digest=words["problem"]["digest"],
        version=words["fedpact"],
        run=words["run"],
        split=words["split"],
        parties=tuple(words["parties"]),
        party=words["party"],
    )


def _arrays(file: pathlib.Path, digest: str) -> dict[str, np.ndarray]:
    if not file.exists():
        raise FileNotFoundError(f"{file.parent} holds no {file.name}; restore it from a copy")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(
            f"{file} is damaged: it is not the one that {WORDS} was written with; restore both from a copy"
        )
    try:
        arrays = dict(sorted(load_arrays(content).items()))
    except Exception as error:  # whatever its reader raises
        raise ValueError(f"{file} is damaged: {type(error).__name__}: {error}") from None
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(
                f"{file}: the parameters {name!r} are not all finite, so nothing can be predicted with them"
            )
        array.flags.writeable = False
    return arrays


def _rule(words: dict[str, Any]) -> DecisionRule:
    rule = DecisionRule(**{**words, "labels": tuple(words["labels"]), "classes": tuple(words["classes"])})
    tags = (*rule.labels, *rule.classes)
    plain = _number(rule.threshold) and isinstance(rule.by_class, bool)
    plain = plain and all(isinstance(tag, str | bool) or _number(tag) for tag in tags)
    if (
        not plain
        or rule.probabilities not in (None, "logistic", "softmax")
        or (not rule.by_class and len(rule.labels) != 2)
    ):
        raise ValueError("its decision is invalid")
    return rule


def _scores_fit(form: Form, arrays: dict[str, np.ndarray], rule: DecisionRule | None, features: Any) -> bool:
    """Whether a row of zeros gets the scores that the rule decides by, and has as many features as there are names."""
    width = None if isinstance(form, SplitForm | OwnForm) else form.width(arrays)
    if width is None:
        return True
    scores = form.scores(arrays, np.zeros((1, width)))
    if features is not None and len(features) != width:
        return False
    if rule is None:
        return True
    return scores.ndim == 1 + rule.by_class and (not rule.classes or scores.shape[-1] == len(rule.classes))


def _with_code(predictor: Predictor, model: Any) -> Predictor:
    """The predictor with the code of its model; nothing of it comes from the folder."""
    from fedpact.prediction.own_code import with_code

    own = [predictor, *predictor.parts.values()]
    forms = [each.form.top if isinstance(each.form, SplitForm) else each.form for each in own]
    if not any(isinstance(form, OwnForm) for form in forms):
        raise ValueError("fp.load(model=...): the folder's model needs no code; leave model= out")
    return with_code(predictor, model)


def _folder_name(party: str) -> str:
    """A party's name as that of a folder, whatever it contains; of a long one the beginning and a digest."""
    name = urllib.parse.quote(party, safe=" ").replace(".", "%2E")
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 17]}-{hashlib.sha256(party.encode()).hexdigest()[:16]}"


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
