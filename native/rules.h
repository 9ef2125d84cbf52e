// The update rules of all optimizers, as Keras, PyTorch and Paddle compute them.
//
// Each rule is here in every variant. Keras: weight decay never passes through the gradient, epsilon is often under the
// root, momentum contains the learning rate, and powers of the betas are rounded to the parameter's type (1 - 0.999 is
// off by one part in 100,000 in float32, and the first steps show it). PyTorch: weight decay is added to the gradient
// unless it is decoupled, epsilon is outside the root, the learning rate outside of momentum, and every parameter
// counts its own steps. Paddle: like PyTorch, except that RMSProp is that of Keras, that Adamax adds epsilon to the
// decayed norm, and that powers of the betas are products in float32, multiplied once a step.
//
// A rule is independent of tables: its input are consecutive numbers (a whole parameter, or a row), their gradients and
// their slots. Operations are in the order of the frameworks, and the compiler may not fuse them, so that results are
// the same on every machine.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// Loops over numbers that do not overlap: values, gradients and slots are different arrays.
#if defined(__clang__)
#define EACH(i, n) _Pragma("clang loop vectorize(assume_safety)") for (std::size_t i = 0; i < (n); ++i)
#else
#define EACH(i, n) _Pragma("GCC ivdep") for (std::size_t i = 0; i < (n); ++i)
#endif

// The rules are compiled twice where that pays: for every processor, and for those with vectors of eight numbers. The
// results are the same to the bit, since operations are not fused.
#if defined(__x86_64__)
#define HAS_WIDE 1
#define WIDE __attribute__((noinline, target("avx2")))
#endif
#define INSIDE __attribute__((always_inline)) inline

namespace elasticdl {

#ifdef HAS_WIDE
// Whether the processor has AVX2 and the system enables it.
inline bool is_wide() {
  static const bool found = [] {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
  }();
  return found;
}
#endif

// The constants of an update that depend on the step, without the learning rate.
struct StepFactors {
  double a = 1, b = 1, c = 1;
};

// The preparation of a gradient before the rule.
struct Preparation {
  double scale = 1;       // 1 / number of gradients summed, or what the worker found for a global norm
  double clip_norm = 0;   // 0: not clipped
  double clip_value = 0;  // 0: not clipped

  bool is_none() const { return scale == 1 && clip_norm <= 0 && clip_value <= 0; }
};

class Rule {
 public:
  Rule(const std::string& flavor, const std::string& name, const std::map<std::string, double>& options) {
    if (flavor != "keras" && flavor != "torch" && flavor != "paddle")
      throw std::invalid_argument("no optimizer flavor " + flavor);
    paddle_ = flavor == "paddle";
    // Weight decay and the count of steps of a parameter: Paddle does both as PyTorch does.
    torch_ = flavor == "torch" || paddle_;
    static const std::map<std::string, Kind> kinds = {
        {"sgd", Kind::sgd},         {"adagrad", Kind::adagrad}, {"adam", Kind::adam},
        {"adamw", Kind::adam},      {"rmsprop", Kind::rmsprop}, {"adadelta", Kind::adadelta},
        {"adamax", Kind::adamax},   {"nadam", Kind::nadam},     {"ftrl", Kind::ftrl},
    };
    auto found = kinds.find(name);
    if (found == kinds.end() || (torch_ && found->second == Kind::ftrl) || (paddle_ && found->second == Kind::nadam))
      throw std::invalid_argument("no optimizer " + name + " of " + flavor);
    kind_ = found->second;
    auto option = [&](const char* key) {
      auto at = options.find(key);
      return at == options.end() ? 0.0 : at->second;
    };
    momentum_ = option("momentum");
    nesterov_ = option("nesterov") != 0;
    dampening_ = option("dampening");
    beta_1_ = option("beta_1");
    beta_2_ = option("beta_2");
    amsgrad_ = option("amsgrad") != 0;
    rho_ = option("rho");
    centered_ = option("centered") != 0;
    epsilon_ = option("epsilon");
    lr_decay_ = option("lr_decay");
    momentum_decay_ = torch_ ? option("momentum_decay") : 1.0;
    learning_rate_power_ = option("learning_rate_power");
    l1_ = option("l1");
    l2_ = option("l2");
    l2_shrinkage_ = option("l2_shrinkage");
    beta_ = option("beta");
    weight_decay_ = option("weight_decay");
    decoupled_ = !torch_ || option("decoupled_weight_decay") != 0;
    maximize_ = option("maximize") != 0;
    define_slots(option("initial_accumulator_value"));
    if (kind_ == Kind::nadam) remember_products();
    if (paddle_ && counts_steps()) {
      remember_powers(beta_1_, powers_1_);
      remember_powers(beta_2_, powers_2_);
    }
    if (counts_steps()) {
      remembered_.reserve(kRemembered);
      for (std::uint64_t step = 0; step < kRemembered; ++step) remembered_.push_back(compute_factors<float>(step));
    }
  }

