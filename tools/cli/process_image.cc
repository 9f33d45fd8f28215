#include "lockstep/tools/cli/process_image.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

// Returns the null-terminated array that execve() takes.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ProcessImage::ProcessImage(const std::vector<std::string>& program,
                           const Environment& environment)
    : words_(program) {
  for (const auto& [name, value] : environment) {
    settings_.push_back(absl::StrCat(name, "=", value));
  }
  FindPaths(program[0], environment);
  argv_ = Pointers(words_);
  envp_ = Pointers(settings_);
}

int ProcessImage::Execute() const {
  int error = ENOENT;
  for (const std::string& path : paths_) {
    execve(path.c_str(), argv_.data(), envp_.data());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    if (error != EACCES) break;
  }
  return error;
}

void ProcessImage::FindPaths(const std::string& name,
                             const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    paths_ = {name};
    return;
  }
  const auto path = environment.find("PATH");
  for (const absl::string_view folder : absl::StrSplit(
           path == environment.end() ? "/bin:/usr/bin" : path->second, ':')) {
    paths_.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", name));
  }
}

}  // namespace lockstep
