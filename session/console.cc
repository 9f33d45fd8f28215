#include "lockstep/session/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/mutex.h"

namespace lockstep::internal_session {
namespace {

// Returns to the beginning of the line, and clears it.
constexpr absl::string_view kEmptyLine = "\r\x1b[K";

size_t WidthOf(FILE* file) {
  constexpr size_t kUsual = 80;
  winsize size = {};
  if (::ioctl(::fileno(file), TIOCGWINSZ, &size) != 0) return kUsual;
  return size.ws_col > 1 ? size.ws_col : kUsual;
}

void Write(FILE* file, const std::string& bytes) {
  // An error is ignored, since there is no other place to report it.
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size()) {
    std::fflush(file);
  }
}

}  // namespace

std::shared_ptr<Console> Console::StandardError() {
  const char* const kind = std::getenv("TERM");
  const bool has_bar = ::isatty(STDERR_FILENO) == 1 && kind != nullptr &&
                       absl::string_view(kind) != "dumb";
  return std::make_shared<Console>(stderr, has_bar);
}

void Console::WriteLine(absl::string_view text) {
  MutexLock lock(mutex_);
  if (bar_.empty()) return Write(file_, absl::StrCat(text, "\n"));
  Write(file_, absl::StrCat(kEmptyLine, text, "\n", bar_));
}

void Console::ShowBar(absl::string_view text) {
  MutexLock lock(mutex_);
  if (!has_bar_ || (text.empty() && bar_.empty())) return;
  // A line that fills the terminal could wrap to the next one.
  const size_t most = WidthOf(file_) - 1;
  if (text.size() > most) {
    const size_t comma = text.rfind(", ", most);
    text = text.substr(0, comma != text.npos ? comma : most);
  }
  bar_ = std::string(text);
  Write(file_, absl::StrCat(kEmptyLine, bar_));
}

}  // namespace lockstep::internal_session
