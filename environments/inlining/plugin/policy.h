// What a policy is to the advisor. Each policy has a policy.cpp of its own, which is generated.

#ifndef TFRL_POLICY_H
#define TFRL_POLICY_H

#include <cstddef>
#include <cstdint>

namespace tfrl {
namespace policy {

extern const char *const Name;
extern const bool IsLlvms; // whether its decisions are LLVM's own
extern const std::size_t NumFeatures;
extern const char *const Features[]; // their names

// Decides a call site: whether to inline. Row holds the values of Features.
bool decide(const std::int64_t *Row, bool LlvmInlines);

} // namespace policy
} // namespace tfrl

#endif
