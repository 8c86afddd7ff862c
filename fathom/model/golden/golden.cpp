#include "fathom/model/golden/golden.h"

#include <algorithm>
#include <filesystem>

#include "fathom/base/mapped_file.h"
#include "fathom/model/golden/golden_case.h"
#include "fathom/model/open_model.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// Folders with cases: the one that was named, and those directly below it.
std::vector<std::string> case_folders(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / "cases.json", ignored)) out.push_back(".");
  std::vector<std::string> below;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (fs::exists(entry.path() / "cases.json", ignored)) below.push_back(entry.path().filename().string());
  }
  std::sort(below.begin(), below.end());
  out.insert(out.end(), below.begin(), below.end());
  return out;
}

Result<std::vector<int32_t>> recorded_token_map(const std::string& checkpoint, const std::string& cases) {
  for (const std::string& folder : {checkpoint, cases}) {
    const std::string path = folder + "/engram_token_map.json";
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    const auto text = read_file(path);
    if (!text) return text.error();
    const auto json = parse_json(*text, path);
    if (!json) return json.error();
    const Json* map = json->find("map");
    if (!map || !map->is_array())
      return Error{ErrorCode::bad_input, "no array `map`", path, "expected {\"size\", \"map\"}"};
    std::vector<int32_t> out;
    for (const Json& id : map->items) out.push_back(int32_t(id.as_int64().value_or(0)));
    return out;
  }
  return Error{ErrorCode::not_found, "no engram_token_map.json", checkpoint, "pass a tokenizer"};
}

Result<GoldenCase> read_case(const std::string& folder, const Json& json) {
  GoldenCase out;
  const auto text = [&](const char* key) {
    const Json* value = json.find(key);
    return value && value->is_string() ? value->text : std::string();
  };
  out.name = text("name");
  out.mode = text("mode");
  out.kind = text("kind");
  out.json = json;
  out.trained = json.find("rounds") != nullptr;
  if (const Json* replay = json.find("replay")) out.replay = replay->as_int64();
  if (out.name.empty() || !numerics_of(out.mode) ||
      (out.kind != "full" && out.kind != "replay" && out.kind != "image" && out.kind != "dspark")) {
    return Error{ErrorCode::bad_input,
                 "case with name `" + out.name + "`, mode `" + out.mode + "`, kind `" + out.kind + "`",
                 folder + "/cases.json",
                 "expected a name, a mode of f32, f32_noquant, bf16_act8, and a kind of full, replay, image, dspark"};
  }
  auto tensors = read_golden_file(folder + "/" + out.name + ".safetensors");
  if (!tensors) return tensors.error();
  out.tensors = std::move(*tensors);
  out.trained = out.trained || out.tensors.contains("rows");
  return out;
}

class Runner {
 public:
  Runner(const Backend& backend, const GoldenOptions& options, GoldenReport& report)
      : backend_(backend), options_(options), report_(report) {}

  Result<void> run_folder(const std::string& name) {
    const std::string folder = options_.folder + (name == "." ? "" : "/" + name);
    const auto text = read_file(folder + "/cases.json");
    if (!text) return text.error();
    const auto json = parse_json(*text, folder + "/cases.json");
    if (!json) return json.error();
    const Json* config = json->find("config");
    const Json* cases = json->find("cases");
    if (!config || !config->is_string() || !cases || !cases->is_array()) {
      return Error{ErrorCode::bad_input, "no `config` or no `cases`", folder + "/cases.json",
                   "expected {\"config\", \"cases\"}"};
    }
    const std::string checkpoint = fs::path(folder + "/" + config->text).parent_path().lexically_normal().string();
    auto opened = open_model(checkpoint);
    if (!opened) return opened.error();
    auto map = options_.token_map ? options_.token_map(checkpoint) : recorded_token_map(checkpoint, folder);
    if (!map) return map.error();
    for (const Json& entry : cases->items) {
      const Json* case_name = entry.find("name");
      if (!options_.case_filter.empty() && (!case_name || case_name->text != options_.case_filter)) continue;
      if (auto done = run_case(name, folder, entry, opened->checkpoint, *map); !done) return done.error();
    }
    const std::string quant = folder + "/quant.safetensors";
    std::error_code ignored;
    if (fs::exists(quant, ignored) && (options_.case_filter.empty() || options_.case_filter == "quant")) {
      const auto tensors = read_golden_file(quant);
      if (!tensors) return tensors.error();
      run_quantizer_case(*tensors, reporter(name, "quant"));
    }
    return {};
  }

 private:
  Report reporter(const std::string& golden, const std::string& case_name) {
    return [this, golden, case_name](GoldenRow row) {
      row.golden = golden;
      row.case_name = case_name;
      report_.passed = report_.passed && row.verdict != Verdict::fail;
      if (options_.on_row) options_.on_row(row);
      report_.rows.push_back(std::move(row));
    };
  }

  Result<void> run_case(const std::string& golden, const std::string& folder, const Json& entry,
                        const Checkpoint& checkpoint, std::span<const int32_t> token_map) {
    const auto c = read_case(folder, entry);
    if (!c) return c.error();
    auto model = Model::load(checkpoint, backend_, {*numerics_of(c->mode), token_map});
    if (!model) return model.error();
    auto queue = backend_.open_queue(options_.threads > 0 ? options_.threads : usable_cpus());
    if (!queue) return queue.error();
    (*queue)->batch_invariant = options_.batch_invariant || backend_.memory.host_visible;
    const auto open = [&] { return SingleSequence::open(*model, **queue, backend_.memory, 2048); };
    auto sequence = open();
    if (!sequence) return sequence.error();
    if (c->kind == "dspark") {
      run_dspark_case([&] { return std::move(*open()); }, *c, reporter(golden, c->name));
    } else {
      run_prefill_case(*sequence, *c, reporter(golden, c->name));
    }
    return {};
  }

  const Backend& backend_;
  const GoldenOptions& options_;
  GoldenReport& report_;
};

}  // namespace

Result<GoldenReport> check_golden(const Backend& backend, const GoldenOptions& options) {
  const auto folders = case_folders(options.folder);
  if (folders.empty()) {
    return Error{ErrorCode::not_found, "no cases.json", options.folder, "name the folder of golden tensors"};
  }
  GoldenReport report;
  Runner runner(backend, options, report);
  for (const std::string& folder : folders) {
    if (auto done = runner.run_folder(folder); !done) return done.error();
  }
  if (report.rows.empty()) {
    return Error{ErrorCode::usage, "no case is called " + options.case_filter, "--case",
                 "see cases.json for the names"};
  }
  return report;
}

}  // namespace fathom
