// Acme's registry of plugins, which add loaders by name.
#ifndef TRAINER_PLUGINS_H_
#define TRAINER_PLUGINS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "loader/loader.h"

namespace acme {

using LoaderFactory = std::function<absl::StatusOr<std::unique_ptr<Loader>>(
    const LoaderSettings&)>;

// Thread-safety: thread-compatible.
class Plugins {
 public:
  // Notes the plugin and calls `add`, which adds its loaders.
  absl::Status Register(const std::string& name, const std::string& version,
                        const std::function<absl::Status(Plugins&)>& add) {
    names_.push_back(absl::StrCat(name, " ", version));
    return add(*this);
  }
  const std::vector<std::string>& names() const { return names_; }

  void AddLoader(const std::string& name, LoaderFactory factory) {
    loaders_[name] = std::move(factory);
  }
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
      const std::string& name, const LoaderSettings& settings) const {
    const auto found = loaders_.find(name);
    if (found != loaders_.end()) return found->second(settings);
    return absl::NotFoundError(absl::StrCat("no loader is called ", name));
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, LoaderFactory> loaders_;
};

}  // namespace acme

#endif  // TRAINER_PLUGINS_H_
