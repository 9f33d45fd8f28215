// Descriptor owns the descriptor of a file, a pipe or a socket, and closes it.
//
//   Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
//   if (!file.ok()) return SystemError(errno, path);
//   const ssize_t size = ::read(file.fd(), bytes, sizeof(bytes));
#ifndef LOCKSTEP_BASE_DESCRIPTOR_H_
#define LOCKSTEP_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class Descriptor {
 public:
  // Takes ownership of `fd`. A negative number means that there is none.
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (ok()) Close();
  }

  int fd() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

  // Gives up the descriptor without closing it.
  int Release() { return std::exchange(fd_, -1); }

  // Closes the descriptor, and returns the result of close(2). Some file
  // systems report a failed write only there.
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_DESCRIPTOR_H_
