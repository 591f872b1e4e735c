"""Manifests that no compiler made, and kernels for them: what schedule and runtime do, seen by itself.

The kernels speak a code of plain f32, so that what they give can be told in closed form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relaxc.build.kernels import build_kernels
from relaxc.manifest import (
    BodyPlan,
    CodecPlan,
    ExchangePlan,
    FieldPlan,
    GradientPlan,
    KernelPlan,
    Manifest,
    ProgramPlan,
    TransferPlan,
)

EXACT = CodecPlan("exact", "block", 512, (FieldPlan("value", "f32", 0, True),))
MINMAX = CodecPlan(
    "minmax(8, 512)",
    "block",
    512,
    (FieldPlan("low", "f32", 0, False), FieldPlan("scale", "f32", 0, False), FieldPlan("level", "uint", 8, True)),
)
"""A block of n elements takes n + 8 bytes."""
HALF = CodecPlan("half(per tensor)", "tensor", 0, (FieldPlan("top", "f32", 0, False), FieldPlan("x", "f16", 0, True)))
"""A parameter of n elements takes 2 n + 4 bytes."""
OPERANDS = {
    "contribute": ("value",), "combine": (), "spread": ("value",), "gather": ("value",), "hop": ("value",),
    "finish": ("value",), "finish_alone": ("value",),
}  # fmt: skip

KERNELS = """
#include <cstring>

#include "relaxrt/abi.h"

#define RUN const relaxrt_segment *segments, int64_t count, const relaxrt_call *call, int64_t from, int64_t to

namespace {

const float* at(const uint8_t* message, int64_t element) { return reinterpret_cast<const float*>(message) + element; }

float* operand(const relaxrt_segment& segment, int number) { return static_cast<float*>(segment.operands[number]); }

// f(segment, element of the segment, element of the message): an element is a block
template <typename F>
void each(const relaxrt_segment* segments, int64_t count, int64_t from, int64_t to, F f) {
  int64_t before = 0;
  for (int64_t s = 0; s < count; before += segments[s++].elements)
    for (int64_t i = 0; i < segments[s].elements; ++i)
      if (from <= before + i && before + i < to) f(segments[s], i, before + i);
}

float sum(const relaxrt_call* call, int64_t element) {
  float total = -0.0f;
  for (int64_t j = 0; j < call->number_of_inputs; ++j)
    total += (call->weights ? static_cast<float>(call->weights[j]) : 1.0f) * *at(call->inputs[j], element);
  return total;
}

}  // namespace

extern "C" {

void contribute(RUN) {
  float* out = reinterpret_cast<float*>(call->output);
  each(segments, count, from, to, [&](const auto& s, int64_t i, int64_t m) { out[m] = operand(s, 0)[i]; });
}

// mean, from messages to a message
void combine(RUN) {
  float* out = reinterpret_cast<float*>(call->output);
  each(segments, count, from, to, [&](const auto&, int64_t, int64_t m) { out[m] = sum(call, m) * (1.0f / call->workers); });
}

// hop and finish of the ring: what arrived and one's own
void hop(RUN) {
  float* out = reinterpret_cast<float*>(call->output);
  each(segments, count, from, to, [&](const auto& s, int64_t i, int64_t m) { out[m] = sum(call, m) + operand(s, 0)[i]; });
}

void finish(RUN) {
  float* out = reinterpret_cast<float*>(call->output);
  each(segments, count, from, to,
       [&](const auto& s, int64_t i, int64_t m) { out[m] = (sum(call, m) + operand(s, 0)[i]) * (1.0f / call->workers); });
}

void finish_alone(RUN) {
  finish(segments, count, call, from, to);
}

void gather(RUN) {
  each(segments, count, from, to, [&](const auto& s, int64_t i, int64_t m) { operand(s, 0)[i] = sum(call, m); });
}

void spread(RUN) { gather(segments, count, call, from, to); }

// the first operand += numbers[0] * the second
void add(RUN) {
  each(segments, count, from, to, [&](const auto& s, int64_t i, int64_t) {
    operand(s, 0)[i] += static_cast<float>(call->numbers[0]) * operand(s, 1)[i];
  });
}

// what a kernel is told, as f64: key's halves, workers, then for each segment its parameter, first and elements
void tell(RUN) {
  double* out = static_cast<double*>(segments[0].operands[0]);
  *out++ = static_cast<double>(call->key >> 32);
  *out++ = static_cast<double>(call->key & 0xFFFFFFFFu);
  *out++ = static_cast<double>(call->workers);
  for (int64_t s = 0; s < count; ++s) {
    *out++ = segments[s].parameter;
    *out++ = static_cast<double>(segments[s].first);
    *out++ = static_cast<double>(segments[s].elements);
  }
}
}
"""


def library() -> Path:
    return build_kernels(KERNELS)


def exchange(kind: str = "mean", codec: CodecPlan | None = None, **given: Any) -> ExchangePlan:
    kernels = tuple(KernelPlan(name, name, "f32", operands) for name, operands in OPERANDS.items())
    plan: dict[str, Any] = {
        "place": 0, "route": "all", "topology": None, "feedback": "none", "coded": False, "kernels": kernels,
    }  # fmt: skip
    return ExchangePlan(kind=kind, codec=codec, **(plan | given))


def transfer(of: ExchangePlan, leaves: str = "slot", lands: str = "slot") -> TransferPlan:
    return TransferPlan(of, leaves, lands, block=0, copies=1)


def program(*transfers: TransferPlan) -> ProgramPlan:
    return ProgramPlan((), (), transfers, (), (), (), (), (), ())


def body(
    selector: Any = None, gradient: ExchangePlan | None = None, of: ProgramPlan | None = None, delay: int = 0,
    agreement: str = "replicated",
) -> BodyPlan:  # fmt: skip
    native = GradientPlan(gradient, delay) if gradient else None
    return BodyPlan(selector, "relax by hand", native, of, agreement, delay)


def manifest(*bodies: BodyPlan, **given: Any) -> Manifest:
    sizes = {
        "first_bucket_bytes": 1 << 20, "bucket_bytes": 25 << 20, "coded_bucket_bytes": 25 << 20, "piece_bytes": 1 << 18,
    }  # fmt: skip
    return Manifest(relaxc="", spec="spec", hash="", cpu="", seed=7, bodies=bodies, **(sizes | given))
