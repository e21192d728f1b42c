// Decision networks over integer features: the arithmetic of the policy's votes.py, in C++.
//
// All sums are exact, as in Python: networks add products of integers that are kept in doubles and
// stay below 2^53. So the order of the additions changes nothing.
//
// The tables of a policy are in policy.h, which is generated.

#ifndef TFRL_MODEL_H
#define TFRL_MODEL_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tfrl {

// A segment of a feature's normalising map; see the policy's normalisation.py.
struct Knot {
  std::int64_t Start, Base, Rise, Run;
};

// Normalises a feature. The first and the last start of its knots bound it.
inline double normalise(const Knot *First, std::size_t NumKnots, std::int64_t Value) {
  const Knot *End = First + NumKnots;
  Value = std::min(std::max(Value, First->Start), End[-1].Start);
  const Knot *After = std::upper_bound(
      First, End, Value, [](std::int64_t V, const Knot &K) { return V < K.Start; });
  const Knot &K = After[-1];
  // No factor is negative, so this division rounds down as Python's does.
  return static_cast<double>(K.Base + (Value - K.Start) * K.Rise / K.Run);
}

constexpr double Unit = 65536.0;                      // 2^16, the grid
constexpr double MaxActivation = 256.0 * Unit;        // 2^8
constexpr double LogitScale = 256.0;                  // 2^(2 * 16 - 24)
constexpr double MaxLogit = 64.0 * 16777216.0;        // 2^6 in units of 2^-24
constexpr std::size_t MaxUnits = 1024;
constexpr std::size_t Block = 16;

// Compiled twice where the loader can choose: processors with AVX2 take half the time.
#if defined(__x86_64__) && defined(__GLIBC__)
#define TFRL_FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define TFRL_FOR_EACH_PROCESSOR
#endif

// Adds up Out[o] = Biases[o] * Unit + sum over i of In[i] * Weights[i][o]. Weights are whole numbers
// of at most 2^20, which floats hold exactly; they need half the cache of doubles.
TFRL_FOR_EACH_PROCESSOR static void multiply(const float *__restrict Weights,
                                             const float *__restrict Biases, std::size_t NumIn,
                                             std::size_t NumOut, const double *__restrict In,
                                             double *__restrict Out) {
  std::size_t Live[MaxUnits], NumLive = 0; // about half of all activations are 0
  for (std::size_t I = 0; I < NumIn; ++I) {
    Live[NumLive] = I;
    NumLive += In[I] != 0.0;
  }
  std::size_t O = 0;
  for (; O + Block <= NumOut; O += Block) {
    double Sums[Block]; // stay in registers
    for (std::size_t K = 0; K < Block; ++K)
      Sums[K] = static_cast<double>(Biases[O + K]) * Unit;
    for (std::size_t L = 0; L < NumLive; ++L) {
      const double X = In[Live[L]];
      const float *Line = Weights + Live[L] * NumOut + O;
      for (std::size_t K = 0; K < Block; ++K)
        Sums[K] += X * static_cast<double>(Line[K]);
    }
    for (std::size_t K = 0; K < Block; ++K)
      Out[O + K] = Sums[K];
  }
  for (; O < NumOut; ++O) {
    double Sum = static_cast<double>(Biases[O]) * Unit;
    for (std::size_t L = 0; L < NumLive; ++L)
      Sum += In[Live[L]] * static_cast<double>(Weights[Live[L] * NumOut + O]);
    Out[O] = Sum;
  }
}

// Returns the logit of one network in fixed point.
//
// Sizes are the units of each layer, the inputs first; there are NumLayers + 1 of them. Weights and
// Biases hold the layers one after another.
static inline std::int64_t runNetwork(const float *Weights, const float *Biases, const int *Sizes,
                               int NumLayers, const double *Inputs) {
  double Hidden[MaxUnits], Sums[MaxUnits];
  std::copy(Inputs, Inputs + Sizes[0], Hidden);
  for (int L = 0; L < NumLayers; ++L) {
    const std::size_t NumIn = Sizes[L], NumOut = Sizes[L + 1];
    multiply(Weights, Biases, NumIn, NumOut, Hidden, Sums);
    Weights += NumIn * NumOut;
    Biases += NumOut;
    for (std::size_t O = 0; O < NumOut; ++O)
      Hidden[O] = std::min(std::max(std::nearbyint(Sums[O] / Unit), 0.0), MaxActivation);
  }
  const double Logit = std::nearbyint(Sums[0] / LogitScale);
  return static_cast<std::int64_t>(std::min(std::max(Logit, -MaxLogit), MaxLogit));
}

} // namespace tfrl

#endif
