#include "lockstep/collective/consistency.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

// The ranks do not exchange longer lists of fields.
constexpr uint64_t kMostBytes = 1 << 20;
// The most fingerprints in the message that differ from the largest camp's, and
// the most ranks for each of them.
constexpr size_t kMostTold = 4;
constexpr size_t kMostRanksTold = 8;
// The most fields in which two of these fingerprints differ.
constexpr size_t kMostFieldsTold = 5;

// The values that ranks exchange first.
struct Summary {
  uint64_t low;
  uint64_t high;
  uint64_t bytes;  // the size of the list of fields
};
constexpr int kSummaryWords = sizeof(Summary) / sizeof(uint64_t);

// The ranks that have the same fingerprint, in their order.
using Camp = std::vector<int>;

// Returns a text with one line for each field: its name, its digest and its
// value as shown. They are escaped, so they contain no tabs or ends of lines.
std::string ListOf(const Fingerprint& fingerprint) {
  std::string list;
  for (const Fingerprint::Field& field : fingerprint.fields()) {
    absl::StrAppend(&list, absl::CHexEscape(field.name), "\t",
                    absl::Hex(field.digest), "\t",
                    absl::CHexEscape(field.shown), "\n");
  }
  return list;
}

// Returns the camps, the largest first. Camps of the same size are in the order
// of their lowest ranks.
std::vector<Camp> CampsOf(absl::Span<const Summary> summaries) {
  std::vector<Camp> camps;
  for (size_t rank = 0; rank < summaries.size(); ++rank) {
    const auto same = [&](const Camp& camp) {
      const Summary& other = summaries[camp[0]];
      return other.low == summaries[rank].low &&
             other.high == summaries[rank].high;
    };
    auto camp = std::find_if(camps.begin(), camps.end(), same);
    if (camp == camps.end()) camp = camps.insert(camp, Camp());
    camp->push_back(static_cast<int>(rank));
  }
  std::stable_sort(
      camps.begin(), camps.end(),
      [](const Camp& a, const Camp& b) { return a.size() > b.size(); });
  return camps;
}

// A field of a list. The text belongs to the list.
struct ListedField {
  absl::string_view digest;
  absl::string_view shown;
};
using ListedFields = std::map<absl::string_view, ListedField>;

// Returns the fields by their names, and the names in their order.
ListedFields FieldsOf(absl::string_view list,
                      std::vector<absl::string_view>& names) {
  ListedFields fields;
  for (const absl::string_view line :
       absl::StrSplit(list, '\n', absl::SkipEmpty())) {
    std::vector<absl::string_view> parts = absl::StrSplit(line, '\t');
    parts.resize(3);
    if (fields.try_emplace(parts[0], ListedField{parts[1], parts[2]}).second) {
      names.push_back(parts[0]);
    }
  }
  return fields;
}

// Returns " (7, and 8 on rank 0)", or "" if the values are long.
std::string ValuesOf(const ListedField* mine, const ListedField* theirs,
                     int other) {
  const auto shown = [](const ListedField* field) {
    return field == nullptr ? "not set" : field->shown;
  };
  if (shown(mine).empty() || shown(theirs).empty()) return "";
  return absl::StrCat(" (", shown(mine), ", and ", shown(theirs), " on rank ",
                      other, ")");
}

// Returns "in field 'seed' (7, and 8 on rank 0) and in field 'lr' (...)" for a
// list and the list of another rank.
std::string DifferencesOf(absl::string_view list, absl::string_view others,
                          int other) {
  std::vector<absl::string_view> names, other_names;
  const ListedFields mine = FieldsOf(list, names);
  const ListedFields theirs = FieldsOf(others, other_names);
  const auto find = [](const ListedFields& fields, absl::string_view name) {
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  };
  std::copy_if(
      other_names.begin(), other_names.end(), std::back_inserter(names),
      [&](absl::string_view name) { return find(mine, name) == nullptr; });
  std::vector<std::string> shown;
  size_t more = 0;
  for (const absl::string_view name : names) {
    const ListedField* const a = find(mine, name);
    const ListedField* const b = find(theirs, name);
    if (a != nullptr && b != nullptr && a->digest == b->digest) continue;
    if (shown.size() == kMostFieldsTold) {
      ++more;
      continue;
    }
    shown.push_back(
        absl::StrCat("in field '", name, "'", ValuesOf(a, b, other)));
  }
  if (more > 0) shown.push_back(absl::StrCat("in ", more, " more fields"));
  return shown.empty() ? "in the order of fields" : absl::StrJoin(shown, ", ");
}

