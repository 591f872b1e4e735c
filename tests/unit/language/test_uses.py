"""`relax` statements as uses of algorithms: which definition, which arguments."""

from __future__ import annotations

import pytest

from relaxc.language import format, library, syntax
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.purposes import kinds_of
from relaxc.language.source import Source
from relaxc.language.spec import Period, Spec, Use
from relaxc.topology.topology import Topology


def spec(text: str) -> Spec:
    return check(parse(Source("t.relax", text)))


def use(text: str) -> Use:
    (made,) = spec(text).uses
    return made


def shown(made: Use) -> dict[str, str]:
    """Each argument as text."""
    return {argument.name: _text(argument.value) for argument in made.arguments}


def _text(value: object) -> str:
    return f"{value.how} {format.expression(value.value)}" if isinstance(value, Period) else str(value)


# --- statements without a name of an algorithm


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("gradients", "gradients"),
        ("gradients { compress = 8bit, delay = 1 }", "gradients"),
        ("weights", "weights"),
        ("weights { compress = none, delay = 2 }", "weights_late"),
        ("weights { compress = 8bit }", "weights_compressed"),
        ("weights { compress = modulo(8bit) }", "weights_near"),
        ("updates", "updates"),
        ("updates { compress = 4bit, delay = 0 }", "updates"),
        ("updates { delay = 5 }", "updates_late"),
        ("momentum { warmup = 10 }", "momentum"),
    ],
)
def test_each_statement_stands_for_an_algorithm(written: str, form: str) -> None:
    made = use(f"relax {written}")
    assert made.definition.name == form
    (definition,) = [item for item in library.knobs(form).items if isinstance(item, syntax.Algorithm)]
    assert made.definition is definition


def test_a_param_chooses_the_form_too() -> None:
    assert use("param c = none relax weights { compress = c }").definition.name == "weights"
    assert use("param c = 1bit relax weights { compress = c }").definition.name == "weights_compressed"
    assert use("param k = 3 relax updates { delay = k }").definition.name == "updates_late"
    assert use("param k = 0 relax updates { delay = k }").definition.name == "updates"
    assert (
        use("param c = modulo(8) relax weights { compress = c, delay = async }").definition.name == "weights_near_async"
    )


def test_a_codec_of_the_file_chooses_the_form() -> None:
    near = "codec c() { send v: f32 = x  receive near y = v + 0 * y }"
    assert use(near + "relax weights { compress = c }").definition.name == "weights_near"


def test_knobs_of_weights() -> None:
    made = use("relax weights { topology = torus, every = 4, delay = 2, compress = 2bit, gamma = 10% }")
    assert shown(made) == {
        "compress": "minmax(bits = 2, block = 512, rounding = nearest)",
        "topology": "torus",
        "period": "4",
        "late": "2",
        "gamma": "0.1",
    }
    assert made.title == "relax weights { topology = torus, every = 4, delay = 2, compress = 2bit, gamma = 10% }"


def test_knobs_of_updates() -> None:
    made = use("relax updates { every = staggered(100), rate = 0.5, momentum = 0.8, delay = 5, route = ring }")
    assert shown(made) == {
        "late": "5", "period": "staggered 100", "compress": "None", "feedback": "auto", "route": "ring", "rate": "0.5",
        "momentum": "0.8",
    }  # fmt: skip


@pytest.mark.parametrize("delay", ["0", "2", "async"])
def test_each_form_of_updates_leaves_the_route_to_the_codec(delay: str) -> None:
    assert shown(use(f"relax updates {{ delay = {delay}, compress = topk(1%) }}"))["route"] == "auto"


@pytest.mark.parametrize("path", ["gradients", "weights", "weights_compressed", "weights_near", "updates",
                                  "updates_late", "momentum"])  # fmt: skip
def test_the_forms_have_no_mistakes(path: str) -> None:
    """Names, functions and structure, which a use does not check again."""
    source = library.knobs(path).source
    arguments = {
        "weights_compressed": "compress = 1bit",
        "weights_near": "compress = modulo(8)",
        "updates_late": "late = 5",
    }
    made = spec(source.text + f"relax with {path} {{ {arguments.get(path, '')} }}")
    assert made.warnings == () and made.uses[0].definition.name == path


# --- relax with


