// Where a decision would cost more than it can win, and LLVM decides alone.
//
// After each inlined call LLVM's advisor looks through the whole caller again, and before each
// decision it looks through the whole callee twice, where a plain LLVM stops at once. So the cost is
// quadratic in a caller's call sites, and in the sites that call a large function. With these limits
// it is a share of what the functions take to compile. RESULTS.md has the measurements.

#ifndef TFRL_LEFT_CALLERS_H
#define TFRL_LEFT_CALLERS_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

namespace tfrl {

// Call sites of a caller, with those that inlining brought along. Where all are inlined, so many cost
// about a tenth of the compile; twice as many cost more than that, and win no more at each site.
constexpr std::int64_t MostSites = 400;
// A function so large with so many users stays: what inlining saves at a call is a few bytes.
constexpr unsigned MostUsers = 50, LargeBody = 200; // LargeBody counts instructions

inline bool isLarge(const llvm::Function &F) {
  unsigned Size = 0;
  for (const llvm::BasicBlock &Block : F)
    for (auto I = Block.begin(), End = Block.end(); I != End; ++I)
      if (++Size > LargeBody)
        return true;
  return false;
}

inline bool isSureToStay(const llvm::Function &Callee) {
  return Callee.hasNUsesOrMore(MostUsers + 1) && isLarge(Callee);
}

// The callers that are left to LLVM while the inliner is at one SCC. Once left, a caller stays so:
// LLVM's own inlining does not keep the advisor's analyses up to date.
class LeftCallers {
public:
  explicit LeftCallers(llvm::FunctionAnalysisManager &FAM) : FAM(FAM) {}

  // Functions may be freed between SCCs, and the order of addresses must decide nothing.
  void clear() { Callers.clear(); }

  bool isLeft(const llvm::Function &Caller) const { return Callers.lookup(&Caller).IsLeft; }

  // Takes the number of call sites that a caller holds now. Those that were inlined count as well,
  // so the sum only grows.
  bool isTooLarge(const llvm::Function &Caller, std::int64_t Sites) const {
    return Sites + Callers.lookup(&Caller).NumInlined > MostSites;
  }

  void inlined(const llvm::Function &Caller) { ++Callers[&Caller].NumInlined; }

  void leave(llvm::Function &Caller) {
    Callers[&Caller].IsLeft = true;
    // They describe the caller as it is before LLVM inlines in it. Whoever asks again gets new ones.
    llvm::PreservedAnalyses Preserved = llvm::PreservedAnalyses::all();
    Preserved.abandon<llvm::FunctionPropertiesAnalysis>();
    Preserved.abandon<llvm::DominatorTreeAnalysis>();
    Preserved.abandon<llvm::LoopAnalysis>();
    FAM.invalidate(Caller, Preserved);
  }

private:
  struct Caller {
    std::int64_t NumInlined = 0;
    bool IsLeft = false;
  };

  llvm::FunctionAnalysisManager &FAM;
  llvm::DenseMap<const llvm::Function *, Caller> Callers;
};

} // namespace tfrl

#endif