  // An optimizer that is computed elsewhere: rows are created and their updates counted, and numbers are not changed.
  Rule(const std::vector<std::string>& slot_names, const std::vector<double>& slot_initial)
      : kind_(Kind::elsewhere), slot_names_(slot_names), slot_initial_(slot_initial) {
    if (slot_names.size() != slot_initial.size()) throw std::invalid_argument("a first value for each slot");
    if (slot_names.size() > kMostSlots) throw std::invalid_argument("too many slots");
  }

  const std::vector<std::string>& slot_names() const { return slot_names_; }
  const std::vector<double>& slot_initial() const { return slot_initial_; }

  // Whether updates depend on the number of earlier ones.
  bool counts_steps() const {
    switch (kind_) {
      case Kind::adam:
      case Kind::adamax:
      case Kind::nadam:
      case Kind::elsewhere:
        return true;
      case Kind::adagrad:
        return torch_ && lr_decay_ != 0;
      case Kind::sgd:
        return torch_ && momentum_ != 0 && dampening_ != 0;
      default:
        return false;
    }
  }

  // The first step is 1.
  template <class T>
  StepFactors factors(std::uint64_t step) const {
    if (sizeof(T) == sizeof(float) && step < remembered_.size()) return remembered_[step];
    return compute_factors<T>(step);
  }

  // Updates n numbers and their slots in place; the gradient is only read. Not inlined, since it contains all rules.
  template <class T>
  __attribute__((noinline)) void update(T* value, const T* gradient, T* const* slots, std::size_t n, double learning_rate,
              const StepFactors& factors, const Preparation& preparation) const {
    double scale = preparation.scale;
    if (preparation.clip_norm > 0) {
      double norm = 0;
      EACH(i, n) norm += double(gradient[i]) * double(gradient[i]);
      norm = std::sqrt(norm) * std::fabs(scale);
      if (norm > preparation.clip_norm) scale *= preparation.clip_norm / norm;
    }
    if (scale == 1 && preparation.clip_value <= 0 && !changes_gradients())
      return apply(value, gradient, slots, n, learning_rate, factors);
    T block[kBlock];
    for (std::size_t start = 0; start < n; start += kBlock) {
      const std::size_t size = std::min(kBlock, n - start);
      T* x = value + start;
      const T* g = gradient + start;
      if (scale != 1) {
        const T by = T(scale);
        EACH(i, size) block[i] = g[i] * by;
        g = block;
      }
      if (preparation.clip_value > 0) {
        const T limit = T(preparation.clip_value);
        EACH(i, size) block[i] = std::min(std::max(g[i], -limit), limit);
        g = block;
      }
      if (maximize_) {
        EACH(i, size) block[i] = -g[i];
        g = block;
      }
      if (weight_decay_ != 0) {
        if (!torch_) {
          const T decay = T(weight_decay_), rate = T(learning_rate);
          EACH(i, size) x[i] -= (x[i] * decay) * rate;
        } else if (decoupled_) {
          const T keep = T(1 - learning_rate * weight_decay_);
          EACH(i, size) x[i] *= keep;
        } else {
          const T decay = T(weight_decay_);
          EACH(i, size) block[i] = g[i] + x[i] * decay;
          g = block;
        }
      }
      T* moved[kMostSlots];
      for (std::size_t slot = 0; slot < slot_names_.size(); ++slot) moved[slot] = slots[slot] + start;
      apply(x, g, moved, size, learning_rate, factors);
    }
  }

  // The rule alone, for gradients that need no preparation.
  bool is_plain(const Preparation& preparation) const { return preparation.is_none() && !changes_gradients(); }

  template <class T>
  void apply(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate, const StepFactors& f) const {
#ifdef HAS_WIDE
    if constexpr (std::is_same_v<T, float>) {
      if (wide_) return apply_wide(x, g, slots, n, learning_rate, f);
    }
#endif
    apply_narrow(x, g, slots, n, learning_rate, f);
  }

