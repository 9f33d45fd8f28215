#include "lockstep/sampler/order.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep {

std::string OrderDescription::ToString() const {
  std::string text = absl::StrCat(order, "(size:", size);
  if (seed != 0) absl::StrAppend(&text, ",seed:", seed);
  if (!profile.empty()) absl::StrAppend(&text, ",profile:", profile);
  if (!details.empty()) absl::StrAppend(&text, ",", details);
  if (data != 0) absl::StrAppend(&text, ",data:", absl::Hex(data));
  return text + ")";
}

Fingerprint OrderDescription::ToFingerprint() const {
  Fingerprint fingerprint;
  fingerprint.Add("order", order);
  fingerprint.Add("size", absl::StrCat(size));
  fingerprint.Add("seed", absl::StrCat(seed));
  fingerprint.Add("profile", profile);
  fingerprint.Add("details", details);
  fingerprint.Add("data", absl::StrCat(data));
  return fingerprint;
}

}  // namespace lockstep
