#include "lockstep/session/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/no_sigpipe.h"
#include "lockstep/base/notifier.h"

namespace lockstep::internal_session {

using internal_base::Notifier;

namespace {

// Returns to the beginning of the line, and clears it.
constexpr absl::string_view kEmptyLine = "\r\x1b[K";

size_t WidthOf(int fd) {
  constexpr size_t kUsual = 80;
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) return kUsual;
  return size.ws_col > 1 ? size.ws_col : kUsual;
}

void Write(int fd, absl::string_view bytes) {
  const NoSigpipe guard;  // the reader of a pipe may have gone
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd output = {fd, POLLOUT, 0};
      ::poll(&output, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {
      return;  // there is no other place to report an error
    }
  }
}

}  // namespace

std::shared_ptr<Console> Console::StandardError() {
  const char* const kind = std::getenv("TERM");
  const bool has_bar = ::isatty(STDERR_FILENO) == 1 && kind != nullptr &&
                       absl::string_view(kind) != "dumb";
  return std::make_shared<Console>(STDERR_FILENO, has_bar);
}

void Console::WriteLine(absl::string_view text) {
  MutexLock lock(mutex_);
  if (bar_.empty()) return Write(fd_, absl::StrCat(text, "\n"));
  Write(fd_, absl::StrCat(kEmptyLine, text, "\n", bar_));
}

void Console::ShowBar(absl::string_view text) {
  MutexLock lock(mutex_);
  if (!has_bar_ || (text.empty() && bar_.empty())) return;
  // A line that fills the terminal could wrap to the next one.
  const size_t most = WidthOf(fd_) - 1;
  if (text.size() > most) {
    const size_t comma = text.rfind(", ", most);
    text = text.substr(0, comma != text.npos ? comma : most);
  }
  bar_ = std::string(text);
  Write(fd_, absl::StrCat(kEmptyLine, bar_));
}

std::shared_ptr<Notifier> StandardErrorNotifier() {
  static std::atomic<const std::shared_ptr<Notifier>*> current{nullptr};
  const std::shared_ptr<Notifier>* now = current.load();
  // A forked child has no thread, and perhaps a console whose lock is held.
  if (now != nullptr && !(*now)->forked()) return *now;
  const std::shared_ptr<Console> console = Console::StandardError();
  Notifier::Output bar;
  if (console->has_bar()) {
    bar = [console](absl::string_view text) { console->ShowBar(text); };
  }
  auto made = std::make_unique<const std::shared_ptr<Notifier>>(
      std::make_shared<Notifier>(
          [console](absl::string_view text) { console->WriteLine(text); },
          std::move(bar)));
  if (!current.compare_exchange_strong(now, made.get())) return *now;
  return *made.release();
}

}  // namespace lockstep::internal_session
