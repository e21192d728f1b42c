// What a policy sees at a call site beside LLVM's own features: features.py, in C++.
//
// Each rule here has its twin in FeatureTracker, and a test compares every value. Policies were
// trained on what the channel shows, and the channel names caller and callee before a decision only
// where LLVM's own decision is not to inline. Elsewhere the features that need a name are Unknown
// here too, though this plugin could tell them.

#ifndef TFRL_HISTORY_H
#define TFRL_HISTORY_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace tfrl {

constexpr std::int64_t Unknown = -1;

// The names of the derived features, in the order of `History::observe`.
constexpr const char *DerivedFeatures[] = {
    "inlining_default",     "callee_is_local",      "callee_is_linkonce",
    "callee_is_droppable",  "caller_is_local",      "caller_is_linkonce",
    "callee_is_caller",     "callee_sites_seen",    "callee_sites_inlined",
    "callee_sites_refused", "callee_undecided_users", "callee_is_last_use",
    "callee_inlined_into",  "caller_sites_seen",    "caller_sites_inlined",
    "caller_growth",        "decisions_so_far",     "inlined_so_far",
};

// Remarks show names without the mark that keeps LLVM from mangling them.
inline llvm::StringRef shown(llvm::StringRef Name) {
  return llvm::GlobalValue::dropLLVMManglingEscape(Name);
}

// The kind of a function that the module defined before any pass ran.
struct Kind {
  bool IsKnown = false, IsLocal = false, IsLinkOnce = false, IsDroppable = false;
};

class Kinds {
public:
  Kinds() = default;
  explicit Kinds(const llvm::Module &M) {
    for (const llvm::Function &F : M) {
      if (F.isDeclaration())
        continue;
      const bool Local = F.hasLocalLinkage(), Once = F.hasLinkOnceLinkage();
      Map[F.getName()] = {true, Local, Once,
                          Local || Once || F.hasAvailableExternallyLinkage()};
    }
  }
  Kind of(llvm::StringRef Name) const { return Map.lookup(Name); }

private:
  llvm::StringMap<Kind> Map;
};

// One call site, before its decision.
struct Site {
  std::int64_t *Features;      // LLVM's own, in its order; the derived ones are written behind them
  std::size_t NumOwn;          // how many of them are LLVM's own
  std::size_t CalleeUsers;     // places of three of LLVM's features
  std::size_t CallerBlocks;
  std::size_t CalleeBlocks;
  bool HidesCalleeBlocks;      // whether the channel of this LLVM overwrites CalleeBlocks
  bool LlvmInlines;            // LLVM's own decision
  llvm::StringRef Callee, Caller;
};

class History {
public:
  explicit History(const Kinds &K) : K(K) {}

  // Writes the derived features of a call site.
  void observe(const Site &S) {
    const bool Named = !S.LlvmInlines;
    const llvm::StringRef Callee = shown(S.Callee), Caller = shown(S.Caller);
    if (S.HidesCalleeBlocks)
      S.Features[S.CalleeBlocks] = Named ? Functions[Callee].LastBlocks : Unknown;
    const std::int64_t Users = S.Features[S.CalleeUsers];
    const std::int64_t Blocks = S.Features[S.CallerBlocks];
    std::int64_t *Out = S.Features + S.NumOwn;
    *Out++ = S.LlvmInlines;
    const Kind CalleeKind = Named ? K.of(Callee) : Kind(), CallerKind = Named ? K.of(Caller) : Kind();
    *Out++ = ifKnown(CalleeKind, CalleeKind.IsLocal);
    *Out++ = ifKnown(CalleeKind, CalleeKind.IsLinkOnce);
    *Out++ = ifKnown(CalleeKind, CalleeKind.IsDroppable);
    *Out++ = ifKnown(CallerKind, CallerKind.IsLocal);
    *Out++ = ifKnown(CallerKind, CallerKind.IsLinkOnce);
    *Out++ = Named ? Callee == Caller : Unknown;
    Out = Named ? ofCallee(Callee, CalleeKind, Users, Out) : std::fill_n(Out, 6, Unknown);
    Out = Named ? ofCaller(Caller, Blocks, Out) : std::fill_n(Out, 3, Unknown);
    *Out++ = NumDecisions;
    *Out++ = NumInlined;
    WasNamed = Named;
    LastCaller = Caller.str();
    for (std::int64_t *Value = S.Features; Value != Out; ++Value)
      *Value = std::min<std::int64_t>(
          std::max<std::int64_t>(*Value, std::numeric_limits<std::int32_t>::min()),
          std::numeric_limits<std::int32_t>::max());
  }