CHOCO = """
algorithm mine(topology = ring, compress = 1bit, gamma = 0.4, period = geometric(4), late = 2) {
  state seen = 0
  step
  every period {
    let change = encode(weight - seen, compress)
    after late { weight += gamma * mix(change, topology) }
    seen += decode(change)
  }
}
"""


def test_defaults_of_an_algorithm() -> None:
    assert shown(use(CHOCO + "relax with mine")) == {
        "topology": "ring", "compress": "onebit(block = 2048)", "gamma": "0.4", "period": "geometric 4", "late": "2",
    }  # fmt: skip


def test_arguments_of_an_algorithm() -> None:
    text = "param g = 2 relax with mine { period = g * 3, topology = lazy(shuffled(chain)), gamma = g / 8 }"
    made = use(CHOCO + text)
    assert shown(made) == {
        "topology": "lazy(shuffled(chain))", "compress": "onebit(block = 2048)", "gamma": "0.25", "period": "number 6",
        "late": "2",
    }  # fmt: skip
    topology = next(argument.value for argument in made.arguments if argument.name == "topology")
    assert topology == Topology("lazy", (Topology("shuffled", (Topology("chain"),)),))


def test_the_file_comes_before_the_library() -> None:
    text = "algorithm diloco(rate = 1) { step weight *= rate } relax with diloco"
    made = use(text)
    assert shown(made) == {"rate": "1"} and made.definition.span.source.name == "t.relax"
    assert use("relax with diloco { period = 7 }").definition.span.source.name == "specs/diloco.relax"


def test_a_codec_of_the_file_comes_before_the_library() -> None:
    text = "codec minmax(bits = 8) { send v: uint(bits) = x  receive = v } relax gradients { compress = "
    assert shown(use(text + "minmax }"))["compress"] == "minmax(bits = 8)"
    assert shown(use(text + "8bit }"))["compress"].startswith("minmax(bits = 8, block = 512")


def test_what_the_library_uses_is_not_taken_from_the_file() -> None:
    """specs/dcd_psgd.relax means the qsgd of the library, whatever the file calls so."""
    text = "codec qsgd() { send v: f32 = x  receive = v } relax with dcd_psgd"
    assert shown(use(text))["compress"].startswith("qsgd(bits = 8")


def test_what_no_statement_runs_is_checked_with_its_defaults() -> None:
    made = spec(CHOCO + "codec c(n = 3) { send v: uint(n) = x  receive = v } relax gradients")
    assert [u.definition.name for u in made.unused] == ["mine"]
    assert [str(u) for u in made.codec_uses] == ["c(n = 3)"]
    assert [a.name for a in made.algorithms] == ["mine"] and [c.name for c in made.codecs] == ["c"]


def test_one_body_used_twice_is_reported_once() -> None:
    text = "algorithm a(p) { step after p / 2 { weight *= 2 } } "
    with pytest.raises(SpecError) as caught:
        spec(text + "".join(f'relax with a for "{n}" {{ p = 1 }} ' for n in "abc") + "relax gradients")
    assert [d.code for d in caught.value.diagnostics] == ["RX0203"]


# --- what parameters are for


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("weight += p", "number"),
        ("every p { step }", "period"),
        ("every p + 1 { step }", "number"),
        ("every geometric(p) { step }", "number"),
        ("every p { weight += p }", "period"),
        ("after p { step }", "delay"),
        ("weight += delay(grad, p)", "delay"),
        ("every p { after p { step } }", "delay"),
        ("phase a for p { step }", "length"),
        ("weight = mix(weight, p)", "topology"),
        ("weight = mix(weight, lazy(p))", "topology"),
        ("weight *= own(p)", "topology"),
        ("grad = mean(grad, compress = p)", "codec"),
        ("grad = mean(grad, compress = qsgd(p))", "number"),
        ("grad = mean(grad, feedback = p)", "feedback"),
        ("grad = mean(grad, route = p)", "route"),
        ("let q = encode(grad, p)", "codec"),
    ],
)
def test_what_a_parameter_is_for_follows_from_where_it_stands(body: str, kind: str) -> None:
    (definition,) = parse(Source("t.relax", f"algorithm a(p) {{ {body} }}")).items
    assert isinstance(definition, syntax.Algorithm)
    assert kinds_of(definition) == {"p": kind}
