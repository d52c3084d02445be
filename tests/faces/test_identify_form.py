"""The form of the playground's view `#identify` asks for arguments that the operations have."""

from __future__ import annotations

import re
from pathlib import Path

from requant.operations import IDENTIFY

FORM = Path(__file__).parents[2] / "service/requant_service/playground/static/operations/operations.js"
# Some of several operations stand in the file once.
SHARED = {"OUTPUT": "output_type", "BIAS": "bias", "ACCUMULATOR": "accumulator", "STORAGE": "storage"}


def test_arguments_and_choices_are_those_of_the_operations() -> None:
    assert IDENTIFY.calls is not None
    operations = IDENTIFY.calls.operations
    listed = FORM.read_text().partition("export const OPERATIONS = {")[2]
    forms = dict(re.findall(r"^  (\w+): \{(.*?)^  \},", listed, re.MULTILINE | re.DOTALL))
    assert {each for each in operations if "." not in each} - set(forms) == {"compare", "derive_bias"}
    for name, form in forms.items():
        operation = operations[name]
        asked = set(re.findall(r'\b(?:tensor|type|text|numbers|number|flag|choice)\("(\w+)"', form))
        asked |= {argument for shared, argument in SHARED.items() if re.search(rf"\b{shared}\b", form)}
        assert asked <= {each.name for each in (*operation.arguments, *operation.options)}, name
        required = {each.name for each in operation.arguments if not each.optional}
        required |= {each.name for each in operation.options if each.required and each.chooses is None}
        assert required <= asked, name
        for option, given in re.findall(r'choice\("(\w+)", "[^"]*", ([^)]*)\)', form):
            choices = operation.option(option).choices
            assert choices is not None
            assert set(re.findall(r'"(\w+)"', given)) == {str(each) for each in choices.values}, option
