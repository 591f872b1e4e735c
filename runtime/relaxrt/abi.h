// The C ABI between the runtime and a plan's generated kernels. No torch header is reachable from here.
#pragma once
#include <cstdint>

extern "C" {

// A run of whole blocks of one parameter (the last block may be short).
struct relaxrt_segment {
  void* const* operands;  // the first element of each of the kernel's operands, in the plan's order: the tensor's own type
                          // for weight, grad and a native value, else the arithmetic type (f32, or f64 for f64 tensors);
                          // for a cell the parameter's one element
  int64_t elements;
  uint64_t first;         // index of the first element in its parameter: the dither's counter
  uint32_t parameter;     // number of the parameter in the plan: the dither's key
};

struct relaxrt_call {
  const uint8_t* const* inputs;  // messages, each laid out as the output is
  const double* weights;         // what each decoded input is multiplied by; null where they are only summed
  int64_t number_of_inputs;
  uint8_t* output;               // null where the kernel makes no message
  const double* numbers;         // the kernel's numbers, in the plan's order; null where it has none
  int64_t workers;
  uint64_t key;                  // wire/dither.py: message_key(seed, iteration, place, worker)
  const void* const* near;       // for each input what it is decoded near to, its segments one behind the other, in the
                                 // arithmetic type; null, or null for an input: what the kernel's operand holds
  uint64_t shared;               // and shared_key(seed, iteration): of what all workers draw alike
  int64_t own;                   // which of the inputs is this worker's own message; -1: none
};

// Every generated kernel has this type. Segments follow one another in the messages without padding. A run does the blocks
// that begin among elements [from, to) of the call, counted over its segments: several threads share a call, and each block
// is done by one. A block without elements, which has only cells, begins where the next element would.
typedef void (*relaxrt_kernel)(const relaxrt_segment* segments, int64_t number_of_segments, const relaxrt_call* call,
                               int64_t from, int64_t to);

}