// Returns, for example, "ranks 2, 5 and 7 of 8".
std::string Describe(const Camp& camp, int size) {
  const size_t shown = std::min(camp.size(), kMostRanksTold);
  std::string text = camp.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i > 0 && i + 1 == camp.size();
    absl::StrAppend(&text, i == 0 ? "" : is_last ? " and " : ", ", camp[i]);
  }
  if (shown < camp.size()) {
    absl::StrAppend(&text, " and ", camp.size() - shown, " more");
  }
  return absl::StrCat(text, " of ", size);
}

absl::Status Compare(Communicator& group, absl::string_view what,
                     const Fingerprint& mine, const CallOptions& options) {
  CallOptions named = options;
  if (named.name.empty()) named.name = std::string(what);
  const int size = group.size();
  const std::string list = ListOf(mine);

  const Digest128 digest = mine.summary();
  const Summary summary = {digest.low, digest.high, list.size()};
  std::vector<Summary> summaries(size);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Work gathered,
      group.AllGather(
          {&summary, kSummaryWords, DType::kU64},
          {summaries.data(), int64_t{kSummaryWords} * size, DType::kU64, {}},
          named));
  LOCKSTEP_RETURN_IF_ERROR(gathered.Wait());
  const std::vector<Camp> camps = CampsOf(summaries);
  if (camps.size() == 1) return absl::OkStatus();

  // Exchanges the list of one rank of each camp.
  const size_t shown = std::min(camps.size(), kMostTold + 1);
  std::vector<int64_t> counts(size, 0);
  int64_t bytes = 0;
  for (size_t camp = 0; camp < shown; ++camp) {
    const int rank = camps[camp][0];
    if (summaries[rank].bytes > kMostBytes) continue;
    counts[rank] = static_cast<int64_t>(summaries[rank].bytes);
    bytes += counts[rank];
  }
  std::string lists(bytes, '\0');
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Work listed,
      group.AllGatherV({list.data(), counts[group.rank()], DType::kU8},
                       {&lists[0], bytes, DType::kU8, {}}, counts, named));
  LOCKSTEP_RETURN_IF_ERROR(listed.Wait());
  // A rank may abort the group when CheckSame returns. So no rank returns
  // before all others have the lists, however this barrier ends.
  absl::StatusOr<Work> all_know = group.Barrier(named);
  if (all_know.ok()) all_know->Wait().IgnoreError();

  const auto list_of = [&](const Camp& camp) {
    int64_t begin = 0;
    for (int rank = 0; rank < camp[0]; ++rank) begin += counts[rank];
    return absl::string_view(lists).substr(begin, counts[camp[0]]);
  };
  std::vector<std::string> differences;
  for (size_t camp = 1; camp < shown; ++camp) {
    const bool are_known = summaries[camps[0][0]].bytes <= kMostBytes &&
                           summaries[camps[camp][0]].bytes <= kMostBytes;
    differences.push_back(
        absl::StrCat(Describe(camps[camp], size), " ",
                     are_known ? DifferencesOf(list_of(camps[camp]),
                                               list_of(camps[0]), camps[0][0])
                               : "in one of very many fields"));
  }
  if (shown < camps.size()) {
    differences.push_back(
        absl::StrCat("others in ", camps.size() - shown, " more ways"));
  }
  return internal_collective::Blaming(
      Blame::Cause::kDiffer,
      absl::FailedPreconditionError(
          absl::StrCat("the ranks of group '", group.name(), "' differ in ",
                       what, ": ", absl::StrJoin(differences, "; "))));
}

}  // namespace

absl::Status CheckSame(Communicator& group, absl::string_view what,
                       const Fingerprint& mine, const CallOptions& options) {
  try {
    return Compare(group, what, mine, options);
  } catch (...) {
    absl::Status why = CurrentException("CheckSame");
    group.Abort(why);  // other ranks wait for this one
    return why;
  }
}

absl::Status CheckSame(Communicator& group, absl::string_view what,
                       absl::Span<const NamedBuffer> mine,
                       const CallOptions& options) {
  Fingerprint fingerprint;
  for (const NamedBuffer& each : mine) {
    const ConstBuffer& values = each.values;
    if (values.device.kind != Device::Kind::kHost) {
      return absl::InvalidArgumentError(
          absl::StrCat("CheckSame compares the host's memory, and '",
                       absl::CHexEscape(each.name),
                       "' is on a device: copy it to the host"));
    }
    const absl::string_view bytes(
        static_cast<const char*>(values.data),
        static_cast<size_t>(values.count * SizeOf(values.dtype)));
    fingerprint.Add(each.name,
                    absl::StrCat(values.count, " of ", Name(values.dtype),
                                 ", digest ", DigestOf(bytes).ToString()));
  }
  return CheckSame(group, what, fingerprint, options);
}

}  // namespace lockstep
