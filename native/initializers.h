// The numbers that a row starts with: a pure function of seed, table, id and column, so that a row starts the same on
// any server, in any order, after any number of restarts, and on any machine. For the last, nothing of the C library is
// used but the root, which all machines round alike.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "hashing.h"

namespace elasticdl {

class Initializer {
 public:
  // uniform: a ≤ x < b.  normal: mean a, deviation b.  truncated_normal: the same within two deviations of the mean.
  // constant: a.
  Initializer(const std::string& kind, double a, double b, std::uint64_t seed, const std::string& table)
      : a_(a), b_(b), key_(mix(seed ^ mix(hash_of(table)))) {
    if (kind == "uniform") kind_ = Kind::uniform;
    else if (kind == "normal") kind_ = Kind::normal;
    else if (kind == "truncated_normal") kind_ = Kind::truncated_normal;
    else if (kind == "constant") kind_ = Kind::constant;
    else throw std::invalid_argument("no initializer " + kind);
  }

  void fill(std::int64_t id, float* out, std::size_t width) const {
    if (kind_ == Kind::constant) {
      for (std::size_t column = 0; column < width; ++column) out[column] = float(a_);
      return;
    }
    const std::uint64_t row = mix(std::uint64_t(id) + key_);
    for (std::size_t column = 0; column < width; ++column) {
      const std::uint64_t bits = mix(row + (column + 1) * 0x9e3779b97f4a7c15u);
      // In the middle of 2⁵² equal parts of (0, 1): never 0, never 1.
      const double chance = (double(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0);
      out[column] = float(number(chance));
    }
  }

 private:
  enum class Kind { uniform, normal, truncated_normal, constant };

  double number(double chance) const {
    switch (kind_) {
      case Kind::uniform: {
        const float found = float(a_ + (b_ - a_) * chance);
        // Rounded to float32 it may be the end that is not in the range.
        return found < b_ ? found : a_;
      }
      case Kind::normal:
        return a_ + b_ * normal_quantile(chance);
      case Kind::truncated_normal:
        return a_ + b_ * normal_quantile(kBelowTwo + (1 - 2 * kBelowTwo) * chance);
      default:
        return a_;
    }
  }

  // Of the normal distribution below minus two deviations.
  static constexpr double kBelowTwo = 0.022750131948179195;

  static double logarithm(double number) {
    int exponent;
    double part = std::frexp(number, &exponent);
    if (part < 0.70710678118654752) {
      part *= 2;
      --exponent;
    }
    const double s = (part - 1) / (part + 1), square = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return 2 * s * sum + exponent * 0.69314718055994531;
  }

  // Wichura's algorithm AS 241, good to 16 digits.
  static double normal_quantile(double p) {
    const double q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
      const double r = 0.180625 - q * q;
      return q *
             (((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r +
                  45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r +
               133.14166789178437745) * r + 3.3871328727963666080) /
             (((((((5226.4952788528545610 * r + 28729.085735721942674) * r + 39307.895800092710610) * r +
                  21213.794301586595867) * r + 5394.1960214247511077) * r + 687.18700749205790830) * r +
               42.313330701600911252) * r + 1.0);
    }
    double r = std::sqrt(-logarithm(q < 0 ? p : 1 - p));
    double found;
    if (r <= 5) {
      r -= 1.6;
      found = (((((((7.74545014278341407640e-4 * r + 0.0227238449892691845833) * r + 0.241780725177450611770) * r +
                   1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.76949722146069140550) * r +
                4.63033784615654529590) * r + 1.42343711074968357734) /
              (((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 0.0151986665636164571966) * r +
                   0.148103976427480074590) * r + 0.689767334985100004550) * r + 1.67638483018380384940) * r +
                2.05319162663775882187) * r + 1.0);
    } else {
      r -= 5;
      found = (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r +
                   0.0265321895265761230930) * r + 0.296560571828504891230) * r + 1.78482653991729133580) * r +
                5.46378491116411436990) * r + 6.65790464350110377720) /
              (((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r +
                   7.86869131145613259100e-4) * r + 0.0148753612908506148525) * r + 0.136929880922735805310) * r +
                0.599832206555887937690) * r + 1.0);
    }
    return q < 0 ? -found : found;
  }

  Kind kind_;
  double a_, b_;
  std::uint64_t key_;
};

}  // namespace elasticdl
