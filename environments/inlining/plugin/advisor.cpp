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

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/MLModelRunner.h"
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
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <optional>
#include <string>

using namespace llvm;
using tfrl::append;
using tfrl::toLine;

namespace {

// Adds up the time that decisions take. The clock of a thread's own time costs as much as a decision,
// so this is the usual one. Site took long was interrupted by other work, and is left out.
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

// A runner that only holds the features: the advisor below asks the policy itself.
class Features : public MLModelRunner {
public:
  Features(LLVMContext &Context, const std::vector<TensorSpec> &Specs)
      // One buffer more, in case LLVM adds its own decision.
      : MLModelRunner(Context, Kind::NoOp, Specs.size() + 1) {
    for (std::size_t I = 0; I < Specs.size(); ++I) {
      setUpBufferForTensor(I, Specs[I], nullptr);
      AreWhole &= Specs[I].isElementType<std::int64_t>() && Specs[I].getElementCount() == 1;
      Names.push_back(Specs[I].name());
    }
    setUpBufferForTensor(Specs.size(), TensorSpec::createSpec<std::int64_t>("", {1}), nullptr);
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
    Values.assign(Observed.Names.size() + std::size(tfrl::DerivedFeatures), 0);
    Names = Observed.Names;
    NumOwn = Names.size();
    Names.insert(Names.end(), std::begin(tfrl::DerivedFeatures), std::end(tfrl::DerivedFeatures));
    CalleeUsers = place("callee_users");
    CallerBlocks = place("caller_basic_block_count");
    CalleeBlocks = place("callee_basic_block_count");
    CostEstimate = place("cost_estimate");
    if (!Observed.AreWhole)
      Missing = "features that are whole numbers";
    for (std::size_t I = 0; I < tfrl::policy::NumFeatures; ++I)
      Places.push_back(place(tfrl::policy::Features[I]));
    Needed.resize(Places.size());
  }

  bool decide(bool LlvmInlines) {
    for (std::size_t I = 0; I < Places.size(); ++I)
      Needed[I] = Values[Places[I]];
    return tfrl::policy::decide(Needed.data(), LlvmInlines, tfrl::margin().Steps);
  }

  std::vector<std::string> Names;
  std::vector<std::int64_t> Values;
  std::size_t NumOwn = 0, CalleeUsers = 0, CallerBlocks = 0, CalleeBlocks = 0, CostEstimate = 0;
  std::string Missing; // the first feature that this LLVM does not have

private:
  std::size_t place(StringRef Name) {
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
              return std::make_unique<Features>(M.getContext(), Specs);
            },
            [D = Default.get()](CallBase &CB) { return llvmInlines(*D, CB); }),
#else
      : MLInlineAdvisor(M, MAM, std::make_unique<Features>(M.getContext(), FeatureMap),
                        [D = Default.get()](CallBase &CB) { return llvmInlines(*D, CB); }),
#endif
        Default(std::move(Default)), Left(FAM), Past(Kinds), Observed(static_cast<Features &>(*ModelRunner)),
        Time(tfrl::setting("TFRL_INLINING_LOG")) {
    Site.use(Observed);
    if (tfrl::isRecorded())
      Record = std::make_unique<tfrl::Recording>();
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
    return MLInlineAdvisor::getAdviceImpl(CB);
  }

  // Called once LLVM has computed its features.
  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &CB,
                                                     OptimizationRemarkEmitter &ORE) override {
    const bool LlvmInlines = !isTooDear(CB) && llvmInlines(*Default, CB);
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
  tfrl::History Past;
  Features &Observed;
  Row Site;
  std::unique_ptr<tfrl::Recording> Record; // in training
  std::optional<std::int64_t> Limit; // LLVM's own, where size counts
  Stopwatch Time;
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
  Builder.registerPipelineStartEPCallback(
      [](ModulePassManager &Passes, OptimizationLevel) { Passes.addPass(Begin()); });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "tfrl-inlining", tfrl::policy::Name, registerCallbacks};
}
