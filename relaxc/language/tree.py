"""The parser's concrete tree to the syntax tree.

A concrete node has `data`, the name of its rule in the grammar, and `children`: nodes and every token, in text order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from relaxc.language import syntax
from relaxc.language.lexer import Token, split_quantity
from relaxc.language.source import Source, Span


class Concrete(Protocol):
    data: str
    children: list[Any]


MAX_DEPTH = 250
"""How deep a tree may be: a chain `a or b or c` is as deep as it is long. Far less than what recursion can bear."""

T = TypeVar("T", bound=syntax.Node)


def depth(tree: Concrete) -> int:
    """The number of levels, without recursion."""
    level, nodes = 0, [tree]
    while nodes:
        level += 1
        nodes = [child for node in nodes for child in node.children if not isinstance(child, Token)]
    return level


class Builder:
    """Builds syntax nodes of one source. A node's rule names the method that builds it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def build(self, node: Concrete) -> Any:
        method: Callable[[Concrete], Any] = getattr(self, node.data)
        return method(node)

    # --- parts of a node

    def span(self, node: Concrete) -> Span:
        return Span(self.source, first(node).start, last(node).end)

    def token_span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def all(self, node: Concrete) -> tuple[Any, ...]:
        return tuple(self.build(child) for child in node.children if not isinstance(child, Token))

    def only(self, node: Concrete) -> Any:
        """What the last concrete child stands for; None without one."""
        built = self.all(node)
        return built[-1] if built else None

    # --- expressions

    def number(self, node: Concrete) -> syntax.Number:
        text = node.children[0].text
        return syntax.Number(self.span(node), float(text), text)

    def measure(self, node: Concrete) -> syntax.Quantity:
        value, unit = split_quantity(node.children[0].text)
        return syntax.Quantity(self.span(node), value, unit)

    def string(self, node: Concrete) -> syntax.String:
        return syntax.String(self.span(node), node.children[0].text[1:-1])

    def name(self, node: Concrete) -> syntax.Name:
        return syntax.Name(self.span(node), node.children[0].text)

    def member(self, node: Concrete) -> syntax.Member:
        base, _, name = node.children
        return syntax.Member(self.span(node), base.text, name.text)

    def parenthesis(self, node: Concrete) -> syntax.Expression:
        """The expression inside; the parentheses themselves are layout."""
        inner: syntax.Expression = self.build(node.children[1])
        return inner

    def call(self, node: Concrete) -> syntax.Call:
        arguments = self.all(node)
        plain = tuple(a for a in arguments if not isinstance(a, syntax.Keyword))
        named = tuple(a for a in arguments if isinstance(a, syntax.Keyword))
        return syntax.Call(self.span(node), node.children[0].text, plain, named)

    def keyword(self, node: Concrete) -> syntax.Keyword:
        key, _, value = node.children
        return syntax.Keyword(self.span(node), key.children[0].text, self.build(value))

    def unary(self, node: Concrete) -> syntax.Unary:
        operator, operand = node.children
        return syntax.Unary(self.span(node), operator.text, self.build(operand))

    def binary(self, node: Concrete) -> syntax.Binary:
        left, operator, right = node.children
        return syntax.Binary(self.span(node), operator.text, self.build(left), self.build(right))

    # --- statements of an algorithm

    def block(self, node: Concrete) -> tuple[syntax.Statement, ...]:
        return self.all(node)

    def state(self, node: Concrete) -> syntax.State:
        return syntax.State(self.span(node), node.children[1].text, self.only(node))

    def let(self, node: Concrete) -> syntax.Let:
        return syntax.Let(self.span(node), node.children[1].text, self.only(node))

    def assign(self, node: Concrete) -> syntax.Assign:
        name, operator, value = node.children
        return syntax.Assign(self.span(node), name.text, operator.text, self.build(value))

    def step(self, node: Concrete) -> syntax.Step:
        return syntax.Step(self.span(node))

    def every(self, node: Concrete) -> syntax.Every:
        return syntax.Every(self.span(node), *self.all(node))

    def after(self, node: Concrete) -> syntax.After:
        return syntax.After(self.span(node), *self.all(node))

    def phase(self, node: Concrete) -> syntax.Phase:
        *length, body = self.all(node)
        return syntax.Phase(self.span(node), node.children[1].text, length[0] if length else None, body)

    # --- statements of a codec

    def per(self, node: Concrete) -> syntax.Per:
        return syntax.Per(self.span(node), node.children[1].text, self.only(node))

    def wire(self, node: Concrete) -> syntax.Wire:
        return syntax.Wire(self.span(node), node.children[0].text, self.only(node))

    def send(self, node: Concrete) -> syntax.Send:
        wire, value = self.all(node)
        return syntax.Send(self.span(node), node.children[1].text, wire, value)

    def receive(self, node: Concrete) -> syntax.Receive:
        near = node.children[2].text if node.children[1].text == "near" else None
        return syntax.Receive(self.span(node), near, self.only(node))

    def guard(self, node: Concrete) -> syntax.Guard:
        return syntax.Guard(self.span(node), self.only(node))

    # --- items

    def parameter(self, node: Concrete) -> syntax.Parameter:
        return syntax.Parameter(self.span(node), node.children[0].text, self.only(node))

    def parameters(self, node: Concrete) -> tuple[syntax.Parameter, ...]:
        return self.all(node)

    def param(self, node: Concrete) -> syntax.Param:
        return syntax.Param(self.span(node), node.children[1].text, self.only(node))

    def clause(self, node: Concrete) -> syntax.Clause:
        key, _, value = node.children
        return syntax.Clause(self.span(node), key.children[0].text, self.span(key), self.build(value))

    def clauses(self, node: Concrete) -> tuple[syntax.Clause, ...]:
        return self.all(node)

    def cluster(self, node: Concrete) -> syntax.Cluster:
        return syntax.Cluster(self.span(node), self.only(node))

    def selector(self, node: Concrete) -> syntax.Expression:
        test: syntax.Expression = self.only(node)
        return test

    def relax(self, node: Concrete) -> syntax.Relax:
        parts = {child.data: child for child in node.children[1:]}
        target = parts.get("quantity") or parts["with_algorithm"]
        name = target.children[-1]
        return syntax.Relax(
            self.span(node),
            quantity=name.text if "quantity" in parts else None,
            algorithm=name.text if "with_algorithm" in parts else None,
            target_span=self.token_span(name),
            selector=self.build(parts["selector"]) if "selector" in parts else None,
            clauses=self.build(parts["clauses"]) if "clauses" in parts else None,
        )

    def algorithm(self, node: Concrete) -> syntax.Algorithm:
        *parameters, body = self.all(node)
        return syntax.Algorithm(self.span(node), node.children[1].text, parameters[0] if parameters else (), body)

    def codec(self, node: Concrete) -> syntax.Codec:
        given = [child for child in node.children if not isinstance(child, Token)]
        parameters = self.build(given[0]) if given and given[0].data == "parameters" else ()
        body = tuple(self.build(child) for child in given if child.data != "parameters")
        return syntax.Codec(self.span(node), node.children[1].text, parameters, body)


def first(node: Concrete | Token) -> Token:
    while not isinstance(node, Token):
        node = node.children[0]
    return node


def last(node: Concrete | Token) -> Token:
    while not isinstance(node, Token):
        node = node.children[-1]
    return node
