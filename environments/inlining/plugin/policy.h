// What a policy is to the advisor. Each policy has a policy.cpp of its own, which is generated.

#ifndef TFRL_POLICY_H
#define TFRL_POLICY_H

#include <cstddef>
#include <cstdint>

namespace tfrl {
namespace policy {

extern const char *const Name;
extern const bool IsLlvms;   // whether its decisions are LLVM's own
extern const bool HasMargin; // whether a margin keeps it from departing from LLVM's decisions
extern const std::int64_t OwnMargin; // in 2^-24 of a logit
// The feature that is 1 where the policy may depart from LLVM's decisions; "" if it may everywhere.
extern const char *const ScopeFeature;
extern const std::size_t NumFeatures;
extern const char *const Features[]; // their names

// Decides a call site: whether to inline. Row holds the values of Features. Margin is OwnMargin, or
// what takes its place.
bool decide(const std::int64_t *Row, bool LlvmInlines, std::int64_t Margin);

} // namespace policy
} // namespace tfrl

#endif