  static constexpr std::size_t kMostSlots = 8;

 private:
  enum class Kind { sgd, adagrad, adam, rmsprop, adadelta, adamax, nadam, ftrl, elsewhere };

  static constexpr std::size_t kBlock = 1024;
  // Steps whose factors are computed once: a row is rarely further, and a power costs as much as the rest of an update.
  static constexpr std::uint64_t kRemembered = 16384;
  // In any type, 1 minus such a number is 1, and all later powers are smaller.
  static constexpr double kNothing = 1e-30;
  static constexpr std::size_t kMostProducts = std::size_t(1) << 20;

  void slot(const char* name, double initial) {
    slot_names_.push_back(name);
    slot_initial_.push_back(initial);
  }

  void define_slots(double initial_accumulator_value) {
    switch (kind_) {
      case Kind::sgd:
        if (momentum_ != 0) slot("momentum", 0);
        break;
      case Kind::adagrad:
        slot("accumulator", initial_accumulator_value);
        break;
      case Kind::adam:
        slot("momentum", 0);
        slot("velocity", 0);
        if (amsgrad_) slot("velocity_hat", 0);
        break;
      case Kind::rmsprop:
        slot("velocity", 0);
        if (momentum_ > 0) slot("momentum", 0);
        if (centered_) slot("average_gradient", 0);
        break;
      case Kind::adadelta:
        slot("accumulated_grad", 0);
        slot("accumulated_delta", 0);
        break;
      case Kind::adamax:
        slot("momentum", 0);
        slot("norm", 0);
        break;
      case Kind::nadam:
        slot("momentum", 0);
        slot("velocity", 0);
        break;
      case Kind::ftrl:
        slot("accumulator", initial_accumulator_value);
        slot("linear", 0);
        break;
      case Kind::elsewhere:
        break;
    }
  }

  // -- the step ------------------------------------------------------------------------------------------------

  template <class T>
  static double one_minus_power(double beta, std::uint64_t step) {
    return double(T(1) - std::pow(T(beta), T(step)));
  }

  // Nadam's momentum at a step, and the products of the momenta of all steps so far.
  double nadam_momentum(std::uint64_t step) const {
    return beta_1_ * (1.0 - 0.5 * std::pow(0.96, double(step) * momentum_decay_));
  }

  void remember_products() {
    products_.push_back(1.0);
    while (products_.back() >= kNothing && products_.size() < kMostProducts)
      products_.push_back(products_.back() * nadam_momentum(products_.size()));
  }

  double nadam_product(std::uint64_t step) const {
    if (step < products_.size()) return products_[step];
    // From here on the momentum no longer changes.
    return products_.back() * std::pow(beta_1_, double(step - products_.size() + 1));
  }

  // A power of a beta is multiplied by it in float32 at every step. Once 1 minus it is 1, it stays so.
  void remember_powers(double beta, std::vector<float>& powers) const {
    powers.push_back(1.0f);
    while (powers.back() >= 1e-9f && powers.size() < kMostProducts) powers.push_back(powers.back() * float(beta));
  }

  static double power(const std::vector<float>& powers, std::uint64_t step) {
    return step < powers.size() ? double(powers[step]) : 0.0;
  }

  template <class T>
  StepFactors compute_factors(std::uint64_t step) const {
    StepFactors found;
    const double t = double(step);
    switch (kind_) {
      case Kind::sgd:
        found.a = step <= 1 ? 1.0 : 1.0 - dampening_;
        break;
      case Kind::adagrad:
        found.a = 1.0 / (1.0 + (t - 1.0) * lr_decay_);
        break;
      case Kind::adam:
        if (paddle_) {
          // The learning rate and epsilon are both multiplied by the root.
          found.b = double(std::sqrt(1.0f - float(power(powers_2_, step))));
          found.a = found.b / double(1.0f - float(power(powers_1_, step)));
        } else if (torch_) {
          found.a = 1.0 / (1.0 - std::pow(beta_1_, t));
          found.b = std::sqrt(1.0 - std::pow(beta_2_, t));
        } else {
          found.a = std::sqrt(one_minus_power<T>(beta_2_, step)) / one_minus_power<T>(beta_1_, step);
        }
        break;
      case Kind::adamax:
        if (paddle_)
          found.a = 1.0 / double(1.0f - float(power(powers_1_, step)));
        else
          found.a = torch_ ? 1.0 / (1.0 - std::pow(beta_1_, t)) : one_minus_power<T>(beta_1_, step);
        break;
      case Kind::nadam:
        found.a = nadam_momentum(step + 1) / (1.0 - nadam_product(step + 1));
        found.b = (1.0 - nadam_momentum(step)) / (1.0 - nadam_product(step));
        found.c = torch_ ? 1.0 - std::pow(beta_2_, t) : one_minus_power<T>(beta_2_, step);
        break;
      default:
        break;
    }
    return found;
  }

