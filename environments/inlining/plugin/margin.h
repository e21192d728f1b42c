// The margin of a compile: the policy's own, or the number in TFRL_INLINING_MARGIN.
//
// A policy departs from LLVM's decision only where its logit exceeds the margin. The number is whole,
// in 2^-24 of a logit, so that a margin is the same to the bit here and in the policy's votes.py.

#ifndef TFRL_MARGIN_H
#define TFRL_MARGIN_H

#include "files.h"
#include "policy.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace tfrl {

struct Margin {
  std::int64_t Steps = policy::OwnMargin;
  std::string Fault; // why nothing is steered: the number is none, or the policy has no margin
};

inline Margin readMargin() {
  constexpr std::int64_t Most = INT64_C(1) << 31; // twice the largest logit: nothing departs
  constexpr std::size_t MostCharacters = 40;
  Margin Read;
  const char *Text = setting("TFRL_INLINING_MARGIN");
  if (!Text)
    return Read;
  std::string Shown = llvm::json::fixUTF8(llvm::StringRef(Text).take_front(MostCharacters));
  std::replace(Shown.begin(), Shown.end(), '\n', ' ');
  std::int64_t Steps = 0;
  if (!policy::HasMargin)
    Read.Fault = "TFRL_INLINING_MARGIN: this policy has no margin; until it is unset";
  else if (llvm::StringRef(Text).getAsInteger(10, Steps) || Steps < -Most || Steps > Most)
    Read.Fault = "TFRL_INLINING_MARGIN: expected a whole number from -2^31 to 2^31, found " +
                 Shown + "; until it is unset";
  else
    Read.Steps = Steps;
  return Read;
}

// The same for the whole process.
inline const Margin &margin() {
  static const Margin Read = readMargin();
  return Read;
}

} // namespace tfrl

#endif
