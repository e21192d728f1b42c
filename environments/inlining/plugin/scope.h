// Where a policy may depart from LLVM's decisions, and what need not be computed elsewhere.
//
// A policy with a scope departs only where its scope feature is 1: at calls of linkonce functions that
// LLVM does not inline. Elsewhere LLVM's decision holds, and of the site only its share of the history
// is needed (History::follow). So LLVM's features, two more looks through the whole callee, are left
// out. What remains to be known is whether LLVM's advisor would have asked for a decision there, since
// `decisions_so_far` counts those: it asks nothing where inlining is impossible.

#ifndef TFRL_SCOPE_H
#define TFRL_SCOPE_H

#include "policy.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

namespace tfrl {

inline bool hasLinkOnceScope() {
  return llvm::StringRef(policy::ScopeFeature) == "callee_is_linkonce";
}

// Whether nothing in a body can keep LLVM from inlining it, whatever the call site. If it is false,
// only LLVM's analysis of the site can tell.
inline bool isOrdinary(const llvm::Function &F) {
  using namespace llvm;
  // LLVM inlines no more than this into recursive callers.
  constexpr std::uint64_t MostStack = InlineConstants::TotalAllocaSizeRecursiveCaller;
  const DataLayout &Layout = F.getParent()->getDataLayout();
  std::uint64_t Stack = 0;
  for (const BasicBlock &Block : F) {
    if (Block.hasAddressTaken() || isa<IndirectBrInst>(Block.getTerminator()))
      return false;
    for (const Instruction &I : Block) {
      if (const auto *Alloca = dyn_cast<AllocaInst>(&I)) {
        if (!Alloca->isStaticAlloca())
          return false;
        const auto Size = Alloca->getAllocationSize(Layout);
        if (!Size || Size->isScalable() || (Stack += Size->getFixedValue()) > MostStack)
          return false;
      } else if (const auto *Call = dyn_cast<CallBase>(&I)) {
        if (Call->getCalledOperand() == &F || Call->hasFnAttr(Attribute::ReturnsTwice))
          return false;
        const Intrinsic::ID ID = Call->getIntrinsicID();
        if (ID == Intrinsic::vastart || ID == Intrinsic::localescape ||
            ID == Intrinsic::icall_branch_funnel)
          return false;
      }
    }
  }
  return true;
}

// Keeps what `isOrdinary` says until a pass changes the function.
struct OrdinaryAnalysis : llvm::AnalysisInfoMixin<OrdinaryAnalysis> {
  struct Result {
    bool IsOrdinary;
  };
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) { return {isOrdinary(F)}; }
  static llvm::AnalysisKey Key;
};
inline llvm::AnalysisKey OrdinaryAnalysis::Key;

// Whether LLVM would ask for a decision at a site that it does not inline by itself. If it is false,
// it may not ask. LLVM's attributes of the call are not looked at.
inline bool isSurelyAsked(llvm::CallBase &CB, llvm::FunctionAnalysisManager &FAM) {
  llvm::Function &Callee = *CB.getCalledFunction();
  return FAM.getResult<OrdinaryAnalysis>(Callee).IsOrdinary &&
         !llvm::is_contained(CB.args(), &Callee) &&
         !CB.getCaller()->hasFnAttribute("inline-max-stacksize");
}

} // namespace tfrl

#endif