  // -- the rules -----------------------------------------------------------------------------------------------

  bool changes_gradients() const { return maximize_ || weight_decay_ != 0; }

#ifdef HAS_WIDE
  template <class T>
  WIDE void apply_wide(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate,
                       const StepFactors& f) const {
    apply_rule(x, g, slots, n, learning_rate, f);
  }
#endif

  template <class T>
  __attribute__((noinline)) void apply_narrow(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate,
                                              const StepFactors& f) const {
    apply_rule(x, g, slots, n, learning_rate, f);
  }

  template <class T>
  INSIDE void apply_rule(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate,
                         const StepFactors& f) const {
    switch (kind_) {
      case Kind::sgd:
        return torch_ ? sgd_torch(x, g, slots, n, T(learning_rate), T(f.a)) : sgd_keras(x, g, slots, n, T(learning_rate));
      case Kind::adagrad:
        return torch_ ? adagrad_torch(x, g, slots[0], n, T(learning_rate * f.a))
                      : adagrad_keras(x, g, slots[0], n, T(learning_rate));
      case Kind::adam:
        if (paddle_) return adam_paddle(x, g, slots, n, T(learning_rate * f.a), T(epsilon_ * f.b));
        return torch_ ? adam_torch(x, g, slots, n, T(learning_rate * f.a), T(f.b))
                      : adam_keras(x, g, slots, n, T(learning_rate * f.a));
      case Kind::rmsprop:
        return torch_ && !paddle_ ? rmsprop_torch(x, g, slots, n, T(learning_rate)) : rmsprop_keras(x, g, slots, n, T(learning_rate));
      case Kind::adadelta:
        return torch_ ? adadelta_torch(x, g, slots, n, T(learning_rate))
                      : adadelta_keras(x, g, slots, n, T(learning_rate));
      case Kind::adamax:
        if (paddle_) return adamax_paddle(x, g, slots, n, T(learning_rate * f.a));
        return torch_ ? adamax_torch(x, g, slots, n, T(learning_rate * f.a))
                      : adamax_keras(x, g, slots, n, T(learning_rate), T(f.a));
      case Kind::nadam:
        return nadam(x, g, slots, n, T(learning_rate * f.a), T(learning_rate * f.b), T(f.c));
      case Kind::ftrl:
        // The rule divides by it; other optimizers change nothing then.
        if (learning_rate != 0) ftrl(x, g, slots, n, learning_rate);
        return;
      case Kind::elsewhere:
        return;
    }
  }

  // v = momentum * v - lr * g;  x += v, or with Nesterov x += momentum * v - lr * g.
  template <class T>
  INSIDE void sgd_keras(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    if (momentum_ == 0) {
      EACH(i, n) x[i] -= g[i] * rate;
      return;
    }
    T* v = slots[0];
    const T momentum = T(momentum_);
    if (nesterov_) {
      EACH(i, n) {
        const T step = g[i] * rate;
        v[i] = v[i] * momentum - step;
        x[i] += v[i] * momentum - step;
      }
    } else {
      EACH(i, n) {
        v[i] = v[i] * momentum - g[i] * rate;
        x[i] += v[i];
      }
    }
  }

  // b = g at first, then momentum * b + (1 - dampening) g;  x -= lr * b, or with Nesterov x -= lr * (g + momentum * b).
  template <class T>
  INSIDE void sgd_torch(T* x, const T* g, T* const* slots, std::size_t n, T rate, T share) const {
    if (momentum_ == 0) {
      EACH(i, n) x[i] -= g[i] * rate;
      return;
    }
    T* b = slots[0];
    const T momentum = T(momentum_);
    if (nesterov_) {
      EACH(i, n) {
        b[i] = b[i] * momentum + g[i] * share;
        x[i] -= (g[i] + b[i] * momentum) * rate;
      }
    } else {
      EACH(i, n) {
        b[i] = b[i] * momentum + g[i] * share;
        x[i] -= b[i] * rate;
      }
    }
  }

