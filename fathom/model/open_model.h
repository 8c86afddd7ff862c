// fathom/model/open_model.h
// From a folder to a checked checkpoint, in the order that answers soonest: config.json first (a checkpoint of another
// model is named at once), then headers, then every tensor against the list. No weight is read.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/config.h"

namespace fathom {

struct OpenedModel {
  ModelConfig config;
  Checkpoint checkpoint;
  std::vector<std::string> warnings;  // of configuration and checkpoint, one line each
};

/// Errors: those of parse_model_config, Checkpoint::open and compare; the first one, with how many follow.
Result<OpenedModel> open_model(const std::string& folder);
Result<OpenedModel> open_model(std::span<const EmbeddedFile> files, std::string location = Checkpoint::kEmbedded);

/// Everything wrong with a folder, for `inspect --problems`; empty when open_model() succeeds.
std::vector<Error> model_problems(const std::string& folder);
std::vector<Error> model_problems(std::span<const EmbeddedFile> files);

}  // namespace fathom