  // Records the decision at the last call site. After a decision every callee is named.
  void record(bool Inlined, llvm::StringRef Callee) {
    ++NumDecisions;
    NumInlined += Inlined;
    const llvm::StringRef Name = WasNamed ? shown(Callee) : Callee;
    if (WasNamed || !Name.empty()) {
      Function &F = Functions[Name];
      ++F.Called;
      F.CalledInlined += Inlined;
    }
    if (WasNamed) {
      Function &F = Functions[LastCaller];
      ++F.Calling;
      F.CallingInlined += Inlined;
    }
  }

  // Takes a call site where LLVM decides, as `observe` and `record` would, without the features.
  void follow(bool LlvmInlines, llvm::StringRef CalleeName, llvm::StringRef CallerName,
              std::int64_t CalleeUsers, std::int64_t CallerBlocks) {
    ++NumDecisions;
    NumInlined += LlvmInlines;
    if (LlvmInlines && CalleeName.empty())
      return;
    Function &Callee = Functions[LlvmInlines ? CalleeName : shown(CalleeName)];
    if (!LlvmInlines) {
      Callee.count(CalleeUsers);
      Function &Caller = Functions[shown(CallerName)];
      Caller.hasNow(CallerBlocks);
      ++Caller.Calling;
    }
    ++Callee.Called;
    Callee.CalledInlined += LlvmInlines;
  }

private:
  // What this compile has shown about a function so far; see features._Function.
  struct Function {
    std::int64_t Called = 0, CalledInlined = 0, Calling = 0, CallingInlined = 0;
    std::int64_t Users = 0, InlinedWhenCounted = 0, FirstBlocks = 0, LastBlocks = Unknown;
    bool IsCounted = false, HasBlocks = false;

    void count(std::int64_t Counted) {
      if (IsCounted && Users == Counted)
        return;
      IsCounted = true;
      Users = Counted;
      InlinedWhenCounted = CalledInlined;
    }
    void hasNow(std::int64_t Blocks) {
      FirstBlocks = HasBlocks ? FirstBlocks : Blocks;
      LastBlocks = Blocks;
      HasBlocks = true;
    }
  };

  static std::int64_t ifKnown(const Kind &Of, bool Value) { return Of.IsKnown ? Value : Unknown; }

  std::int64_t *ofCallee(llvm::StringRef Name, const Kind &Of, std::int64_t Counted,
                         std::int64_t *Out) {
    Function &F = Functions[Name];
    F.count(Counted);
    // LLVM counts one use more if other modules may call the function.
    const std::int64_t Uses =
        Counted - (F.CalledInlined - F.InlinedWhenCounted) - (Of.IsLocal ? 0 : 1);
    const std::int64_t Refused = F.Called - F.CalledInlined;
    *Out++ = F.Called;
    *Out++ = F.CalledInlined;
    *Out++ = Refused;
    *Out++ = Uses - Refused;
    *Out++ = Uses == 1 && Of.IsDroppable;
    *Out++ = F.CallingInlined;
    return Out;
  }

  std::int64_t *ofCaller(llvm::StringRef Name, std::int64_t Blocks, std::int64_t *Out) {
    Function &F = Functions[Name];
    F.hasNow(Blocks);
    *Out++ = F.Calling;
    *Out++ = F.CallingInlined;
    *Out++ = Blocks - F.FirstBlocks;
    return Out;
  }

  const Kinds &K;
  llvm::StringMap<Function> Functions;
  std::string LastCaller;
  bool WasNamed = false;
  std::int64_t NumDecisions = 0, NumInlined = 0;
};

} // namespace tfrl

#endif