  // s += g²;  x -= lr * g / √(s + ε).
  template <class T>
  INSIDE void adagrad_keras(T* x, const T* g, T* s, std::size_t n, T rate) const {
    const T epsilon = T(epsilon_);
    if (n == 16) {
      // A usual width of rows; with the number known there is no loop.
      EACH(i, 16) {
        s[i] += g[i] * g[i];
        x[i] -= (g[i] * rate) / std::sqrt(s[i] + epsilon);
      }
      return;
    }
    EACH(i, n) {
      s[i] += g[i] * g[i];
      x[i] -= (g[i] * rate) / std::sqrt(s[i] + epsilon);
    }
  }

  // s += g²;  x -= lr / (1 + (t - 1) lr_decay) * g / (√s + ε).
  template <class T>
  INSIDE void adagrad_torch(T* x, const T* g, T* s, std::size_t n, T rate) const {
    const T epsilon = T(epsilon_);
    EACH(i, n) {
      s[i] += g[i] * g[i];
      x[i] -= (g[i] * rate) / (std::sqrt(s[i]) + epsilon);
    }
  }

  // m += (1 - β₁)(g - m);  v += (1 - β₂)(g² - v);  x -= lr * √(1 - β₂ᵗ) / (1 - β₁ᵗ) * m / (√v + ε).
  // AMSGrad divides by the largest v so far.
  template <class T>
  INSIDE void adam_keras(T* x, const T* g, T* const* slots, std::size_t n, T alpha) const {
    T *m = slots[0], *v = slots[1];
    const T first = T(1 - beta_1_), second = T(1 - beta_2_), epsilon = T(epsilon_);
    if (amsgrad_) {
      T* most = slots[2];
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] += (g[i] * g[i] - v[i]) * second;
        most[i] = std::max(most[i], v[i]);
        x[i] -= (m[i] * alpha) / (std::sqrt(most[i]) + epsilon);
      }
    } else {
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] += (g[i] * g[i] - v[i]) * second;
        x[i] -= (m[i] * alpha) / (std::sqrt(v[i]) + epsilon);
      }
    }
  }

  // m += (1 - β₁)(g - m);  v = β₂ v + (1 - β₂) g²;  x -= lr / (1 - β₁ᵗ) * m / (√v / √(1 - β₂ᵗ) + ε).
  template <class T>
  INSIDE void adam_torch(T* x, const T* g, T* const* slots, std::size_t n, T rate, T correction) const {
    T *m = slots[0], *v = slots[1];
    const T first = T(1 - beta_1_), keep = T(beta_2_), second = T(1 - beta_2_), epsilon = T(epsilon_);
    if (amsgrad_) {
      T* most = slots[2];
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] = v[i] * keep + (g[i] * g[i]) * second;
        most[i] = std::max(most[i], v[i]);
        x[i] -= (m[i] * rate) / (std::sqrt(most[i]) / correction + epsilon);
      }
    } else {
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] = v[i] * keep + (g[i] * g[i]) * second;
        x[i] -= (m[i] * rate) / (std::sqrt(v[i]) / correction + epsilon);
      }
    }
  }

  // m = β₁ m + (1 - β₁) g;  v = β₂ v + (1 - β₂) g²;  x -= lr * √(1 - β₂ᵗ) / (1 - β₁ᵗ) * m / (√v + ε √(1 - β₂ᵗ)).
  template <class T>
  INSIDE void adam_paddle(T* x, const T* g, T* const* slots, std::size_t n, T rate, T epsilon) const {
    T *m = slots[0], *v = slots[1];
    const T keep_1 = T(beta_1_), first = T(1) - T(beta_1_), keep_2 = T(beta_2_), second = T(1) - T(beta_2_);
    EACH(i, n) {
      m[i] = m[i] * keep_1 + g[i] * first;
      v[i] = v[i] * keep_2 + (g[i] * g[i]) * second;
      x[i] -= (m[i] / (std::sqrt(v[i]) + epsilon)) * rate;
    }
  }

  // v = ρ v + (1 - ρ) g²;  x -= lr * g / √(v + ε), summed up with momentum if there is one.
  // Centered: the square of the average gradient is taken from v under the root.
  template <class T>
  INSIDE void rmsprop_keras(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T* v = slots[0];
    T* summed = momentum_ > 0 ? slots[1] : nullptr;
    T* average = centered_ ? slots[momentum_ > 0 ? 2 : 1] : nullptr;
    const T rho = T(rho_), rest = T(1 - rho_), epsilon = T(epsilon_), momentum = T(momentum_);
    EACH(i, n) {
      v[i] = v[i] * rho + (g[i] * g[i]) * rest;
      T under = v[i];
      if (average) {
        average[i] = average[i] * rho + g[i] * rest;
        under -= average[i] * average[i];
      }
      T step = (g[i] * rate) / std::sqrt(under + epsilon);
      if (summed) step = summed[i] = summed[i] * momentum + step;
      x[i] -= step;
    }
  }

  // v = ρ v + (1 - ρ) g²;  d = g / (√v + ε), summed up with momentum if there is one;  x -= lr * d.
  template <class T>
  INSIDE void rmsprop_torch(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T* v = slots[0];
    T* summed = momentum_ > 0 ? slots[1] : nullptr;
    T* average = centered_ ? slots[momentum_ > 0 ? 2 : 1] : nullptr;
    const T rho = T(rho_), rest = T(1 - rho_), epsilon = T(epsilon_), momentum = T(momentum_);
    EACH(i, n) {
      v[i] = v[i] * rho + (g[i] * g[i]) * rest;
      T under = v[i];
      if (average) {
        average[i] += (g[i] - average[i]) * rest;
        under -= average[i] * average[i];
      }
      T step = g[i] / (std::sqrt(under) + epsilon);
      if (summed) step = summed[i] = summed[i] * momentum + step;
      x[i] -= step * rate;
    }
  }

  // s = ρ s + (1 - ρ) g²;  d = g * √(u + ε) / √(s + ε);  u = ρ u + (1 - ρ) d²;  x -= lr * d.
  template <class T>
  INSIDE void adadelta_keras(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T *s = slots[0], *u = slots[1];
    const T rho = T(rho_), rest = T(1 - rho_), epsilon = T(epsilon_);
    EACH(i, n) {
      s[i] = s[i] * rho + (g[i] * g[i]) * rest;
      const T step = (std::sqrt(u[i] + epsilon) * g[i]) / std::sqrt(s[i] + epsilon);
      u[i] = u[i] * rho + (step * step) * rest;
      x[i] -= step * rate;
    }
  }

  template <class T>
  INSIDE void adadelta_torch(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T *s = slots[0], *u = slots[1];
    const T rho = T(rho_), rest = T(1 - rho_), epsilon = T(epsilon_);
    EACH(i, n) {
      s[i] = s[i] * rho + (g[i] * g[i]) * rest;
      const T step = (std::sqrt(u[i] + epsilon) / std::sqrt(s[i] + epsilon)) * g[i];
      u[i] = u[i] * rho + (step * step) * rest;
      x[i] -= step * rate;
    }
  }

  // m += (1 - β₁)(g - m);  u = max(β₂ u, |g|);  x -= lr * m / ((1 - β₁ᵗ)(u + ε)).
  template <class T>
  INSIDE void adamax_keras(T* x, const T* g, T* const* slots, std::size_t n, T rate, T correction) const {
    T *m = slots[0], *u = slots[1];
    const T first = T(1 - beta_1_), keep = T(beta_2_), epsilon = T(epsilon_);
    EACH(i, n) {
      m[i] += (g[i] - m[i]) * first;
      u[i] = std::max(u[i] * keep, std::fabs(g[i]));
      x[i] -= (m[i] * rate) / ((u[i] + epsilon) * correction);
    }
  }

  // m += (1 - β₁)(g - m);  u = max(β₂ u, |g| + ε);  x -= lr / (1 - β₁ᵗ) * m / u.
  template <class T>
  INSIDE void adamax_torch(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T *m = slots[0], *u = slots[1];
    const T first = T(1 - beta_1_), keep = T(beta_2_), epsilon = T(epsilon_);
    EACH(i, n) {
      m[i] += (g[i] - m[i]) * first;
      u[i] = std::max(u[i] * keep, std::fabs(g[i]) + epsilon);
      x[i] -= (m[i] * rate) / u[i];
    }
  }

  // m = β₁ m + (1 - β₁) g;  u = max(|g|, β₂ u + ε);  x -= lr / (1 - β₁ᵗ) * m / u.
  template <class T>
  INSIDE void adamax_paddle(T* x, const T* g, T* const* slots, std::size_t n, T rate) const {
    T *m = slots[0], *u = slots[1];
    const T keep_1 = T(beta_1_), first = T(1) - T(beta_1_), keep_2 = T(beta_2_), epsilon = T(epsilon_);
    EACH(i, n) {
      m[i] = m[i] * keep_1 + g[i] * first;
      u[i] = std::max(std::fabs(g[i]), u[i] * keep_2 + epsilon);
      x[i] -= (m[i] / u[i]) * rate;
    }
  }

  // Adam whose momentum looks one step ahead: μₜ = β₁ (1 - 0.96^(t momentum_decay) / 2), Pₜ = μ₁ ⋯ μₜ,
  // x -= lr * (μₜ₊₁ m / (1 - Pₜ₊₁) + (1 - μₜ) g / (1 - Pₜ)) / (√(v / (1 - β₂ᵗ)) + ε).
  // In Keras momentum_decay is 1.
  template <class T>
  INSIDE void nadam(T* x, const T* g, T* const* slots, std::size_t n, T of_momentum, T of_gradient, T correction) const {
    T *m = slots[0], *v = slots[1];
    const T first = T(1 - beta_1_), keep = T(beta_2_), second = T(1 - beta_2_), epsilon = T(epsilon_);
    if (torch_) {
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] = v[i] * keep + (g[i] * g[i]) * second;
        x[i] -= (g[i] * of_gradient + m[i] * of_momentum) / (std::sqrt(v[i] / correction) + epsilon);
      }
    } else {
      EACH(i, n) {
        m[i] += (g[i] - m[i]) * first;
        v[i] += (g[i] * g[i] - v[i]) * second;
        x[i] -= (m[i] * of_momentum + g[i] * of_gradient) / (std::sqrt(v[i] / correction) + epsilon);
      }
    }
  }

  // n' = n + g²;  z += g + 2 s x - (n'ᵖ - nᵖ) / lr * x;  x = (clip(z, ±l1) - z) / ((n'ᵖ + β) / lr + 2 l2).
  // p is -learning_rate_power, s is l2_shrinkage.
  template <class T>
  INSIDE void ftrl(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate) const {
    // A root is several times faster than a power, and the usual case.
    if (learning_rate_power_ == -0.5) {
      ftrl_with(x, g, slots, n, learning_rate, [](T number) { return std::sqrt(number); });
    } else {
      const T power = T(-learning_rate_power_);
      ftrl_with(x, g, slots, n, learning_rate, [power](T number) { return std::pow(number, power); });
    }
  }

  template <class T, class Power>
  INSIDE void ftrl_with(T* x, const T* g, T* const* slots, std::size_t n, double learning_rate, Power power) const {
    T *accumulator = slots[0], *linear = slots[1];
    const T rate = T(learning_rate), l1 = T(l1_), shrinkage = T(2 * l2_shrinkage_);
    const T more = T(2 * l2_ + beta_ / learning_rate);
    EACH(i, n) {
      const T before = power(accumulator[i]);
      accumulator[i] += g[i] * g[i];
      const T after = power(accumulator[i]);
      linear[i] += g[i];
      linear[i] -= ((after - before) / rate) * x[i];
      linear[i] += x[i] * shrinkage;
      const T clipped = std::min(std::max(linear[i], -l1), l1);
      x[i] = (clipped - linear[i]) / (after / rate + more);
    }
  }

#ifdef HAS_WIDE
  const bool wide_ = is_wide();
#endif
  Kind kind_;
  bool torch_ = false, paddle_ = false, nesterov_ = false, amsgrad_ = false, centered_ = false, decoupled_ = false, maximize_ = false;
  double momentum_ = 0, dampening_ = 0, beta_1_ = 0, beta_2_ = 0, rho_ = 0, epsilon_ = 0, lr_decay_ = 0;
  double momentum_decay_ = 0, learning_rate_power_ = 0;
  double l1_ = 0, l2_ = 0, l2_shrinkage_ = 0, beta_ = 0, weight_decay_ = 0;
  std::vector<std::string> slot_names_;
  std::vector<double> slot_initial_;
  std::vector<double> products_;
  std::vector<float> powers_1_, powers_2_;
  std::vector<StepFactors> remembered_;
};

}  // namespace elasticdl
