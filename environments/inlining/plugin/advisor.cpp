// A pass plugin that lets a learned policy decide what a stock clang inlines.
//
// LLVM's own MLInlineAdvisor computes its features and keeps them up to date. This file puts a
// policy in place of its model. The policy is compiled in (policy.h), so the plugin is one file that
// needs nothing else. Only call sites in functions with the attribute minsize (-Oz) are decided by
// the policy. All others, and all where something is not as expected, get LLVM's own decision.
//
// Environment variables. The first two name a file to append to.
//   TFRL_INLINING_LOG        a line of JSON for each module: what was decided, or why nothing was
//   TFRL_INLINING_ROWS       all call sites of each module, for training (recording.h). The policy
//                            then decides in all functions, as by LLVM's interactive channel
//   TFRL_INLINING_VARIATION  a file that says where not to follow the policy (recording.h)
//   TFRL_INLINING_MARGIN     a number in place of the policy's own margin (margin.h)

#include "files.h"
#include "history.h"
#include "left_callers.h"
#include "margin.h"
#include "policy.h"
#include "recorded_options.h"
#include "recording.h"
#include "row.h"
#include "scope.h"

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Dominators.h"
#include "llvm/Passes/PassBuilder.h"
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <optional>
#include <string>

using namespace llvm;
using tfrl::append;
using tfrl::toLine;

namespace {

class Advisor : public MLInlineAdvisor {
public:
  Advisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &Functions,
          const InlineParams &Params, InlineContext Context, const tfrl::Kinds &Kinds)
      : Advisor(M, MAM, Kinds,
                std::make_unique<DefaultInlineAdvisor>(M, Functions, Params, Context)) {
    if (Params.OptMinSizeThreshold)
      Limit = std::max(1, *Params.OptMinSizeThreshold);
  }

  ~Advisor() override {
    if (Record)
      Record->write(M, Site.Names, Site.Missing.empty());
    append("TFRL_INLINING_LOG",
           toLine(json::Object{{"source", M.getSourceFileName()},
                   {"steered", Site.Missing.empty()},
                   {"reason", Site.Missing.empty() ? "" : "this clang has no " + Site.Missing},
                   {"decisions", NumDecisions},
                   {"departures", NumDepartures},
                   {"left", NumLeft},
                   {"margin", tfrl::margin().Steps},
                   {"policy_ns", Time.total()}}));
  }

private:
  Advisor(Module &M, ModuleAnalysisManager &MAM, const tfrl::Kinds &Kinds,
          std::unique_ptr<DefaultInlineAdvisor> Default)
#if LLVM_VERSION_MAJOR >= 22
      : MLInlineAdvisor(
            M, MAM,
            [&M](const std::vector<TensorSpec> &Specs) {
              return std::make_unique<tfrl::Features>(M.getContext(), Specs);
            },
            [D = Default.get()](CallBase &CB) { return llvmInlines(*D, CB); }),
#else
      : MLInlineAdvisor(M, MAM, std::make_unique<tfrl::Features>(M.getContext(), FeatureMap),
                        [D = Default.get()](CallBase &CB) { return llvmInlines(*D, CB); }),
#endif
        Default(std::move(Default)), Left(FAM), Kinds(Kinds), Past(Kinds),
        Observed(static_cast<tfrl::Features &>(*ModelRunner)),
        Time(tfrl::setting("TFRL_INLINING_LOG")) {
    Site.use(Observed);
    if (tfrl::isRecorded())
      Record = std::make_unique<tfrl::Recording>();
    // In training all features are recorded.
    IsScoped = !Record && Site.Missing.empty() && tfrl::hasLinkOnceScope();
  }

  static bool llvmInlines(InlineAdvisor &Of, CallBase &CB) {
    std::unique_ptr<InlineAdvice> Advice = Of.getAdvice(CB);
    if (!Advice)
      return false;
    const bool Inlines = Advice->isInliningRecommended();
    Advice->recordUnattemptedInlining();
    return Inlines;
  }

