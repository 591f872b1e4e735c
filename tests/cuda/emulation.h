// What a generated .cu needs of CUDA, on a CPU: g++ -x c++ -include emulation.h. The threads of a block are fibers, one
// block after the other; each runs until it waits for others. A barrier that not all threads reach, and a shuffle that
// names a thread which is elsewhere, are errors with a message. In which order threads run is the caller's choice: a
// kernel without races gives the same in each. On-chip memory holds a pattern when a block begins.
#pragma once
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "relaxrt/cuda_abi.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("relaxrt_on_chip")))
extern "C" {
extern char __start_relaxrt_on_chip[] __attribute__((weak, visibility("hidden")));
extern char __stop_relaxrt_on_chip[] __attribute__((weak, visibility("hidden")));
}

namespace emulation {

struct place {
  unsigned x, y, z;
};

enum class state { ready, at_barrier, at_warp, ended };

constexpr int MOST = 1024, WARP = 32;
constexpr size_t STACK = 256 << 10;
constexpr int PATTERN = 0xFF;  // as floats, NaN

struct thread {
  jmp_buf where;
  char* stack;
  bool alive;  // it has a stack with a loop on it that runs one kernel after the other
  state now;
  const char* site;
  unsigned mask;
  uint64_t put;         // into a shuffle
  uint64_t seen[WARP];  // in it, of all that took part
};

static thread threads[MOST];
static unsigned count, current;
static jmp_buf scheduler, caller;
static ucontext_t creator;
static char* message;
static int64_t room;
static void (*kernel)(relaxrt_cuda_call);
static relaxrt_cuda_call call;

}  // namespace emulation

static emulation::place threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

template <class... Arguments>
[[noreturn]] static void fail(const char* format, Arguments... arguments) {
  snprintf(message, size_t(room), format, arguments...);
  for (thread& one : threads) one.alive = false;  // what they have on their stacks is given up
  _longjmp(caller, 1);
}

static const char* name(const thread& one) {
  return one.now == state::ended ? "its end" : one.now == state::ready ? "none" : one.site;
}

static bool same(const char* a, const char* b) { return a == b || strcmp(a, b) == 0; }

__attribute__((noinline)) static void give_up_turn() {
  if (_setjmp(threads[current].where) == 0) _longjmp(scheduler, 1);
}

static void live() {
  for (;;) {
    kernel(call);
    threads[current].now = state::ended;
    give_up_turn();
  }
}

__attribute__((noinline)) static void begin(thread& one) {
  if (!one.stack) one.stack = static_cast<char*>(malloc(STACK));
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = one.stack;
  context.uc_stack.ss_size = STACK;
  context.uc_link = nullptr;
  makecontext(&context, live, 0);
  one.alive = true;
  swapcontext(&creator, &context);
}

__attribute__((noinline)) static void resume(unsigned number) {
  current = number;
  threadIdx = {number, 0, 0};
  if (_setjmp(scheduler) != 0) return;
  if (threads[number].alive) _longjmp(threads[number].where, 1);
  begin(threads[number]);
}

static void wait(state how, const char* site) {
  threads[current].now = how;
  threads[current].site = site;
  give_up_turn();
}

static void barrier(const char* site) { wait(state::at_barrier, site); }

// --- warps

static unsigned first_of_warp() { return current / WARP * WARP; }

static bool all_there(unsigned mask, const char* site) {
  for (unsigned lane = 0; lane < WARP; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const unsigned number = first_of_warp() + lane;
    const thread& other = threads[number];
    if (number >= count || other.now != state::at_warp || other.mask != mask || !same(other.site, site)) return false;
  }
  return true;
}

// Returns when all threads of the mask have put their values down.
static void meet(unsigned mask, uint64_t value, const char* site) {
  thread& me = threads[current];
  if (!(mask >> current % WARP & 1)) fail("%s: the mask of thread %u does not name it", site, current);
  me.put = value;
  me.mask = mask;
  me.now = state::at_warp;
  me.site = site;
  if (!all_there(mask, site)) return give_up_turn();
  uint64_t all[WARP];
  for (unsigned lane = 0; lane < WARP; ++lane) all[lane] = threads[first_of_warp() + lane].put;
  for (unsigned lane = 0; lane < WARP; ++lane) {
    if (!(mask >> lane & 1)) continue;
    memcpy(threads[first_of_warp() + lane].seen, all, sizeof all);
    threads[first_of_warp() + lane].now = state::ready;
  }
}

static uint64_t value_of(unsigned lane, const char* site) {
  const thread& me = threads[current];
  if (!(me.mask >> lane % WARP & 1)) fail("%s: thread %u reads lane %u, which the mask does not name", site, current, lane);
  return me.seen[lane % WARP];
}

template <class Item>
static Item shuffle(unsigned mask, Item item, int lane, const char* site) {
  uint64_t bits = 0;
  memcpy(&bits, &item, sizeof item);
  meet(mask, bits, site);
  if (lane < 0 || lane >= WARP) return item;
  bits = value_of(unsigned(lane), site);
  memcpy(&item, &bits, sizeof item);
  return item;
}

