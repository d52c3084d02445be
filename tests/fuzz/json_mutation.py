"""Changes to JSON by what its values are. Most keep a request close to one that works, past the first checks."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.samples import ELEMENTS, SPELLED, SPELLINGS, any_text, anything, integer, real, tensor
from tests.requests.document import TEXTS, VALUES, resolved, stated_values
from tests.support.mlir_strategies import mutated, type_text

_SPELLING = re.compile(r'"\\ue000([^"]*)"')
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_ELEMENT = re.compile(r"\b(?:tf32|bf16|f\d+(?:E\dM\d\w*)?|[su]?i\d+|u\d+)\b")


def changed_text(random: Random, text: str) -> Any:
    """A text close to a given one: another number in it, another element type, a character more or less."""
    if text.startswith("[") and random.random() < 0.6:
        # A list as text, as the parameters of the inference protocol have them.
        try:
            listed = json.loads(text)
        except ValueError:
            return text[:-1]
        return dumped(changed(random, listed))
    match random.randrange(6):
        case 0 if numbers := list(_NUMBER.finditer(text)):
            number = random.choice(numbers)
            other = str(random.choice([integer(random), real(random), random.choice(SPELLINGS)]))
            return text[: number.start()] + other + text[number.end() :]
        case 1 if elements := list(_ELEMENT.finditer(text)):
            element = random.choice(elements)
            return text[: element.start()] + random.choice(ELEMENTS) + text[element.end() :]
        case 2 | 0:
            return mutated(random, text)
        case 3:
            return random.choice(
                [text.upper(), text.lower(), text + " ", text * 2, text[::-1], f" {text}", text + "\0"]
            )
        case 4:
            return any_text(random)
        case _:
            return type_text(random) if text.startswith(("tensor", "!", "f3", "i8", "u")) else random.choice(TEXTS)


def _changed_list(random: Random, members: list[Any]) -> Any:
    match random.randrange(12):
        case 0:
            return []
        case 1 if members:
            del members[random.randrange(len(members))]
        case 2 | 3 if members:
            members.insert(random.randrange(len(members) + 1), copied(random.choice(members)))
        case 4 if random.random() < 0.3:
            members.insert(random.randrange(len(members) + 1), anything(random))
        case 5 if members:
            return members * random.choice([2, 3, 16, 256, 4097 // len(members) + 1])
        case 6 if random.random() < 0.3:
            return [members]
        case 7 if members:
            return members[: random.randrange(len(members))]
        case 8:
            random.shuffle(members)
        case 9 if members and random.random() < 0.3:
            return members[random.randrange(len(members))]
        case 10 if members:
            return [changed(random, copied(member)) for member in members[:64]]
        case _ if members:
            at = random.randrange(len(members))
            members[at] = changed(random, members[at])
    return members


def _changed_tensor(random: Random, members: dict[str, Any]) -> dict[str, Any]:
    """Another tensor: of another shape, of another element type, or both. Its values fit its type again."""
    said = str(members["type"])
    shape = [int(size) for size in re.findall(r"\b(\d{1,3})x", said)]
    element = re.sub(r"^tensor<(?:\d+x)*|>$", "", said) if said.startswith("tensor<") else None
    match random.randrange(4):
        case 0:
            return tensor(random, None, element)
        case 1 if np.prod(shape) < 5000:
            return tensor(random, shape)
        case 2 | 3 if np.prod(shape) < 5000:
            return tensor(random, shape, element)
        case _:
            return tensor(random)


def _changed_object(random: Random, members: dict[str, Any], known: dict[str, dict[str, Any]]) -> Any:
    if "type" in members and random.random() < 0.7:
        return _changed_tensor(random, members)
    # What is rarely of use once the service refuses unknown fields stays rare here.
    odd = random.random()
    if odd < 0.03:
        members[random.choice(list(VALUES))] = anything(random)
    elif odd < 0.06 and members:
        name = random.choice(list(members))
        members[random.choice([f"{name}_", name.upper(), "", "é", "k" * 300, "a/b~c"])] = members[name]
    elif odd < 0.13 and members:
        del members[random.choice(list(members))]
    elif odd < 0.2 and members:
        one, other = random.choice(list(members)), random.choice(list(members))
        members[one], members[other] = members[other], members[one]
    elif odd < 0.75 and known:
        name = random.choice(list(known))
        members[name] = of_schema(random, name, known[name])
    elif names := [name for name in members if name in VALUES]:
        name = random.choice(names)
        members[name] = copied(random.choice(VALUES[name]))
    return members


def of_schema(random: Random, name: str, schema: dict[str, Any]) -> Any:
    """A value for a field that the document describes."""
    stated = stated_values(schema) + VALUES.get(name, [])
    if stated and random.random() < 0.7:
        return copied(random.choice(stated))
    found = resolved(schema)
    match found.get("type"):
        case "integer":
            return integer(random)
        case "number":
            return real(random)
        case "boolean":
            return random.random() < 0.5
        case "string":
            return any_text(random)
        case "array":
            return [of_schema(random, name, found.get("items", {})) for _ in range(random.randrange(4))]
        case "object":
            fields = found.get("properties", {})
            return {each: of_schema(random, each, fields[each]) for each in fields if random.random() < 0.6}
        case _:
            return anything(random)


def copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def changed(random: Random, value: Any, known: dict[str, dict[str, Any]] | None = None) -> Any:
    """A JSON value with one change somewhere in it, or in place of it. `known`: the fields of an object by schema."""
    if random.random() < 0.012:
        return anything(random)
    if isinstance(value, (dict, list)) and value and random.random() < 0.7:
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        field = resolved(known[key]) if known and key in known else {}
        value[key] = changed(random, value[key], field.get("properties"))
        return value
    alike = random.random() < 0.85
    match value:
        case bool() | None:
            return random.choice([True, False]) if alike else random.choice([None, 0, 1, "true", anything(random)])
        case int() if alike:
            return random.choice([value + 1, value - 1, -value, value * 2, integer(random), integer(random)])
        case float() if alike:
            return random.choice([-value, value * 2, value / 3, real(random), real(random), "NaN"])
        case int() | float():
            return random.choice([str(value), integer(random), real(random), SPELLED + random.choice(SPELLINGS)])
        case str():
            return changed_text(random, value)
        case list():
            return _changed_list(random, value)
        case dict():
            return _changed_object(random, value, known or {})
    return anything(random)


def dumped(value: Any) -> str:
    # In ASCII: an unpaired surrogate can be sent as an escape only.
    return _SPELLING.sub(r"\1", json.dumps(value))
