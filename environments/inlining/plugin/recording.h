// Training: what was seen and decided at each call site, and where not to follow the policy.
//
// TFRL_INLINING_ROWS names the file to append to. A module gets a line of JSON and then, for each of
// its N call sites, F + 3 numbers, int64 in this machine's byte order: the features, the decision,
// and the places of caller and callee in "functions", -1 where the channel would not name them.
//   {"source": …, "features": [F names], "functions": [names], "sites": N, "steered": …, "varied": …}
//
// TFRL_INLINING_VARIATION names a file of JSON; see Variation in collection/variation.py.
//   {"flips": [[caller, callee, n], …], "callees": [[callee, action], …], "restored": [caller, …],
//    "steps": [number, …]}

#ifndef TFRL_RECORDING_H
#define TFRL_RECORDING_H

#include "files.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tfrl {

inline bool isRecorded() { return setting("TFRL_INLINING_ROWS") != nullptr; }

// Call sites at which the action is not the policy's.
class Variation {
public:
  Variation() {
    const char *Path = setting("TFRL_INLINING_VARIATION");
    auto Text = llvm::MemoryBuffer::getFile(Path ? Path : "");
    if (!Path || !Text)
      return;
    llvm::Expected<llvm::json::Value> Read = llvm::json::parse((*Text)->getBuffer());
    if (!Read) {
      llvm::consumeError(Read.takeError());
      return;
    }
    const llvm::json::Object *Fields = Read->getAsObject();
    IsRead = Fields && take(*Fields);
  }

  bool isRead() const { return IsRead; }

  // Returns the action where the policy decides so. Sites without names get empty ones.
  bool action(bool Decision, bool LlvmInlines, llvm::StringRef CallerName,
              llvm::StringRef CalleeName) {
    const std::int64_t Number = Sites++;
    if (!IsRead)
      return Decision;
    const bool IsNamed = !LlvmInlines;
    const std::string Caller = CallerName.str(), Callee = CalleeName.str();
    const std::int64_t Count = IsNamed ? ++Met[{Caller, Callee}] : 0;
    if (Steps.count(Number) || (IsNamed && Flips.count({Caller, Callee, Count})))
      return !Decision;
    if (!IsNamed)
      return Decision;
    if (const auto Place = Callees.find(Callee); Place != Callees.end())
      return Place->second;
    return Restored.count(Caller) ? LlvmInlines : Decision;
  }

private:
  bool take(const llvm::json::Object &Fields) {
    const llvm::json::Array *F = Fields.getArray("flips"), *R = Fields.getArray("restored"),
                              *S = Fields.getArray("steps"), *C = Fields.getArray("callees");
    if (!F || !R || !S || !C)
      return false;
    for (const llvm::json::Value &Value : *F) {
      const llvm::json::Array *Key = Value.getAsArray();
      if (!Key || Key->size() != 3)
        return false;
      const auto Caller = (*Key)[0].getAsString(), Callee = (*Key)[1].getAsString();
      const auto Count = (*Key)[2].getAsInteger();
      if (!Caller || !Callee || !Count)
        return false;
      Flips.insert({Caller->str(), Callee->str(), *Count});
    }
    for (const llvm::json::Value &Value : *C) {
      const llvm::json::Array *Pair = Value.getAsArray();
      const auto Callee = Pair && Pair->size() == 2 ? (*Pair)[0].getAsString() : std::nullopt;
      const auto Action = Callee ? (*Pair)[1].getAsInteger() : std::nullopt;
      if (!Action)
        return false;
      Callees[Callee->str()] = *Action != 0;
    }
    for (const llvm::json::Value &Value : *R)
      if (const auto Name = Value.getAsString())
        Restored.insert(Name->str());
    for (const llvm::json::Value &Value : *S)
      if (const auto Number = Value.getAsInteger())
        Steps.insert(*Number);
    return true;
  }

  bool IsRead = false;
  std::set<std::tuple<std::string, std::string, std::int64_t>> Flips;
  std::map<std::string, bool> Callees;
  std::set<std::string> Restored;
  std::set<std::int64_t> Steps;
  std::int64_t Sites = 0;
  std::map<std::pair<std::string, std::string>, std::int64_t> Met;
};

class Recording {
public:
  // Takes a call site, and returns the action there.
  bool site(const std::vector<std::int64_t> &Features, bool Decision, bool LlvmInlines,
            llvm::StringRef Caller, llvm::StringRef Callee) {
    const bool IsNamed = !LlvmInlines;
    const bool Action = Varied.action(Decision, LlvmInlines, Caller, Callee);
    Numbers.insert(Numbers.end(), Features.begin(), Features.end());
    Numbers.push_back(Action);
    Numbers.push_back(IsNamed ? place(Caller) : -1);
    Numbers.push_back(IsNamed ? place(Callee) : -1);
    ++NumSites;
    return Action;
  }

  void write(const llvm::Module &M, const std::vector<std::string> &Features,
             bool IsSteered) const {
    llvm::json::Array Names(Features), Functions;
    for (const std::string &Name : Met)
      Functions.push_back(llvm::json::fixUTF8(Name));
    std::string Text =
        toLine(llvm::json::Object{{"source", llvm::json::fixUTF8(M.getSourceFileName())},
                                  {"features", std::move(Names)},
                                  {"functions", std::move(Functions)},
                                  {"sites", NumSites},
                                  {"steered", IsSteered},
                                  {"varied", Varied.isRead()}});
    Text.append(reinterpret_cast<const char *>(Numbers.data()),
                Numbers.size() * sizeof(std::int64_t));
    append("TFRL_INLINING_ROWS", Text);
  }

private:
  std::int64_t place(llvm::StringRef Name) {
    const auto Entry = Places.try_emplace(Name, static_cast<std::int64_t>(Met.size()));
    if (Entry.second)
      Met.push_back(Name.str());
    return Entry.first->second;
  }

  Variation Varied;
  std::vector<std::int64_t> Numbers;
  llvm::StringMap<std::int64_t> Places;
  std::vector<std::string> Met;
  std::int64_t NumSites = 0;
};

} // namespace tfrl

#endif
