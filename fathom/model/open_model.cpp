#include "fathom/model/open_model.h"

#include <utility>

#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

constexpr const char* kConfig = "config.json";

Result<OpenedModel> finish(Checkpoint checkpoint) {
  ConfigReading reading = read_model_config(checkpoint.config(), checkpoint.path_of(kConfig));
  if (!reading.problems.empty()) return reading.problems.front();
  const auto problems = compare(checkpoint, tensor_list(reading.config));
  if (!problems.empty()) {
    Error first = problems.front();
    if (problems.size() > 1) {
      first.remedy +=
          " (and " + with_commas(int64_t(problems.size()) - 1) + " more; fathom inspect --problems lists them)";
    }
    return first;
  }
  OpenedModel model{std::move(reading.config), std::move(checkpoint), std::move(reading.warnings)};
  for (const std::string& warning : model.checkpoint.warnings()) model.warnings.push_back(warning);
  return model;
}

// What configuration and tensor list add to the problems of the files.
void add_model_problems(const Checkpoint& checkpoint, std::vector<Error>& problems) {
  if (checkpoint.config().is_null()) return;  // no or damaged config.json: said already
  const ConfigReading reading = read_model_config(checkpoint.config(), checkpoint.path_of(kConfig));
  problems.insert(problems.end(), reading.problems.begin(), reading.problems.end());
  if (!reading.problems.empty() || checkpoint.shards().empty()) return;
  const auto differences = compare(checkpoint, tensor_list(reading.config));
  problems.insert(problems.end(), differences.begin(), differences.end());
}

}  // namespace

Result<OpenedModel> open_model(const std::string& folder) {
  auto config = Checkpoint::read_config(folder);
  if (config) {
    const auto parsed = parse_model_config(*config, folder + (folder.ends_with('/') ? "" : "/") + kConfig);
    if (!parsed) return parsed.error();
  }
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return checkpoint.error();
  return finish(std::move(*checkpoint));
}

Result<OpenedModel> open_model(std::span<const EmbeddedFile> files, std::string location) {
  std::vector<Error> problems;
  Checkpoint checkpoint = Checkpoint::open_partly(files, problems, std::move(location));
  if (!checkpoint.config().is_null()) {
    const auto parsed = parse_model_config(checkpoint.config(), checkpoint.path_of(kConfig));
    if (!parsed) return parsed.error();
  }
  if (!problems.empty()) return problems.front();
  return finish(std::move(checkpoint));
}

std::vector<Error> model_problems(const std::string& folder) {
  std::vector<Error> problems;
  const Checkpoint checkpoint = Checkpoint::open_partly(folder, problems);
  add_model_problems(checkpoint, problems);
  return problems;
}

std::vector<Error> model_problems(std::span<const EmbeddedFile> files) {
  std::vector<Error> problems;
  const Checkpoint checkpoint = Checkpoint::open_partly(files, problems);
  add_model_problems(checkpoint, problems);
  return problems;
}

}  // namespace fathom