  bool isSteered(const CallBase &CB) const {
    return Site.Missing.empty() && (Record || CB.getCaller()->hasMinSize());
  }

  void onPassEntry(LazyCallGraph::SCC *SCC) override {
    Left.clear();
    Current.clear();
    if (SCC)
      for (const LazyCallGraph::Node &N : *SCC)
        Current.insert(&N.getFunction());
    MLInlineAdvisor::onPassEntry(SCC);
  }

  // Whether LLVM decides alone in the rest of this caller.
  bool isLeft(Function &Caller) {
    if (Record)
      return false;
    if (Left.isLeft(Caller))
      return true;
    if (!Left.isTooLarge(Caller, getLocalCalls(Caller)))
      return false;
    Left.leave(Caller);
    return true;
  }

  std::unique_ptr<InlineAdvice> leaveToLlvm(CallBase &CB) {
    ++NumLeft;
    return Default->getAdvice(CB);
  }

  std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &CB, bool Advice) override {
    // Called from getAdviceImpl too, where the caller is none of those.
    return isLeft(*CB.getCaller()) ? InlineAdvisor::getMandatoryAdvice(CB, Advice)
                                   : MLInlineAdvisor::getMandatoryAdvice(CB, Advice);
  }

  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &CB) override {
    if (isLeft(*CB.getCaller()))
      return leaveToLlvm(CB);
    if (!Record && tfrl::isSureToStay(*CB.getCalledFunction())) {
      auto Advice = leaveToLlvm(CB);
      if (Advice && Advice->isInliningRecommended())
        Left.leave(*CB.getCaller());
      return Advice;
    }
    // MLInlineAdvisor never inlines in unreachable code. LLVM itself does.
    const bool IsPlain = (tfrl::policy::IsLlvms && !Record) || !isSteered(CB);
    if (IsPlain && !FAM.getResult<DominatorTreeAnalysis>(*CB.getCaller())
                        .isReachableFromEntry(CB.getParent()))
      return Default->getAdvice(CB);
    Said.reset();
    if (IsScoped && isSteered(CB))
      if (auto Advice = getAdviceOutside(CB))
        return Advice;
    return MLInlineAdvisor::getAdviceImpl(CB);
  }

  // Returns LLVM's own decision where the policy cannot depart from it, or nothing. Then all features
  // are computed.
  std::unique_ptr<InlineAdvice> getAdviceOutside(CallBase &CB) {
    Function &Caller = *CB.getCaller(), &Callee = *CB.getCalledFunction();
    if (&Caller == &Callee || isForcedToStop() || CB.hasFnAttr(Attribute::AlwaysInline) ||
        !FAM.getResult<DominatorTreeAnalysis>(Caller).isReachableFromEntry(CB.getParent()))
      return nullptr;
    Said = llvmInlines(*Default, CB);
    OptimizationRemarkEmitter &ORE = getCallerORE(CB);
    // Bodies in this SCC change while it is looked at.
    if (!*Said && (Kinds.of(tfrl::shown(Callee.getName())).IsLinkOnce || Current.contains(&Callee) ||
                   !tfrl::isSurelyAsked(CB, FAM) ||
                   getMandatoryKind(CB, FAM, ORE) != MandatoryInliningKind::NotMandatory))
      return nullptr;
    Time.begin();
    const std::int64_t Blocks = getCachedFPI(Caller).BasicBlockCount;
    const std::int64_t Users = getCachedFPI(Callee).Uses;
    Past.follow(*Said, Callee.getName(), Caller.getName(), Users, Blocks);
    ++NumDecisions;
    Time.end();
    if (!*Said)
      return std::make_unique<InlineAdvice>(this, CB, ORE, false);
    Left.inlined(Caller);
    return std::make_unique<MLInlineAdvice>(this, CB, ORE, true);
  }

  // Called once LLVM has computed its features.
  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &CB,
                                                     OptimizationRemarkEmitter &ORE) override {
    const bool LlvmInlines = Said ? *Said : !isTooDear(CB) && llvmInlines(*Default, CB);
    const bool Inlines = isSteered(CB) ? decide(CB, LlvmInlines) : LlvmInlines;
    if (Inlines)
      Left.inlined(*CB.getCaller());
    return std::make_unique<MLInlineAdvice>(this, CB, ORE, Inlines);
  }

  // Whether LLVM itself would surely not inline. Where size counts it inlines below a limit, and the
  // cost is among the features: so it need not look at the callee once more.
  bool isTooDear(const CallBase &CB) const {
    return !tfrl::policy::IsLlvms && Limit && Site.Missing.empty() &&
           CB.getCaller()->hasMinSize() &&
           *Observed.getTensor<std::int64_t>(Site.CostEstimate) >= *Limit;
  }

  bool decide(CallBase &CB, bool LlvmInlines) {
    Time.begin();
    for (std::size_t I = 0; I < Site.NumOwn; ++I)
      Site.Values[I] = *Observed.getTensor<std::int64_t>(I);
    const StringRef Callee = CB.getCalledFunction()->getName();
    Past.observe({Site.Values.data(), Site.NumOwn, Site.CalleeUsers, Site.CallerBlocks,
                  Site.CalleeBlocks, TFRL_HIDES_CALLEE_BLOCKS, LlvmInlines, Callee,
                  CB.getCaller()->getName()});
    bool Inlines = Site.decide(LlvmInlines);
    if (Record)
      Inlines = Record->site(Site.Values, Inlines, LlvmInlines,
                             tfrl::shown(CB.getCaller()->getName()), tfrl::shown(Callee));
    Past.record(Inlines, Callee);
    ++NumDecisions;
    NumDepartures += Inlines != LlvmInlines;
    Time.end();
    return Inlines;
  }

  std::unique_ptr<DefaultInlineAdvisor> Default;
  tfrl::LeftCallers Left;
  SmallPtrSet<const Function *, 4> Current; // the SCC that is looked at
  const tfrl::Kinds &Kinds;
  tfrl::History Past;
  tfrl::Features &Observed;
  tfrl::Row Site;
  std::unique_ptr<tfrl::Recording> Record; // in training
  bool IsScoped = false;             // whether LLVM decides alone at some call sites
  std::optional<bool> Said;          // LLVM's decision at this site, if it was asked
  std::optional<std::int64_t> Limit; // LLVM's own, where size counts
  tfrl::Stopwatch Time;
  std::int64_t NumDecisions = 0, NumDepartures = 0, NumLeft = 0;
};

