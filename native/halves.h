// float16 and bfloat16, the transport types of rows and gradients. Rounded to nearest, ties to even, as usual.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace elasticdl {

// Names for two bytes: nothing is computed in these types.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

inline std::uint32_t bits_of(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

inline void narrow(float number, float* out) { *out = number; }

inline void narrow(float number, Brain* out) {
  const std::uint32_t bits = bits_of(number);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out->bits = std::uint16_t(is_nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

inline void narrow(float number, Half* out) {
  const std::uint32_t bits = bits_of(number);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t size = bits & 0x7fffffffu;
  // Normal numbers: another exponent bias, and rounding by addition.
  const std::uint32_t normal = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;
  // Small ones: added to 0.5 the unit of the last place is that of the smallest half, and the sum is rounded.
  const std::uint32_t small = bits_of(float_of(size) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = size < 0x38800000u ? small : normal;
  const std::uint32_t special = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  out->bits = std::uint16_t(sign | (size >= 0x477ff000u ? special : finite));
}

inline float widen(float number) { return number; }

inline float widen(Brain number) { return float_of(std::uint32_t(number.bits) << 16); }

inline float widen(Half number) {
  const std::uint32_t sign = std::uint32_t(number.bits & 0x8000u) << 16;
  const std::uint32_t rest = number.bits & 0x7fffu;
  // As a float with the same exponent bits it is too small by 2¹¹²; the product is exact, for small ones too.
  const float size = float_of(rest << 13) * 5.192296858534828e33f;
  const std::uint32_t special = (rest << 13) | 0x7f800000u;
  return float_of(sign | (rest >= 0x7c00u ? special : bits_of(size)));
}

// Returns how many numbers are NaN or infinite: the exponent has all its bits. Counted in blocks, in integers of the
// same width, so that the compiler can vectorize.
template <class Count, class Numbers, class Condition>
std::size_t count_in_blocks(const Numbers* numbers, std::size_t n, Condition condition) {
  constexpr std::size_t block = 4096;
  std::size_t found = 0;
  for (std::size_t start = 0; start < n; start += block) {
    const std::size_t end = start + block < n ? start + block : n;
    Count count = 0;
    for (std::size_t i = start; i < end; ++i) count = Count(count + (condition(numbers[i]) ? 1 : 0));
    found += count;
  }
  return found;
}

inline std::size_t count_not_finite(const float* numbers, std::size_t n) {
  return count_in_blocks<std::uint32_t>(
      numbers, n, [](float number) { return (bits_of(number) & 0x7f800000u) == 0x7f800000u; });
}

inline std::size_t count_not_finite(const Half* numbers, std::size_t n) {
  return count_in_blocks<std::uint16_t>(numbers, n, [](Half number) { return (number.bits & 0x7c00u) == 0x7c00u; });
}

inline std::size_t count_not_finite(const Brain* numbers, std::size_t n) {
  return count_in_blocks<std::uint16_t>(numbers, n, [](Brain number) { return (number.bits & 0x7f80u) == 0x7f80u; });
}

inline std::size_t count_not_finite(const double* numbers, std::size_t n) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t bits;
    std::memcpy(&bits, numbers + i, sizeof bits);
    found += (bits & 0x7ff0000000000000u) == 0x7ff0000000000000u;
  }
  return found;
}

}  // namespace elasticdl