static unsigned ballot(unsigned mask, bool truth, const char* site) {
  meet(mask, truth, site);
  unsigned all = 0;
  for (unsigned lane = 0; lane < WARP; ++lane)
    if (mask >> lane & 1) all |= unsigned(value_of(lane, site)) << lane;
  return all;
}

static int my_lane() { return int(current % WARP); }

// --- blocks

static unsigned drawn(unsigned& seed) {
  seed = seed * 1664525u + 1013904223u;
  return seed >> 8;
}

// The order of a sweep over the threads: 0 forward, 1 backward, 2 another one each time.
static void order_threads(unsigned* numbers, int order, unsigned& seed) {
  for (unsigned n = 0; n < count; ++n) numbers[n] = order == 1 ? count - 1 - n : n;
  if (order == 2)
    for (unsigned n = count - 1; n > 0; --n) {
      const unsigned other = drawn(seed) % (n + 1), held = numbers[n];
      numbers[n] = numbers[other];
      numbers[other] = held;
    }
}

static unsigned how_many(state now) {
  unsigned found = 0;
  for (unsigned n = 0; n < count; ++n) found += threads[n].now == now;
  return found;
}

[[noreturn]] static void stuck() {
  unsigned other = 0;
  while (other + 1 < count && threads[other].now == threads[0].now && (threads[0].now == state::ended || same(threads[other].site, threads[0].site))) ++other;
  fail("block %u: thread 0 is at %s, thread %u at %s: they wait for each other", blockIdx.x, name(threads[0]), other, name(threads[other]));
}

static void open_barrier() {
  for (unsigned n = 0; n < count; ++n)
    if (!same(threads[n].site, threads[0].site)) stuck();
  for (unsigned n = 0; n < count; ++n) threads[n].now = state::ready;
}

static void run_block(int order, unsigned& seed) {
  unsigned numbers[MOST];
  if (__start_relaxrt_on_chip) memset(__start_relaxrt_on_chip, PATTERN, size_t(__stop_relaxrt_on_chip - __start_relaxrt_on_chip));
  for (unsigned n = 0; n < count; ++n) threads[n].now = state::ready;
  while (how_many(state::ended) < count) {
    if (how_many(state::at_barrier) == count) open_barrier();
    if (how_many(state::ready) == 0) stuck();
    order_threads(numbers, order, seed);
    for (unsigned n = 0; n < count; ++n)
      if (threads[numbers[n]].now == state::ready) resume(numbers[n]);
  }
}

template <class Item, class Change>
static Item atomic(Item* at, Change change) {
  const Item before = *at;
  *at = change(before);
  return before;
}

}  // namespace emulation

#define EMULATION_TEXT(line) #line
#define EMULATION_LINE(line) EMULATION_TEXT(line)
#define EMULATION_SITE __FILE__ ":" EMULATION_LINE(__LINE__)
#define __syncthreads() emulation::barrier("__syncthreads in " EMULATION_SITE)
#define __syncwarp(mask) emulation::meet(mask, 0, "__syncwarp in " EMULATION_SITE)
#define __shfl_sync(mask, item, lane) emulation::shuffle(mask, item, int(lane), "__shfl_sync in " EMULATION_SITE)
#define __shfl_xor_sync(mask, item, bits) \
  emulation::shuffle(mask, item, emulation::my_lane() ^ int(bits), "__shfl_xor_sync in " EMULATION_SITE)
#define __shfl_up_sync(mask, item, step) \
  emulation::shuffle(mask, item, emulation::my_lane() - int(step), "__shfl_up_sync in " EMULATION_SITE)
#define __shfl_down_sync(mask, item, step) \
  emulation::shuffle(mask, item, emulation::my_lane() + int(step), "__shfl_down_sync in " EMULATION_SITE)
#define __ballot_sync(mask, truth) emulation::ballot(mask, truth, "__ballot_sync in " EMULATION_SITE)
#define __any_sync(mask, truth) int(emulation::ballot(mask, truth, "__any_sync in " EMULATION_SITE) != 0)

static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

template <class Item>
static Item atomicAdd(Item* at, Item item) {
  return emulation::atomic(at, [=](Item before) { return Item(before + item); });
}

// Runs a kernel. `order`: 0 forward, 1 backward, 2 shuffled by `seed`. Returns 0, or 1 with what was wrong in `message`.
extern "C" int relaxrt_emulate(void (*kernel)(relaxrt_cuda_call), unsigned grid, unsigned threads,
                                                     const relaxrt_cuda_call* call, int order, unsigned seed, char* message,
                                                     int64_t room) {
  emulation::kernel = kernel, emulation::call = *call, emulation::count = threads;
  emulation::message = message, emulation::room = room;
  if (_setjmp(emulation::caller) != 0) return 1;
  gridDim = {grid, 1, 1};
  blockDim = {threads, 1, 1};
  for (unsigned block = 0; block < grid; ++block) {
    blockIdx = {block, 0, 0};
    emulation::run_block(order, seed);
  }
  return 0;
}
