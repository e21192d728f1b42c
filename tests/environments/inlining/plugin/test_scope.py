"""Outside a policy's scope LLVM decides without features, and nothing else changes."""

from __future__ import annotations

from environments.inlining.features import DERIVED_FEATURES
from tests.environments.inlining.plugin.samples import samples_of
from tests.environments.inlining.small_modules import SINK, function, sinks

# Whatever earlier sites leave behind turns decisions, so that no feature can differ unnoticed.
FEATURES = ("callee_is_linkonce", *DERIVED_FEATURES, "callee_users", "caller_users")
FEATURES += ("caller_basic_block_count", "edge_count", "node_count", "cost_estimate")
SOURCE = f"""
#include "policy.h"
namespace tfrl {{ namespace policy {{
const char *const Name = "hash";
const bool IsLlvms = false, HasMargin = false;
const std::int64_t OwnMargin = 0;
const char *const ScopeFeature = "SCOPE";
const std::size_t NumFeatures = {len(FEATURES)};
const char *const Features[] = {{{", ".join(f'"{name}"' for name in FEATURES)}}};
bool decide(const std::int64_t *Row, bool LlvmInlines, std::int64_t) {{
  std::uint64_t Hash = 0;
  for (std::size_t I = 0; I < NumFeatures; ++I)
    Hash = (Hash ^ static_cast<std::uint64_t>(Row[I])) * 0x9E3779B97F4A7C15u;
  return Row[0] == 1 ? Hash >> 63 : LlvmInlines;
}}
}} }}
"""
# Callees outside the scope that LLVM leaves: one that cannot be inlined, which no decision counts,
# and two in a circle. The calls of @once follow them.
CALLS = sinks(*range(12))
ONCE, THERE, NEVER = "@once(i32 %x)", "@there(i32 %x)", "(i32, ...) @never(i32 %x)"
CANNOT_BE_INLINED = """\
  %list = alloca [4 x i64]
  call void @llvm.va_start.p0(ptr %list)
  ret"""
AFTER = (
    SINK
    + "declare void @llvm.va_start.p0(ptr)\n"
    + function("void @never(i32 %x, ...)", *CALLS).replace("  ret", CANNOT_BE_INLINED)
    + function("linkonce_odr void @once(i32 %x)", *CALLS)
    + function("void @there(i32 %x)", *CALLS, "@back(i32 %x)", ONCE)
    + function("void @back(i32 %x)", *CALLS, THERE, NEVER, ONCE)
    + function("void @last(i32 %x)", NEVER, THERE, "@once(i32 1)", "@once(i32 2)")
)


def test_the_short_cut_changes_nothing(clang, compile_by, lend):
    departures = {}
    for name, module in {**samples_of(clang, lend), "after": AFTER}.items():
        everywhere = compile_by(module, SOURCE.replace("SCOPE", ""))
        in_scope = compile_by(module, SOURCE.replace("SCOPE", "callee_is_linkonce"))
        assert everywhere.log["decisions"] > 0
        assert everywhere.log.pop("policy_ns") > 0 and in_scope.log.pop("policy_ns") > 0
        assert in_scope == everywhere, name
        departures[name] = everywhere.log["departures"]
    # In the others nothing is linkonce.
    assert departures["cpp"] > 0 and departures["after"] > 0