// The kinds of a module's functions before any pass, kept for the whole compile.
struct KindsAnalysis : AnalysisInfoMixin<KindsAnalysis> {
  struct Result {
    tfrl::Kinds Kinds;
    bool invalidate(Module &, const PreservedAnalyses &, ModuleAnalysisManager::Invalidator &) {
      return false;
    }
  };
  Result run(Module &M, ModuleAnalysisManager &) { return {tfrl::Kinds(M)}; }
  static AnalysisKey Key;
};
AnalysisKey KindsAnalysis::Key;

template <class Test> bool anyDefined(const Module &M, Test Has) {
  return any_of(M, [&](const Function &F) { return !F.isDeclaration() && Has(F); });
}

// Why a module is not steered; nullptr if it is.
const char *whyNot(const Module &M) {
  if (!tfrl::margin().Fault.empty())
    return tfrl::margin().Fault.c_str();
  if (tfrl::isRecorded())
    return nullptr;
  // Clang marks what it compiles for link-time optimisation so. The linker will inline by LLVM's
  // rules what the policy leaves, and programs become larger than without the policy.
  if (M.getModuleFlag("EnableSplitLTOUnit"))
    return "link-time optimisation: LLVM inlines when linking";
  if (anyDefined(M, [](const Function &F) { return F.hasMinSize(); }))
    return nullptr;
  // CMake's MinSizeRel is -Os, and most who see this sentence got it from there.
  if (anyDefined(M, [](const Function &F) { return F.hasOptSize(); }))
    return "compiled with -Os, and only -Oz is decided: cmake -DCMAKE_C_FLAGS_MINSIZEREL='-Oz "
           "-DNDEBUG' -DCMAKE_CXX_FLAGS_MINSIZEREL='-Oz -DNDEBUG'";
  return "no function is optimised for size (-Oz)";
}

