// Command lines that clang writes into objects, without the options that `tfrl build` adds.
//
// With -frecord-command-line clang keeps them in a section of their own, with -grecord-command-line
// in the debug information. Programs that are shipped must not name a file of whoever built them,
// and the same sources must give the same bytes with and without us.
//
// TFRL_INLINING_CONFIG is the directory that `tfrl build` names by --config-user-dir.

#ifndef TFRL_RECORDED_OPTIONS_H
#define TFRL_RECORDED_OPTIONS_H

#include "files.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"

#include <string>

namespace tfrl {

// Takes a word as clang writes it, with a backslash before each space and backslash.
inline bool isOurs(llvm::StringRef Word) {
  std::string Plain;
  for (std::size_t I = 0; I < Word.size(); ++I) {
    I += Word[I] == '\\' && I + 1 < Word.size();
    Plain += Word[I];
  }
  constexpr llvm::StringLiteral Plugin = "-fpass-plugin=", Library = "/steer.so";
  const llvm::StringRef Option = Plain;
  if (Option.take_front(Plugin.size()) == Plugin && Option.take_back(Library.size()) == Library)
    return true;
  const char *Directory = setting("TFRL_INLINING_CONFIG");
  return Directory && Plain == std::string("--config-user-dir=") + Directory;
}

inline std::string withoutOurs(llvm::StringRef Line) {
  std::string Rest;
  bool IsFirst = true;
  for (std::size_t Begin = 0; Begin <= Line.size();) {
    std::size_t End = Begin;
    while (End < Line.size() && Line[End] != ' ')
      End += Line[End] == '\\' ? 2 : 1;
    const llvm::StringRef Word = Line.slice(Begin, End);
    Begin = End + 1;
    if (isOurs(Word))
      continue;
    if (!IsFirst)
      Rest += ' ';
    Rest += Word;
    IsFirst = false;
  }
  return Rest;
}

// Replaces a string of a node if there is something to leave out. Most modules stay as they are.
inline llvm::MDString *cleaned(const llvm::MDString *Line, llvm::LLVMContext &Context) {
  if (!Line)
    return nullptr;
  const std::string Rest = withoutOurs(Line->getString());
  return Rest == Line->getString() ? nullptr : llvm::MDString::get(Context, Rest);
}

inline void cleanRecordedOptions(llvm::Module &M) {
  llvm::LLVMContext &Context = M.getContext();
  if (llvm::NamedMDNode *Lines = M.getNamedMetadata("llvm.commandline"))
    for (unsigned I = 0; I < Lines->getNumOperands(); ++I) {
      const llvm::MDNode *Node = Lines->getOperand(I);
      if (Node->getNumOperands() != 1)
        continue;
      if (llvm::MDString *Line =
              cleaned(llvm::dyn_cast_or_null<llvm::MDString>(Node->getOperand(0).get()), Context))
        Lines->setOperand(I, llvm::MDNode::get(Context, {Line}));
    }
  if (llvm::NamedMDNode *Units = M.getNamedMetadata("llvm.dbg.cu"))
    for (llvm::MDNode *Node : Units->operands()) {
      auto *Unit = llvm::dyn_cast<llvm::DICompileUnit>(Node);
      llvm::MDString *Old = Unit ? Unit->getRawFlags() : nullptr;
      if (llvm::MDString *New = cleaned(Old, Context))
        for (unsigned I = 0; I < Unit->getNumOperands(); ++I)
          if (Unit->getOperand(I) == Old)
            Unit->replaceOperandWith(I, New);
    }
}

} // namespace tfrl

#endif
