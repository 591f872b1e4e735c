// Dither keys of a message; relaxc/wire/dither.py defines them.
#pragma once
#include <cstdint>

namespace relaxc {

constexpr uint32_t everyone = 0xFFFFFFFFu;

inline uint64_t splitmix(uint64_t state) {
  state += 0x9E3779B97F4A7C15ull;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
  return state ^ (state >> 31);
}

inline uint64_t message_key(uint64_t seed, uint64_t iteration, uint64_t place, uint32_t worker) {
  uint64_t key = splitmix(seed);
  key = splitmix(key ^ iteration);
  return splitmix(key ^ (place << 32 | worker));
}

// Of what all workers draw alike.
inline uint64_t shared_key(uint64_t seed, uint64_t iteration) { return splitmix(splitmix(splitmix(seed) ^ iteration) ^ ~0ull); }

}  // namespace relaxc
