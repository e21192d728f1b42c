// Files that the plugin writes for others to read.

#ifndef TFRL_FILES_H
#define TFRL_FILES_H

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace tfrl {

// Returns the value of an environment variable; nullptr if it is empty or not set.
inline const char *setting(const char *Variable) {
  const char *Value = std::getenv(Variable);
  return Value && *Value ? Value : nullptr;
}

// Appends to the file that an environment variable names. One write keeps what is told by compiles
// that run side by side apart. Nothing is said if it fails: a build must not notice.
inline void append(const char *Variable, const std::string &Text) {
  const char *Path = setting(Variable);
  if (!Path)
    return;
  const int File = open(Path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (File < 0)
    return;
  if (write(File, Text.data(), Text.size()) < 0) {
    // Nothing can be done.
  }
  close(File);
}

inline std::string toLine(llvm::json::Object Fields) {
  std::string Line;
  llvm::raw_string_ostream Stream(Line);
  Stream << llvm::json::Value(std::move(Fields)) << '\n';
  Stream.flush();
  return Line;
}

} // namespace tfrl

#endif