// Runs before all other passes.
struct Begin : PassInfoMixin<Begin> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
    tfrl::cleanRecordedOptions(M);
    if (const char *Reason = whyNot(M))
      append("TFRL_INLINING_LOG", toLine(json::Object{{"source", M.getSourceFileName()},
                                          {"steered", false},
                                          {"reason", Reason}}));
    else
      MAM.getResult<KindsAnalysis>(M);
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

// LLVM makes advisors by a function without data. Each thread that compiles has managers of its own.
thread_local ModuleAnalysisManager *Manager = nullptr;

InlineAdvisor *makeAdvisor(Module &M, FunctionAnalysisManager &Functions, InlineParams Params,
                           InlineContext Context) {
  // Other inliners, such as the one before instrumentation, are not asked in training either.
  if (!Manager || Context.Pass != InlinePass::CGSCCInliner || whyNot(M))
    return new DefaultInlineAdvisor(M, Functions, Params, Context);
  const tfrl::Kinds &Kinds = Manager->getResult<KindsAnalysis>(M).Kinds;
  return new Advisor(M, *Manager, Functions, Params, Context, Kinds);
}

// MLInlineAdvisor stops inlining once a module has doubled in size. A plain -Oz does not, nor do
// compiles in training. Whoever gives the option by hand is obeyed.
void liftGrowthLimit() {
  constexpr StringLiteral Limit = "ml-advisor-size-increase-threshold";
  if (cl::Option *Registered = cl::getRegisteredOptions().lookup(Limit))
    if (Registered->getNumOccurrences() == 0)
      Registered->addOccurrence(0, Limit, "1000000");
}

// Whether the LLVM in this process is the one that this file was built for. Classes differ between
// versions, and a plugin that guesses wrong would crash.
bool fitsThisLlvm() {
  using GetVersion = void (*)(unsigned *, unsigned *, unsigned *);
  const auto Get = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "LLVMGetVersion"));
  unsigned Major = LLVM_VERSION_MAJOR, Minor, Patch;
  if (Get)
    Get(&Major, &Minor, &Patch);
  return Major == LLVM_VERSION_MAJOR;
}

void registerCallbacks(PassBuilder &Builder) {
  if (!fitsThisLlvm()) {
    errs() << "warning: expected LLVM " << LLVM_VERSION_MAJOR
           << ", for which this inlining plugin was built, found another; it does nothing: export "
              "the policy for this clang\n";
    return;
  }
  if (!tfrl::margin().Fault.empty())
    errs() << "warning: " << tfrl::margin().Fault << ", LLVM decides\n";
  liftGrowthLimit();
  Builder.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
    Manager = &MAM;
    MAM.registerPass([] { return KindsAnalysis(); });
    MAM.registerPass([] { return PluginInlineAdvisorAnalysis(makeAdvisor); });
  });
  Builder.registerAnalysisRegistrationCallback([](FunctionAnalysisManager &FAM) {
    FAM.registerPass([] { return tfrl::OrdinaryAnalysis(); });
  });
  Builder.registerPipelineStartEPCallback(
      [](ModulePassManager &Passes, OptimizationLevel) { Passes.addPass(Begin()); });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "tfrl-inlining", tfrl::policy::Name, registerCallbacks};
}
