// What a policy gets at a call site: a row of LLVM's features and the derived ones.

#ifndef TFRL_ROW_H
#define TFRL_ROW_H

#include "history.h"
#include "margin.h"
#include "policy.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/IR/LLVMContext.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tfrl {

// Adds up the time that decisions take. The clock of a thread's own time costs as much as a decision,
// so this is the usual one. What took long was interrupted by other work, and is left out.
class Stopwatch {
public:
  explicit Stopwatch(bool IsOn) : IsOn(IsOn) {}
  void begin() { Began = IsOn ? now() : 0; }
  void end() {
    const std::int64_t Taken = IsOn ? now() - Began : 0;
    Total += Taken < Interrupted ? Taken : 0;
  }
  std::int64_t total() const { return Total; } // ns

private:
  static constexpr std::int64_t Interrupted = 200000; // ns
  static std::int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  const bool IsOn;
  std::int64_t Began = 0, Total = 0;
};

// A runner that only holds the features: the advisor asks the policy itself.
class Features : public llvm::MLModelRunner {
public:
  Features(llvm::LLVMContext &Context, const std::vector<llvm::TensorSpec> &Specs)
      // One buffer more, in case LLVM adds its own decision.
      : MLModelRunner(Context, Kind::NoOp, Specs.size() + 1) {
    for (std::size_t I = 0; I < Specs.size(); ++I) {
      setUpBufferForTensor(I, Specs[I], nullptr);
      AreWhole &= Specs[I].isElementType<std::int64_t>() && Specs[I].getElementCount() == 1;
      Names.push_back(Specs[I].name());
    }
    setUpBufferForTensor(Specs.size(), llvm::TensorSpec::createSpec<std::int64_t>("", {1}), nullptr);
  }

  std::vector<std::string> Names;
  bool AreWhole = true; // whether each feature is one int64

private:
  void *evaluateUntyped() override { return &Never; }
  std::int64_t Never = 0;
};

// Which features a policy needs, and where they are in a row.
class Row {
public:
  void use(const Features &Observed) {
    Values.assign(Observed.Names.size() + std::size(DerivedFeatures), 0);
    Names = Observed.Names;
    NumOwn = Names.size();
    Names.insert(Names.end(), std::begin(DerivedFeatures), std::end(DerivedFeatures));
    CalleeUsers = place("callee_users");
    CallerBlocks = place("caller_basic_block_count");
    CalleeBlocks = place("callee_basic_block_count");
    CostEstimate = place("cost_estimate");
    if (!Observed.AreWhole)
      Missing = "features that are whole numbers";
    for (std::size_t I = 0; I < policy::NumFeatures; ++I)
      Places.push_back(place(policy::Features[I]));
    Needed.resize(Places.size());
  }

  bool decide(bool LlvmInlines) {
    for (std::size_t I = 0; I < Places.size(); ++I)
      Needed[I] = Values[Places[I]];
    return policy::decide(Needed.data(), LlvmInlines, margin().Steps);
  }

  std::vector<std::string> Names;
  std::vector<std::int64_t> Values;
  std::size_t NumOwn = 0, CalleeUsers = 0, CallerBlocks = 0, CalleeBlocks = 0, CostEstimate = 0;
  std::string Missing; // the first feature that this LLVM does not have

private:
  std::size_t place(llvm::StringRef Name) {
    const auto Position = std::find(Names.begin(), Names.end(), Name);
    if (Position != Names.end())
      return Position - Names.begin();
    if (Missing.empty())
      Missing = Name.str();
    return 0;
  }

  std::vector<std::size_t> Places;
  std::vector<std::int64_t> Needed;
};

} // namespace tfrl

#endif
