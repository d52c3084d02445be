"""Types of MLIR from text: a hand-written descent that looks one token ahead.

Time is linear in the text. Depth is bounded by `MAXIMUM_DEPTH`, rank by `MAXIMUM_RANK`, and a number by 64 characters.
"""

from __future__ import annotations

from requant.mlir.diagnostics import shown
from requant.mlir.hints import dimension_hint, type_hint
from requant.mlir.lexer import MAXIMUM_DEPTH, TokenKind, TokenStream, encoding_end
from requant.mlir.quant_parser import read_quantized, read_storage
from requant.mlir.terminals import element_at
from requant.mlir.types import StorageType, TensorType, TupleType, Type
from requant.mlir.verifier import dimension_fault, encoding_fault

MAXIMUM_RANK = 64

_REFUSED = {
    "memref": "a memref holds no quantized element and Requant has none; write `tensor<...>`",
    "vector": "a vector holds no quantized element and Requant has none; write `tensor<...>`",
    "complex": "Requant has no complex numbers",
    "none": "Requant has no `none`",
    "function": "Requant has no functions",
}


def parse_type(text: str) -> Type:
    """Return the type that `text` is.

    Raises TypeTextError with the offset of the first wrong character, a caret under it and often a hint. What is
    accepted is what the newest MLIR accepts, with the divergences of docs/types.md.
    """
    stream = TokenStream(text)
    result = _read_type(stream, depth=1)
    if stream.token.kind is not TokenKind.END:
        raise stream.unexpected("nothing after the type")
    return result


def parse_storage(text: str) -> StorageType:
    """Return the storage that `text` is, such as `i8` or `u8<0:127>`. Raises TypeTextError as `parse_type` does."""
    stream = TokenStream(text)
    result = read_storage(stream)
    if stream.token.kind is not TokenKind.END:
        raise stream.unexpected("nothing after the storage")
    return result


def _read_type(stream: TokenStream, depth: int) -> Type:
    token = stream.token
    if token.kind is TokenKind.DIALECT_TYPE:
        return read_quantized(stream)
    if token.text == "tensor":
        stream.advance()
        return _read_tensor(stream)
    if token.text == "tuple":
        if depth > MAXIMUM_DEPTH:
            raise stream.error(token.start, f"tuples nested more than {MAXIMUM_DEPTH} deep")
        stream.advance()
        return _read_tuple(stream, depth)
    element = element_at(stream)
    if element is not None:
        stream.advance()
        return element
    word = "function" if token.text == "(" and depth < MAXIMUM_DEPTH else token.text
    if word in _REFUSED:
        raise stream.error(token.start, f"{shown(token.text)} is not a supported type", _REFUSED[word])
    raise stream.unexpected("a type", type_hint(stream.text, token.start, token.text))


def _read_tuple(stream: TokenStream, depth: int) -> TupleType:
    stream.expect("<", "after `tuple`")
    members: list[Type] = []
    if not stream.looks_at(">"):
        members.append(_read_type(stream, depth + 1))
        while stream.accept(","):
            members.append(_read_type(stream, depth + 1))
    stream.expect(">", "or `,` in the tuple")
    return TupleType(tuple(members))


def _read_tensor(stream: TokenStream) -> TensorType:
    opening = stream.expect("<", "after `tensor`")
    shape = _read_shape(stream)
    if stream.token.text in ("tensor", "tuple"):
        raise stream.error(stream.token.start, "a tensor holds no tensors or tuples")
    element = _read_type(stream, MAXIMUM_DEPTH)
    assert not isinstance(element, TensorType | TupleType)
    encoding = None
    if stream.looks_at(","):
        # An empty encoding is none, as in MLIR.
        encoding, end = encoding_end(stream.text, stream.token.end)
        stream.rewind(end)
    if not stream.accept(">"):
        raise stream.unexpected("`>` to close `tensor<`", dimension_hint(stream.text, stream.token.start))
    if found := encoding_fault(shape, encoding or None):
        raise stream.error(opening.end, found)
    return TensorType(shape, element, encoding or None)


def _read_shape(stream: TokenStream) -> tuple[int | None, ...] | None:
    """Take the dimensions, each with its `x`."""
    if stream.accept("*"):
        _take_x(stream)
        return None
    shape: list[int | None] = []
    while stream.looks_at("?") or stream.token.kind in (TokenKind.INTEGER, TokenKind.HEXADECIMAL):
        token = stream.token
        if len(shape) == MAXIMUM_RANK:
            raise stream.error(token.start, f"a tensor of more than {MAXIMUM_RANK} dimensions")
        if token.kind is TokenKind.HEXADECIMAL:
            # `0x8xf32` is the dimensions 0 and 8; a shape has no hexadecimal numbers.
            shape.append(0)
            stream.rewind(token.start + 1)
        else:
            stream.advance()
            shape.append(None if token.text == "?" else int(token.text))
            if found := dimension_fault(shape[-1]):
                raise stream.error(token.start, found)
        _take_x(stream)
    return tuple(shape)


def _take_x(stream: TokenStream) -> None:
    """Take the `x` that may be the first letter of the next word, as in `4xf32`."""
    token = stream.token
    if token.kind is not TokenKind.WORD or not token.text.startswith("x"):
        raise stream.unexpected("`x` after the dimension", dimension_hint(stream.text, token.start))
    stream.rewind(token.start + 1)
